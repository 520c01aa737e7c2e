"""The invariants that hold after every event, whatever the network did (PROTOCOL: I1 to I6), for
every shard by itself."""

from collections import Counter, deque
from collections.abc import Collection
from hashlib import blake2b
from typing import Final

import numpy as np

from ...gossip import ProtocolConfig, audit
from ...gossip.effects import effects as fx
from ...gossip.effects import events
from ...gossip.effects.ledger import Account, Entry, Kind, Life
from ...gossip.protocol.leave import widest_distance
from ...gossip.types import PeerId
from ...gossip.weight import in_units
from ...gossip.wire.formats import parse_wire
from ...gossip.wire.messages import Chunk, Envelope, Offer, Phase, Query, Refer
from .peers import FuzzPeer, Peers
from .trace import tell
from .vector import Values
from .violation import LIVENESS, Violation

__all__ = ["ROUNDED", "Invariants"]

_Push = tuple[Life, Life, int, int]
"""Sender, receiver, number, shard."""

# How far outside the hull of all models a model may lie.
_ROUNDING: Final = 1e-9

ROUNDED: Final = 0.2
"""The same tolerance if numbers travel in 8 or 16 bits; models start some units apart."""

# Recent events and effects that are kept, to be shown with a violation.
_TRACED: Final = 1500


class _Pushes:
    """The state of each push, from the ledgers of all peers."""

    def __init__(self, seen: Counter[str], dead: Collection[Life]) -> None:
        self._seen = seen
        self._dead = dead
        self._pushed: dict[_Push, int] = {}
        self._swarms: dict[_Push, bytes] = {}
        self._decided: dict[_Push, int] = {}
        self._given_up: set[_Push] = set()
        self.streamed: set[_Push] = set()
        """Pushes of which a frame was sent."""

    def check(self, me: Life, entry: Entry, swarm: bytes) -> None:
        """Check an entry before it is written, against all entries of other peers."""
        other = entry.peer, entry.incarnation
        mine, theirs = (me, other, entry.seq, entry.shard), (other, me, entry.seq, entry.shard)
        whom = (me[0], entry.peer) if entry.peer else (me[0],)
        match entry.kind:
            case Kind.PUSHED:
                if mine in self._pushed:
                    raise Violation("I3", f"a number is used twice: {_named(mine)}", whom)
                self._swarms[mine] = swarm
            case Kind.ACCEPTED:
                self._check_decision(theirs, entry.weight, whom)
                if entry.weight and self._swarms[theirs] != swarm:
                    what = f"weight of one swarm was accepted in another: {_named(theirs)}"
                    raise Violation("I1", what, whom)
            case Kind.SETTLED:
                if entry.weight != self._decided.get(mine, 0):
                    raise Violation("I3", f"settled otherwise than decided: {_named(mine)}", whom)

    def written(self, me: Life, entry: Entry, phase: Phase, cause: object) -> None:
        """Record what was written, and its cause."""
        other = entry.peer, entry.incarnation
        mine = me, other, entry.seq, entry.shard
        match entry.kind:
            case Kind.PUSHED:
                self._pushed[mine] = entry.weight
            case Kind.ACCEPTED:
                push, weight = (other, me, entry.seq, entry.shard), entry.weight
                self._decided[push] = weight
                self._seen["fence"] += weight == 0 and isinstance(cause, Query)
                self._seen["partial accept"] += 0 < weight < self._pushed[push]
                late = weight > 0 and push[0] in self._dead
                self._seen["accept after the sender's death"] += late
            case Kind.SETTLED:
                if mine not in self._decided:
                    self._given_up.add(mine)
                    self._seen["chunked transfer given up"] += mine in self.streamed
                handed_over = entry.weight > 0 and phase >= Phase.LEAVING
                self._seen["leave with hand-over"] += handed_over
            case Kind.STRANDED | Kind.FOUND | Kind.BURNED | Kind.WRITTEN_OFF:
                self._seen[entry.kind.value] += 1
                if entry.kind is Kind.WRITTEN_OFF and self._decided.get(mine):
                    self._seen["written off what was accepted"] += 1

    def _check_decision(self, push: _Push, weight: int, whom: tuple[PeerId, ...]) -> None:
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


