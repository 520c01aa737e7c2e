"""Small rules of quite different shapes, written with nothing but a `Turn`.

A synchronous round may still be fenced at a neighbor when this peer has gone on to the next one,
so what is sent is kept in two registers, one of even and one of odd rounds. More are never needed:
nobody is two rounds ahead of a neighbor.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from rumor.gossip import PeerId, Share, Turn
from rumor.gossip.effects import Wait, X

__all__ = ["D2", "DPSGD", "Active", "Passive", "RelaySum"]


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

    def pump(self, turn: Turn) -> None:
        """Push what can be pushed, what came back first."""
        for back in turn.returned:
            self._waiting[back.peer].appendleft(self._last[back.peer])
        for peer, letters in self._waiting.items():
            if letters and turn.can_push(peer):
                letter = self._last[peer] = letters.popleft()
                turn.push(peer, 1, **letter._asdict())

    def received(self, turn: Turn) -> dict[PeerId, Share]:
        """This round's shares, by sender; a neighbor may be a round ahead."""
        return {share.sender: share for share in turn.shares() if share.round == self.round}

    def wait_for(self, shares: dict[PeerId, Share]) -> Wait:
        """Say whose shares are missing."""
        return Wait(self.round, tuple(peer for peer in self.neighbors if peer not in shares))

    def post_model(self, turn: Turn) -> None:
        """Begin a round in which everybody gets ``x``."""
        self.round += 1
        turn.combine(self.parity("out"), [(1.0, X)])
        for peer in self.neighbors:
            self.post(peer, self.parity("out"))

    def average(self, turn: Turn, own: float) -> Wait | None:
        """Average ``x`` with all neighbors' models, once they are here."""
        self.pump(turn)
        shares = self.received(turn)
        if len(shares) < len(self.neighbors):
            return self.wait_for(shares)
        theirs = (1 - own) / len(shares)
        turn.combine(X, [(own, X), *((theirs, share) for share in shares.values())])
        for share in shares.values():
            turn.accept(share)
        return None

    def parity(self, register: str) -> str:
        """The register of this round: even and odd ones take turns."""
        return f"{register}/{self.round % 2}"


class DPSGD:
    """``X <- (X - lr G) W``, in rounds. Source: Lian et al., NeurIPS 2017, algorithm 1.

    Args:
        neighbors: On a regular graph; the membership is fixed.
        own: Weight of the peer's own model, w_ii; the neighbors share the rest.
    """

    name = "dpsgd"
    registers: tuple[str, ...] = ("out/0", "out/1")

    def __init__(self, neighbors: Sequence[PeerId], own: float) -> None:
        self.outstanding_max = len(neighbors)
        self._exchange = Exchange(neighbors)
        self._own = own

    def step(self, turn: Turn) -> Wait | None:
        """Send this round's model, and average once all neighbors' models are here."""
        if turn.trained:
            self._exchange.post_model(turn)
        return self._exchange.average(turn, self._own)


class D2:
    """``x+ = W (x - lr g + c)``, ``c = x+ - x + lr g``. Source: Tang et al., ICML 2018.

    Args:
        neighbors: As for `DPSGD`.
        own: Likewise.
    """

    name = "d2"
    registers: tuple[str, ...] = ("out/0", "out/1", "stepped", "correction")

    def __init__(self, neighbors: Sequence[PeerId], own: float) -> None:
        self.outstanding_max = len(neighbors)
        self._exchange = Exchange(neighbors)
        self._own = own

    def step(self, turn: Turn) -> Wait | None:
        """Send this round's corrected model, average, and keep what averaging did to it."""
        if turn.trained:
            turn.combine("stepped", [(1.0, X)])
            turn.combine(X, [(1.0, X), (1.0, "correction")])
            self._exchange.post_model(turn)
        wait = self._exchange.average(turn, self._own)
        if wait is None:
            turn.combine("correction", [(1.0, X), (-1.0, "stepped")])
        return wait


