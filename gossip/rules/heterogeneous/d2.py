"""D2: D-PSGD with each peer's own drift taken out."""

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

    With plain SGD, ``z = x - lr g``, this is ``X+ = W (2 X - X_before - lr (G - G_before))``: what
    a peer's data pull aside at each step, the last step's correction has pulled back already. The
    limit does not depend on how much data differ. W must be symmetric, and its least eigenvalue
    above -1/3; where it is not, `lazy` makes it so.

    c is in proportion to the learning rate, and changes with it where steps say it: where that goes
    from lr to lr+, ``c <- lr+ / lr c`` comes first.

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
        """The model, corrected."""
        return ((1.0, X), (1.0, _CORRECTION))

    def take(self, context: RuleContext, average: Terms) -> None:
        if self.lazy:
            (_, own), *_ = average
            average = [(0.5, own), *scaled(0.5, average)]
        context.combine(_CORRECTION, [(-1.0, X)])
        context.combine(X, average)
        context.combine(_CORRECTION, [(1.0, _CORRECTION), (1.0, X)])
