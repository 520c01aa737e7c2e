"""Observe a swarm from outside: discover all members from one address, and query each.

An observer is not a peer: it enters no peer's view and holds no weight. Answers are untrusted, so
everything is bounded.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, Self, cast

from ...gossip import ConfigError, TransportError
from ...gossip.errors import IncompatiblePeer, RemoteProtocolError
from ...gossip.transport.addresses import allow_more_files, parse_address
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.transport.sockets import Received
from ...gossip.transport.zmq_transport import Transport
from ...gossip.types import Incarnation, PeerId
from ...gossip.wire.codec import decode_header, encode
from ...gossip.wire.messages import (
    Body,
    Envelope,
    EventNote,
    Inquire,
    Member,
    Phase,
    Sighting,
    Standing,
    Status,
)
from ..runtime.search import bare_address, with_keys
from ..runtime.telling.stats import METRICS
from ..runtime.telling.status import distances
from .probe import Probe, asker_name, question, why_silent
from .view import GONE, EventView, LinkView, PeerView, State, SwarmView

__all__ = ["ASKED_MAX", "Observer"]

ASKED_MAX: Final = 256
"""Most members to query; the rest are shown as the queried members report them."""

_KNOWN_MAX: Final = 4096
"""Most members to show that are not queried."""

# Members asked per poll for the members that they see; in a large swarm, the next poll asks others.
_TELLERS: Final = 16

# A member's report of the others counts for this long after it was last queried.
_TABLE_S: Final = 15.0

# Most answers to posted messages that are kept.
_ANSWERS_MAX: Final = 1024

_NAP_S: Final = 0.02

# Queries without an answer, after which a member that no other one believes alive is not queried.
_MISSES_MAX: Final = 30

# Most addresses of a member, besides the given ones.
_PLACES_MAX: Final = 8

# Rates cover this many seconds, as a slow peer may take a second for a step, but not more answers.
_WINDOW_S: Final = 5.0
_RECENT_MAX: Final = 256


def _entry(member: Member) -> PeerView:
    """Return a member as its entry in a member table describes it."""
    return PeerView(
        id=member.id,
        # A phase and its state have the same name.
        state=cast(State, member.phase.name.lower()),
        source="others",
        incarnation=None if member.phase is Phase.LEFT else member.incarnation,
        address=bare_address(member.addresses[0]) if member.addresses else "",
        step=member.step,
    )


def _figures(told: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the figures that `METRICS` names, without impossible counts."""
    found: dict[str, float] = {}
    for name, value in told:
        metric = METRICS.get(name)
        if metric is not None and metric.unit in ("", "founders"):
            found[name] = value
        elif metric is not None and math.isfinite(value) and not (metric.is_counter and value < 0):
            found[name] = int(value)
    return found


def _reported(sightings: Sequence[Sighting]) -> PeerView:
    """Return a member as most of the others report it."""
    said = Counter(each.standing for each in sightings)
    live, suspected, dead, left = (said[each] for each in Standing)
    voters = live + suspected + dead
    # An entry of a departed member has nothing but its steps.
    members = (each.member for each in sightings)
    view = _entry(max(members, key=lambda m: (m.incarnation, m.heartbeat, m.step)))
    state = view.state
    if left > voters:
        state = "left"
    elif 2 * dead > voters:
        state = "dead"
    elif 2 * (dead + suspected) > voters:
        state = "suspected"
    return replace(view, state=state, suspected_by=suspected, dead_by=dead)


