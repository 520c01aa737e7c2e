"""How pauses of a rival's peers are told from when they stepped; none is run."""

import pytest

from rumor.benchmarks.rivals.outer import _pauses

__all__: list[str] = []


def test_pauses_before_and_after_a_kill_are_in_steps_without_averaging() -> None:
    steps = [[1.0, 2.0, 3.5, 4.0, 8.0, 9.0], [0.5, 1.5, 2.5, 5.0, 9.5]]
    found = _pauses(steps, 0.5, 1.0, 3.0, 10.0)
    # The gap that the kill falls into is one after it.
    assert found == pytest.approx({"pause_steps": 9.0, "pause_s": 4.5, "calm_steps": 2.0})


def test_a_peer_that_stands_still_to_the_end_has_paused() -> None:
    assert _pauses([[1.0, 2.0]], 1.0, 0.0, 2.5, 30.0)["pause_s"] == 28.0
