"""Facts beside a dense solver: both find the same, and all figures come back."""

import json
import math

import pytest

from rumor.benchmarks.rivals.plain_networkx import find, measure, plain
from rumor.benchmarks.topology import measure_topology
from rumor.topology import parse

__all__: list[str] = []

SPECS = [
    *("ring", "torus", "exponential", "one-peer-exponential", "grid", "tree"),
    *("random-regular:d=4", "small-world", "scale-free"),
]


@pytest.mark.parametrize("spec", SPECS)
def test_facts_and_the_dense_solver_find_the_same(spec: str) -> None:
    topology = parse(spec, 24)
    graphs = [topology.graph(round) for round in range(topology.period or 1)]
    diameter, contraction = find(topology)
    assert plain(graphs) == [diameter, pytest.approx(contraction, abs=1e-9)]


def test_a_schedule_that_is_exact_leaves_the_dense_solver_nothing_but_rounding() -> None:
    topology = parse("base-k:k=1", 24)
    period = topology.period or 1
    diameter, contraction = plain([topology.graph(round) for round in range(period)])
    assert find(topology) == [diameter, 0.0]
    assert contraction is not None and contraction ** (period / 2) < 1e-12


@pytest.mark.parametrize("how", ["facts", "plain"])
def test_each_time_is_counted_and_memory_only_grows(how: str) -> None:
    found = json.loads(json.dumps(measure(how, "ring", 20, times=2)))
    assert len(found["build_s"]) == len(found["taken_s"]) == 2
    assert 0 < found["loaded_mb"] <= found["peak_mb"]
    assert found["found"][0] == 10


@pytest.mark.extended
@pytest.mark.live
def test_every_figure_is_there_and_says_what_it_is_held_against() -> None:
    result = measure_topology(
        families=["ring", "random-matching"],
        sizes=[8, 12],
        grown={},
        live=["ring"],
        peers=9,
        rounds=1,
    )
    assert [row.name for row in result.rows] == [
        "ring, n = 8",
        "ring, n = 8: growth",
        "ring, n = 12: growth",
        "random-matching, n = 8: growth",
        "random-matching, n = 12: growth",
        "ring, 9 peers: same view",
        "ring, 9 peers: one more or less",
    ]
    assert all(row.ours > 0 and row.reference > 0 for row in result.rows)
    assert all(math.isfinite(row.ratio) and row.note for row in result.rows)
    assert result.rows[1].ratio == 1.0
    assert "peak memory" in result.rows[2].note
