"""Watches a swarm from outside: finds all members from the address of one, and asks each.

An observer is no peer. It gets into nobody's view, holds no weight and asks for none; whoever it
asks answers some times a second at most, see `rumor.train.runtime.telling.status`. What it is told
comes from strangers: everything is bounded, and what could command a terminal is not let in.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from ...gossip import ConfigError, TransportError
from ...gossip.errors import RemoteProtocolError
from ...gossip.transport.addresses import allow_more_files, parse_address
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.transport.received import Received
from ...gossip.transport.zmq_transport import Transport
from ...gossip.types import PeerId
from ...gossip.wire.codec import decode_header, encode
from ...gossip.wire.messages import Envelope, Inquire, Sighting, Standing, Status
from ..runtime.search import with_keys
from ..runtime.telling.model_sample import distances
from .chronicle import Chronicle
from .history import History
from .portrait import Hearsay, links_of, portrait
from .probe import asker_name, bare_address
from .view import GONE, SwarmView

__all__ = ["ASKED_MAX", "Observer"]

ASKED_MAX: Final = 256
"""Members that are asked; of more, the others are shown as those say that they are."""

_KNOWN_MAX: Final = 4096
"""Members that are shown."""

# So many are asked at a time whom they see: in a large swarm others the next time.
_TELLERS: Final = 16

_NAP_S: Final = 0.02

# No schema hashes to it, and no peer founds with it.
_NO_MODEL: Final = b"\xff" * 16

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
    id: PeerId = ""
    """Who should be there; empty for whoever is."""
    asker: str = ""
    """The name in which it is asked. It knows no other, so that it can answer for nobody else."""
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
            self._add(_Target(self._places(seed)))
        self._peers: dict[PeerId, History] = {}
        self._hearsay = Hearsay(_KNOWN_MAX)
        self._chronicle = Chronicle()
        self._turn = 0
        self._odd = 0
        self._swarm = ""
        self._has_met = False

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

    def _add(self, target: _Target) -> None:
        target.asker = asker_name("observer", self._keyring)
        self._targets.append(target)

    def _ask(self) -> None:
        for target in self._targets:
            if not target.is_sent:
                target.is_sent = any(self._send(target, place) for place in target.places)

    def _send(self, target: _Target, place: str) -> bool:
        known = self._peers.get(target.id)
        question = Inquire(
            events_after=0 if known is None else known.event,
            members=target.wants_members,
            members_after=target.after,
        )
        envelope = Envelope(
            swarm=b"",
            schema=_NO_MODEL,
            source=target.asker,
            # The first incarnation of nobody: no peer takes it for one that comes after another.
            source_incarnation=1,
            destination="",
            destination_incarnation=0,
            body=question,
        )
        return self._transport.greet(place, encode(envelope))

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
        body = envelope.body
        if target is None or not isinstance(body, Status):
            return
        if not self._may_answer(target, envelope, body):
            if target.id:
                self._odd += 1
            else:
                # Two addresses of one peer were given.
                self._targets.remove(target)
            return
        if target.places[0] != received.place and received.place in target.places:
            others = (place for place in target.places if place != received.place)
            target.places = (received.place, *others)
        self._answered(target, body, envelope.swarm)

    def _may_answer(self, target: _Target, envelope: Envelope, status: Status) -> bool:
        """Whether whoever answers may be the one it says it is."""
        id = status.me.id
        if id != envelope.source or status.me.incarnation != envelope.source_incarnation:
            return False
        if id == target.id:
            return True
        # Somebody else is there now, or it was asked for the first time. Where another answers in
        # that name, it is no more than a name.
        return not any(t.id == id and t.is_awaited for t in self._targets)

    def _answered(self, target: _Target, status: Status, swarm: bytes) -> None:
        id = status.me.id
        if target.id != id:
            self._targets = [t for t in self._targets if t is target or t.id != id]
            target.id = id
        self._has_met = target.has_answered = True
        known = self._peers.get(id)
        if known is None or known.incarnation < status.me.incarnation:
            known = self._peers[id] = History(status, self._clock())
        elif known.incarnation > status.me.incarnation:
            return
        known.answered(status, self._clock())
        self._swarm = swarm.hex() or self._swarm
        for note in status.events:
            if note.number > known.event:
                known.event = note.number
                self._chronicle.add(id, note, self._wall() - note.ago_s)
        if target.wants_members:
            self._told_members(target, known, status)

    def _told_members(self, target: _Target, known: History, status: Status) -> None:
        told = status.members
        known.pages = known.pages if target.after else []
        known.pages.extend(told)
        # Each page must begin behind the one before, or there would be no end of them.
        last = told[-1].member.id if told else ""
        if status.more and last > target.after and len(known.pages) < _KNOWN_MAX:
            target.after, target.is_sent, target.has_answered = last, False, False
        else:
            known.members, target.wants_members = tuple(known.pages), False
            self._hearsay.tell(known.status.me.id, known.members, self._clock())
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
                misses = 2 if member.id in self._peers else 0
                target = known[member.id] = _Target(member.addresses, member.id, misses=misses)
                target.wants_members = len(self._targets) < _TELLERS
                self._add(target)

    def _forget_gone(self) -> None:
        """Ask nobody any more who has long been silent, and of whom nobody says that it is there;
        where all are, ask those again whose addresses were given."""
        if any(target.is_awaited for target in self._targets):
            opinions = self._hearsay.opinions()
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
                self._add(_Target(places))

    def _close(self, target: _Target) -> None:
        used = {place for each in self._targets for place in each.places}
        for place in {*target.places} - used:
            # It stays open if something has come since this was last called.
            self._transport.dismiss(place)
            self._transport.dismiss(place)

    def _places(self, seed: str) -> tuple[str, ...]:
        """The addresses that one stands for: with keys, one for each machine of the roster."""
        return (seed,) if self._keyring is None else tuple(with_keys([seed], self._keyring))

    def _view(self) -> SwarmView:
        now, opinions = self._clock(), self._hearsay.opinions()
        there = {t.id for t in self._targets if t.has_answered or t.misses <= 1}
        names = sorted({*self._peers, *opinions})[:_KNOWN_MAX]
        shown = [id for id in names if id in opinions or id in there or self._is_recent(id, now)]
        for id in {*self._peers} - {*shown}:
            del self._peers[id]
        peers = [
            portrait(id, self._peers.get(id), opinions.get(id), now, is_there=id in there)
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
            events=self._chronicle.events(),
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
