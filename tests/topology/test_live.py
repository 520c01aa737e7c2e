"""A topology over live peers fits any number of peers and is the same for all of them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rumor.topology import Topology, TopologyError, over, parse
from rumor.topology.families.family import Built
from rumor.topology.live import LiveTopology
from rumor.topology.spec import Spec, read
from rumor.topology.topology import topology_of

from .samples import DOUBLY, FIXED, LIVE, STREETS, dense, ids, is_connected, some_rounds

rounds = st.integers(0, 1000)
seeds = st.integers(0, 2**64 - 1)
peers = st.text(st.characters(codec=None), max_size=8)
views = st.lists(peers, min_size=1, max_size=24, unique=True).map(sorted)

each_spec = pytest.mark.parametrize("spec", LIVE)
a_few = settings(max_examples=4)

# Sizes at which something may change: few peers, powers of 2 and their successors, primes.
SIZES = [*range(1, 14), 16, 17, 24, 36, 40]


@pytest.mark.extended
@each_spec
def test_a_live_topology_is_connected_and_mixes_like_its_family(spec: str) -> None:
    name = spec.partition(":")[0]
    for n in SIZES:
        topology = over(spec, 3, ids(n))
        assert (topology.n, topology.spec, topology.seed) == (n, str(read(spec)), 3)
        assert topology.names == tuple(ids(n))
        assert is_connected(topology, at_random=40), n
        for round in some_rounds(topology, 2):
            matrix = dense(topology, round)
            assert matrix.min() >= 0
            kept = matrix.sum(axis=0), matrix.sum(axis=1)
            if name in DOUBLY and not spec.startswith(STREETS):
                assert np.allclose(kept, 1, rtol=0, atol=1e-12), n
            else:
                assert np.allclose(kept[0 if name == "file" else 1], 1, rtol=0, atol=1e-12), n


@pytest.mark.extended
@each_spec
@a_few
@given(live=views, seed=seeds, round=rounds)
def test_all_peers_agree_on_the_push_targets_of_each_peer(
    spec: str, live: list[str], seed: int, round: int
) -> None:
    topology, view = over(spec, seed, live), LiveTopology(spec, seed)
    matrix = dense(topology, round)
    for node, peer in enumerate(live):
        out = view(live, peer, round)
        assert out == tuple(live[other] for other in topology.neighbors(node, round))
        assert {live[other] for other in np.flatnonzero(matrix[:, node])} - {peer} == set(out)
        assert len(set(out)) == len(out) and set(out) <= set(live) - {peer}


@each_spec
def test_one_peer_has_no_targets_and_two_peers_push_to_each_other(spec: str) -> None:
    view = LiveTopology(spec, 0)
    assert view(["a"], "a", 0) == view(["a"], "b", 0) == view(["b"], "a", 0) == ()
    targets = {view(["a", "b"], "b", round) for round in range(4)}
    assert ("a",) in targets and targets <= {(), ("a",)}


GROWN = ("grid", "torus", "random-regular", "erdos-renyi", "small-world", "scale-free")
"""Families that are built differently on live peers, so that few edges move."""

FITTING = [case for case in FIXED if case[1] > 3 and case[0].partition(":")[0] not in GROWN]


@pytest.mark.parametrize(("spec", "n"), FITTING)
def test_no_family_falls_back_at_a_size_that_fits(spec: str, n: int) -> None:
    strict = parse(spec, n, seed=5)
    live = over(spec, 5, strict.names or ids(n))
    assert strict.period == live.period
    for round in some_rounds(strict):
        assert np.array_equal(dense(strict, round), dense(live, round))
        assert all(strict.neighbors(i, round) == live.neighbors(i, round) for i in range(n))


@pytest.mark.parametrize(
    ("spec", "n", "fallback"),
    [
        ("hypercube-matching", 12, "base-k:k=1"),
        ("p-peer-exponential:p=7", 5, "p-peer-exponential:p=4"),
        ("epidemic:s=7", 5, "epidemic:s=4"),
        ("equi-static:m=7", 5, "equi-static:m=4"),
        ("moshpit:side=2", 7, "moshpit:side=3"),
        ("random-groups:m=7", 5, "random-groups:m=5"),
        ("random-regular:d=7", 5, "complete"),
        ("random-regular:d=1", 2, "complete"),
        ("small-world:k=6", 5, "complete"),
        ("scale-free:m=4", 2, "complete"),
        ("grid:cols=9", 5, "path"),
        ("torus:cols=9", 3, "ring"),
        ("torus", 3, "ring"),
        ("hosts:sizes=8x1x1", 3, "hosts:sizes=2x1"),
    ],
)
def test_families_fall_back_at_sizes_that_do_not_fit(spec: str, n: int, fallback: str) -> None:
    live, strict = over(spec, 5, ids(n)), parse(fallback, n, seed=5)
    assert live.period == strict.period
    for round in some_rounds(strict):
        assert np.allclose(dense(live, round), dense(strict, round), rtol=0, atol=1e-12)


def test_a_ring_closes_around_a_dead_peer_even_if_the_list_is_reused() -> None:
    view, live = LiveTopology("ring", 0), ["a", "b", "c", "d"]
    assert view(live, "a", 0) == ("b", "d")
    live.remove("d")
    assert view(live, "a", 0) == ("b", "c")
    live[1] = "aa"
    assert view(live, "a", 0) == ("aa", "c")
    assert view.weights(live, "a", 0).keys() == {"a", "aa", "c"}
    assert view.weights(live, "b", 0) == view.weights(live, "d", 0) == {}
    assert view([], "a", 0) == ()
    callables: list[Any] = [view, view.weights]
    for ask in callables:
        with pytest.raises(TopologyError, match="round -1 is negative"):
            ask(live, "a", -1)


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_view_is_rebuilt_only_when_the_live_peers_change(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []

    def count(spec: Spec, n: int, seed: int, made: Built) -> Topology:
        built.append(n)
        return topology_of(spec, n, seed, made)

    monkeypatch.setattr("rumor.topology.live.topology_of", count)
    view = LiveTopology("ring", 0)
    for live in ("abcd", "abcd", "abd", "abd", "abcd"):
        view(kind(live), "a", 0)
    assert built == [4, 3, 4]


@pytest.mark.parametrize("live", [[], ["b", "a"], ["a", "a"], ["a", "c", "b"]])
def test_a_view_must_be_sorted_and_not_empty(live: list[str]) -> None:
    expected = "^topology 'ring': live ids must be ascending, distinct, one at least$"
    with pytest.raises(TopologyError, match=expected):
        over("ring", 0, live)


WEIGHED = ["ring", "star", "exponential", "one-peer-exponential", "random-matching", "base-k"]


@pytest.mark.parametrize("spec", WEIGHED)
def test_weights_match_a_row_of_the_matrix(spec: str) -> None:
    live = ids(7)
    view, topology = LiveTopology(spec, 5), over(spec, 5, live)
    for round in (0, 1, 2, 30, 1):
        matrix = dense(topology, round)
        for node, peer in enumerate(live):
            weights = view.weights(live, peer, round)
            assert list(weights) == [p for i, p in enumerate(live) if matrix[node, i] or i == node]
            assert list(weights.values()) == [matrix[node, live.index(p)] for p in weights]
            senders = {other for other in live if peer in view(live, other, round)}
            assert senders == set(weights) - {peer}


def test_only_the_last_few_random_rounds_are_cached() -> None:
    live, view = ids(6), LiveTopology("random-matching", 0)
    first = [view.weights(live, live[0], round) for round in range(40)]
    assert [view.weights(live, live[0], round) for round in range(40)] == first
    kept: Any = view._over(live, live[0]).matrix
    assert kept.cache_info().currsize == 16
