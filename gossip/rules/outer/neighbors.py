"""Outer rounds among neighbors in the topology: GASLoC, NoLoCo."""

from collections.abc import Iterable
from typing import Annotated

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...specs.parameter import Parameter, checked
from ...types import PeerId
from ..synchronous.mixing import OUT, Terms
from .elastic import STEPS, Came, OuterRule

__all__ = ["GASLoC", "NoLoCo"]

_BEFORE = "before"
_LAST = "last"


class _NeighborRule(OuterRule):
    """An `OuterRule` in which each peer exchanges with its neighbors in the topology."""

    relays = True

    def __init__(self, h: int) -> None:
        super().__init__(h)
        # Mixing weights of this round's partners.
        self._row: dict[PeerId, float] = {}

    def partners(self, context: RuleContext, round: int) -> Iterable[PeerId]:
        heard = context.neighbors(round)
        if len(context.table.outward) > 1:
            # Two peers that only dial out are routed around each other, which the matrix ignores.
            self._row = dict.fromkeys(heard, 1 / (len(heard) + 1))
        else:
            row = context.weights(round)
            every = dict.fromkeys((*heard, *row))
            self._row = {peer: row.get(peer, 0.0) for peer in every if peer != context.me}
        return self._row


class GASLoC(_NeighborRule):
    """``y = theta + eta (x - theta)``, ``x = theta+ = y - alpha L y + gamma (y - y_last)``.

    theta is a peer's model after its last round, x the same after h optimizer steps, and L = I - W
    the Laplacian of the round's graph. One or two random partners a round, as in the paper, are
    topologies: ``random-matching`` has one. A partner that is gone is a missing edge. With
    ``gamma=0`` and ``alpha=1`` this is plain gossip, ``theta+ = W y``. Before the first round
    ``y_last`` is theta. A peer waits for a partner with a larger h.

    Source: Cagnasso, Belilovsky and Oyallon, 2026, arXiv 2606.11081, a preprint; equations from
    summaries of it, not from the paper. We found no numbers in them: the defaults are ours, see
    docs/reference/rules.md.
    """

    name = "gasloc"
    summary = "gossip of local steps with momentum, every h steps"
    registers = (*OUT, _BEFORE, _LAST)
    models = (_BEFORE, _LAST)

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

    def outgoing(self) -> Terms:
        return ((1.0 - self.eta, _BEFORE), (self.eta, X))

    def take(self, context: RuleContext, came: Came, sent: str) -> None:
        parts = {p: self.alpha * self._row.get(p, 0.0) for p in came if p != context.me}
        kept = 1.0 - sum(parts.values()) + self.gamma
        pulls = [(part, came[peer]) for peer, part in parts.items() if part]
        context.combine(X, [(kept, sent), (-self.gamma, _LAST), *pulls])
        context.combine(_LAST, [(1.0, sent)])
        context.combine(_BEFORE, [(1.0, X)])


_PHI = "phi"
_MOMENTUM = "momentum"


class NoLoCo(_NeighborRule):
    """``m <- mu m + lr mean(x - phi) + gamma (mean(phi) - phi_i)``, ``x = phi <- phi + m``.

    phi is a peer's model after its last round, x the same after h optimizer steps. Means are over
    the peer and its neighbors of the round that are not gone, by the row of the topology's mixing
    matrix: over pairs, as published, with ``random-matching``.

    The paper sends x and phi. One vector is enough: with ``z = phi + (lr / gamma) (x - phi)`` both
    terms together are ``gamma (mean(z) - phi_i)``. With ``gamma = lr``, as in the authors' code, z
    is x.

    Source: Kolehmainen, Blagoev, Donaghy, Ersoy and Nies, 2025, arXiv 2506.10911, and its code.
    """

    name = "noloco"
    summary = "outer momentum in pairs, every h steps"
    registers = (*OUT, _PHI, _MOMENTUM)
    models = (_PHI,)

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

    def outgoing(self) -> Terms:
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
