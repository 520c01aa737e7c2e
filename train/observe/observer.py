"""Watches a swarm from outside: finds all members from the address of one, and asks each.

An observer is no peer. It gets into nobody's view, holds no weight and asks for none; whoever it
asks answers some times a second at most, see `rumor.train.runtime.telling.status`. What it is told
comes from strangers: everything is bounded, and what could command a terminal is not let in.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from ...gossip import ConfigError, TransportError
from ...gossip.errors import RemoteProtocolError
from ...gossip.transport.addresses import allow_more_files, parse_address
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.transport.received import Received
from ...gossip.transport.zmq_transport import Transport
from ...gossip.types import Incarnation, PeerId
from ...gossip.wire.codec import decode_header, encode
from ...gossip.wire.messages import Body, Envelope, EventNote, Inquire, Sighting, Standing, Status
from ..runtime.search import with_keys
from ..runtime.telling.model_sample import distances
from .members import Answers, Opinion, links_of, opinions_of, view_of
from .probe import asker_name, bare_address, question
from .view import GONE, EventView, SwarmView

__all__ = ["ASKED_MAX", "Observer"]

ASKED_MAX: Final = 256
"""Members that are asked; of more, the others are shown as those say that they are."""

_KNOWN_MAX: Final = 4096
"""Members that are shown."""

# So many are asked at a time whom they see: in a large swarm others the next time.
_TELLERS: Final = 16

# So long what a member has said of others counts, after it was asked for the last time.
_TABLE_S: Final = 15.0

# Answers to what was posted, until somebody takes them.
_OTHERS_MAX: Final = 1024

_NAP_S: Final = 0.02

_HINT: Final = "is a peer listening there? (a swarm with keys answers nobody without its keys)"
_NO_PEER: Final = "is it a peer of this version?"

# Of one that nobody tells of any more.
_SHOWN_S: Final = 60.0
_MISSES_MAX: Final = 30


@dataclass(slots=True)
class _Target:
    """Somebody who is asked."""

    places: tuple[str, ...]
    """Addresses, of which the first that answers is kept to."""
    asker: str
    """The name in which it is asked. It knows no other, so that it can answer for nobody else."""
    id: PeerId = ""
    """Who should be there; empty for whoever is."""
    is_sent: bool = False
    """Whether the question is out, this time."""
    has_answered: bool = False
    """This time."""
    is_awaited: bool = True
    """Whether it is worth waiting for: it has answered the last time, or was not asked before."""
    wants_members: bool = False
    after: PeerId = ""
    """Behind which id members are wanted."""
    misses: int = 0
    """How many times in a row it has not answered."""


class Observer:
    """Watches one swarm, from the address of any member.

    Args:
        address: Of a member, as ``host:port``, or several: the first that answers will do.
        keyring: Of a swarm that has keys.
        clock: Seconds that only go forward.
        wall: Seconds since the epoch.

    Raises:
        ConfigError: This is no address.
        TransportError: No sockets can be had.

    Not for several threads at once.
    """

    def __init__(
        self,
        address: str | Sequence[str],
        *,
        keyring: Keyring | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        seeds = (address,) if isinstance(address, str) else tuple(address)
        if not seeds:
            raise ConfigError("an observer needs the address of a member")
        self._seeds = [parse_address(each) for each in seeds]
        self._clock, self._wall = clock, wall
        self._keyring = keyring
        allow_more_files()
        self._transport = Transport(None, keyring=keyring)
        self._targets: list[_Target] = []
        for seed in self._seeds:
            self._add(self._places(seed))
        self._peers: dict[PeerId, Answers] = {}
        self._tables: dict[PeerId, tuple[float, Sequence[Sighting]]] = {}
        self._events = _Events()
        self._turn = 0
        self._odd = 0
        self._swarm = ""
        self._has_met = False
        self._schema = b""
        self._others: deque[Envelope] = deque(maxlen=_OTHERS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets."""
        self._transport.close(0)

    def poll(self, timeout_s: float = 2.0) -> SwarmView:
        """Ask everybody, and say what came of it.

        It returns as soon as all have answered that did so the last time.

        Args:
            timeout_s: How long to wait for answers, seconds; until somebody has answered for the
                first time, at least five seconds.

        Returns:
            The swarm as it is now. When nobody answers any more, `SwarmView.answered` is 0, and the
            rest is as it was: the next call asks again.

        Raises:
            TransportError: Nobody has ever answered; the message says why.
        """
        self._begin()
        began_s = self._clock()
        give_up_s = began_s + (timeout_s if self._has_met else max(timeout_s, 5.0))
        while True:
            self._ask()
            if not self._is_waiting() or (rest_s := give_up_s - self._clock()) <= 0:
                break
            for received in self._transport.poll(min(rest_s, _NAP_S)):
                self._take(received)
        for target in self._targets:
            target.is_awaited = target.has_answered
            target.misses = 0 if target.has_answered else target.misses + 1
        if not self._has_met:
            raise TransportError(self._silence())
        return self._view()

    def post(self, id: PeerId, incarnation: Incarnation, body: Body) -> bool:
        """Send something to a member at all its addresses, and do not wait; whether it went out."""
        target = next((target for target in self._targets if target.id == id), None)
        if target is None:
            return False
        envelope = replace(
            question(target.asker, body, self._schema),
            swarm=bytes.fromhex(self._swarm),
            destination=id,
            destination_incarnation=incarnation,
        )
        return any([self._transport.greet(place, encode(envelope)) for place in target.places])

    def take_answers(self) -> list[Envelope]:
        """What members have answered to what was posted, since this was last called."""
        found = [*self._others]
        self._others.clear()
        return found

    def _begin(self) -> None:
        """Look at who is to be asked this time."""
        self._forget_gone()
        answering = sorted(t.id for t in self._targets if t.id and t.is_awaited)
        first = self._turn % max(1, len(answering))
        tellers = {*(answering[first:] + answering[:first])[:_TELLERS]}
        self._turn += _TELLERS
        for target in self._targets:
            target.is_sent = target.has_answered = False
            target.after, target.wants_members = "", not target.id or target.id in tellers
            if target.misses and target.misses % 3 == 0:
                # It may be elsewhere by now, or reached by another of its addresses.
                target.places = (*target.places[1:], *target.places[:1])

    def _add(self, places: tuple[str, ...]) -> _Target:
        self._targets.append(_Target(places, asker_name("observer", self._keyring)))
        return self._targets[-1]

    def _ask(self) -> None:
        for target in self._targets:
            if not target.is_sent:
                target.is_sent = any(self._send(target, place) for place in target.places)

    def _send(self, target: _Target, place: str) -> bool:
        known = self._peers.get(target.id)
        body = Inquire(
            events_after=0 if known is None else known.event,
            members=target.wants_members,
            members_after=target.after,
        )
        return self._transport.greet(place, encode(question(target.asker, body)))

    def _is_waiting(self) -> bool:
        if not self._has_met:
            return True
        awaited = [target.has_answered for target in self._targets if target.is_awaited]
        # Where nobody has answered the last time, anybody will do.
        return not all(awaited) if awaited else not any(t.has_answered for t in self._targets)

    def _take(self, received: Received) -> None:
        try:
            envelope, _ = decode_header(received.header)
        except RemoteProtocolError:
            self._odd += 1
            return
        target = next((t for t in self._targets if t.asker == envelope.destination), None)
        status = envelope.body
        if target is None:
            return
        if not isinstance(status, Status):
            self._others.append(envelope)
            return
        self._schema = envelope.schema
        life = status.me.id, status.me.incarnation
        if life != (envelope.source, envelope.source_incarnation):
            self._odd += 1
        elif status.me.id != target.id and self._is_answering(status.me.id):
            if target.id:
                self._odd += 1
            else:
                # Two addresses of one peer were given.
                self._targets.remove(target)
        else:
            if received.place in target.places:
                others = (place for place in target.places if place != received.place)
                target.places = (received.place, *others)
            self._answered(target, status, envelope.swarm)

    def _is_answering(self, id: PeerId) -> bool:
        """Whether a peer of that name answers elsewhere: then another is no more than a name."""
        return any(t.id == id and t.is_awaited for t in self._targets)

    def _answered(self, target: _Target, status: Status, swarm: bytes) -> None:
        id = status.me.id
        if target.id != id:
            self._targets = [t for t in self._targets if t is target or t.id != id]
            target.id = id
        self._has_met = target.has_answered = True
        known = self._peers.get(id)
        if known is None or known.status.me.incarnation < status.me.incarnation:
            known = self._peers[id] = Answers(status, self._clock())
        elif known.status.me.incarnation > status.me.incarnation:
            return
        known.add(status, self._clock())
        self._swarm = swarm.hex() or self._swarm
        for note in status.events:
            if note.number > known.event:
                known.event = note.number
                self._events.add(id, note, self._wall() - note.ago_s)
        if target.wants_members:
            self._told_members(target, known, status)

    def _told_members(self, target: _Target, known: Answers, status: Status) -> None:
        told = status.members
        known.pages = known.pages if target.after else []
        known.pages.extend(told)
        # Each page must begin behind the one before, or there would be no end of them.
        last = told[-1].member.id if told else ""
        if status.more and last > target.after and len(known.pages) < _KNOWN_MAX:
            target.after, target.is_sent, target.has_answered = last, False, False
        else:
            target.wants_members, now = False, self._clock()
            self._tables[known.status.me.id] = now, tuple(known.pages)
            self._tables = {
                id: table for id, table in self._tables.items() if now - table[0] <= _TABLE_S
            }
        self._discover(told)

    def _discover(self, told: Iterable[Sighting]) -> None:
        """Ask those, too, of whom somebody tells that they are there."""
        known = {target.id: target for target in self._targets}
        for sighting in told:
            member = sighting.member
            if sighting.standing >= Standing.DEAD or not member.addresses:
                continue
            target = known.get(member.id)
            if target is not None:
                fresh = tuple(a for a in member.addresses if a not in target.places)
                if fresh and not target.has_answered and not target.is_awaited:
                    target.places = (*fresh, *target.places)[:8]
            elif len(self._targets) < ASKED_MAX:
                # Of one that was given up, it is not news that it has been silent.
                is_first = len(self._targets) < _TELLERS
                target = known[member.id] = self._add(member.addresses)
                target.id, target.wants_members = member.id, is_first
                target.misses = 2 if member.id in self._peers else 0

    def _forget_gone(self) -> None:
        """Ask nobody any more who has long been silent, and of whom nobody says that it is there;
        where all are, ask those again whose addresses were given."""
        if any(target.is_awaited for target in self._targets):
            opinions = self._opinions()
            for target in [t for t in self._targets if t.misses >= _MISSES_MAX]:
                opinion = opinions.get(target.id)
                if opinion is None or opinion.state in GONE:
                    self._targets.remove(target)
                    self._close(target)
            return
        known = {place for target in self._targets for place in target.places}
        for seed in self._seeds:
            places = self._places(seed)
            if not known & {*places}:
                self._add(places)

    def _close(self, target: _Target) -> None:
        used = {place for each in self._targets for place in each.places}
        for place in {*target.places} - used:
            # It stays open if something has come since this was last called.
            self._transport.dismiss(place)
            self._transport.dismiss(place)

    def _places(self, seed: str) -> tuple[str, ...]:
        """The addresses that one stands for: with keys, one for each machine of the roster."""
        return (seed,) if self._keyring is None else tuple(with_keys([seed], self._keyring))

    def _opinions(self) -> dict[PeerId, Opinion]:
        """What members say of one another, the latest word of each."""
        return opinions_of({id: table for id, (_, table) in self._tables.items()}, _KNOWN_MAX)

    def _view(self) -> SwarmView:
        now, opinions = self._clock(), self._opinions()
        there = {t.id for t in self._targets if t.has_answered or t.misses <= 1}
        names = sorted({*self._peers, *opinions})[:_KNOWN_MAX]
        shown = [id for id in names if id in opinions or id in there or self._is_recent(id, now)]
        for id in {*self._peers} - {*shown}:
            del self._peers[id]
        peers = [
            view_of(id, self._peers.get(id), opinions.get(id), now, is_there=id in there)
            for id in shown
        ]
        told = [(id, self._peers[id]) for id in shown if id in self._peers]
        samples = [self._peers[p.id].status.sample if p.source == "self" else () for p in peers]
        pairs = zip(peers, distances(samples), strict=True)
        peers = [replace(peer, distance=distance) for peer, distance in pairs]
        links = [each for id, h in told for each in links_of(id, h, is_there=id in there)]
        steps = [h.status.swarm_steps for _, h in told]
        return SwarmView(
            time_s=self._wall(),
            swarm=self._swarm,
            swarm_step=max(steps, default=0),
            answered=sum(target.has_answered for target in self._targets),
            peers=tuple(peers),
            links=tuple(links),
            events=self._events.all(),
            odd=self._odd,
        )

    def _is_recent(self, id: PeerId, now: float) -> bool:
        return now - self._peers[id].answered_s < _SHOWN_S

    def _silence(self) -> str:
        """Why nobody has answered."""
        seed, places = self._seeds[0], self._places(self._seeds[0])
        if why := self._transport.unresolved(places[0]):
            return f"{bare_address(seed)} does not answer: the name does not resolve ({why})"
        if any(target.is_sent for target in self._targets):
            return f"{bare_address(seed)} took the question and did not answer: {_NO_PEER}"
        told = next(filter(None, map(self._transport.refusal, places)), "")
        return f"{bare_address(seed)} does not answer: {told or _HINT}"


