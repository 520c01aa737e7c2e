"""Each error names the family, the parameter and the allowed values."""

from collections.abc import Callable

import pytest

from rumor.topology import FAMILIES, TopologyError, over, parse
from rumor.topology.live import LiveTopology

from .samples import BRIDGE

VALID = f"Valid names: {', '.join(FAMILIES)}"

SIZES = [
    ("ring", 0, "n must be at least 1"),
    ("torus", 7, "n must be rows x cols, both at least 2: n=6 or n=8 would do"),
    ("torus", 1, "n must be rows x cols, both at least 2: n=4 would do"),
    ("torus:rows=3", 7, "rows=3: n must be a multiple of 3"),
    ("torus:cols=4", 4, "rows=1, cols=4: both must be at least 2"),
    ("torus:rows=3,cols=4", 13, "it has 12 nodes"),
    ("grid", 13, "n must be rows x cols, both at least 2: n=12 or n=14 would do"),
    ("grid:cols=4", 1, "cols=4: n must be a multiple of 4"),
    ("hypercube", 12, "n must be a power of 2: n=8 or n=16 would do"),
    ("moshpit:side=3", 10, "side=3, d=2: 9 cells are too few; side=4 would do"),
    ("hypercube-matching", 3, "n must be a power of 2: n=2 or n=4 would do"),
    ("p-peer-exponential:p=4", 4, "p=4: it must be below n"),
    ("base-k:k=9", 9, "k=9: it must be below n"),
    ("random-regular:d=3", 5, "d=3: n x d must be even, as each edge has two ends"),
    ("random-regular", 4, "d=4: it must be below n"),
    (
        "random-regular:d=1",
        4,
        "d=1: pairs do not connect more than two nodes, d must be at least 2",
    ),
    (
        "erdos-renyi:p=0.001",
        40,
        "p=0.001: no connected graph in 100 draws; graphs are mostly connected from about "
        "p = ln(n)/n = 0.092 on",
    ),
    ("small-world:k=8", 8, "k=8: it must be below n"),
    ("scale-free:m=3", 3, "m=3: it must be below n"),
    ("random-groups:m=6", 5, "m=6: it must be at most n"),
    ("epidemic:s=3", 3, "s=3: it must be below n"),
    ("epidemic-local:s=3", 2, "s=3: it must be below n"),
    ("equi-static:m=8", 8, "m=8: it must be below n"),
    ("od-equi-dyn", 2, "m=2: it must be below n"),
    ("hosts:sizes=4x4x8", 15, "it has 16 nodes"),
    (BRIDGE, 8, "it has 7 nodes"),
    ("spanning-tree:of=torus", 7, "of=torus: n must be rows x cols, both at least 2: n=6 or n=8"),
    ("spanning-tree:of=hosts:sizes=2x2", 5, "it has 4 nodes"),
    ("spanning-tree:of=grid:rows=2", 7, "of=grid:rows=2: rows=2: n must"),
    ("spanning-tree:of=epidemic", 8, "of=epidemic: its rounds are random, a tree needs links that"),
]


def refusal(ask: Callable[[], object]) -> str:
    with pytest.raises(TopologyError) as caught:
        ask()
    return str(caught.value)


@pytest.mark.parametrize(("spec", "n", "reason"), SIZES)
def test_an_invalid_size_is_refused_with_the_nearest_valid_sizes(
    spec: str, n: int, reason: str
) -> None:
    message = refusal(lambda: parse(spec, n))
    assert message.startswith(f"topology {spec!r} with n={n}: {reason}")


SPECS = [
    ("base-k:d=3", "it takes k= (an integer of at least 1; default: 1), not 'd'"),
    ("moshpit:side=4,d=11", "side=4, d=11: these are more than 1,048,576 cells"),
    ("erdos-renyi:p=nan", "p=nan: it must be in (0, 1]"),
    ("small-world:k=3", "k=3: it must be an even number of at least 2"),
    ("hosts:between=ring", "it needs sizes=, nodes of each host, as in 4x4x8"),
    ("hosts:sizes=4x0", "sizes=4x0: it must be nodes of each host, as in 4x4x8"),
    ("hosts:sizes=4x4,between=mesh", "between=mesh: it must be ring, path, star or complete"),
    ("file:path=", "path=: it must be a graph file"),
    ("spanning-tree:of=", "of=: it must be a spec, the last thing given"),
    ("spanning-tree:of=rng", f"of=rng: unknown topology 'rng', did you mean 'ring'? {VALID}"),
    (
        "spanning-tree:of=spanning-tree:of=torus:rows=0",
        "of=spanning-tree:of=torus:rows=0: of=torus:rows=0: rows=0: "
        "it must be an integer of at least 2",
    ),
]


@pytest.mark.parametrize(("spec", "reason"), SPECS)
def test_a_spec_that_is_invalid_at_any_size_is_refused_at_once(spec: str, reason: str) -> None:
    calls = (lambda: parse(spec, 4), lambda: over(spec, 0, ["a"]), lambda: LiveTopology(spec, 0))
    assert {refusal(ask) for ask in calls} == {f"topology {spec!r}: {reason}"}


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("", "."),
        ("RANDOM", "."),
        ("rnig", ", did you mean 'ring'?"),
        ("expnential:k=2", ", did you mean 'exponential'?"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_and_all_valid_names(
    typed: str, hint: str
) -> None:
    name = typed.partition(":")[0]
    assert refusal(lambda: parse(typed, 4)) == f"unknown topology {name!r}{hint} {VALID}"


@pytest.mark.parametrize("spec", ["ring", "torus", "torus:rows=3", "spanning-tree:of=ring"])
def test_a_missing_size_is_requested(spec: str) -> None:
    message = "say how many nodes it has (n, on the command line -n)"
    assert refusal(lambda: parse(spec)) == f"topology {spec!r}: {message}"


def test_a_file_that_cannot_be_read_is_named() -> None:
    spec = "file:path=nowhere/at_all.json"
    reason = "path=nowhere/at_all.json: No such file or directory"
    assert refusal(lambda: parse(spec, 4)) == f"topology {spec!r} with n=4: {reason}"
    message = refusal(lambda: over(spec, 0, ["a", "b"]))
    assert message == f"topology {spec!r} with n=2: {reason}"
