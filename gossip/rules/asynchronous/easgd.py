"""EASGD: every peer is tied to a center, and the centers of all gossip."""

from typing import Annotated

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...protocol.share import Share
from ...specs.parameter import Parameter, checked
from ...weight import WEIGHT_MIN, half, mixing_fraction

__all__ = ["EASGD"]

_CENTER = "center"
_PULL = "pull"

# A share's epoch: a center. Leavers hand on, and newcomers get, models with epoch 0.
_OF_CENTER = 1


class EASGD:
    """``d = alpha (x - c); x -= d; c += d`` every few steps; no peer ever waits.

    Elastic averaging: a spring ties a peer's model to a center, yet lets it explore. In the paper
    the center is on a server. Here each peer keeps a replica, and the replicas are averaged by
    sum-weight gossip, as models are under ``gosgd``: after each update, half of the weight goes
    with the center to a random neighbor. When all peers have finished, models become centers.

    `SEASGD` has one center, as published, in memory that all peers of a machine share.

    With plain SGD on a quadratic, one peer is stable up to ``alpha = (4 - 2 lr) / (4 - lr)``, with
    lr in units of the inverse curvature.

    Source: Zhang, Choromanska and LeCun, NeurIPS 2015, algorithm 1 (asynchronous EASGD); alpha and
    every are those of Theano-MPI; the replicas are ours.
    """

    name = "easgd"
    summary = "a spring to a center, which is gossiped"
    registers: tuple[str, ...] = (_CENTER, _PULL)
    outstanding_max = 2
    requirements = Requirements()

    @checked
    def __init__(
        self,
        *,
        alpha: Annotated[
            float,
            Parameter(
                "how far a model and its center move toward one another: 0 for not at all, .5 to "
                "meet in the middle. Less explores more.",
                low=0,
                high=1,
            ),
        ] = 0.5,
        every: Annotated[
            int, Parameter("steps from one update to the next, and from push to push.", low=1)
        ] = 10,
    ) -> None:
        self.alpha = alpha
        self.every = every
        self._steps = 0
        self._is_center = False

    def start(self, context: RuleContext) -> None:
        context.combine(_CENTER, [(1.0, X)])

    def step(self, context: RuleContext) -> None:
        for share in context.shares():
            if share.epoch == _OF_CENTER and not self._is_center:
                self._mix_center(context, share)
            else:
                context.mix(share)
        if context.merging:
            self._merge(context)
        elif context.trained:
            self._steps += 1
            if self._steps % self.every == 0:
                self._pull(context)
                self._push(context)

    def _mix_center(self, context: RuleContext, share: Share) -> None:
        fraction = mixing_fraction(context.weight, share.weight)
        context.combine(_CENTER, [(1.0 - fraction, _CENTER), (fraction, share)])
        context.accept(share)

    def _pull(self, context: RuleContext) -> None:
        context.combine(_PULL, [(self.alpha, X), (-self.alpha, _CENTER)])
        context.combine(X, [(1.0, X), (-1.0, _PULL)])
        context.combine(_CENTER, [(1.0, _CENTER), (1.0, _PULL)])

    def _push(self, context: RuleContext) -> None:
        if context.weight < WEIGHT_MIN:
            context.skip("too little weight")
            return
        peer = context.draw()
        if peer is None:
            context.skip()
        else:
            context.push(peer, half(context.weight), register=_CENTER, epoch=_OF_CENTER)

    def _merge(self, context: RuleContext) -> None:
        if not self._is_center:
            context.combine(X, [(1.0, _CENTER)])
            self._is_center = True
        context.push_half()
