"""D-PSGD with momentum that does not drive peers apart: DecentLaM, QG-DSGDm."""

from typing import Annotated

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...specs.parameter import Parameter, checked
from ..synchronous.mixing import BEFORE, OUT, KeptMomentum, StepRule, Terms, scaled

__all__ = ["DecentLaM", "QGDSGDm"]

_MOMENTUM = "momentum"


class DecentLaM(StepRule):
    """``m+ = beta m + (x - W z)``, ``x+ = x - m+``, where z is x after its optimizer step.

    D-PSGD with momentum drives peers apart, by ``1 / (1 - beta)`` squared. Here momentum smooths
    the whole move, so that peers drift no more than under plain D-PSGD. W must be symmetric: with
    directed edges it diverges. m is the paper's times the learning rate.

    Source: Yuan, Chen, Huang, Zhang, Pan, Xu and Yin, ICCV 2021, algorithm 2.
    """

    name = "decentlam"
    summary = "D-PSGD with momentum that adds no drift"
    both_ways = True
    registers = (*OUT, BEFORE, _MOMENTUM)
    times_lr = (_MOMENTUM,)

    @checked
    def __init__(self, *, beta: KeptMomentum = 0.9) -> None:
        super().__init__()
        self.beta = beta

    def move(self, context: RuleContext, average: Terms) -> None:
        moved = [(1.0, BEFORE), *scaled(-1.0, average)]
        context.combine(_MOMENTUM, [(self.beta, _MOMENTUM), *moved])
        context.combine(X, [(1.0, BEFORE), (-1.0, _MOMENTUM)])


class QGDSGDm(StepRule):
    """``x+ = W (z - beta m)``, ``m+ = mu m + (1 - mu) (x - x+)``, where z is x after its step.

    Quasi-global momentum: it smooths the moves of the *averaged* model, so that it points where the
    swarm goes, whatever a peer's own data. m is the paper's times the learning rate.

    Source: Lin, Karimireddy, Stich and Jaggi, ICML 2021, algorithm 1 (QG-DSGDm).
    """

    name = "qg-dsgdm"
    summary = "D-PSGD with momentum that follows the swarm"
    registers = (*OUT, BEFORE, _MOMENTUM)
    times_lr = (_MOMENTUM,)

    @checked
    def __init__(
        self,
        *,
        beta: Annotated[
            float, Parameter("part of the momentum in each step; .9 in the paper.", low=0, high=1)
        ] = 0.9,
        mu: KeptMomentum = 0.9,
    ) -> None:
        super().__init__()
        self.beta = beta
        self.mu = mu

    def outgoing(self) -> Terms:
        return ((1.0, X), (-self.beta, _MOMENTUM))

    def move(self, context: RuleContext, average: Terms) -> None:
        context.combine(X, average)
        rest = 1.0 - self.mu
        context.combine(_MOMENTUM, [(self.mu, _MOMENTUM), (rest, BEFORE), (-rest, X)])
