"""A rule of another shape than GoSGD's, written with nothing but a `RuleContext`.

A synchronous round may still be fenced at a neighbor when this peer has gone on to the next one,
so what is sent is kept in two registers, one of even and one of odd rounds. More are never needed:
nobody is two rounds ahead of a neighbor.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from rumor.gossip.effects.effects import Wait, X
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.share import Share
from rumor.gossip.types import PeerId
from rumor.gossip.weight import token

__all__ = ["D2"]


class Letter(NamedTuple):
    """What is to be pushed: a register, of which round, and the rule's own number."""

    register: str
    round: int
    note: int


class Exchange:
    """Rounds in which every neighbor sends a share to every other; fenced ones are sent again."""

    def __init__(self, neighbors: Sequence[PeerId]) -> None:
        self.neighbors = tuple(neighbors)
        self.round = 0
        self._waiting: dict[PeerId, deque[Letter]] = {peer: deque() for peer in neighbors}
        self._last: dict[PeerId, Letter] = {}

    def post(self, peer: PeerId, register: str, note: int = 0) -> None:
        """Send a register in this round, as soon as the share before it is settled."""
        self._waiting[peer].append(Letter(register, self.round, note))

    def pump(self, context: RuleContext) -> None:
        """Push what can be pushed, what came back first."""
        for back in context.returned:
            self._waiting[back.peer].appendleft(self._last[back.peer])
        for peer, letters in self._waiting.items():
            if letters and context.can_push(peer):
                letter = self._last[peer] = letters.popleft()
                context.push(peer, token(context.weight), **letter._asdict())

    def received(self, context: RuleContext) -> dict[PeerId, Share]:
        """This round's shares, by sender; a neighbor may be a round ahead."""
        return {share.sender: share for share in context.shares() if share.round == self.round}

    def wait_for(self, shares: dict[PeerId, Share]) -> Wait:
        """Say whose shares are missing."""
        return Wait(self.round, tuple(peer for peer in self.neighbors if peer not in shares))

    def post_model(self, context: RuleContext) -> None:
        """Begin a round in which everybody gets ``x``."""
        self.round += 1
        context.combine(self.parity("out"), [(1.0, X)])
        for peer in self.neighbors:
            self.post(peer, self.parity("out"))

    def average(self, context: RuleContext, own: float) -> Wait | None:
        """Average ``x`` with all neighbors' models, once they are here."""
        self.pump(context)
        shares = self.received(context)
        if len(shares) < len(self.neighbors):
            return self.wait_for(shares)
        theirs = (1 - own) / len(shares)
        context.combine(X, [(own, X), *((theirs, share) for share in shares.values())])
        for share in shares.values():
            context.accept(share)
        return None

    def parity(self, register: str) -> str:
        """The register of this round: even and odd ones take turns."""
        return f"{register}/{self.round % 2}"


class D2:
    """``x+ = W (x - lr g + c)``, ``c = x+ - x + lr g``. Source: Tang et al., ICML 2018.

    Args:
        neighbors: On a regular graph; the membership is fixed.
        own: Weight of the peer's own model, w_ii; the neighbors share the rest.
    """

    name = "d2"
    registers: tuple[str, ...] = ("out/0", "out/1", "stepped", "correction")

    def __init__(self, neighbors: Sequence[PeerId], own: float) -> None:
        self.outstanding_max = len(neighbors)
        self._exchange = Exchange(neighbors)
        self._own = own

    def step(self, context: RuleContext) -> Wait | None:
        """Send this round's corrected model, average, and keep what averaging did to it."""
        if context.trained:
            context.combine("stepped", [(1.0, X)])
            context.combine(X, [(1.0, X), (1.0, "correction")])
            self._exchange.post_model(context)
        wait = self._exchange.average(context, self._own)
        if wait is None:
            context.combine("correction", [(1.0, X), (-1.0, "stepped")])
        return wait
