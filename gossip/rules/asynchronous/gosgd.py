"""GoSGD: every peer takes its own steps and occasionally pushes half of its weight."""

from typing import Annotated, Literal

from ...effects.effects import Wait
from ...errors import ConfigError
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...specs.parameter import Parameter, checked
from ...types import PeerId
from ...weight import WEIGHT_MIN, half
from ..robust.filters import NONE, Robust
from ..robust.mixing import RobustMixing

__all__ = ["Emission", "GoSGD"]

Emission = Literal["per-step", "per-second", "adaptive"]

# Step times are averaged over about the last ten steps.
_SMOOTHING = 0.1


class GoSGD:
    """Sum-weight gossip, asynchronous: no peer ever waits.

    A push carries half of a peer's weight, and its receiver mixes by weight. On regular graphs, the
    stationary mean of the weights is ``w_i ~ 1 / (pushes per second)``: so ``emission`` and
    ``samples`` decide what counts the same, peers, steps or samples.

    With ``layers``, a loop that takes the optimizer's step within the backward pass reports each
    piece of the model when it is done, and it is pushed then, with weights of its own, while the
    gradients of earlier pieces are computed.

    With ``robust``, a part c of each share is mixed in, depending on its distance from the model:
    ``x += w_s / (w_s + w) c (x_s - x)``. The weight that matches such a move is accepted, and the
    rest goes back.

    Source: Blot, Picard, Cord and Thome 2016, algorithm 1; emission per second and the adaptive one
    are ours. Layers: Kuehn, Keuper and Pfreundt 2017 (CaffeGPI), there of gradients, to be summed.
    """

    name = "gosgd"
    summary = "sum-weight gossip"
    registers: tuple[str, ...] = ()

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
            Parameter("pushes that may be outstanding at once; further ones are skipped.", low=1),
        ] = 2,
        samples: Annotated[
            int,
            Parameter(
                "samples of a step for which p is meant: a peer whose steps take twice as many "
                "pushes half as often, and so weighs twice as much; 0, however many a step takes.",
                low=0,
            ),
        ] = 0,
        robust: Robust = NONE,
        layers: Annotated[
            int,
            Parameter(
                "pieces of the model that are pushed one by one, each as soon as the backward pass "
                "is through with it; 1 for the whole model after the step.",
                low=1,
            ),
        ] = 1,
    ) -> None:
        if emission != "per-second" and p > 1:
            raise ConfigError(
                f"p is {p}: it must be in [0, 1], or with emission per second a rate of at least 0"
            )
        self.p = p
        self.emission = emission
        self.outstanding_max = outstanding_max
        self.samples = samples
        self.layers = layers
        self.robust = robust
        self._mixing = RobustMixing(robust)
        self.requirements = Requirements(
            whole=False,
            by_samples=samples > 0,
            measures=robust != NONE,
            shards=layers,
            overlaps=layers > 1,
        )
        # Means over recent steps: duration, and number of samples.
        self._step_s: float | None = None
        self._batch = 0.0
        self._steps = 0
        self._to: PeerId | None = None
        # Pieces handled in the current step, pushed or skipped; None before the first.
        self._pieces: set[int] | None = None

    def step(self, context: RuleContext) -> Wait | None:
        if self.samples and context.samples:
            before = self._batch or context.samples
            self._batch = before + _SMOOTHING * (context.samples - before)
        if self.layers > 1 and context.trained:
            for shard in range(context.n_shards):
                self.trained_shard(context, shard)
            self._pieces = None
        elif not context.measured:
            for _ in range(self._due(context)):
                context.push_half()
        self._mixing.mix(context)
        return None

    def trained_shard(self, context: RuleContext, shard: int) -> None:
        """Push half of a piece's weight, once per step, to the same neighbor for all pieces."""
        if self._pieces is None:
            self._pieces, self._to = set(), None
            if self._due(context):
                self._steps += 1
                self._to = context.draw(context.neighbors(self._steps), (shard,))
                if self._to is None:
                    context.skip()
        if self._to is None or shard in self._pieces:
            return
        self._pieces.add(shard)
        weight = context.weight_of(shard)
        # A piece is skipped while that neighbor has not taken its last version. There was credit
        # for the whole push when it began: checking again would always skip the same pieces on a
        # slow link.
        open_to = context.draw((self._to,), (shard,), urgent=True)
        if weight >= WEIGHT_MIN and open_to is not None:
            context.push_shards(self._to, {shard: half(weight)})

    def _due(self, context: RuleContext) -> int:
        # Training is over: nothing competes for the link, and only agreement counts.
        if context.merging:
            return 1
        p = self.p
        if self.emission == "per-second":
            return int(context.rng.poisson(p * self._rarity * context.elapsed_s))
        if self.emission != "per-step":
            p *= self._steps_per_trip(context)
        if self.samples:
            p *= self._rarity
        pushes = int(p)
        return pushes + (context.rng.random() < p - pushes)

    @property
    def _rarity(self) -> float:
        """Factor on ``p`` that accounts for the samples in this peer's steps."""
        return self.samples / self._batch if self._batch else 1.0

    def _steps_per_trip(self, context: RuleContext) -> float:
        """Return the fraction of a push and its answer that fits into one step, at most 1."""
        if context.trained and context.elapsed_s > 0:
            before_s = self._step_s or context.elapsed_s
            self._step_s = before_s + _SMOOTHING * (context.elapsed_s - before_s)
        trip_s = context.roundtrip_s()
        if not trip_s or self._step_s is None:
            return 1.0
        return min(1.0, self._step_s / trip_s)
