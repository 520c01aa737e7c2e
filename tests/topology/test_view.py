"""A topology over the peers that are alive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.topology import FAMILIES, TopologyError, neighbors, parse

names = st.sampled_from(sorted(FAMILIES))
views = st.lists(st.text(min_size=1, max_size=8), max_size=40, unique=True).map(sorted)
rounds = st.integers(0, 1000)
seeds = st.integers(0, 2**64 - 1)


@given(names, views, rounds, seeds)
def test_peers_stand_in_for_nodes_in_the_order_of_their_ids(
    name: str, live: list[str], round: int, seed: int
) -> None:
    for node, peer in enumerate(live):
        others = parse(name, len(live)).neighbors(node, round)
        assert neighbors(name, seed, live, peer, round) == tuple(live[other] for other in others)


@given(names, views, st.text(max_size=8), rounds)
def test_a_peer_outside_the_view_has_no_neighbors(
    name: str, live: list[str], peer: str, round: int
) -> None:
    if peer not in live:
        assert neighbors(name, 0, live, peer, round) == ()


@given(names, views, rounds)
def test_neighbors_are_live_others(name: str, live: list[str], round: int) -> None:
    for peer in live:
        assert set(neighbors(name, 0, live, peer, round)) <= set(live) - {peer}


@pytest.mark.parametrize("name", FAMILIES)
def test_views_of_one_two_and_three_peers(name: str) -> None:
    assert neighbors(name, 0, ["a"], "a", 0) == ()
    assert neighbors(name, 0, ["a", "b"], "b", 0) == ("a",)
    assert set(neighbors(name, 0, ["a", "b", "c"], "b", 0)) == {"a", "c"}


def test_a_ring_closes_around_a_peer_that_died() -> None:
    before = neighbors("ring", 0, ["a", "b", "c", "d", "e"], "b", 0)
    after = neighbors("ring", 0, ["a", "b", "d", "e"], "b", 0)
    assert (set(before), set(after)) == ({"a", "c"}, {"a", "d"})


def test_a_bad_spec_or_round_is_refused() -> None:
    with pytest.raises(TopologyError, match="unknown topology 'star'"):
        neighbors("star", 0, ["a", "b"], "a", 0)
    with pytest.raises(TopologyError, match="round -1 is negative"):
        neighbors("ring", 0, ["a", "b"], "a", -1)
