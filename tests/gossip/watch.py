"""What must hold after every event, whatever the network did (PROTOCOL: I1 to I4 and I6).

I1 and I2 are held against the *ledgers*: the entries that were carried out before a crash, folded
once more, and not the accounts that the protocols keep in memory.
"""

from collections import Counter
from hashlib import blake2b
from typing import Protocol as Structural

import numpy as np

from rumor.gossip import Account, Entry, Kind, PeerId, Phase, Protocol, audit
from rumor.gossip.effects import Effect, Joined, Record, Send, ShareRefused, SwarmGivenUp
from rumor.gossip.messages import Chunk, Envelope, Incarnation, Offer, Query

from .vector import Values, Vector

__all__ = ["Life", "Watch", "Watched"]

Life = tuple[PeerId, Incarnation]
_Push = tuple[Life, Life, int]

_ROUNDING = 1e-9


class Watched(Structural):
    """What can be seen of a running peer from outside."""

    protocol: Protocol
    vector: Vector
    ledger: Account
    poisoned: bool


class Watch:
    """Looks on, and raises AssertionError where an invariant is broken.

    Args:
        hulls: Whether values only ever change by mixing, so that I4 can be held against them.

    Attributes:
        seen: How often each thing that must happen *sometimes* in a campaign did happen.
        ledgers: One account for each life, folded from what was written.
        dead: The lives that ended without handing their weight on.
        closed: The lives that ended in good order.
        events: How many events were looked at.
    """

    def __init__(self, *, hulls: bool = True) -> None:
        self._keeps_hulls = hulls
        self.seen: Counter[str] = Counter()
        self.ledgers: dict[Life, Account] = {}
        self.dead: set[Life] = set()
        self.closed: set[Life] = set()
        self.events = 0
        self._digest = blake2b(digest_size=16)
        self._pushed: dict[_Push, int] = {}
        self._decided: dict[_Push, int] = {}
        self._given_up: set[_Push] = set()
        self._streamed: set[_Push] = set()
        self._copies: dict[Life, Life] = {}
        self._hulls: dict[bytes, tuple[Values, Values]] = {}
        self._stale_accounts = False

    @property
    def digest(self) -> str:
        """Fingerprint of every event and effect so far (I6)."""
        return self._digest.hexdigest()

    def opened(self, host: Watched) -> None:
        """Note that a life began."""
        assert host.ledger.life not in self.ledgers
        self.ledgers[host.ledger.life] = host.ledger

    def died(self, host: Watched) -> None:
        """Note that a life ended without a word."""
        life = host.ledger.life
        self.dead.add(life)
        if life in self._copies.values():
            self.seen["donor lost in mid-join"] += 1
        self._stale_accounts = True
        self._audit()

    def happened(self, now: float, what: str, detail: object) -> None:
        """Take an event into the digest."""
        self.events += 1
        self._digest.update(f"{now!r} {what} {detail!r}\n".encode())

    def delivered(self, host: Watched, envelope: Envelope) -> None:
        """Note what is special about a message that reaches a peer."""
        mine = host.protocol.account.incarnation
        if 0 < envelope.destination_incarnation < mine:
            self.seen["stale incarnation"] += 1

    def effect(self, host: Watched, effect: Effect, cause: object) -> None:
        """Look at an effect that was just carried out."""
        self._digest.update(f"{effect!r}\n".encode())
        life = host.ledger.life
        match effect:
            case Record(entry):
                self._stale_accounts = True
                host.ledger.apply(entry)
                self._entry(host, entry, cause)
            case Send(envelope):
                self._sent(life, envelope)
            case Joined():
                self._copies.pop(life, None)
                self.seen["join by copy"] += 1
            case ShareRefused(_, reason):
                self.seen[f"refused: {reason}"] += 1
            case SwarmGivenUp():
                self.seen["swarm given up"] += 1
            case _:
                pass

    def all_done(self, host: Watched) -> None:
        """Check everything, after all effects of an event were carried out."""
        assert host.ledger == host.protocol.account, "the ledger and the account drifted apart"
        assert len(host.vector.snapshots) <= len(host.ledger.outstanding), "a snapshot leaks"
        assert len(host.vector.staged) <= host.protocol.staged, "a staged share leaks"
        self._audit()
        self._check_hull(host)

    def ended(self, host: Watched) -> None:
        """Check that a peer which closes in good order owes nothing and keeps nothing."""
        assert host.protocol.staged == 0 and not host.vector.staged
        assert not host.vector.snapshots
        has_left = host.protocol.phase is Phase.LEFT
        for life, escrow in host.ledger.outstanding.items():
            # To one that has left, stranded escrow may come back, and it may close before that.
            assert escrow.stranded or has_left or life in self.dead | self.closed
        self.closed.add(host.ledger.life)

    def _sent(self, life: Life, envelope: Envelope) -> None:
        to = envelope.destination, envelope.destination_incarnation
        body = envelope.body
        if isinstance(body, Offer) and body.copy:
            self._copies[to] = life
        elif isinstance(body, Chunk):
            self._streamed.add((life, to, body.seq))

    def _audit(self) -> None:
        if self._stale_accounts:
            self._stale_accounts = False
            total = audit(self.ledgers.values(), self.dead)
            assert total.balanced, total

    def _entry(self, host: Watched, entry: Entry, cause: object) -> None:
        me, other = host.ledger.life, (entry.peer, entry.incarnation)
        assert host.ledger.weight >= 0
        match entry.kind:
            case Kind.FOUNDED:
                self._widen_hull(host)
            case Kind.PUSHED:
                push = me, other, entry.seq
                assert push not in self._pushed, "a number was used twice"
                self._pushed[push] = entry.units
            case Kind.ACCEPTED:
                self._decision((other, me, entry.seq), entry.units, cause)
            case Kind.SETTLED:
                self._settlement(host, (me, other, entry.seq), entry.units)
            case _:
                self.seen[entry.kind.value] += 1
                if entry.kind is Kind.WRITTEN_OFF and self._decided.get((me, other, entry.seq)):
                    self.seen["written off what was accepted"] += 1

    def _decision(self, push: _Push, units: int, cause: object) -> None:
        assert push not in self._decided, f"decided twice: {push} (I3)"
        assert 0 <= units <= self._pushed[push], "more was accepted than was sent (I2)"
        assert units == 0 or push not in self._given_up, "accepted what was taken back"
        self._decided[push] = units
        sender, receiver, _ = push
        if units == 0 and isinstance(cause, Query):
            self.seen["fence"] += 1
        if 0 < units < self._pushed[push]:
            self.seen["partial accept"] += 1
        if units and sender in self.dead:
            self.seen["accept after the sender's death"] += 1
        assert receiver not in self.dead

    def _settlement(self, host: Watched, push: _Push, units: int) -> None:
        decided = self._decided.get(push)
        if decided is None:
            self._given_up.add(push)
            if push in self._streamed:
                self.seen["chunked transfer given up"] += 1
        assert units == (decided or 0), "settled otherwise than decided"
        if units and host.protocol.phase >= Phase.LEAVING:
            self.seen["leave with hand-over"] += 1

    def _widen_hull(self, host: Watched) -> None:
        x, swarm = host.vector.x, host.protocol.swarm
        low, high = self._hulls.get(swarm, (x, x))
        self._hulls[swarm] = np.minimum(low, x), np.maximum(high, x)

    def _check_hull(self, host: Watched) -> None:
        """I4: a model lies within what the founders of its swarm brought, in each coordinate."""
        if not self._keeps_hulls or host.poisoned or not host.ledger.weight:
            return
        low, high = self._hulls[host.protocol.swarm]
        x = host.vector.x
        assert ((low - _ROUNDING <= x) & (x <= high + _ROUNDING)).all(), "outside of the hull (I4)"
