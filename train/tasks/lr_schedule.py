"""How the learning rate changes as training goes on, by the clock of the swarm or of the peer."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ...gossip.errors import ConfigError

if TYPE_CHECKING:  # a command that only reads a schedule does without PyTorch
    from torch.optim import Optimizer

__all__ = ["FullRates", "LrSchedule", "parse_lr_schedule"]

Shape = Literal["constant", "cosine", "linear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LrSchedule:
    """A rise from nothing, then a fall from 1 to a floor.

    Raises:
        ConfigError: A field is out of range.

    Source: Loshchilov and Hutter, ICLR 2017 (cosine, without restarts).
    """

    shape: Shape = "constant"
    """How it falls."""

    warmup: float = 0.0
    """Part of the whole during which the rate rises linearly, in [0, 1)."""

    floor: float = 0.0
    """What is left at the end, as a part of the full rate, in [0, 1]."""

    def __post_init__(self) -> None:
        if self.shape not in get_args(Shape):
            allowed = ", ".join(get_args(Shape))
            raise ConfigError(f"lr_schedule is {self.shape!r}: it must be one of {allowed}")
        if not 0 <= self.warmup < 1:
            raise ConfigError(f"warmup of lr_schedule is {self.warmup}: it must be in [0, 1)")
        if not 0 <= self.floor <= 1:
            raise ConfigError(f"floor of lr_schedule is {self.floor}: it must be in [0, 1]")

    @property
    def is_constant(self) -> bool:
        """Whether the learning rate is left alone."""
        return self.shape == "constant" and not self.warmup

    def after(self, done: float, whole: float | None) -> float:
        """The learning rate as a part of the full one, after some of the training.

        Args:
            done: Steps, or seconds, >= 0.
            whole: How many there are to be; None where nobody knows, which is far from done.
        """
        return self.factor(done / (whole or math.inf))

    def factor(self, progress: float) -> float:
        """The learning rate as a part of the full one.

        Args:
            progress: How much of the training is done, in [0, 1]; beyond it the floor remains.
        """
        if progress < self.warmup:
            # The first step, too, shall move something, but how many there will be is not known:
            # a hundredth of the rise is where it begins.
            return max(progress / self.warmup, 0.01)
        if self.shape == "constant":
            return 1.0
        done = min(1.0, (progress - self.warmup) / (1 - self.warmup))
        fallen = (1 - math.cos(math.pi * done)) / 2 if self.shape == "cosine" else done
        return self.floor + (1 - self.floor) * (1 - fallen)


class FullRates:
    """The learning rates that an optimizer was made with, one for each group of parameters.

    Args:
        optimizer: Of which a schedule uses a part of them.
    """

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
    shape, _, options = text.partition(":")
    given: dict[str, float] = {}
    for option in filter(None, options.split(",")):
        name, _, value = option.partition("=")
        try:
            if name not in ("warmup", "floor"):
                raise ValueError
            given[name] = float(value)
        except ValueError:
            raise ConfigError(
                f"lr_schedule {text!r} is malformed: write constant, cosine or linear, as in "
                "cosine:warmup=0.05,floor=0.1"
            ) from None
    name_of_shape: Shape = shape  # type: ignore[assignment]
    return LrSchedule(shape=name_of_shape, **given)
