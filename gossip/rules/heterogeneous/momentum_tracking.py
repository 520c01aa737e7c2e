"""Momentum Tracking: gradient tracking, with each peer's momentum in place of its gradient."""

from dataclasses import replace

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...specs.parameter import checked
from ..synchronous.mixing import (
    BEFORE,
    BESIDE,
    OUT,
    KeptMomentum,
    StepRule,
    Terms,
    average_beside,
)

__all__ = ["MomentumTracking"]

_MOMENTUM = "momentum"
_CORRECTION = "correction"


class MomentumTracking(StepRule):
    """``m+ = beta m + (x - z)``, ``x+ = W x - (m+ - c)``, ``c+ = W (c - m+) + m+``, where z is x
    after its optimizer step; m_0 = c_0 = 0.

    ``m+ - c`` tracks the mean momentum of all peers, so that the limit does not depend on how much
    data differ, whatever beta is. The models before the step are averaged. m and c are the paper's
    times the learning rate, and are rescaled when steps report a new one. The authors' code
    initializes m and c to each gradient's difference from the mean of all, over 1 - beta, which
    takes an all-reduce; here they begin at 0, and the corrections of all peers add up to 0 as well.

    The optimizer must be plain SGD: this is its momentum.

    Source: Takezawa, Bao, Niwa, Sato and Yamada, TMLR 2023 (Momentum Tracking); the equations are
    those of the authors' code.
    """

    name = "momentum-tracking"
    summary = "gradient tracking on the momentum"
    registers = (*OUT, *BESIDE, BEFORE, _MOMENTUM, _CORRECTION)
    times_lr = (_MOMENTUM, _CORRECTION)
    requirements: Requirements = replace(StepRule.requirements, share_registers=2)

    @checked
    def __init__(self, *, beta: KeptMomentum = 0.9) -> None:
        super().__init__()
        self.beta = beta

    def outgoing(self) -> Terms:
        return ((1.0, BEFORE),)

    def beside(self) -> Terms:
        return ((1.0, _CORRECTION), (-self.beta, _MOMENTUM), (-1.0, BEFORE), (1.0, X))

    def move(self, context: RuleContext, average: Terms) -> None:
        context.combine(_MOMENTUM, [(self.beta, _MOMENTUM), (1.0, BEFORE), (-1.0, X)])
        context.combine(X, [*average, (-1.0, _MOMENTUM), (1.0, _CORRECTION)])
        context.combine(_CORRECTION, [*average_beside(average), (1.0, _MOMENTUM)])
