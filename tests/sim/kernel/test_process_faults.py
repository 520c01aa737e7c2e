"""Overlapping faults of one worker, and faults of workers that do not run."""

import pytest

from ...faults import Fault, fault
from ..fleets import fleet_of, live_on

STEP_S = 0.1


def steps_of(*faults: Fault, until_s: float, worker: int = 1, **settings: object) -> int:
    """Number of steps of 0.1 s that a worker has taken."""
    fleet = live_on(fleet_of(*faults, n=3, **settings), until_s, every_s=0.5)
    return fleet.workers[worker].total_steps


def lost_s(*faults: Fault, until_s: float = 16.0) -> float:
    """Time for which faults kept a worker from its steps, seconds."""
    taken = [steps_of(*each, until_s=until_s) for each in ((fault(0.5, "heal"),), faults)]
    return (taken[0] - taken[1]) * STEP_S


def pause(at_s: float, for_s: float) -> Fault:
    return fault(at_s, "pause", 1, for_s=for_s)


def resume(at_s: float) -> Fault:
    return fault(at_s, "continue", 1)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("faults", "paused_s"),
    [
        # The scheduled end of a pause that was cut short does not end the next pause.
        ([pause(3.0, 4.0), resume(4.0), pause(5.0, 6.0)], 7.0),
        # When two pauses overlap, the worker resumes when the later of the two ends.
        ([pause(3.0, 2.0), pause(4.0, 5.0)], 6.0),
        ([pause(3.0, 6.0), pause(4.0, 1.0)], 6.0),
        # "continue" resumes a worker no matter how often it was paused.
        ([pause(3.0, 9.0), fault(4.0, "pause", 1), resume(5.0)], 2.0),
    ],
)
def test_the_end_of_a_pause_does_not_end_another_pause(
    faults: list[Fault], paused_s: float
) -> None:
    assert lost_s(*faults) == pytest.approx(paused_s, abs=0.3)


def test_a_pause_ends_with_its_incarnation() -> None:
    before, again = fault(3.0, "pause", 1), fault(4.5, "pause", 1, for_s=9.0)
    assert lost_s(before, fault(4.0, "crash", 1), again, fault(5.0, "restart", 1)) < 6.0


def test_the_larger_of_two_slowdowns_applies_and_each_ends_on_its_own() -> None:
    long = fault(2.0, "slow", 1, factor=2.0, for_s=12.0)
    short = fault(6.0, "slow", 1, factor=4.0, for_s=4.0)
    # Half of its steps are lost for eight seconds, three quarters for four.
    assert lost_s(long, short) == pytest.approx(8 / 2 + 4 * 3 / 4, abs=0.5)


@pytest.mark.extended
@pytest.mark.parametrize("for_s", [None, 8.0])
@pytest.mark.parametrize("state", ["kept", "lost"])
def test_a_slow_worker_stays_slow_after_a_restart(for_s: float | None, state: str) -> None:
    slow = fault(4.0, "slow", peer=1, factor=10.0)
    if for_s is not None:
        slow["for_s"] = for_s
    again = [fault(5.0, "crash", peer=1), fault(5.5, "restart", peer=1, state=state)]
    before, after = (steps_of(slow, *again, until_s=s, steps=None) for s in (8.0, 12.0))
    assert after - before == pytest.approx(4.0, abs=2)
    before, after = (steps_of(slow, *again, until_s=s, steps=None) for s in (14.0, 18.0))
    assert after - before == pytest.approx(4.0 if for_s is None else 40.0, abs=2)


@pytest.mark.extended
@pytest.mark.parametrize(
    "late",
    [
        fault(1.0, "diverge", "join-1"),
        fault(1.0, "pause", "join-1"),
        fault(1.0, "slow", "join-1", factor=10.0),
        fault(1.0, "clock-jump", "join-1", by_s=500.0),
    ],
)
def test_a_fault_of_a_worker_that_does_not_run_does_nothing(late: Fault) -> None:
    join = fault(4.0, "join")
    fleets = [live_on(fleet_of(*given, n=3), 12.0) for given in ((join,), (late, join))]
    newcomers = [fleet.workers[3] for fleet in fleets]
    assert newcomers[0].steps == newcomers[1].steps > 30
    assert newcomers[1].running and newcomers[1].ahead_s == 0.0
