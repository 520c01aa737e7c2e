"""Windows that are scheduled while others are computed equal those that are scheduled in turn."""

from typing import Any

import pytest

from rumor.gossip import ConfigError
from rumor.sim import simulate
from rumor.sim.batched.schedule import Scheduler
from rumor.sim.kernel.fast_path.fleet import FastFleet

from ..kernel.fast_path.plans import flat, plan_of


def scheduler(steps: int = 20) -> Scheduler:
    plan = plan_of(8, steps=steps)
    return Scheduler(lambda: FastFleet(plan), every_s=0.5, time_s=None, window=16)


def test_windows_come_unchanged_and_in_order() -> None:
    pairs = zip(scheduler().windows(), scheduler().windows(ahead=True), strict=True)
    for ours, theirs in pairs:
        assert (ours.steps, ours.time_s) == (theirs.steps, theirs.time_s)
        assert flat(ours.levels) == flat(theirs.levels)


def test_scheduling_ends_when_no_more_windows_are_taken() -> None:
    windows = scheduler(100_000).windows(ahead=True)
    next(windows)
    windows.close()  # type: ignore[attr-defined]


def test_an_error_of_the_scheduler_is_raised_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: object) -> bool:
        raise ConfigError("this cannot be")

    monkeypatch.setattr(FastFleet, "run", failing)
    windows = scheduler().windows(ahead=True)
    next(windows)
    with pytest.raises(ConfigError, match="this cannot be"):
        next(windows)


@pytest.mark.extended
@pytest.mark.parametrize("decide", ["protocol", "compiled"])
def test_the_number_of_threads_does_not_change_the_digest(decide: str) -> None:
    settings: dict[str, Any] = {
        "workers": 64,
        "steps": 65,
        "p": 0.3,
        "topology": "ring",
        "engine": "dense",
        "pace": "lognormal:cv=0.5",
        "eval_every": 64,
    }
    runs = [simulate(**settings, decide=decide, threads=threads) for threads in (1, 2, 3)]
    assert len({run.summary["digest"] for run in runs}) == 1