@dataclass(slots=True, eq=False)
class _Target:
    """A member to query, or a given address; the rest of this poll, and its answers so far."""

    places: tuple[str, ...]
    """Addresses, tried in turn; the first that answers is kept."""
    id: PeerId = ""
    """Empty for a given address."""
    misses: int = 1
    """Number of queries in a row without an answer, with that of this poll, and at most two as long
    as others believe it alive; a poll waits only for targets with one."""
    is_sent: bool = False
    wants_members: bool = False
    status: Status | None = None
    """The last answer of its latest incarnation, which arrived at `answered_s`."""
    model: tuple[bytes, bytes] = (b"", b"")
    """Hashes of its swarm's first model, empty while it seeks one, and of its schema."""
    answered_s: float = -math.inf
    event: int = 0
    """Number of the last event that the incarnation has reported."""
    table: tuple[Sighting, ...] = ()
    """Its last list of other members, which arrived at `listed_s`."""
    listed_s: float = -math.inf
    recent: deque[tuple[float, dict[Any, float]]] = field(
        default_factory=lambda: deque(maxlen=_RECENT_MAX)
    )
    """Counts by name, those of a link by its peer and direction, at times of the peer's clock."""

    def put_first(self, places: Sequence[str]) -> None:
        others = (place for place in self.places if place not in places)
        self.places = (*places, *others)[:_PLACES_MAX]

    def add(self, status: Status, now: float) -> bool:
        """Record an answer; return False if it is one of an earlier incarnation."""
        before = self.status
        if before is not None and before.me.incarnation > status.me.incarnation:
            return False
        if before is None or before.me.incarnation < status.me.incarnation:
            self.event, self.table, self.listed_s = 0, (), -math.inf
            self.recent.clear()
        # An answer by another of its addresses may overtake an earlier one.
        elif status.uptime_s <= before.uptime_s:
            return True
        self.status, self.answered_s = status, now
        counts: dict[Any, float] = {**dict(status.figures), "step": status.me.step}
        for link in status.links:
            counts[link.peer, "out"] = link.bytes_sent
            counts[link.peer, "in"] = link.bytes_received
        self.recent.append((status.uptime_s, counts))
        # The first answer kept lies at least this far back, if any does.
        while len(self.recent) > 2 and status.uptime_s - self.recent[1][0] >= _WINDOW_S:
            self.recent.popleft()
        return True

    def rate(self, count: Any) -> float | None:
        """Return the growth of a count per second; None after a single answer, and in silence."""
        (since_s, first), (until_s, last) = self.recent[0], self.recent[-1]
        if self.misses > 1 or since_s == until_s or count not in first or count not in last:
            return None
        # A value that decreases is not a count: its sender is wrong, or has lost its state.
        return max(0.0, (last[count] - first[count]) / (until_s - since_s))

    def staleness(self) -> float | None:
        """Return the mean over the recently mixed shares, or over all if there are none."""
        count, behind = self.rate("mixed"), self.rate("staleness_steps_sum")
        if not count or behind is None:
            totals = self.recent[-1][1]
            count, behind = totals.get("mixed"), totals.get("staleness_steps_sum")
        return None if not count or behind is None else max(0.0, float(behind / count))

    def view(self, others: PeerView | None, now: float) -> PeerView:
        """Summarize the peer by its own report, and if it is silent by that of the others."""
        assert self.status is not None
        status, own, is_there = self.status, _entry(self.status.me), self.misses <= 1
        others, state, step = others or own, own.state, own.step
        if not is_there:
            # Others may still hear from a member that only this observer cannot reach.
            state = others.state if others.state in {"suspected", *GONE} else "silent"
            step = max(step, others.step)
        elif others.state in ("suspected", "dead") and others.incarnation == own.incarnation:
            # The path between them is broken, or so slow that they have given up on it.
            state = "cut off"
        elif status.awaits and state == "training":
            state = "waiting"
        return replace(
            own,
            state=state,
            source="self" if is_there else "others",
            step=step,
            steps_s=self.rate("step"),
            figures=_figures(status.figures),
            staleness_mean=self.staleness(),
            bytes_out_s=self.rate("bytes_sent"),
            bytes_in_s=self.rate("bytes_received"),
            uptime_s=status.uptime_s,
            silent_s=max(0.0, now - self.answered_s),
            awaits=status.awaits,
            suspected_by=others.suspected_by,
            dead_by=others.dead_by,
            settings=dict(status.settings),
        )

    def links(self) -> Iterator[LinkView]:
        for link in self.status.links if self.status is not None else ():
            sent_s, received_s = self.rate((link.peer, "out")), self.rate((link.peer, "in"))
            yield LinkView(source=self.id, status=link, bytes_out_s=sent_s, bytes_in_s=received_s)


