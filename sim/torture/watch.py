"""What must hold after every event, whatever the network did (PROTOCOL: I1 to I6).

I1 and I2 are held against the *ledgers*: the entries that were carried out before a crash, folded
once more, and not the accounts that the protocols keep in memory. With shards each of them holds
for every shard by itself.
"""

from collections import Counter, deque
from collections.abc import Collection
from hashlib import blake2b
from typing import Protocol as Structural

import numpy as np

from ...gossip import Account, Entry, Kind, PeerId, Phase, Protocol, audit
from ...gossip.effects import (
    Combine,
    Effect,
    Founded,
    Joined,
    Mix,
    Outlived,
    PeerDied,
    PeerRecovered,
    PeerSuspected,
    PushSkipped,
    Reclaim,
    Record,
    Release,
    Send,
    ShareRefused,
    SwarmGivenUp,
)
from ...gossip.messages import Chunk, Envelope, Incarnation, Offer, Query, Refer
from .moments import Moments
from .vector import Values, Vector
from .violation import LIVENESS, Violation

__all__ = ["Life", "Watch", "Watched"]

Life = tuple[PeerId, Incarnation]
_Push = tuple[Life, Life, int, int]
"""Sender, receiver, number, shard."""

_ROUNDING = 1e-9

_TRACED = 1500
"""Events and effects that are kept, to be shown where something breaks."""


class Watched(Structural):
    """What can be seen of a running peer from outside."""

    protocol: Protocol
    vector: Vector
    ledgers: tuple[Account, ...]
    poisoned: bool