def _named(push: _Push) -> str:
    (sender, life), (receiver, later), seq, shard = push
    return f"push {seq} of shard {shard} from {sender}/{life} to {receiver}/{later}"


class Invariants:
    """Observes a swarm, and raises `Violation` where an invariant is broken.

    Attributes:
        seen: How often each event that must happen *sometimes* in a campaign did happen.
        ledgers: An account for each shard of each incarnation, folded from the written entries.
        steps: Optimizer steps of each peer over all its incarnations.
    """

    def __init__(self, peers: Peers) -> None:
        is_native = parse_wire(peers.config.wire).is_native
        self._rounding = _ROUNDING if is_native else ROUNDED
        self._keeps_hulls = peers.hulls
        self._hosts: dict[Life, FuzzPeer] = {}
        self.seen: Counter[str] = Counter()
        # Not the accounts that the protocols keep in memory: those are compared with these.
        self.ledgers: dict[Life, tuple[Account, ...]] = {}
        # Incarnations that ended without handing on their weight, and in good order.
        self.dead: set[Life] = set()
        self._closed: set[Life] = set()
        self.events = 0
        self.steps: Counter[PeerId] = Counter()
        self._digest = blake2b(digest_size=16) if peers.digests else None
        self._traced: deque[tuple[float, Life, object, object]] = deque(maxlen=_TRACED)
        self._now = 0.0
        self._pushes = _Pushes(self.seen, self.dead)
        self._copies: dict[Life, Life] = {}
        self._hulls: dict[bytes, tuple[Values, Values]] = {}
        # Shards with new entries since the last audit.
        self._stale: set[int] = set()
        self._within = self._moved = False
        self._quiet: set[Life] = set()
        self._left: set[Life] = set()
        # Incarnations of which others know a later one, so that no peer settles with them.
        self._outlived: set[Life] = set()

    @property
    def digest(self) -> str:
        """Fingerprint of every event and effect so far (I5); empty without digests."""
        return self._digest.hexdigest() if self._digest else ""

    @property
    def lately(self) -> tuple[PeerId, ...]:
        """Peer of the latest event, if there was one."""
        return (self._traced[-1][1][0],) if self._traced else ()

    def trace(self, peers: Collection[PeerId], most: int) -> list[str]:
        """The last *most* events at some peers, or at all, a line each, oldest first."""
        rows = [row for row in self._traced if not peers or row[1][0] in peers]
        lines = []
        for now, life, what, detail in rows[max(0, len(rows) - most) :]:
            event = f"    -> {tell(detail)}" if what is None else f"  {what} {tell(detail)}"
            lines.append(f"{now:9.4f} s  {life[0]}/{life[1]}{event}")
        return lines

    def opened(self, host: FuzzPeer) -> None:
        """Take an incarnation that began."""
        life = host.life
        if life in self.ledgers:
            raise Violation("order", f"{life} lives twice", (life[0],))
        self.ledgers[life] = host.ledgers
        self._hosts[life] = host

    def died(self, host: FuzzPeer) -> None:
        """Drop an incarnation that died silently."""
        life = host.life
        if not self._within:
            self.audit()
        self._within = False
        self.dead.add(life)
        del self._hosts[life]
        if life in self._copies.values():
            self.seen["donor lost in mid-join"] += 1
        self._stale.update(range(len(host.ledgers)))
        self.audit((life[0],))

    def happened(self, now: float, life: Life, what: str, detail: object) -> None:
        """Record an event."""
        self.events += 1
        self._now, self._within = now, True
        self._traced.append((now, life, what, detail))
        if self._digest:
            self._digest.update(f"{now!r} {life} {what} {detail!r}\n".encode())

    def effect(self, host: FuzzPeer, effect: fx.Effect | events.Event, cause: object) -> None:
        """Check an effect that was just applied."""
        self._traced.append((self._now, host.life, None, effect))
        if self._digest:
            self._digest.update(f"{effect!r}\n".encode())
        match effect:
            case Entry():
                self._recorded(host, effect, cause)
            case fx.Send(envelope):
                self._sent(host.life, envelope)
            case fx.Mix() | fx.Combine() | fx.Exchange():
                self._moved = True
            case fx.Release(_, abandoned):
                self.seen["abandoned"] += abandoned
            case events.Joined():
                self._copies.pop(host.life, None)
                self.seen["join by copy"] += 1
            case events.PeerDied(peer):
                last = [life for life in self.ledgers if life[0] == peer][-1:]
                ended = self.dead | self._closed
                self.seen["split view"] += any(life not in ended for life in last)
            case events.StaleIncarnation():
                self.seen["outlived"] += 1
                self._outlived.add(host.life)
            case events.PushSkipped(reason=reason):
                self.seen[f"skipped: {reason}"] += 1
            case events.ShareRefused(reason=reason):
                self.seen[f"refused: {reason}"] += 1
            case events.Founded():
                self.seen["founding"] += 1
            case events.SwarmGivenUp():
                self.seen["swarm given up"] += 1
            case events.PeerSuspected():
                self.seen["suspected"] += 1
            case events.PeerRecovered():
                self.seen["recovered"] += 1

    def _recorded(self, host: FuzzPeer, entry: Entry, cause: object) -> None:
        life, ledger = host.life, host.ledgers[entry.shard]
        self._stale.add(entry.shard)
        self._pushes.check(life, entry, host.protocol.swarm)
        ledger.apply(entry)
        if ledger.weight < 0:
            raise Violation("I2", f"{life[0]} holds less than nothing", (life[0],))
        self._pushes.written(life, entry, host.protocol.phase, cause)
        if entry.kind is Kind.FOUNDED:
            x, swarm = host.vector.x, host.protocol.swarm
            low, high = self._hulls.get(swarm, (x, x))
            self._hulls[swarm] = np.minimum(low, x), np.maximum(high, x)

    def _sent(self, life: Life, envelope: Envelope) -> None:
        to = envelope.destination, envelope.destination_incarnation
        body = envelope.body
        if type(body) is Chunk:
            self._pushes.streamed.add((life, to, body.seq, envelope.shard))
        elif isinstance(body, Offer):
            if body.form.copy:
                self._copies[to] = life
        elif type(body) is Refer:
            self.seen["newcomer referred"] += 1

    def all_done(self, host: FuzzPeer) -> None:
        """Check everything after all effects of an event were applied."""
        vector = host.vector
        _check_accounts(host)
        if vector.snapshots and len(vector.snapshots) > _outstanding(host) + len(
            host.protocol.state.kept
        ):
            raise Violation("leak", f"{host.id} keeps a snapshot of no push", (host.id,))
        if vector.staged and len(vector.staged) > host.protocol.staged:
            raise Violation("leak", f"{host.id} keeps what no share will take", (host.id,))
        self.audit((host.id,))
        if self._moved:
            self._check_hull(host)
        if host.protocol.phase is Phase.LEFT and host.life not in self._left:
            # A peer that leaves has waited for all escrow that can still be settled.
            self._left.add(host.life)
            if any(ledger.weight for ledger in host.ledgers):
                raise Violation("I1", f"{host.id} leaves with weight of its own", (host.id,))
            if host.life not in self._outlived:
                _require_settled(host, "leaves", gone=())
        if host.protocol.phase is Phase.QUIET and host.life not in self._quiet:
            self._merged(host)
        self._within = False

    def _merged(self, host: FuzzPeer) -> None:
        """Check that the peers that a peer agrees with are as close as it reports."""
        self._quiet.add(host.life)
        agreement = host.protocol.agreement
        if not agreement.reached:
            self.seen["merged apart"] += 1
            return
        for member in host.protocol.table.others(alive=True):
            other = self._hosts.get((member.id, member.incarnation))
            if other is None:
                continue
            if Phase.FINISHED <= other.protocol.phase <= Phase.QUIET:
                models = [host.vector.x.tolist(), other.vector.x.tolist()]
                if (apart := widest_distance(models)) > ProtocolConfig().merge_tolerance:
                    what = f"{host.id} has merged, and {other.id} is {apart:.2g} apart"
                    raise Violation("I6", what, (host.id, other.id))

    def ended(self, host: FuzzPeer) -> None:
        """Check that a peer that closes in good order owes nothing and keeps nothing."""
        me = host.id
        self.audit()
        if host.protocol.staged or host.vector.staged:
            raise Violation("leak", f"{me} closes on a share that it has not decided", (me,))
        # A share that was read from memory is kept until it is settled.
        if len(host.vector.snapshots) > _outstanding(host) + len(host.protocol.state.kept):
            raise Violation("leak", f"{me} closes and keeps a snapshot of no push", (me,))
        # Weight that a leaving peer had stranded may be found, and be handed on, before it closes.
        if host.life not in self._left:
            _require_settled(host, "closes", gone=self.dead | self._closed)
        self._closed.add(host.life)
        del self._hosts[host.life]

    def check_clock(self, host: FuzzPeer) -> None:
        """Check that no peer counts steps that were never taken."""
        for peer, steps in host.protocol.table.clock.rows().items():
            if steps > self.steps[peer]:
                me = host.id
                what = f"{me} counts {steps} steps of {peer}, which took {self.steps[peer]}"
                raise Violation("clock", what, (me, peer))

    def audit(self, whom: tuple[PeerId, ...] = ()) -> None:
        """Add up the weight of all ledgers of each shard with new entries."""
        for shard in sorted(self._stale):
            total = audit([each[shard] for each in self.ledgers.values()], self.dead)
            if not total.balanced:
                raise Violation("I1", str(total), whom)
        self._stale.clear()

    def _check_hull(self, host: FuzzPeer) -> None:
        """Check I4: each coordinate of a model lies between those of its swarm's founders."""
        self._moved = False
        if not self._keeps_hulls or host.poisoned:
            return
        for ledger in host.ledgers:
            x = host.vector.x[host.vector.parts[ledger.shard]]
            if ledger.weight and not self._is_inside(host, x, ledger.shard):
                me = ledger.id
                raise Violation("I4", f"the model of {me} lies outside of the hull", (me,))

    def _is_inside(self, host: FuzzPeer, x: Values, shard: int) -> bool:
        part = host.vector.parts[shard]
        low, high = (bound[part] for bound in self._hulls[host.protocol.swarm])
        return bool(((low - self._rounding <= x) & (x <= high + self._rounding)).all())


def _check_accounts(host: FuzzPeer) -> None:
    for ledger, account in zip(host.ledgers, host.protocol.accounts, strict=True):
        if ledger != account:
            me = host.id
            raise Violation("order", f"ledger and account of {me} drifted apart", (me,))


def _require_settled(host: FuzzPeer, what: str, *, gone: Collection[Life]) -> None:
    """Raise if escrow is open toward an incarnation that may answer: not stranded, not *gone*."""
    me = host.id
    for ledger in host.ledgers:
        for life, escrow in ledger.outstanding.items():
            if not (escrow.stranded or life in gone):
                what = f"{me} {what} on open escrow to {life}"
                raise Violation(LIVENESS, what, (me, life[0]))


def _outstanding(host: FuzzPeer) -> int:
    return sum([len(ledger.outstanding) for ledger in host.ledgers])
