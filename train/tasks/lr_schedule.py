"""How the learning rate changes as training goes on, by the clock of the swarm or of the peer."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

from ...gossip.specs.parameter import Parameter
from ...gossip.specs.spec import make

if TYPE_CHECKING:  # a command that only reads a schedule does without PyTorch
    from torch.optim import Optimizer

__all__ = [
    "LR_SCHEDULES",
    "FullRates",
    "LrSchedule",
    "constant",
    "cosine",
    "linear",
    "parse_lr_schedule",
]

Warmup = Annotated[
    float,
    Parameter("part of the training during which the rate rises linearly.", low=0, below=1),
]
Floor = Annotated[
    float,
    Parameter("what is left at the end, as a part of the full rate.", low=0, high=1),
]


@dataclass(frozen=True, slots=True)
class LrSchedule:
    """A rise from nothing, then a fall from 1 to a floor."""

    fall: Callable[[float], float] | None = None
    """How far it has fallen, from 0 to 1, after a part of the time behind the rise; None where it
    does not."""

    warmup: float = 0.0
    """Part of the whole during which the rate rises linearly, in [0, 1)."""

    floor: float = 0.0
    """What is left at the end, as a part of the full rate, in [0, 1]."""

    @property
    def is_constant(self) -> bool:
        """Whether the learning rate is left alone."""
        return self.fall is None and not self.warmup

    def after(self, done: float, whole: float | None) -> float:
        """The learning rate as a part of the full one, after *done* steps or seconds of *whole*.

        None where nobody knows how many there are to be, which is far from done.
        """
        return self.factor(done / (whole or math.inf))

    def factor(self, progress: float) -> float:
        """The learning rate as a part of the full one, at a progress in [0, 1]."""
        if progress < self.warmup:
            # The first step, too, shall move something, but how many there will be is not known:
            # a hundredth of the rise is where it begins.
            return max(progress / self.warmup, 0.01)
        if self.fall is None:
            return 1.0
        fallen = self.fall(min(1.0, (progress - self.warmup) / (1 - self.warmup)))
        return self.floor + (1 - self.floor) * (1 - fallen)


def constant(warmup: Warmup = 0.0) -> LrSchedule:
    """All the time the full rate."""
    return LrSchedule(None, warmup)


def cosine(warmup: Warmup = 0.0, floor: Floor = 0.0) -> LrSchedule:
    """Falls slowly, then fast, then slowly.

    Source: Loshchilov and Hutter, ICLR 2017, without restarts.
    """
    return LrSchedule(lambda done: (1 - math.cos(math.pi * done)) / 2, warmup, floor)


def linear(warmup: Warmup = 0.0, floor: Floor = 0.0) -> LrSchedule:
    """Falls evenly."""
    return LrSchedule(lambda done: done, warmup, floor)


LR_SCHEDULES: Mapping[str, Callable[..., LrSchedule]] = MappingProxyType(
    {"constant": constant, "cosine": cosine, "linear": linear}
)
"""All schedules, by the name that people type."""


class FullRates:
    """The learning rates that an optimizer was made with, one for each group of parameters."""

    def __init__(self, optimizer: "Optimizer") -> None:
        self._optimizer = optimizer
        self._rates = [float(group["lr"]) for group in optimizer.param_groups]

    def scale(self, factor: float) -> None:
        """Let the optimizer's next step use this part of each."""
        for group, full in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = full * factor


def parse_lr_schedule(text: str) -> LrSchedule:
    """Read a schedule as people type it.

    Raises:
        ConfigError: It has another form, or a number is out of range.

    >>> parse_lr_schedule("cosine:warmup=0.05,floor=0.1").factor(1.0)
    0.1
    """
    return make("lr_schedule", text, LR_SCHEDULES)
