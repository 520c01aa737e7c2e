"""GoSGD: every peer takes its own steps and now and then pushes half of its weight."""

from typing import Annotated

from ...effects.effects import Wait
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...specs.parameter import Parameter, checked
from ...types import PeerId
from ...weight import WEIGHT_MIN, half
from ..robust.filters import NONE, Robust, parse_robust
from ..robust.mixing import RobustMixing
from .push_schedule import Emission, Emitted, Pushes, PushSchedule, Samples, require_probability

__all__ = ["Emission", "GoSGD"]


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

    With ``layers``, the model is cut into so many pieces of nearly equal size. A loop that takes
    the optimizer's step within the backward pass says when a piece is through with it, and the
    piece is pushed then, while the gradients of those before it are computed. Each has weights of
    its own, is taken at its receiver's next step boundary, and is left out where its last version
    was not taken yet. At most one push is due in a step.

    With ``robust``, a part c of each share is taken, by how far it is from the model:
    ``x += w_s / (w_s + w) c (x_s - x)``. So much of its weight is accepted as goes with such a
    move, and the rest goes back. A peer that sends anything then moves others by little. Models
    that have drifted further apart agree more slowly.

    Source: Blot, Picard, Cord and Thome 2016, algorithm 1; emission per second and the adaptive one
    are ours. Layers: Kuehn, Keuper and Pfreundt 2017 (CaffeGPI), there of gradients, to be summed.
    """

    name = "gosgd"
    summary = "sum-weight gossip"
    registers: tuple[str, ...] = ()
    requirements = Requirements(whole=False)

    @checked
    def __init__(
        self,
        p: Pushes = 0.1,
        *,
        emission: Emitted = "per-step",
        outstanding_max: Annotated[
            int,
            Parameter("pushes that may be outstanding at once; further ones are skipped.", low=1),
        ] = 2,
        samples: Samples = 0,
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
        require_probability(p, emission)
        self.p = p
        self.emission = emission
        self.outstanding_max = outstanding_max
        self.samples = samples
        self.layers = layers
        self.robust = robust
        method = parse_robust(robust)
        self._mixing = None if method is None else RobustMixing(method)
        self._is_plain = layers == 1 and method is None
        self.requirements = Requirements(
            whole=False,
            by_samples=samples > 0,
            measures=method is not None,
            shards=layers,
            overlaps=layers > 1,
        )
        self._schedule = PushSchedule(emission, samples)
        self._steps = 0
        self._to: PeerId | None = None
        self._pieces: set[int] | None = None
        """Those that were pushed, or not, in the step that goes on; None where none was yet."""

    def step(self, context: RuleContext) -> Wait | None:
        """Mix and push between two optimizer steps."""
        if self.samples and context.samples:
            self._schedule.stepped(context.samples)
        if self._is_plain:
            for _ in range(self._schedule.due(context, self.p)):
                context.push_half()
            for share in context.shares():
                context.mix(share)
        else:
            self._step_in_parts(context)
        return None

    def _step_in_parts(self, context: RuleContext) -> None:
        """The same with pieces that are pushed one by one, or shares that are measured."""
        if self.layers > 1 and context.trained:
            for shard in range(context.n_shards):
                self.trained_shard(context, shard)
            self._pieces = None
        elif not context.measured:
            for _ in range(self._schedule.due(context, self.p)):
                context.push_half()
        if self._mixing is not None:
            self._mixing.mix(context)
        else:
            for share in context.shares():
                context.mix(share)

    def trained_shard(self, context: RuleContext, shard: int) -> None:
        """Push half of what is held of a piece, in each step once, all to one neighbor.

        A piece whose last version that neighbor has not taken yet is left out: so nobody is more
        than one version ahead, and nobody waits.
        """
        if self._pieces is None:
            self._pieces, self._to = set(), None
            if self._schedule.due(context, self.p):
                self._steps += 1
                self._to = context.draw(context.neighbors(self._steps), (shard,))
                if self._to is None:
                    context.skip()
        if self._to is None or shard in self._pieces:
            return
        self._pieces.add(shard)
        weight = context.weight_of(shard)
        # There was credit for the whole push when it began. Asked for again, it would always be the
        # same pieces for which a slow link has none.
        open_to = context.draw((self._to,), (shard,), urgent=True)
        if weight >= WEIGHT_MIN and open_to is not None:
            context.push_shards(self._to, {shard: half(weight)})
