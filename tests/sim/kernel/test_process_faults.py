"""Faults of one worker that overlap, and those that find nobody there."""

import pytest

from ..fleets import Fault, fault, fleet_of, live_on

STEP_S = 0.1


def steps_of(*faults: Fault, until_s: float, worker: int = 1, **settings: object) -> int:
    """How many steps a worker has taken of the tenth of a second each."""
    fleet = live_on(fleet_of(*faults, n=3, **settings), until_s, every_s=0.5)
    return fleet.workers[worker].total_steps


def lost_s(*faults: Fault, until_s: float = 16.0) -> float:
    """For how long faults have kept a worker from its steps."""
    taken = [steps_of(*each, until_s=until_s) for each in ((fault(0.5, "heal"),), faults)]
    return (taken[0] - taken[1]) * STEP_S


@pytest.mark.extended
@pytest.mark.parametrize(
    ("faults", "stands_s"),
    [
        # The end of a pause that was over before is not the end of the next one.
        (
            [
                fault(3.0, "pause", peer=1, for_s=4.0),
                fault(4.0, "continue", peer=1),
                fault(5.0, "pause", peer=1, for_s=6.0),
            ],
            7.0,
        ),
        # Of two at once the one that ends last counts, whichever began first.
        ([fault(3.0, "pause", peer=1, for_s=2.0), fault(4.0, "pause", peer=1, for_s=5.0)], 6.0),
        ([fault(3.0, "pause", peer=1, for_s=6.0), fault(4.0, "pause", peer=1, for_s=1.0)], 6.0),
        # A worker that is told to go on does, however often it was paused.
        (
            [
                fault(3.0, "pause", peer=1, for_s=9.0),
                fault(4.0, "pause", peer=1),
                fault(5.0, "continue", peer=1),
            ],
            2.0,
        ),
    ],
)
def test_the_end_of_a_pause_ends_no_other(faults: list[Fault], stands_s: float) -> None:
    assert lost_s(*faults) == pytest.approx(stands_s, abs=0.3)


def test_a_pause_of_a_life_that_has_ended_does_not_hold_the_next_one() -> None:
    faults = [
        fault(3.0, "pause", peer=1),
        fault(4.0, "crash", peer=1),
        fault(4.5, "pause", peer=1, for_s=9.0),
        fault(5.0, "restart", peer=1),
    ]
    assert lost_s(*faults) < 6.0


def test_of_two_slows_the_larger_counts_and_each_ends_by_itself() -> None:
    faults = [
        fault(2.0, "slow", peer=1, factor=2.0, for_s=12.0),
        fault(6.0, "slow", peer=1, factor=4.0, for_s=4.0),
    ]
    # For eight seconds half of its steps are lost, for four three quarters.
    assert lost_s(*faults) == pytest.approx(8 / 2 + 4 * 3 / 4, abs=0.5)


@pytest.mark.extended
@pytest.mark.parametrize("for_s", [None, 8.0])
@pytest.mark.parametrize("state", ["kept", "lost"])
def test_a_slow_worker_is_slow_in_its_next_life(for_s: float | None, state: str) -> None:
    slow = fault(4.0, "slow", peer=1, factor=10.0) | ({"for_s": for_s} if for_s else {})
    again = [fault(5.0, "crash", peer=1), fault(5.5, "restart", peer=1, state=state)]
    before, after = (steps_of(slow, *again, until_s=s, steps=None) for s in (8.0, 12.0))
    assert after - before == pytest.approx(4.0, abs=2)
    before, after = (steps_of(slow, *again, until_s=s, steps=None) for s in (14.0, 18.0))
    assert after - before == pytest.approx(4.0 if for_s is None else 40.0, abs=2)


@pytest.mark.extended
@pytest.mark.parametrize(
    "late",
    [
        fault(1.0, "slow", peer="join-1", factor=10.0),
        fault(1.0, "clock-jump", peer="join-1", by_s=500.0),
        fault(1.0, "diverge", peer="join-1"),
        fault(1.0, "pause", peer="join-1"),
    ],
)
def test_a_fault_of_a_worker_that_does_not_run_does_nothing(late: Fault) -> None:
    join = fault(4.0, "join")
    fleets = [live_on(fleet_of(*given, n=3), 12.0) for given in ((join,), (late, join))]
    newcomers = [fleet.workers[3] for fleet in fleets]
    assert newcomers[0].steps == newcomers[1].steps > 30
    assert newcomers[1].running and newcomers[1].ahead_s == 0.0
