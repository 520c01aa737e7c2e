"""What must hold after every event, whatever the network did (PROTOCOL: I1 to I6).

I1 and I2 are checked against the *ledgers*: the entries that were carried out before a crash,
folded once more, and not the accounts that the protocols keep in memory. With shards, each holds
for every shard by itself.
"""

from collections import Counter, deque
from collections.abc import Collection
from hashlib import blake2b

import numpy as np

from ...gossip import Account, Entry, Kind, PeerId, Phase, audit
from ...gossip.effects.effects import Combine, Effect, Mix, Reclaim, Record, Release, Send
from ...gossip.effects.events import (
    Event,
    Founded,
    Joined,
    PeerDied,
    PeerRecovered,
    PeerSuspected,
    PushSkipped,
    ShareRefused,
    StaleIncarnation,
    SwarmGivenUp,
)
from ...gossip.weight import in_units
from ...gossip.wire.messages import Chunk, Envelope, Offer, Query, Refer
from .peers import FuzzPeer
from .trace import canonical, tell
from .vector import Values
from .violation import LIVENESS, Violation
from .weighted_sum import Life, Push, WeightedSum

__all__ = ["Invariants", "PushInvariants"]


class PushInvariants:
    """What became of each push, from everybody's ledgers.

    Args:
        seen: Counts the events to be covered.
        dead: The lives that ended without a word, as they become known.
    """

    def __init__(self, seen: Counter[str], dead: Collection[Life]) -> None:
        self._seen = seen
        self._dead = dead
        self._pushed: dict[Push, int] = {}
        self._decided: dict[Push, int] = {}
        self._given_up: set[Push] = set()
        self._streamed: set[Push] = set()

    def streamed(self, push: Push) -> None:
        """Note that a frame of it was sent."""
        self._streamed.add(push)

    def check(self, me: Life, entry: Entry) -> None:
        """Check what is to be written against what everybody else has written.

        Raises:
            Violation: It contradicts that; nothing was noted.
        """
        other = entry.peer, entry.incarnation
        mine, theirs = (me, other, entry.seq, entry.shard), (other, me, entry.seq, entry.shard)
        whom = (me[0], entry.peer) if entry.peer else (me[0],)
        match entry.kind:
            case Kind.PUSHED:
                if mine in self._pushed:
                    raise Violation("I3", f"a number is used twice: {_named(mine)}", whom)
            case Kind.ACCEPTED:
                self._check_decision(theirs, entry.weight, whom)
            case Kind.SETTLED:
                if entry.weight != self._decided.get(mine, 0):
                    raise Violation("I3", f"settled otherwise than decided: {_named(mine)}", whom)
            case _:
                pass

    def written(self, me: Life, entry: Entry, phase: Phase, cause: object) -> None:
        """Note what was written, and what brought it about."""
        other = entry.peer, entry.incarnation
        mine = me, other, entry.seq, entry.shard
        match entry.kind:
            case Kind.FOUNDED:
                pass
            case Kind.PUSHED:
                self._pushed[mine] = entry.weight
            case Kind.ACCEPTED:
                self._decide((other, me, entry.seq, entry.shard), entry.weight, cause)
            case Kind.SETTLED:
                self._settle(mine, entry.weight, phase)
            case _:
                self._seen[entry.kind.value] += 1
                if entry.kind is Kind.WRITTEN_OFF and self._decided.get(mine):
                    self._seen["written off what was accepted"] += 1

    def _check_decision(self, push: Push, weight: int, whom: tuple[PeerId, ...]) -> None:
        pushed = self._pushed.get(push)
        if pushed is None:
            raise Violation("I2", f"decided what was never pushed: {_named(push)}", whom)
        if push in self._decided:
            raise Violation("I3", f"decided twice: {_named(push)}", whom)
        if push[1] in self._dead:
            raise Violation("I3", f"decided by the dead: {_named(push)}", whom)
        if not 0 <= weight <= pushed:
            words = f"{in_units(weight)} units accepted of {in_units(pushed)}: {_named(push)}"
            raise Violation("I2", words, whom)
        if weight and push in self._given_up:
            raise Violation("I3", f"accepted after it was taken back: {_named(push)}", whom)

    def _decide(self, push: Push, weight: int, cause: object) -> None:
        self._decided[push] = weight
        if weight == 0 and isinstance(cause, Query):
            self._seen["fence"] += 1
        if 0 < weight < self._pushed[push]:
            self._seen["partial accept"] += 1
        if weight and push[0] in self._dead:
            self._seen["accept after the sender's death"] += 1

    def _settle(self, push: Push, weight: int, phase: Phase) -> None:
        if push not in self._decided:
            self._given_up.add(push)
            if push in self._streamed:
                self._seen["chunked transfer given up"] += 1
        if weight and phase >= Phase.LEAVING:
            self._seen["leave with hand-over"] += 1


