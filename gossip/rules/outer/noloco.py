"""NoLoCo: DiLoCo's outer momentum in random pairs, in place of an all-reduce."""

from collections.abc import Iterable
from typing import Annotated

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...specs.parameter import Parameter, checked
from ...types import PeerId
from ..synchronous.mixing import OUT, Terms
from .elastic import STEPS, Came, OuterRule, neighborhood

__all__ = ["NoLoCo"]

_PHI = "phi"
_MOMENTUM = "momentum"


class NoLoCo(OuterRule):
    """``m <- mu m + lr mean(x - phi) + gamma (mean(phi) - phi_i)``, ``x = phi <- phi + m``.

    phi is a peer's model after its last round, x the same after h optimizer steps. Means are over
    the peer and its neighbors of the round, by the row of the topology's mixing matrix: over pairs,
    as published, with ``random-matching``. The third term pulls the peers' phi together.

    The paper sends x and phi. One vector is enough: with ``z = phi + (lr / gamma) (x - phi)`` both
    terms together are ``gamma (mean(z) - phi_i)``. With ``gamma = lr``, as in the authors' code, z
    is x. Means leave out neighbors that are gone.

    Source: Kolehmainen, Blagoev, Donaghy, Ersoy and Nies, 2025, arXiv 2506.10911, and its code.
    """

    name = "noloco"
    summary = "outer momentum in pairs, every h steps"
    registers = (*OUT, _PHI, _MOMENTUM)
    relays = True

    @checked
    def __init__(
        self,
        *,
        h: Annotated[int, Parameter(f"{STEPS}; 50 in the paper.", low=1)] = 50,
        lr: Annotated[
            float, Parameter("outer learning rate; .7 in the paper.", low=0, high=2)
        ] = 0.7,
        momentum: Annotated[
            float,
            Parameter("part of the momentum that a round keeps; .5 in the paper.", low=0, high=1),
        ] = 0.5,
        gamma: Annotated[
            float,
            Parameter("how much phi is drawn together; 1 in the paper.", low=0.05, high=4),
        ] = 1.0,
    ) -> None:
        super().__init__(h)
        self.lr = lr
        self.momentum = momentum
        self.gamma = gamma
        self._row: dict[PeerId, float] = {}

    def start(self, context: RuleContext) -> None:
        super().start(context)
        context.combine(_PHI, [(1.0, X)])
        context.combine(_MOMENTUM, [(0.0, X)])

    def partners(self, context: RuleContext, round: int) -> Iterable[PeerId]:
        self._row = neighborhood(context, round)
        return self._row

    def outgoing(self) -> Terms:
        """Return z, a point between phi and x, or beyond."""
        reach = self.lr / self.gamma
        return ((1.0 - reach, _PHI), (reach, X))

    def take(self, context: RuleContext, came: Came, sent: str) -> None:
        row = {**self._row, context.me: 1.0 - sum(self._row.values())}
        total = sum(row.get(peer, 0.0) for peer in came)
        if not total:
            return
        mean = [(row.get(peer, 0.0) / total, term) for peer, term in came.items()]
        pulls = [(self.gamma * part, term) for part, term in mean if part]
        context.combine(_MOMENTUM, [(self.momentum, _MOMENTUM), (-self.gamma, _PHI), *pulls])
        context.combine(_PHI, [(1.0, _PHI), (1.0, _MOMENTUM)])
        context.combine(X, [(1.0, _PHI)])