_KEPT_MAX: Final = 1000
_TOLD_BY_MAX: Final = 64

# Peers notice a death at different times: each waits for as long as its own timers lag.
_SAME_S: Final = 120.0

# What of a peer that comes and goes is still told apart.
_TIMES: Final = 8

_OF_TELLER: Final = frozenset({"founded", "joined", "full"})
"""Events that are about the member that tells of them."""


class _Events:
    """The last thousand events, as all members tell them.

    Several members notice the same: what two say of one peer within two minutes is one event, but
    what one member says twice has happened twice.
    """

    def __init__(self) -> None:
        self._events: OrderedDict[int, EventView] = OrderedDict()
        self._alike: dict[tuple[str, PeerId], list[int]] = {}
        self._number = 0

    def add(self, teller: PeerId, note: EventNote, time_s: float) -> None:
        """Take in what a member tells.

        Args:
            teller: The member.
            note: What; one that no peer of this version tells is passed over.
            time_s: When that was, on the observer's clock.
        """
        if not note.event.isidentifier():
            return
        is_own = note.event in _OF_TELLER
        peer, donor = (teller, note.peer) if is_own else (note.peer or teller, "")
        alike = self._alike.setdefault((note.event, peer), [])
        near = [self._events[n] for n in alike if teller not in self._events[n].told_by]
        near = [each for each in near if abs(each.time_s - time_s) <= _SAME_S]
        if near:
            same = min(near, key=lambda each: abs(each.time_s - time_s))
            told_by = (*same.told_by, teller)[:_TOLD_BY_MAX]
            same = replace(same, time_s=min(same.time_s, time_s), told_by=told_by)
            self._events[same.number] = same
            return
        number = self._number = self._number + 1
        self._events[number] = EventView(
            number=number,
            time_s=time_s,
            event=note.event,
            peer=peer,
            donor=donor,
            told_by=(teller,),
        )
        alike.append(number)
        del alike[:-_TIMES]
        if len(self._events) > _KEPT_MAX:
            self._forget()

    def all(self) -> tuple[EventView, ...]:
        """All that are remembered, in the order in which they happened."""
        return tuple(sorted(self._events.values(), key=lambda each: (each.time_s, each.number)))

    def _forget(self) -> None:
        number, first = self._events.popitem(last=False)
        alike = self._alike.get((first.event, first.peer), [])
        if number in alike:
            alike.remove(number)
        if not alike:
            self._alike.pop((first.event, first.peer), None)
