"""When a push is due: per step, or per second."""

from typing import Annotated, Literal

from ...errors import ConfigError
from ...protocol.context import RuleContext
from ...specs.parameter import Parameter

__all__ = ["Emission", "Emitted", "PushSchedule", "Pushes", "Samples", "require_probability"]

Emission = Literal["per-step", "per-second", "adaptive"]

Pushes = Annotated[
    float,
    Parameter(
        "probability of a push after a step; per-second, pushes per second; adaptive, the part of "
        "its time in which a peer has a share under way. More means models closer together, and "
        "more traffic.",
        low=0,
    ),
]

Emitted = Annotated[
    Emission,
    Parameter(
        "per-step, each peer counts the same, whatever its speed; per-second, each step counts the "
        "same; adaptive, a share is under way for the part p of the time, however slow the links."
    ),
]

Samples = Annotated[
    int,
    Parameter(
        "samples of a step for which p is meant: a peer whose steps take twice as many pushes half "
        "as often, and so weighs twice as much; 0, however many a step takes.",
        low=0,
    ),
]

# Step times are averaged over about the last ten steps.
_SMOOTHING = 0.1


class PushSchedule:
    """Decides at each turn of a rule how many pushes are due."""

    def __init__(self, emission: Emission, samples: int) -> None:
        self._emission = emission
        self._samples = samples
        self._step_s: float | None = None
        self._batch = 0.0

    def stepped(self, samples: int) -> None:
        before = self._batch or samples
        self._batch = before + _SMOOTHING * (samples - before)

    def due(self, context: RuleContext, p: float) -> int:
        # Training is over: nothing competes for the link, and only agreement counts.
        if context.merging:
            return 1
        if self._emission == "per-second":
            return int(context.rng.poisson(p * self._rarity * context.elapsed_s))
        if self._emission != "per-step":
            p *= self._steps_per_trip(context)
        if self._samples:
            p *= self._rarity
        pushes = int(p)
        return pushes + (context.rng.random() < p - pushes)

    @property
    def _rarity(self) -> float:
        """Return the factor on ``p`` that accounts for the samples in this peer's steps."""
        return self._samples / self._batch if self._batch else 1.0

    def _steps_per_trip(self, context: RuleContext) -> float:
        """Return the fraction of a push and its answer that fits into one step, at most 1."""
        if context.trained and context.elapsed_s > 0:
            before_s = self._step_s or context.elapsed_s
            self._step_s = before_s + _SMOOTHING * (context.elapsed_s - before_s)
        trip_s = context.roundtrip_s()
        if not trip_s or self._step_s is None:
            return 1.0
        return min(1.0, self._step_s / trip_s)


def require_probability(p: float, emission: Emission) -> None:
    """Check that ``p`` is valid for the kind of emission.

    Raises:
        ConfigError: ``p`` is a probability above 1.
    """
    if emission != "per-second" and p > 1:
        raise ConfigError(
            f"p is {p}: it must be in [0, 1], or with emission per second a rate of at least 0"
        )
