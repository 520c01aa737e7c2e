"""QG-DSGDm: momentum that follows the swarm's steps instead of each peer's own."""

from typing import Annotated

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...specs.parameter import Parameter, checked
from ..synchronous.mixing import BEFORE, OUT, KeptMomentum, StepRule, Terms

__all__ = ["QGDSGDm"]

_MOMENTUM = "momentum"


class QGDSGDm(StepRule):
    """``x+ = W (z - beta m)``, ``m+ = mu m + (1 - mu) (x - x+)``, where z is x after its step.

    Quasi-global momentum: it smooths the moves of the *averaged* model, so that it points where
    the swarm goes, whatever a peer's own data. Here m is the paper's times the learning rate, and
    is rescaled when steps report a new one.

    The optimizer must be plain SGD: this is its momentum.

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
