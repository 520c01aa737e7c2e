"""What must hold after every event, whatever the network did (PROTOCOL: I1 to I6).

I1 and I2 are held against the *ledgers*: the entries that were carried out before a crash, folded
once more, and not the accounts that the protocols keep in memory. With shards each of them holds
for every shard by itself.
"""

from collections import Counter
from hashlib import blake2b
from typing import Protocol as Structural

import numpy as np

from rumor.gossip import Account, Entry, Kind, PeerId, Phase, Protocol, audit
from rumor.gossip.effects import (
    Combine,
    Effect,
    Joined,
    Mix,
    PushSkipped,
    Reclaim,
    Record,
    Release,
    Send,
    ShareRefused,
    SwarmGivenUp,
)
from rumor.gossip.messages import Chunk, Envelope, Incarnation, Offer, Query

from .moments import Moments
from .vector import Values, Vector

__all__ = ["Life", "Watch", "Watched"]

Life = tuple[PeerId, Incarnation]
_Push = tuple[Life, Life, int, int]
"""Sender, receiver, number, shard."""

_ROUNDING = 1e-9


class Watched(Structural):
    """What can be seen of a running peer from outside."""

    protocol: Protocol
    vector: Vector
    ledgers: tuple[Account, ...]
    poisoned: bool


class Watch:
    """Looks on, and raises AssertionError where an invariant is broken.

    Args:
        hulls: Whether values only ever change by mixing, so that I4 can be held against them.
        exact: Whether the weighted sum of all models is conserved, too, so that I5 can.

    Attributes:
        seen: How often each thing that must happen *sometimes* in a campaign did happen.
        ledgers: An account for each shard of each life, folded from what was written.
        dead: The lives that ended without handing their weight on.
        closed: The lives that ended in good order.
        events: How many events were looked at.
    """

    def __init__(self, *, hulls: bool = True, exact: bool = False) -> None:
        self._keeps_hulls = hulls
        self.moments = Moments() if hulls and exact else None
        self.seen: Counter[str] = Counter()
        self.ledgers: dict[Life, tuple[Account, ...]] = {}
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
        self._moved = False

    @property
    def digest(self) -> str:
        """Fingerprint of every event and effect so far (I6)."""
        return self._digest.hexdigest()

    def opened(self, host: Watched) -> None:
        """Note that a life began."""
        life = _life(host)
        assert life not in self.ledgers
        self.ledgers[life] = host.ledgers
        if self.moments is not None:
            self.moments.opened(life, host.vector, host.ledgers)

    def died(self, host: Watched) -> None:
        """Note that a life ended without a word."""
        life = _life(host)
        self.dead.add(life)
        if self.moments is not None:
            self.moments.died(life)
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
        life = _life(host)
        match effect:
            case Record(entry):
                self._stale_accounts = self._moved = True
                host.ledgers[entry.shard].apply(entry)
                if entry.kind is Kind.PUSHED and self.moments is not None:
                    push = life, (entry.peer, entry.incarnation), entry.seq, entry.shard
                    self.moments.pushed(push, host.vector.latest(entry.shard))
                self._entry(host, entry, cause)
            case Send():
                self._sent(host, effect)
            case Mix() | Combine():
                self._moved = True
            case Reclaim():
                self._moved = True
                self.seen["mixed back"] += 1
            case Release(_, abandoned=True):
                self.seen["abandoned"] += 1
            case PushSkipped(reason):
                self.seen[f"skipped: {reason}"] += 1
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
        assert host.ledgers == host.protocol.accounts, "the ledger and the account drifted apart"
        assert len(host.vector.snapshots) <= _outstanding(host), "a snapshot leaks"
        assert len(host.vector.staged) <= host.protocol.staged, "a staged share leaks"
        self._audit()
        self._check_hull(host)
        if self.moments is not None:
            self.moments.check()

    def ended(self, host: Watched) -> None:
        """Check that a peer which closes in good order owes nothing and keeps nothing."""
        assert host.protocol.staged == 0 and not host.vector.staged
        # What was read from memory, or must be mixed back, is kept until it is settled.
        assert len(host.vector.snapshots) <= _outstanding(host)
        has_left = host.protocol.phase is Phase.LEFT
        for ledger in host.ledgers:
            for life, escrow in ledger.outstanding.items():
                # To one that has left, stranded escrow may come back, and it may close before that.
                assert escrow.stranded or has_left or life in self.dead | self.closed
        self.closed.add(_life(host))

    def _sent(self, host: Watched, send: Send) -> None:
        life, envelope = _life(host), send.envelope
        to = envelope.destination, envelope.destination_incarnation
        body = envelope.body
        if isinstance(body, Offer):
            if body.form.copy:
                self._copies[to] = life
        elif isinstance(body, Chunk):
            self._streamed.add((life, to, body.seq, envelope.shard))

    def _audit(self) -> None:
        """I1, of all shards together and of each."""
        if self._stale_accounts:
            self._stale_accounts = False
            for shard in zip(*self.ledgers.values(), strict=True):
                total = audit(shard, self.dead)
                assert total.balanced, total

    def _entry(self, host: Watched, entry: Entry, cause: object) -> None:
        me, other = _life(host), (entry.peer, entry.incarnation)
        push = me, other, entry.seq, entry.shard
        assert host.ledgers[entry.shard].weight >= 0
        if self.moments is not None:
            self.moments.entry(me, entry)
        match entry.kind:
            case Kind.FOUNDED:
                self._widen_hull(host)
            case Kind.PUSHED:
                assert push not in self._pushed, "a number was used twice"
                self._pushed[push] = entry.units
            case Kind.ACCEPTED:
                self._decision((other, me, entry.seq, entry.shard), entry.units, cause)
            case Kind.SETTLED:
                self._settlement(host, push, entry.units)
            case _:
                self.seen[entry.kind.value] += 1
                if entry.kind is Kind.WRITTEN_OFF and self._decided.get(push):
                    self.seen["written off what was accepted"] += 1

    def _decision(self, push: _Push, units: int, cause: object) -> None:
        assert push not in self._decided, f"decided twice: {push} (I3)"
        assert 0 <= units <= self._pushed[push], "more was accepted than was sent (I2)"
        assert units == 0 or push not in self._given_up, "accepted what was taken back"
        self._decided[push] = units
        sender, receiver, *_ = push
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
        moved, self._moved = self._moved, False
        if not (self._keeps_hulls and moved) or host.poisoned:
            return
        x, swarm = host.vector.x, host.protocol.swarm
        for ledger in host.ledgers:
            if ledger.weight:
                low, high = self._hulls[swarm]
                inside = (low - _ROUNDING <= x) & (x <= high + _ROUNDING)
                assert inside[host.vector.part(ledger.shard)].all(), "outside of the hull (I4)"


def _life(host: Watched) -> Life:
    return host.ledgers[0].life


def _outstanding(host: Watched) -> int:
    return sum([len(ledger.outstanding) for ledger in host.ledgers])
