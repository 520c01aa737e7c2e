"""Swarms with up to 30 % liars: no weight is made up, no liar stays, nobody honest goes."""

import math

import pytest

from rumor.gossip.receipts.audit import audit

from .market import GRANT, SWARM, HashKeys, Market

_SIZES = (6, 8, 10, 13)


def _play(seed: int) -> None:
    n = _SIZES[seed % len(_SIZES)]
    market = Market(n, seed)
    outcome = market.play(24)

    assert outcome.held <= outcome.endowment
    assert not outcome.honest_evicted
    assert not outcome.unconvicted
    assert all(rounds <= 4 * math.log2(n) for rounds in outcome.rounds_to_evict)
    # What honest peers hold is what anybody can work out that they are worth.
    books = [market.peers[name].book.since(0) for name in market.honest]
    rows = audit(books, SWARM, HashKeys(""), lambda _: GRANT).rows
    assert sum(row.worth for row in rows) == len(rows) * GRANT
    worth = {row.peer: row.worth for row in rows}
    for name in market.honest:
        assert market.peers[name].held <= worth.get(name, GRANT)


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(24))
def test_liars_make_no_weight_and_are_evicted(seed: int) -> None:
    _play(seed)


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(10))
def test_liars_make_no_weight_and_are_evicted_over_a_thousand_seeds(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * (hundred + 1)):
        _play(seed)


@pytest.mark.parametrize("kind", ["mint", "ring", "hide"])
@pytest.mark.parametrize("seed", range(6))
def test_who_does_not_sign_twice_never_gets_a_unit_in(kind: str, seed: int) -> None:
    market = Market(8, seed, kinds=(kind,))
    outcome = market.play(20)
    assert outcome.held_max <= outcome.endowment
    assert not outcome.honest_evicted


def test_without_liars_all_weight_is_there_at_any_time() -> None:
    outcome = Market(8, 3, liars=0.0).play(20)
    assert outcome.held == outcome.held_max == outcome.endowment
    assert outcome.rounds_to_evict == ()


def test_the_same_seed_plays_the_same() -> None:
    assert Market(8, 5).play(12) == Market(8, 5).play(12)
