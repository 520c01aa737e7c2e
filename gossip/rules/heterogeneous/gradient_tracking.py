"""Gradient tracking: steps along an estimate of the mean gradient of all peers."""

from dataclasses import replace

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ..synchronous.mixing import BEFORE, BESIDE, OUT, StepRule, Terms, average_beside

__all__ = ["GradientTracking"]

_CORRECTION = "correction"


class GradientTracking(StepRule):
    """``x+ = W (z + c)``, ``c+ = W (c - u) + u``, where z is x after its optimizer step, and u the
    step, ``u = x - z``; c_0 = 0.

    With plain SGD, ``u = lr g``, and ``u - c`` tracks the mean of all gradients: it has that mean
    over all peers, and averaging brings its values together. The limit does not depend on how much
    data differ. W may change from round to round; its rows and its columns should add up to 1. c is
    the paper's times the learning rate, and is rescaled when steps report a new one.

    The optimizer must be plain SGD: momentum would see steps that are corrected afterwards.

    Source: Di Lorenzo and Scutari, IEEE TSIPN 2016 (NEXT); Nedic, Olshevsky and Shi, SIAM J.
    Optim. 2017 (DIGing); in this form, adapt then combine, Koloskova, Lin and Stich, NeurIPS 2021.
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
