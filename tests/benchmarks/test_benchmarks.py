"""Each benchmark runs on something tiny; no timing is asserted."""

import json
import math

import pytest

from rumor.benchmarks import BENCHMARKS, Result, Row
from rumor.benchmarks.exchange import measure_exchange
from rumor.benchmarks.protocol import measure_protocol
from rumor.benchmarks.stall import measure_stall

__all__: list[str] = []

KEYS = {"name", "ours", "reference", "ratio", "unit", "note"}


def checked(result: Result) -> Result:
    """*result*, whose figures are all there and survive JSON."""
    read = json.loads(json.dumps(result.as_json()))
    assert set(read) == {"name", "title", "columns", "rows", "machine", "wall_s", "date"}
    assert len(read["columns"]) == len(KEYS)
    for row in read["rows"]:
        assert set(row) == KEYS
        assert math.isfinite(row["ratio"])
        assert row["ours"] > 0 and row["reference"] > 0
    assert "torch" in result.machine and "zmq" in result.machine
    return result


def test_names_are_those_of_the_results() -> None:
    assert list(BENCHMARKS) == ["protocol", "exchange", "stall", "topology", "sim"]


def test_protocol_compares_swarms_with_the_smallest_and_the_codec_with_msgpack() -> None:
    result = checked(
        measure_protocol(
            swarm_sizes=(3, 6),
            crew_sizes=(4, 8),
            events_per_round=50,
            rounds=1,
            messages_per_round=30,
        )
    )
    assert result.name == "protocol"
    names = [row.name for row in result.rows]
    assert names[:6] == [
        "4 workers, pushing",
        "8 workers, pushing",
        "3 peers, pushing",
        "3 peers, gossiping",
        "6 peers, pushing",
        "6 peers, gossiping",
    ]
    assert result.rows[0].ratio == 1.0
    assert {row.unit for row in result.rows} == {"events/s", "us"}


@pytest.mark.live
def test_exchange_pushes_into_another_process_and_compares_three_ways() -> None:
    result = checked(measure_exchange(sizes_mb=(1.5,), pushes=1, rounds=1))
    assert [row.name for row in result.rows] == [
        "1.5 MB beside raw",
        "1.5 MB beside memcpy",
        "1.5 MB beside lerp",
    ]


@pytest.mark.live
def test_stall_steps_with_a_neighbor_and_without() -> None:
    result = checked(measure_stall(sizes=(100_000,), ps=(1.0,), step_s=0.002, steps=5, rounds=1))
    assert [row.unit for row in result.rows] == ["ms", "ms", "steps/s"]
    assert "shares mixed" in result.rows[2].note


def test_a_ratio_to_nothing_is_zero() -> None:
    assert Row(name="x", ours=1.0, reference=0.0, unit="s").ratio == 0.0
