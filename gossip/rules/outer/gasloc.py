"""GASLoC: gossip of the results of h local steps, with momentum in place of an all-reduce."""

from collections.abc import Iterable
from typing import Annotated

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...specs.parameter import Parameter, checked
from ...types import PeerId
from ..synchronous.mixing import OUT, Terms
from .elastic import STEPS, Came, OuterRule, neighborhood

__all__ = ["GASLoC"]

_BEFORE = "before"
_LAST = "last"


class GASLoC(OuterRule):
    """``y = theta + eta (x - theta)``, ``x = theta+ = y - alpha L y + gamma (y - y_last)``.

    theta is a peer's model after its last round, x the same after h optimizer steps, and L = I - W
    the Laplacian of the round's graph, whose edge weights are those of its mixing matrix W. One or
    two random partners a round, as in the paper, are topologies: ``random-matching`` has one. A
    partner that is gone is a missing edge. With ``gamma=0`` and ``alpha=1`` this is plain gossip,
    ``theta+ = W y``; on the complete graph, DiLoCo with another momentum. Before the first round
    ``y_last`` is theta.

    Here rounds are matched by number, so that a partner's vector is of the same age. h may differ
    between peers: a peer waits for a partner with a larger h.

    Source: Cagnasso, Belilovsky and Oyallon, 2026, arXiv 2606.11081, a preprint; equations from
    summaries of it, not from the paper. We found no numbers in them: the defaults are ours, see
    docs/reference/rules.md.
    """

    name = "gasloc"
    summary = "gossip of local steps with momentum, every h steps"
    registers = (*OUT, _BEFORE, _LAST)
    relays = True

    @checked
    def __init__(
        self,
        *,
        h: Annotated[int, Parameter(f"{STEPS}; may differ between peers.", low=1)] = 50,
        eta: Annotated[
            float, Parameter("outer learning rate, of what local steps changed.", low=0, high=2)
        ] = 0.7,
        alpha: Annotated[
            float, Parameter("part of the way to the average of the neighbors.", low=0, high=1)
        ] = 1.0,
        gamma: Annotated[
            float,
            Parameter("momentum: part of the last move that is made once more.", low=0, high=1),
        ] = 0.2,
    ) -> None:
        super().__init__(h)
        self.eta = eta
        self.alpha = alpha
        self.gamma = gamma
        self._row: dict[PeerId, float] = {}

    def start(self, context: RuleContext) -> None:
        super().start(context)
        context.combine(_BEFORE, [(1.0, X)])
        context.combine(_LAST, [(1.0, X)])

    def partners(self, context: RuleContext, round: int) -> Iterable[PeerId]:
        self._row = neighborhood(context, round)
        return self._row

    def outgoing(self) -> Terms:
        return ((1.0 - self.eta, _BEFORE), (self.eta, X))

    def take(self, context: RuleContext, came: Came, sent: str) -> None:
        parts = {p: self.alpha * self._row.get(p, 0.0) for p in came if p != context.me}
        kept = 1.0 - sum(parts.values()) + self.gamma
        pulls = [(part, came[peer]) for peer, part in parts.items() if part]
        context.combine(X, [(kept, sent), (-self.gamma, _LAST), *pulls])
        context.combine(_LAST, [(1.0, sent)])
        context.combine(_BEFORE, [(1.0, X)])
