"""A seed's scenario is drawn up front, option by option, each independent of the others."""

from functools import cache

import pytest

from rumor.sim.fuzz import OPTIONS, Scenario, draw
from rumor.sim.fuzz.scenario import workers_of
from rumor.sim.fuzz.scenario.faults import AIMS
from rumor.train.faults.schedule import ATTACKS, KINDS, resolve

SEEDS = range(200)


def plain(seed: int) -> Scenario:
    return draw(seed, 6, OPTIONS, ())


@cache
def full(seed: int) -> Scenario:
    return draw(seed, 6, (), ())


def test_without_all_options_a_swarm_is_plain() -> None:
    assert plain(3) == Scenario(seed=3, peers=("p0", "p1", "p2", "p3", "p4", "p5"))


@pytest.mark.extended
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_changes_some_swarms(option: str) -> None:
    # Each of these options only changes what another option has drawn.
    needed = {
        "several-registers": {"more-rules"},
        "kept-shares": {"more-rules"},
        "cutting-rules": {"wide"},
        "progress": {"segments"},
        "pieces": {"cutting-rules", "wide"},
    }.get(option, set())
    others = [name for name in OPTIONS if name not in {option, *needed}]
    if option in AIMS:
        assert any(draw(seed, 6).faults != draw(seed, 6, (option,)).faults for seed in SEEDS)
    else:
        without = [*others, option]
        assert any(draw(seed, 6, others, ()) != draw(seed, 6, without, ()) for seed in SEEDS)


@pytest.mark.parametrize("option", OPTIONS)
def test_leaving_out_an_option_changes_no_other_draw(option: str) -> None:
    own = {"far-clocks": "clocks"}.get(option, option)
    for seed in range(20):
        less = draw(seed, 6, (option,), ())
        if own != "clocks":
            assert less.ahead_s == full(seed).ahead_s
        for name in {"tells", "orderly"} - {option}:
            assert getattr(less, name) == getattr(full(seed), name)


@pytest.mark.extended
def test_faults_of_every_kind_are_drawn_for_peers_of_the_swarm() -> None:
    drawn = [draw(seed, 6) for seed in SEEDS]
    kinds = [{fault.kind for fault in scenario.faults} for scenario in drawn]
    assert set.union(*kinds) == set(KINDS) - set(ATTACKS)
    for scenario in drawn:
        resolve(scenario.faults, scenario.peers)
        # At least one peer always listens.
        assert "p0" not in scenario.dial_out
    assert {workers_of(seed, 6) for seed in SEEDS} == {2, 3, 4, 5, 6}
