"""Learning rate schedules, by the clock of the swarm or of the peer."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

from ...gossip.specs.parameter import Parameter
from ...gossip.specs.spec import make

if TYPE_CHECKING:  # a command that only reads a schedule does not need PyTorch
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
    """A warmup from 0 to 1, then a decay from 1 to a floor."""

    fall: Callable[[float], float] | None = None
    """Maps the fraction of the time since the warmup to that of the decay; None without decay."""

    warmup: float = 0.0
    """Fraction of the training during which the rate rises linearly, in [0, 1)."""

    floor: float = 0.0
    """Final learning rate, as a fraction of the full rate, in [0, 1]."""

    @property
    def is_constant(self) -> bool:
        """True if the learning rate never changes."""
        return self.fall is None and not self.warmup

    def after(self, done: float, whole: float | None) -> float:
        """Return the fraction of the full learning rate after *done* steps or seconds of *whole*.

        While *whole* is unknown, None, that is the fraction at the start.
        """
        return self.factor(done / (whole or math.inf))

    def factor(self, progress: float) -> float:
        """Return the fraction of the full learning rate at a progress in [0, 1]."""
        if progress < self.warmup:
            # The first step should also have an effect, but the number of steps is unknown: start
            # at a hundredth of the full rate.
            return max(progress / self.warmup, 0.01)
        if self.fall is None:
            return 1.0
        fallen = self.fall(min(1.0, (progress - self.warmup) / (1 - self.warmup)))
        return self.floor + (1 - self.floor) * (1 - fallen)


def constant(warmup: Warmup = 0.0) -> LrSchedule:
    """The full rate throughout."""
    return LrSchedule(None, warmup)


def cosine(warmup: Warmup = 0.0, floor: Floor = 0.0) -> LrSchedule:
    """Falls slowly, then fast, then slowly.

    Source: Loshchilov and Hutter, ICLR 2017, without restarts.
    """
    return LrSchedule(lambda done: (1 - math.cos(math.pi * done)) / 2, warmup, floor)


def linear(warmup: Warmup = 0.0, floor: Floor = 0.0) -> LrSchedule:
    """Falls linearly."""
    return LrSchedule(lambda done: done, warmup, floor)


LR_SCHEDULES: Mapping[str, Callable[..., LrSchedule]] = MappingProxyType(
    {"constant": constant, "cosine": cosine, "linear": linear}
)
"""All schedules, by the name that users type."""


class FullRates:
    """The initial learning rates of an optimizer, one for each parameter group."""

    def __init__(self, optimizer: "Optimizer") -> None:
        self._optimizer = optimizer
        self._rates = [float(group["lr"]) for group in optimizer.param_groups]

    def scale(self, factor: float) -> None:
        """Set the optimizer's learning rates to this fraction of the initial ones."""
        for group, full in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = full * factor


def parse_lr_schedule(text: str) -> LrSchedule:
    """Parse a schedule as typed by users, or raise ConfigError.

    >>> parse_lr_schedule("cosine:warmup=0.05,floor=0.1").factor(1.0)
    0.1
    """
    return make("lr_schedule", text, LR_SCHEDULES)
