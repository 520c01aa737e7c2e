"""D2: D-PSGD with each peer's own drift removed."""

from dataclasses import replace
from typing import Annotated

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...specs.parameter import Parameter, checked
from ..synchronous.mixing import OUT, MatrixRule, Terms, scaled
from ..synchronous.rounds import SYNCHRONOUS

__all__ = ["D2"]

_CORRECTION = "correction"


class D2(MatrixRule):
    """``x+ = W (z + c)``, ``c+ = x+ - z``, where z is x after its optimizer step; c_0 = 0.

    With plain SGD, ``z = x - lr g``, this is ``X+ = W (2 X - X_before - lr (G - G_before))``: the
    last step's correction cancels the drift that a peer's data cause at each step. The limit does
    not depend on how much data differ. W must be symmetric, with its least eigenvalue above -1/3;
    `lazy` ensures that.

    c is proportional to the learning rate, and is rescaled when steps report a new one: from lr to
    lr+, by ``c <- lr+ / lr c`` first.

    The optimizer must be plain SGD: momentum would see steps that are corrected afterwards.

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
        """Return the corrected model."""
        return ((1.0, X), (1.0, _CORRECTION))

    def take(self, context: RuleContext, average: Terms) -> None:
        if self.lazy:
            (_, own), *_ = average
            average = [(0.5, own), *scaled(0.5, average)]
        context.combine(_CORRECTION, [(-1.0, X)])
        context.combine(X, average)
        context.combine(_CORRECTION, [(1.0, _CORRECTION), (1.0, X)])
