"""Rules over a mixing matrix that look at a whole step, the optimizer's and the average."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Annotated, Final

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...specs.parameter import Parameter
from ..synchronous.mixing import OUT, MatrixRule, Terms
from ..synchronous.rounds import SYNCHRONOUS

__all__ = ["BEFORE", "KeptMomentum", "StepRule"]

BEFORE: Final = "before"
"""The register that holds the model as it was before the optimizer's step."""

KeptMomentum = Annotated[
    float, Parameter("part of the momentum that a step keeps; .9 in the paper.", low=0, high=1)
]


class StepRule(MatrixRule, ABC):
    """A rule that knows where each step has begun: ``x`` of then is in `BEFORE`.

    The optimizer must be plain SGD, so that ``BEFORE - x`` is the learning rate times the gradient
    when `outgoing` and `move` are called.
    """

    registers: tuple[str, ...] = (*OUT, BEFORE)
    requirements: Requirements = replace(SYNCHRONOUS, plain_sgd=True, lr=True)

    def start(self, context: RuleContext) -> None:
        context.combine(BEFORE, [(1.0, X)])

    def take(self, context: RuleContext, average: Terms) -> None:
        """Go on from the average, and note where the next step begins."""
        self.move(context, average)
        context.combine(BEFORE, [(1.0, X)])

    @abstractmethod
    def move(self, context: RuleContext, average: Terms) -> None:
        """Go on from the average of what was sent, this peer's own share included."""
