"""The cost of the protocols in Python calls: a count that does not depend on the machine."""

import sys
from types import FrameType
from typing import Any

import pytest

from rumor.sim import simulate
from rumor.sim.kernel.fleet import Fleet

CALLS_MAX = 155
"""Calls for a worker's step with a push, the accepted share and the answer, constructors included:
150.8 on Python 3.11. Each call costs about 0.4 us. A change that needs more calls states the reason
in performance.md."""


@pytest.mark.extended
def test_a_pushing_step_takes_no_more_calls_than_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = (calls(monkeypatch, steps) for steps in (10, 30))
    assert (many - few) / (60 * 20) < CALLS_MAX


def calls(monkeypatch: pytest.MonkeyPatch, steps: int) -> int:
    """Calls of Python functions in a run of *steps* steps by each of 60 workers."""
    n_calls, run = 0, Fleet.run

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal n_calls
        n_calls += event == "call"

    def noted(fleet: Fleet, *limits: Any) -> bool:
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            return run(fleet, *limits)
        finally:
            sys.setprofile(before)

    with monkeypatch.context() as patch:
        patch.setattr(Fleet, "run", noted)
        given: Any = {"topology": "random-regular:d=6", "p": 1.0, "decide": "protocol"}
        made = simulate(task="consensus", workers=60, steps=steps, **given)
    assert made.summary["steps"] == 60 * steps and n_calls > 0
    return n_calls
