"""A training loop whose optimizer steps only sleep, and what gossip takes from it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Burst", "train", "train_until"]


@dataclass(slots=True)
class Burst:
    """Some steps in a row."""

    steps_s: list[float] = field(default_factory=list)
    """How long each took as a whole."""
    stalls_s: list[float] = field(default_factory=list)
    """The part of each that was gossip."""

    @property
    def rate(self) -> float:
        """Steps per second."""
        return len(self.steps_s) / sum(self.steps_s)

    def step(self, gossip: Callable[[], None], step_s: float) -> None:
        """Take one more: sleep, as an optimizer on a device of its own has it, then gossip."""
        start_s = time.perf_counter()
        time.sleep(step_s)
        slept_s = time.perf_counter()
        gossip()
        end_s = time.perf_counter()
        self.steps_s.append(end_s - start_s)
        self.stalls_s.append(end_s - slept_s)


def train(gossip: Callable[[], None], step_s: float, steps: int) -> Burst:
    """Take so many steps.

    Args:
        gossip: Called after each.
        step_s: How long each sleeps, seconds.
        steps: How many.
    """
    burst = Burst()
    for _ in range(steps):
        burst.step(gossip, step_s)
    return burst


def train_until(gossip: Callable[[], None], step_s: float, end_s: float) -> Burst:
    """Take steps until a time on the clock that all processes share (monotonic, seconds)."""
    burst = Burst()
    while time.monotonic() < end_s:
        burst.step(gossip, step_s)
    return burst