def _named(push: Push) -> str:
    (sender, life), (receiver, later), seq, shard = push
    return f"push {seq} of shard {shard} from {sender}/{life} to {receiver}/{later}"


_ROUNDING = 1e-9

_TRACED = 1500
"""Events and effects that are kept, to be shown where something breaks."""


class Invariants:
    """Looks on, and raises `Violation` where an invariant is broken.

    Args:
        hulls: Whether values only ever change by mixing, so that I4 can be checked.
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
        self.weighted_sum = WeightedSum() if hulls and exact else None
        self.seen: Counter[str] = Counter()
        self.ledgers: dict[Life, tuple[Account, ...]] = {}
        self.dead: set[Life] = set()
        self.closed: set[Life] = set()
        self.events = 0
        self.steps: Counter[PeerId] = Counter()
        self._digest = blake2b(digest_size=16) if digests else None
        self._traced: deque[tuple[float, Life, object, object]] = deque(maxlen=_TRACED)
        self._now = 0.0
        self._pushes = PushInvariants(self.seen, self.dead)
        self._copies: dict[Life, Life] = {}
        self._hulls: dict[bytes, tuple[Values, Values]] = {}
        self._stale: set[int] = set()
        """Shards of which something was written since the last audit."""
        self._moved = False
        self._left: set[Life] = set()
        """The lives that have said goodbye."""
        self._outlived: set[Life] = set()
        """The lives of which others know a later one, so that nobody settles anything with them."""

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
        return [_line(*row) for row in rows[max(0, len(rows) - most) :]]

    def opened(self, host: FuzzPeer) -> None:
        """Note that a life began."""
        life = _life(host)
        if life in self.ledgers:
            raise Violation("order", f"{life} lives twice", (life[0],))
        self.ledgers[life] = host.ledgers
        if self.weighted_sum is not None:
            self.weighted_sum.opened(life, host.vector, host.ledgers)

    def died(self, host: FuzzPeer) -> None:
        """Note that a life ended without a word."""
        life = _life(host)
        self.dead.add(life)
        if self.weighted_sum is not None:
            self.weighted_sum.died(life)
        if life in self._copies.values():
            self.seen["donor lost in mid-join"] += 1
        self._stale.update(range(len(host.ledgers)))
        self._audit(life[0])

    def happened(self, now: float, life: Life, what: str, detail: object) -> None:
        """Take note of an event."""
        self.events += 1
        self._now = now
        self._traced.append((now, life, what, detail))
        if self._digest:
            self._digest.update(f"{now!r} {canonical(life)} {what} {canonical(detail)}\n".encode())

    def trained(self, host: FuzzPeer) -> None:
        """Note that a peer took an optimizer step."""
        self.steps[_life(host)[0]] += 1

    def delivered(self, host: FuzzPeer, envelope: Envelope) -> None:
        """Note what is special about a message that reaches a peer."""
        mine = host.protocol.account.incarnation
        if 0 < envelope.destination_incarnation < mine:
            self.seen["stale incarnation"] += 1

    def effect(self, host: FuzzPeer, effect: Effect | Event, cause: object) -> None:
        """Look at an effect that was just carried out."""
        life = _life(host)
        self._traced.append((self._now, life, None, effect))
        if self._digest:
            self._digest.update(f"{canonical(effect)}\n".encode())
        match effect:
            case Record(entry):
                self._stale.add(entry.shard)
                self._pushes.check(life, entry)
                host.ledgers[entry.shard].apply(entry)
                if host.ledgers[entry.shard].weight < 0:
                    raise Violation("I2", f"{life[0]} holds less than nothing", (life[0],))
                if entry.kind is Kind.PUSHED and self.weighted_sum is not None:
                    push = life, (entry.peer, entry.incarnation), entry.seq, entry.shard
                    self.weighted_sum.pushed(push, *host.vector.latest(entry.shard))
                self._pushes.written(life, entry, host.protocol.phase, cause)
                if entry.kind is Kind.FOUNDED:
                    self._widen_hull(host)
                if self.weighted_sum is not None:
                    self.weighted_sum.entry(life, entry)
            case Send():
                self._sent(host, effect)
            case Mix() | Combine():
                self._moved = True
            case Reclaim():
                self._moved = True
                self.seen["mixed back"] += 1
            case Release(snapshot, abandoned):
                self.seen["abandoned"] += abandoned
                if self.weighted_sum is not None:
                    self.weighted_sum.released(life, snapshot)
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
            case StaleIncarnation():
                self.seen["outlived"] += 1
                self._outlived.add(life)
            case _:
                pass

    def all_done(self, host: FuzzPeer) -> None:
        """Check everything, after all effects of an event were carried out."""
        me = _life(host)[0]
        if host.ledgers != host.protocol.accounts:
            raise Violation("order", f"ledger and account of {me} drifted apart", (me,))
        if len(host.vector.snapshots) > _outstanding(host):
            raise Violation("leak", f"{me} keeps a snapshot of no push", (me,))
        if len(host.vector.staged) > host.protocol.staged:
            raise Violation("leak", f"{me} keeps what no share will take", (me,))
        if self._stale:
            self._audit(me)
        if self._moved:
            self._check_hull(host)
        if self.weighted_sum is not None:
            self.weighted_sum.check()
        if host.protocol.phase is Phase.LEFT and _life(host) not in self._left:
            self._said_goodbye(host)

    def _said_goodbye(self, host: FuzzPeer) -> None:
        """Check that a peer which has just left waited for all escrow that can still be settled."""
        life = _life(host)
        self._left.add(life)
        if life not in self._outlived:
            _require_settled(host, "leaves", gone=())

    def ended(self, host: FuzzPeer) -> None:
        """Check that a peer which closes in good order owes nothing and keeps nothing."""
        me = _life(host)[0]
        if host.protocol.staged or host.vector.staged:
            raise Violation("leak", f"{me} closes on a share that it has not decided", (me,))
        # What was read from memory, or must be mixed back, is kept until it is settled.
        if len(host.vector.snapshots) > _outstanding(host):
            raise Violation("leak", f"{me} closes and keeps a snapshot of no push", (me,))
        # What a leaver had stranded may be found, and be handed on, before it closes.
        if _life(host) not in self._left:
            _require_settled(host, "closes", gone=self.dead | self.closed)
        self.closed.add(_life(host))

    def check_clock(self, host: FuzzPeer) -> None:
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

    def _sent(self, host: FuzzPeer, send: Send) -> None:
        life, envelope = _life(host), send.envelope
        to = envelope.destination, envelope.destination_incarnation
        body = envelope.body
        if isinstance(body, Offer):
            if body.form.copy:
                self._copies[to] = life
        elif isinstance(body, Chunk):
            self._pushes.streamed((life, to, body.seq, envelope.shard))
        elif isinstance(body, Refer):
            self.seen["newcomer referred"] += 1

    def _audit(self, me: PeerId) -> None:
        """I1, of each shard of which something was written."""
        for shard in sorted(self._stale):
            total = audit([ledgers[shard] for ledgers in self.ledgers.values()], self.dead)
            if not total.balanced:
                raise Violation("I1", str(total), (me,))
        self._stale.clear()

    def _widen_hull(self, host: FuzzPeer) -> None:
        x, swarm = host.vector.x, host.protocol.swarm
        low, high = self._hulls.get(swarm, (x, x))
        self._hulls[swarm] = np.minimum(low, x), np.maximum(high, x)

    def _check_hull(self, host: FuzzPeer) -> None:
        """I4: a model lies within what the founders of its swarm brought, in each coordinate."""
        self._moved = False
        if not self._keeps_hulls or host.poisoned:
            return
        x, swarm = host.vector.x, host.protocol.swarm
        for ledger in host.ledgers:
            if ledger.weight:
                low, high = self._hulls[swarm]
                inside = (low - _ROUNDING <= x) & (x <= high + _ROUNDING)
                if not inside[host.vector.part(ledger.shard)].all():
                    me = ledger.id
                    raise Violation("I4", f"the model of {me} lies outside of the hull", (me,))


def _life(host: FuzzPeer) -> Life:
    return host.ledgers[0].life


def _require_settled(host: FuzzPeer, what: str, *, gone: Collection[Life]) -> None:
    """Raise where escrow is open toward a life that may answer: not stranded, and not *gone*."""
    me = _life(host)[0]
    for ledger in host.ledgers:
        for life, escrow in ledger.outstanding.items():
            if not escrow.stranded and life not in gone:
                what = f"{me} {what} on open escrow to {life}"
                raise Violation(LIVENESS, what, (me, life[0]))


def _line(now: float, life: Life, what: object, detail: object) -> str:
    name = f"{now:9.4f} s  {life[0]}/{life[1]}"
    return f"{name}    -> {tell(detail)}" if what is None else f"{name}  {what} {tell(detail)}"


def _outstanding(host: FuzzPeer) -> int:
    return sum([len(ledger.outstanding) for ledger in host.ledgers])
