"""What a peer answers to somebody who asks how it is doing.

An observer need not be a peer. Its question is no input of the protocol: it changes nothing, stands
in no journal, and costs nothing where nobody asks.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from ....gossip.protocol.protocol import Protocol
from ....gossip.types import PeerId
from ....gossip.wire.messages import (
    EVENTS_TOLD_MAX,
    LINKS_TOLD_MAX,
    MEMBERS_TOLD_MAX,
    NAMED_MAX,
    Envelope,
    EventNote,
    Inquire,
    LinkStatus,
    Member,
    Phase,
    Sighting,
    Standing,
    Status,
)
from ...tensors.buffers import MemoryUse
from .counters import Counters
from .events import Events
from .stats import METRICS, PeerStats, protocol_stats

__all__ = ["QUESTIONS", "StatusDesk"]

QUESTIONS: Final = (Inquire, Status)
"""What observers say, and what is said to them: nothing of it is for the protocol."""

# So that a whole answer fits into a header, whatever others call themselves.
_MEMBERS_CHARACTERS_MAX: Final = 1 << 17
_ADDRESSES_MAX: Final = 4


class StatusDesk:
    """Answers observers.

    Args:
        schema: Hash of the model's schema, 16 bytes.
        settings: The peer's, by name.
        counters: The peer's.
        events: What has happened.
        measured: What the training loop measured last: loss, accuracy and the like.
        memory: What shares on their way take.
        sample: Some numbers of the model, see `ModelSample`.
        clock: Seconds that only go forward, those of *counters* and *events*.
    """

    def __init__(
        self,
        *,
        schema: bytes,
        settings: Mapping[str, str],
        counters: Counters,
        events: Events,
        measured: Callable[[], Mapping[str, float]],
        memory: Callable[[], MemoryUse],
        sample: Callable[[], tuple[float, ...]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schema = schema
        self._settings = tuple(
            (_printable(name, 32), _printable(value, 256)) for name, value in settings.items()
        )[:NAMED_MAX]
        self._counters = counters
        self._events = events
        self._measured = measured
        self._memory = memory
        self._sample = sample
        self._clock = clock
        self._began_s = clock()

    def answer(
        self,
        envelope: Envelope,
        look: Callable[[Callable[[Protocol], Envelope]], Envelope],
        awaits: Sequence[PeerId] = (),
    ) -> Envelope | None:
        """Answer a question.

        Args:
            envelope: The question.
            look: Reads the protocol while no event changes it.
            awaits: Whom the peer waits for now.

        Returns:
            The answer; None where this is no question.
        """
        question, now = envelope.body, self._clock()
        if not isinstance(question, Inquire):
            return None
        # Outside of the lock: a loss and a sample may have to come from a device.
        measured, sample = self._measured(), self._sample()

        def glance(protocol: Protocol) -> Envelope:
            status = self._status(question, protocol, measured, awaits, now)
            return self._answer(envelope, protocol, replace(status, sample=sample))

        return look(glance)

    def _answer(self, question: Envelope, protocol: Protocol, body: Status) -> Envelope:
        source, incarnation = protocol.account.life
        return Envelope(
            swarm=protocol.swarm,
            schema=self._schema,
            source=source,
            source_incarnation=incarnation,
            destination=question.source,
            destination_incarnation=question.source_incarnation,
            body=body,
        )

    def _status(
        self,
        question: Inquire,
        protocol: Protocol,
        measured: Mapping[str, float],
        awaits: Sequence[PeerId],
        now: float,
    ) -> Status:
        members, more = self._members(question, protocol)
        stats = PeerStats(
            id=protocol.account.id,
            counters=self._counters,
            memory=self._memory(),
            measured=measured,
            **protocol_stats(protocol),
        )
        found = ((name, metric.get(stats)) for name, metric in METRICS.items())
        return Status(
            me=next(m for m in protocol.live() if m.id == protocol.account.id),
            uptime_s=now - self._began_s,
            swarm_steps=protocol.clock.total,
            figures=tuple((name, _told(value)) for name, value in found if value is not None),
            settings=self._settings,
            awaits=tuple(awaits)[:NAMED_MAX],
            reasons=tuple(
                (what, _printable(why, 256), count)
                for (what, why), count in self._counters.reasons.items()
            )[:NAMED_MAX],
            links=tuple(self._links(protocol, now)),
            events=tuple(
                EventNote(
                    number=each.number,
                    event=each.event,
                    peer=each.peer,
                    ago_s=max(0.0, now - each.at_s),
                )
                for each in self._events.since(question.events_after, EVENTS_TOLD_MAX)
            ),
            members=members,
            more=more,
        )

    def _links(self, protocol: Protocol, now: float) -> Iterator[LinkStatus]:
        """Links to whom is known, those with the most traffic first."""
        in_flight: dict[PeerId, int] = {}
        for account in protocol.accounts:
            for peer, _ in account.outstanding:
                in_flight[peer] = in_flight.get(peer, 0) + 1
        known = {member.id for member in protocol.known()}
        links = [(peer, link) for peer, link in list(self._counters.links.items()) if peer in known]
        links.sort(key=lambda pair: -(pair[1].bytes_sent + pair[1].bytes_received))
        for peer, link in links[:LINKS_TOLD_MAX]:
            yield LinkStatus(
                peer=peer,
                shares_memory=protocol.shares_memory(peer),
                bytes_sent=link.bytes_sent,
                bytes_received=link.bytes_received,
                frames_sent=link.frames_sent,
                frames_received=link.frames_received,
                pushes=link.pushes,
                refusals=link.refusals,
                mixed=link.mixed,
                in_flight=in_flight.get(peer, 0),
                roundtrip_s=link.roundtrip_s,
                silent_s=max(0.0, now - link.heard_s),
            )

    def _members(self, question: Inquire, protocol: Protocol) -> tuple[tuple[Sighting, ...], bool]:
        """Others behind the id that the question names, as many as there is room for, and whether
        there are more."""
        if not question.members:
            return (), False
        live = {member.id for member in protocol.live()}
        suspected, after = self._events.suspected, question.members_after
        steps = protocol.clock.rows()
        # Of those who have left, no more is known.
        others = [*protocol.last_heard()] + [
            Member(peer, 1, 0, Phase.LEFT, steps.get(peer, 0)) for peer in protocol.departed()
        ]
        behind = sorted([each for each in others if each.id > after], key=lambda each: each.id)
        found: list[Sighting] = []
        room = _MEMBERS_CHARACTERS_MAX
        for member in behind[:MEMBERS_TOLD_MAX]:
            member = replace(member, addresses=member.addresses[:_ADDRESSES_MAX])
            room -= sum(map(len, (member.id, *member.addresses)))
            if room < 0:
                break
            found.append(Sighting(member, _standing(member, live, suspected)))
        return tuple(found), len(found) < len(behind)


def _standing(member: Member, live: Set[PeerId], suspected: Set[PeerId]) -> Standing:
    if member.phase is Phase.LEFT:
        return Standing.LEFT
    if member.id not in live:
        return Standing.DEAD
    return Standing.SUSPECTED if member.id in suspected else Standing.LIVE


def _told(value: float) -> float:
    """A number as messages have it: a model that has diverged is no secret, its loss is told as
    infinite."""
    return math.inf if math.isnan(value) else float(value)


def _printable(text: str, length_max: int) -> str:
    """A text as messages have it."""
    return "".join(c if c.isprintable() else "?" for c in text)[:length_max]