class RelaySum:
    """``m_ij = x_i + sum of m_ki over k != j``, on a tree. Source: Vogels et al., NeurIPS 2021.

    Args:
        neighbors: On a tree.
        n: How many peers there are.
    """

    name = "relaysum"

    def __init__(self, neighbors: Sequence[PeerId], n: int) -> None:
        self.outstanding_max = len(neighbors)
        self.registers = (
            *(f"in/{peer}" for peer in neighbors),
            *(f"out/{peer}/{parity}" for peer in neighbors for parity in (0, 1)),
        )
        self._exchange = Exchange(neighbors)
        self._counts = dict.fromkeys(neighbors, 0)
        self._n = n

    def step(self, turn: Turn) -> Wait | None:
        """Relay the sums of the last round, average with them, and wait for the next ones."""
        exchange = self._exchange
        if turn.trained:
            exchange.round += 1
            for peer in exchange.neighbors:
                self._relay(turn, peer)
            count = 1 + sum(self._counts.values())
            turn.combine(X, [(1 / count, term) for term in (X, *self._sums())])
        exchange.pump(turn)
        shares = exchange.received(turn)
        if len(shares) < len(exchange.neighbors):
            return exchange.wait_for(shares)
        for peer, share in shares.items():
            turn.combine(f"in/{peer}", [(1.0, share)])
            turn.accept(share)
            self._counts[peer] = share.note
        return None

    def _relay(self, turn: Turn, peer: PeerId) -> None:
        register = self._exchange.parity(f"out/{peer}")
        turn.combine(register, [(1.0, term) for term in (X, *self._sums(but=peer))])
        count = 1 + sum(count for other, count in self._counts.items() if other != peer)
        self._exchange.post(peer, register, count)

    def _sums(self, but: PeerId = "") -> list[str]:
        return [f"in/{peer}" for peer in self._exchange.neighbors if peer != but]


class Active:
    """The half of AD-PSGD's peers that ask for an average, and wait for the answer.

    Source: Lian et al., ICML 2018, section 4: where only one half of a bipartite graph asks,
    and only the other half answers, nobody can wait in a circle.
    """

    name = "adpsgd"
    registers: tuple[str, ...] = ()
    outstanding_max = 1

    def __init__(self) -> None:
        self._partner: PeerId | None = None
        self._due = False

    def step(self, turn: Turn) -> Wait | None:
        """Ask after every step; ``x`` must not move before the answer is here."""
        if turn.trained:
            self._partner = turn.draw()
        self._due = self._due or bool(turn.returned) or turn.trained
        if self._partner is None:
            return None
        if self._due and turn.can_push(self._partner):
            turn.push(self._partner, 1, round=turn.step)
            self._due = False
        for share in turn.shares():
            turn.combine(X, [(0.5, X), (0.5, share)])
            turn.accept(share)
            return None
        return Wait(turn.step, (self._partner,))


class Passive:
    """The other half: they answer with what they had before they mixed, and never wait.

    Args:
        askers: All who may ask; an answer is kept for each, in case it has to be sent again.
        log: Gets ``(asker, answerer)`` whenever two models were averaged.
    """

    name = "adpsgd"

    def __init__(self, me: PeerId, askers: Sequence[PeerId], log: list[tuple[PeerId, ...]]) -> None:
        self.registers = tuple(f"answer/{peer}" for peer in askers)
        self.outstanding_max = len(askers)
        self._me = me
        self._owed: dict[PeerId, None] = {}
        self._log = log

    def step(self, turn: Turn) -> Wait | None:
        """Answer everybody who asked and whose last answer is settled."""
        self._owed |= dict.fromkeys(back.peer for back in turn.returned)
        for peer in [peer for peer in self._owed if turn.can_push(peer)]:
            turn.push(peer, 1, register=f"answer/{peer}")
            del self._owed[peer]
        for share in turn.shares():
            if turn.can_push(share.sender):
                turn.combine(f"answer/{share.sender}", [(1.0, X)])
                turn.push(share.sender, 1, register=f"answer/{share.sender}")
                turn.combine(X, [(0.5, X), (0.5, share)])
                turn.accept(share)
                self._log.append((share.sender, self._me))
        return None