class Watch:
    """Looks on, and raises `Violation` where an invariant is broken.

    Args:
        hulls: Whether values only ever change by mixing, so that I4 can be held against them.
        exact: Whether the weighted sum of all models is conserved, too, so that I5 can.
        digests: Whether to keep a digest of everything, which takes a fifth of the time.

    Attributes:
        seen: How often each thing that must happen *sometimes* in a campaign did happen.
        ledgers: An account for each shard of each life, folded from what was written.
        dead: The lives that ended without handing their weight on.
        closed: The lives that ended in good order.
        events: How many events were looked at.
        steps: Optimizer steps of each peer in all its lives.
    """

    def __init__(self, *, hulls: bool = True, exact: bool = False, digests: bool = True) -> None:
        self._keeps_hulls = hulls
        self.moments = Moments() if hulls and exact else None
        self.seen: Counter[str] = Counter()
        self.ledgers: dict[Life, tuple[Account, ...]] = {}
        self.dead: set[Life] = set()
        self.closed: set[Life] = set()
        self.events = 0
        self.steps: Counter[PeerId] = Counter()
        self._digest = blake2b(digest_size=16) if digests else None
        self._traced: deque[tuple[float, Life, object, object]] = deque(maxlen=_TRACED)
        self._now = 0.0
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
        """Fingerprint of every event and effect so far (I6); empty where none is kept."""
        return self._digest.hexdigest() if self._digest else ""

    @property
    def lately(self) -> tuple[PeerId, ...]:
        """At whom something happened last."""
        return (self._traced[-1][1][0],) if self._traced else ()

    def trace(self, peers: Collection[PeerId], most: int) -> list[str]:
        """The last things that happened at some peers, one line each, the oldest first.

        Args:
            peers: Whose; everybody's if empty.
            most: So many of the last.
        """
        rows = [row for row in self._traced if not peers or row[1][0] in peers]
        return [_told(*row) for row in rows[max(0, len(rows) - most) :]]

    def opened(self, host: Watched) -> None:
        """Note that a life began."""
        life = _life(host)
        if life in self.ledgers:
            raise Violation("order", f"{life} lives twice", (life[0],))
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
        self._audit(life[0])

    def happened(self, now: float, life: Life, what: str, detail: object) -> None:
        """Take note of an event."""
        self.events += 1
        self._now = now
        self._traced.append((now, life, what, detail))
        if self._digest:
            self._digest.update(f"{now!r} {life} {what} {detail!r}\n".encode())

    def trained(self, host: Watched) -> None:
        """Note that a peer took an optimizer step."""
        self.steps[_life(host)[0]] += 1

    def delivered(self, host: Watched, envelope: Envelope) -> None:
        """Note what is special about a message that reaches a peer."""
        mine = host.protocol.account.incarnation
        if 0 < envelope.destination_incarnation < mine:
            self.seen["stale incarnation"] += 1

    def effect(self, host: Watched, effect: Effect, cause: object) -> None:
        """Look at an effect that was just carried out."""
        life = _life(host)
        self._traced.append((self._now, life, None, effect))
        if self._digest:
            self._digest.update(f"{effect!r}\n".encode())
        match effect:
            case Record(entry):
                self._stale_accounts = self._moved = True
                self._check_entry(host, entry)
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
            case Founded():
                self.seen["founding"] += 1
            case Joined():
                self._copies.pop(life, None)
                self.seen["join by copy"] += 1
            case ShareRefused(_, reason):
                self.seen[f"refused: {reason}"] += 1
            case SwarmGivenUp():
                self.seen["swarm given up"] += 1
            case PeerSuspected():
                self.seen["suspected"] += 1
            case PeerRecovered():
                self.seen["recovered"] += 1
            case PeerDied(peer):
                if self._lives(peer):
                    self.seen["split view"] += 1
            case Outlived():
                self.seen["outlived"] += 1
            case _:
                pass

    def all_done(self, host: Watched) -> None:
        """Check everything, after all effects of an event were carried out."""
        me = _life(host)[0]
        if host.ledgers != host.protocol.accounts:
            raise Violation("order", f"ledger and account of {me} drifted apart", (me,))
        if len(host.vector.snapshots) > _outstanding(host):
            raise Violation("leak", f"{me} keeps a snapshot of no push", (me,))
        if len(host.vector.staged) > host.protocol.staged:
            raise Violation("leak", f"{me} keeps what no share will take", (me,))
        self._audit(me)
        self._check_hull(host)
        if self.moments is not None:
            self.moments.check()

    def ended(self, host: Watched) -> None:
        """Check that a peer which closes in good order owes nothing and keeps nothing."""
        me = _life(host)[0]
        if host.protocol.staged or host.vector.staged:
            raise Violation("leak", f"{me} closes on a share that it has not decided", (me,))
        # What was read from memory, or must be mixed back, is kept until it is settled.
        if len(host.vector.snapshots) > _outstanding(host):
            raise Violation("leak", f"{me} closes and keeps a snapshot of no push", (me,))
        has_left = host.protocol.phase is Phase.LEFT
        for ledger in host.ledgers:
            for life, escrow in ledger.outstanding.items():
                # To one that has left, stranded escrow may come back, and it may close before that.
                gone = has_left or life in self.dead | self.closed
                if not (escrow.stranded or gone):
                    raise Violation(
                        LIVENESS, f"{me} closes on open escrow to {life}", (me, life[0])
                    )
        self.closed.add(_life(host))

    def check_clock(self, host: Watched) -> None:
        """Check that nobody counts steps that were never taken."""
        for peer, steps in host.protocol.clock.rows().items():
            if steps > self.steps[peer]:
                me = _life(host)[0]
                what = f"{me} counts {steps} steps of {peer}, which took {self.steps[peer]}"
                raise Violation("clock", what, (me, peer))

    def _lives(self, peer: PeerId) -> bool:
        """Whether the last life of a peer neither died nor closed."""
        lives = [life for life in self.ledgers if life[0] == peer]
        return bool(lives) and lives[-1] not in self.dead | self.closed

    def _sent(self, host: Watched, send: Send) -> None:
        life, envelope = _life(host), send.envelope
        to = envelope.destination, envelope.destination_incarnation
        body = envelope.body
        if isinstance(body, Offer):
            if body.form.copy:
                self._copies[to] = life
        elif isinstance(body, Chunk):
            self._streamed.add((life, to, body.seq, envelope.shard))
        elif isinstance(body, Refer):
            self.seen["newcomer referred"] += 1

    def _audit(self, me: PeerId) -> None:
        """I1, of each shard."""
        if self._stale_accounts:
            self._stale_accounts = False
            for shard in zip(*self.ledgers.values(), strict=True):
                total = audit(shard, self.dead)
                if not total.balanced:
                    raise Violation("I1", str(total), (me,))

    def _check_entry(self, host: Watched, entry: Entry) -> None:
        """Hold what is to be written against what everybody else has written (I2, I3)."""
        me, other = _life(host), (entry.peer, entry.incarnation)
        whom = (me[0], entry.peer) if entry.peer else (me[0],)
        push, share = (me, other, entry.seq, entry.shard), (other, me, entry.seq, entry.shard)
        match entry.kind:
            case Kind.PUSHED:
                if push in self._pushed:
                    raise Violation("I3", f"a number is used twice: {_named(push)}", whom)
            case Kind.ACCEPTED:
                if share in self._decided:
                    raise Violation("I3", f"decided twice: {_named(share)}", whom)
                if not 0 <= entry.units <= self._pushed[share]:
                    what = f"{entry.units} units accepted of {self._pushed[share]}"
                    raise Violation("I2", f"{what}: {_named(share)}", whom)
                if entry.units and share in self._given_up:
                    raise Violation(
                        "I3", f"accepted after it was taken back: {_named(share)}", whom
                    )
            case Kind.SETTLED:
                if entry.units != (self._decided.get(push) or 0):
                    raise Violation("I3", f"settled otherwise than decided: {_named(push)}", whom)
            case _:
                pass

    def _entry(self, host: Watched, entry: Entry, cause: object) -> None:
        me, other = _life(host), (entry.peer, entry.incarnation)
        push = me, other, entry.seq, entry.shard
        if host.ledgers[entry.shard].weight < 0:
            raise Violation("I2", f"{me[0]} holds less than nothing", (me[0],))
        if self.moments is not None:
            self.moments.entry(me, entry)
        match entry.kind:
            case Kind.FOUNDED:
                self._widen_hull(host)
            case Kind.PUSHED:
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
        self._decided[push] = units
        sender = push[0]
        if units == 0 and isinstance(cause, Query):
            self.seen["fence"] += 1
        if 0 < units < self._pushed[push]:
            self.seen["partial accept"] += 1
        if units and sender in self.dead:
            self.seen["accept after the sender's death"] += 1

    def _settlement(self, host: Watched, push: _Push, units: int) -> None:
        if push not in self._decided:
            self._given_up.add(push)
            if push in self._streamed:
                self.seen["chunked transfer given up"] += 1
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
                if not inside[host.vector.part(ledger.shard)].all():
                    me = ledger.id
                    raise Violation("I4", f"the model of {me} lies outside of the hull", (me,))


def _life(host: Watched) -> Life:
    return host.ledgers[0].life


def _named(push: _Push) -> str:
    sender, receiver, seq, shard = push
    return f"push {seq} of shard {shard} from {sender} to {receiver}"


def _told(now: float, life: Life, what: object, detail: object) -> str:
    name = f"{now:9.4f} s  {life[0]}/{life[1]}"
    if what is None:
        return f"{name}    -> {detail!r}"
    return f"{name}  {what}" + ("" if detail is None else f" {detail!r}")


def _outstanding(host: Watched) -> int:
    return sum([len(ledger.outstanding) for ledger in host.ledgers])
