"""GoSGD: every peer takes its own steps and now and then pushes half of its weight."""

from typing import Annotated, Literal

from ...effects.effects import Wait
from ...errors import ConfigError
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ..parameter import Parameter, checked

__all__ = ["Emission", "GoSGD"]

Emission = Literal["per-step", "per-second", "adaptive"]

# A step counts for a tenth: some ten of them tell how long one takes.
_SMOOTHING = 0.1


_PLAIN = Requirements(whole=False)
_BY_SAMPLES = Requirements(whole=False, by_samples=True)


class GoSGD:
    """Sum-weight gossip, asynchronous: nobody ever waits.

    With emission per step, ``p`` is the probability of a push at each step: each *peer* then
    counts the same, whatever its speed (right where peers hold different data). Per second, it is
    the mean number of pushes in a second: each *step* counts the same (right for alike data). Both
    hold on regular graphs. Adaptive, it is the part of its time in which a peer has a share under
    way: as per step where an answer comes within a step, and ever more rarely where it takes
    longer, so that slow links stay free for others. Peers with slow links then weigh more.

    With ``samples``, a peer whose steps take n of them pushes ``samples / n`` times as often. It
    then weighs n times as much: on regular graphs, the stationary mean of the weights is
    ``w_i ~ 1 / (pushes per second)``. So a step of n samples counts n times what one of a single
    sample does (per second), or a peer n times what one does whose steps take one (per step).

    Raises:
        ConfigError: An argument is out of range.

    Source: Blot, Picard, Cord and Thome 2016, algorithm 1; emission per second and the adaptive one
    are ours.
    """

    name = "gosgd"
    summary = "sum-weight gossip"
    registers: tuple[str, ...] = ()
    requirements = _PLAIN

    @checked
    def __init__(
        self,
        p: Annotated[
            float,
            Parameter(
                "probability of a push after a step; per-second, pushes per second; adaptive, the "
                "part of its time in which a peer has a share under way. More means models closer "
                "together, and more traffic.",
                low=0,
            ),
        ] = 0.1,
        *,
        emission: Annotated[
            Emission,
            Parameter(
                "per-step, each peer counts the same, whatever its speed; per-second, each step "
                "counts the same; adaptive, a share is under way for the part p of the time, "
                "however slow the links."
            ),
        ] = "per-step",
        outstanding_max: Annotated[
            int,
            Parameter("shares that may be outstanding at once; further pushes are skipped.", low=1),
        ] = 2,
        samples: Annotated[
            int,
            Parameter(
                "samples of a step for which p is meant: a peer whose steps take twice as many "
                "pushes half as often, and so weighs twice as much; 0, however many a step takes.",
                low=0,
            ),
        ] = 0,
    ) -> None:
        if emission != "per-second" and p > 1:
            raise ConfigError(
                f"p is {p}: it must be in [0, 1], or with emission per second a rate of at least 0"
            )
        self.p = p
        self.emission = emission
        self.outstanding_max = outstanding_max
        self.samples = samples
        self.requirements = _BY_SAMPLES if samples else _PLAIN
        self._step_s: float | None = None
        self._batch = 0.0

    def step(self, context: RuleContext) -> Wait | None:
        """Mix and push between two optimizer steps.

        The published loop is mix, step, push. A rule is called after the step, so it ends one pass
        of that loop and begins the next: it pushes first.
        """
        if self.samples and context.samples:
            before = self._batch or context.samples
            self._batch = before + _SMOOTHING * (context.samples - before)
        for _ in range(self._pushes_due(context)):
            context.push_half()
        for share in context.shares():
            context.mix(share)
        return None

    def _pushes_due(self, context: RuleContext) -> int:
        # Nobody trains any more: nothing competes for the link, and agreement is all that counts.
        if context.merging:
            return 1
        if self.emission == "per-second":
            return int(context.rng.poisson(self.p * self._rarity * context.elapsed_s))
        p = self.p if self.emission == "per-step" else self.p * self._steps_per_trip(context)
        pushes, rest = divmod(p * self._rarity, 1.0)
        return int(pushes) + int(context.rng.random() < rest)

    @property
    def _rarity(self) -> float:
        """How many times as often as ``p`` says this peer pushes, for the samples of its steps."""
        return self.samples / self._batch if self._batch else 1.0

    def _steps_per_trip(self, context: RuleContext) -> float:
        """The part of a push and its answer that fits into one step, at most 1."""
        if context.trained and context.elapsed_s > 0:
            before_s = self._step_s or context.elapsed_s
            self._step_s = before_s + _SMOOTHING * (context.elapsed_s - before_s)
        trip_s = context.roundtrip_s()
        if not trip_s or self._step_s is None:
            return 1.0
        return min(1.0, self._step_s / trip_s)
