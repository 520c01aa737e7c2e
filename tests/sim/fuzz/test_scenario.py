"""What a seed stands for: drawn up front, option by option, and no draw hangs on another."""

from functools import cache

import pytest

from rumor.sim.fuzz import OPTIONS, Scenario, draw
from rumor.sim.fuzz.scenario import FAULTS_S
from rumor.sim.fuzz.scenario.faults import AIMS
from rumor.train.faults.schedule import ATTACKS, KINDS, check_faults

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
    # It changes only what another has drawn.
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
def test_leaving_an_option_out_shifts_no_other_draw(option: str) -> None:
    own = {"far-clocks": "clocks"}.get(option, option)
    for seed in range(20):
        less = draw(seed, 6, (option,), ())
        if own != "clocks":
            assert less.ahead_s == full(seed).ahead_s
        for name in {"tells", "orderly"} - {option}:
            assert getattr(less, name) == getattr(full(seed), name)


@pytest.mark.extended
def test_every_kind_of_fault_is_drawn_and_in_no_seed_all_of_them() -> None:
    drawn = [{fault.kind for fault in draw(seed, 6).faults} for seed in SEEDS]
    all_kinds = set(KINDS) - set(ATTACKS)
    assert set.union(*drawn) == all_kinds
    assert all(kinds < all_kinds for kinds in drawn)
    assert any(len(kinds) < 3 for kinds in drawn)


@pytest.mark.parametrize("seed", range(0, 200, 10))
def test_drawn_faults_can_be_written_down_and_are_of_the_swarm(seed: int) -> None:
    scenario = draw(seed, 4)
    check_faults(scenario.faults, scenario.peers)
    times_s = [fault.at_s for fault in scenario.faults]
    assert times_s == sorted(times_s)
    assert scenario.faults_s >= FAULTS_S
