"""Rules that track, and take out, each peer's drift: D2, gradient tracking, Momentum Tracking."""

from dataclasses import replace
from typing import Annotated

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...specs.parameter import Parameter, checked
from ..synchronous.mixing import (
    BEFORE,
    BESIDE,
    OUT,
    KeptMomentum,
    MatrixRule,
    StepRule,
    Terms,
    average_beside,
    scaled,
)
from ..synchronous.rounds import SYNCHRONOUS

__all__ = ["D2", "GradientTracking", "MomentumTracking"]

_CORRECTION = "correction"


class D2(MatrixRule):
    """``x+ = W (z + c)``, ``c+ = x+ - z``, where z is x after its optimizer step; c_0 = 0.

    With plain SGD, ``z = x - lr g``, this is ``X+ = W (2 X - X_before - lr (G - G_before))``: the
    last step's correction cancels the drift that a peer's data cause at each step. The limit does
    not depend on how much data differ. W must be symmetric, with its least eigenvalue above -1/3;
    `lazy` ensures that.

    Source: Tang, Lian, Yan, Zhang and Liu, ICML 2018, algorithm 1.
    """

    name = "d2"
    summary = "D-PSGD without the drift of unequal data"
    requirements = replace(SYNCHRONOUS, plain_sgd=True, lr=True)
    both_ways = True
    registers = (*OUT, _CORRECTION)
    times_lr = (_CORRECTION,)

    @checked
    def __init__(
        self,
        *,
        lazy: Annotated[
            bool,
            Parameter(
                "average with (I + W) / 2, whose eigenvalues are 0 or more on any graph; false for "
                "W itself, as in the paper, which diverges where an eigenvalue is -1/3 or less."
            ),
        ] = True,
    ) -> None:
        super().__init__()
        self.lazy = lazy

    def outgoing(self) -> Terms:
        return ((1.0, X), (1.0, _CORRECTION))

    def take(self, context: RuleContext, average: Terms) -> None:
        if self.lazy:
            (_, own), *_ = average
            average = [(0.5, own), *scaled(0.5, average)]
        context.combine(_CORRECTION, [(-1.0, X)])
        context.combine(X, average)
        context.combine(_CORRECTION, [(1.0, _CORRECTION), (1.0, X)])


class GradientTracking(StepRule):
    """``x+ = W (z + c)``, ``c+ = W (c - u) + u``, where z is x after its optimizer step, and u the
    step, ``u = x - z``; c_0 = 0.

    With plain SGD, ``u = lr g``, and ``u - c`` tracks the mean of all gradients, so that the limit
    does not depend on how much data differ. W may change from round to round; its rows and its
    columns should add up to 1. c is the paper's times the learning rate.

    Source: Di Lorenzo and Scutari, IEEE TSIPN 2016 (NEXT); Nedic, Olshevsky and Shi, SIAM J. Optim.
    2017 (DIGing); in this form, adapt then combine, Koloskova, Lin and Stich, NeurIPS 2021.
    """

    name = "gradient-tracking"
    summary = "D-PSGD along the mean gradient, tracked"
    registers = (*OUT, *BESIDE, BEFORE, _CORRECTION)
    times_lr = (_CORRECTION,)
    requirements: Requirements = replace(StepRule.requirements, share_registers=2)

    def outgoing(self) -> Terms:
        return ((1.0, X), (1.0, _CORRECTION))

    def beside(self) -> Terms:
        return ((1.0, _CORRECTION), (-1.0, BEFORE), (1.0, X))

    def move(self, context: RuleContext, average: Terms) -> None:
        context.combine(_CORRECTION, [*average_beside(average), (1.0, BEFORE), (-1.0, X)])
        context.combine(X, average)


_MOMENTUM = "momentum"


class MomentumTracking(StepRule):
    """``m+ = beta m + (x - z)``, ``x+ = W x - (m+ - c)``, ``c+ = W (c - m+) + m+``, where z is x
    after its optimizer step; m_0 = c_0 = 0.

    ``m+ - c`` tracks the mean momentum of all peers, so that the limit does not depend on how much
    data differ, whatever beta is. m and c are the paper's times the learning rate. The authors'
    code initializes them by an all-reduce; here all begin at 0, as the sum of the corrections does.

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