class Observer:
    """Observes one swarm from the address ``host:port`` of any member, or of several.

    Not thread-safe.

    Raises:
        ConfigError: The address is malformed.
    """

    def __init__(
        self,
        address: str | Sequence[str],
        *,
        keyring: Keyring | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        seeds = (address,) if isinstance(address, str) else address
        if not seeds:
            raise ConfigError("an observer needs the address of a member")
        self._clock, self._keyring = clock, keyring
        # With keys, an address becomes one place per machine of the roster.
        self._seeds = [_Target(tuple(with_keys([parse_address(e)], keyring))) for e in seeds]
        allow_more_files()
        self._transport = Transport(None, keyring=keyring)
        self._name = asker_name(keyring)
        self._targets: dict[PeerId, _Target] = {}
        self._dialled: set[str] = set()
        self._events = _Events()
        self._turn = 0
        self._model = (b"", b"")
        self.answers: deque[Envelope] = deque(maxlen=_ANSWERS_MAX)
        """Answers to posted messages, for the caller to remove."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close(0)

    def poll(self, timeout_s: float = 2.0) -> SwarmView:
        """Query all members; return the swarm once all that answered the last poll have again.

        If no member answers any more, `SwarmView.answered` is 0 and the rest is unchanged; the next
        call queries again.

        Raises:
            TransportError: No member has ever answered; the message says why.
        """
        self._begin()
        # The very first answer may need a name to be resolved and a handshake.
        give_up_s = self._clock() + (timeout_s if self._model[1] else max(timeout_s, 5.0))
        while True:
            known = [*self._targets.values()]
            # A returned or new peer may listen at one of the given addresses.
            is_missing = not known or any(target.misses > 1 for target in known)
            for target in [*known, *(self._seeds if is_missing else ())]:
                target.is_sent = target.is_sent or self._send(target)
            # If no member answered the last poll, one answer is enough.
            misses = {target.misses for target in known}
            is_done = 0 in misses and 1 not in misses
            if is_done or (rest_s := give_up_s - self._clock()) <= 0:
                break
            for received in self._transport.poll(min(rest_s, _NAP_S)):
                self._take(received)
        self._choose_model()
        if not self._model[1]:
            raise TransportError(why_silent(self._transport, self._seeds[0].places))
        if 0 in misses:
            self._forget_gone()
        return self._view(self._reports())

    def probe(self, member: PeerView) -> Probe:
        """Return a probe of a member that has answered the last poll, at its address."""
        target = self._targets.get(member.id)
        if target is not None and target.misses:
            raise TransportError("it does not answer")
        return Probe(target.places[0] if target else member.address, keyring=self._keyring)

    def post(self, id: PeerId, incarnation: Incarnation, body: Body) -> bool:
        """Send *body* to a member at all its addresses without waiting; return True if sent."""
        if (target := self._targets.get(id)) is None:
            return False
        ends: dict[str, Any] = {"destination": id, "destination_incarnation": incarnation}
        swarm, schema = self._model
        parts = encode(question(self._name, body, schema, swarm=swarm, **ends))
        return any([self._transport.greet(place, parts) for place in target.places])

    def _begin(self) -> None:
        self._turn += 1
        turns = math.ceil(len(self._targets) / _TELLERS)
        for number, target in enumerate([*self._targets.values(), *self._seeds]):
            target.misses += 1
            target.is_sent = False
            target.wants_members = not target.id or (number + self._turn) % turns == 0

    def _send(self, target: _Target) -> bool:
        body = Inquire(events_after=target.event, members=target.wants_members)
        parts = encode(question(self._name, body))
        self._dialled.update(target.places)
        sent = (self._transport.greet(place, parts) for place in target.places)
        # A silent peer may be reachable only at another of its addresses.
        return any([*sent] if target.misses > 1 else sent)

    def _take(self, received: Received) -> None:
        try:
            envelope, _ = decode_header(received.header)
        except IncompatiblePeer as error:
            # Noted, so that `why_silent` can say why this peer does not answer.
            self._transport.reject(received, str(error), ())
            return
        except RemoteProtocolError:
            return
        source, key = envelope.source, received.key
        if envelope.destination != self._name or (
            key and not self._transport.may_speak_as(key, source)
        ):
            return
        target, status = self._targets.get(source), envelope.body
        if not isinstance(status, Status):
            if target is not None:
                self.answers.append(envelope)
            return
        if status.me.id != source:
            return
        if target is None:
            if len(self._targets) >= ASKED_MAX:
                return
            target = _Target((), source, is_sent=True, wants_members=True)
            self._targets[source] = target
        if target.misses:
            # For a name, that is the address that it stands for.
            target.put_first([received.place])
        target.misses = 0
        if not target.add(status, self._clock()):
            return
        target.model = envelope.swarm, envelope.schema
        for note in status.events:
            if note.number > target.event:
                target.event = note.number
                self._events.add(source, note, time.time() - note.ago_s)
        if target.wants_members:
            target.table, target.listed_s = status.members, self._clock()
            self._discover(status.members)

    def _discover(self, told: Iterable[Sighting]) -> None:
        for sighting in told:
            member, known = sighting.member, self._targets.get(sighting.member.id)
            if sighting.standing >= Standing.DEAD or not member.addresses:
                continue
            if known is None and len(self._targets) < ASKED_MAX:
                is_teller = len(self._targets) < _TELLERS
                self._targets[member.id] = _Target(
                    member.addresses, member.id, wants_members=is_teller
                )
            elif known is not None and known.misses > 1:
                known.put_first(member.addresses)
                known.misses = 2

    def _forget_gone(self) -> None:
        """Stop querying members that have long been silent and that no other believes alive."""
        self._targets = {id: t for id, t in self._targets.items() if t.misses < _MISSES_MAX}
        used = {place for target in self._targets.values() for place in target.places}
        for place in self._dialled - used:
            # The connection stays open if anything arrived since the last call.
            self._transport.dismiss(place)
            self._transport.dismiss(place)
        self._dialled = used

    def _choose_model(self) -> None:
        """Find the swarm and the model of most members that answered this poll."""
        # Others, such as a peer that was just restarted, may be in a swarm of their own or in none.
        known = self._model
        models = Counter(each.model for each in self._targets.values() if not each.misses)
        if found := [model for model in models if model[0] or not known[0]]:
            self._model = max(found, key=lambda m: (bool(m[0]), models[m], m == known))

    def _reports(self) -> dict[PeerId, PeerView]:
        """Return what members report about each other, by the latest report of each."""
        told: dict[PeerId, list[Sighting]] = {}
        # Lists are old next to the newest one: if no peer answers any more, all lists stay valid.
        newest_s = max((each.listed_s for each in self._targets.values()), default=0.0)
        for teller, target in self._targets.items():
            for sighting in target.table if newest_s - target.listed_s <= _TABLE_S else ():
                id = sighting.member.id
                if id != teller and (id in told or len(told) < _KNOWN_MAX):
                    told.setdefault(id, []).append(sighting)
        return {id: _reported(sightings) for id, sightings in told.items()}

    def _view(self, others: Mapping[PeerId, PeerView]) -> SwarmView:
        now, peers = self._clock(), dict(others)
        known = {id: t.status for id, t in self._targets.items() if t.status is not None}
        for id in known:
            peers[id] = self._targets[id].view(others.get(id), now)
        there = [id for id in known if peers[id].source == "self"]
        samples = [known[id].sample for id in there]
        for id, distance in zip(there, distances(samples), strict=True):
            peers[id] = replace(peers[id], distance=distance)
        return SwarmView(
            time_s=time.time(),
            swarm=self._model[0].hex(),
            swarm_step=max((each.swarm_steps for each in known.values()), default=0),
            answered=sum(not target.misses for target in self._targets.values()),
            peers=tuple(peers[id] for id in sorted(peers)),
            links=tuple(link for id in sorted(known) for link in self._targets[id].links()),
            events=self._events.all(),
        )


_KEPT_MAX: Final = 1000
_TOLD_BY_MAX: Final = 64

# Peers notice a death at different times, as the timers of each lag by their own amount.
_SAME_S: Final = 120.0

# Most events of one kind and peer that are kept.
_TIMES: Final = 8

# Events that members report about themselves.
_OF_TELLER: Final = frozenset({"founded", "joined", "full"})


class _Events:
    """The last thousand events that members have reported."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, PeerId], deque[EventView]] = {}

    def add(self, teller: PeerId, note: EventNote, time_s: float) -> None:
        """Add a member's report of what happened at *time_s*, on the observer's clock."""
        is_own = note.event in _OF_TELLER
        peer, donor = (teller, note.peer) if is_own else (note.peer or teller, "")
        # Those of which nothing was reported for the longest time come first.
        alike = self._events.pop((note.event, peer), deque(maxlen=_TIMES))
        self._events[note.event, peer] = alike
        # Two members that report the same within two minutes have noticed one event; one member
        # that reports it twice has noticed two.
        others = [each for each in alike if teller not in each.told_by]
        same = min(others, key=lambda each: abs(each.time_s - time_s), default=None)
        if same is not None and abs(same.time_s - time_s) <= _SAME_S:
            told_by = (*same.told_by, teller)[:_TOLD_BY_MAX]
            first_s = min(same.time_s, time_s)
            alike[alike.index(same)] = replace(same, time_s=first_s, told_by=told_by)
            return
        alike.append(EventView(time_s, note.event, peer, donor, (teller,)))
        if len(self._events) > _KEPT_MAX:
            del self._events[next(iter(self._events))]

    def all(self) -> tuple[EventView, ...]:
        """Return them in the order in which they happened."""
        found = chain.from_iterable(self._events.values())
        return tuple(sorted(found, key=lambda each: each.time_s)[-_KEPT_MAX:])
