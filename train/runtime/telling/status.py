"""A peer's answers to observers, which need not be peers.

Each has a sample of the model's numbers, the same ones at all peers, to estimate distances of
models. Queries are not input to the protocol: they change nothing, and are not in the journal.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ....gossip.protocol.protocol import Protocol
from ....gossip.types import PeerId, stream
from ....gossip.wire.messages import (
    LINKS_TOLD_MAX,
    MEMBERS_TOLD_MAX,
    NAMED_MAX,
    SAMPLE_NUMBERS_MAX,
    Inquire,
    LinkStatus,
    Member,
    Phase,
    Sighting,
    Standing,
    Status,
)
from .events import Events
from .stats import METRICS, Counters, PeerStats

__all__ = ["ModelSample", "StatusDesk", "distances", "printable"]

# Keeps a whole answer within a header, however long the members' names.
_MEMBERS_CHARACTERS_MAX: Final = 1 << 17
_ADDRESSES_MAX: Final = 4

# Minimum age of a sample before it is read again, as reading from a device waits for it.
_SAMPLE_EVERY_S: Final = 0.5


class StatusDesk:
    """Answers observers; *clock* is that of counters and *events*."""

    def __init__(
        self,
        settings: Mapping[str, str],
        events: Events,
        stats: Callable[[], PeerStats],
        sample: Callable[[], tuple[float, ...]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = tuple(
            (printable(name, 32), printable(value, 256)) for name, value in settings.items()
        )[:NAMED_MAX]
        self._events, self._stats, self._sample, self._clock = events, stats, sample, clock
        self._began_s = clock()

    def answer(
        self,
        question: Inquire,
        look: Callable[[Callable[[Protocol], Status]], Status],
        awaits: Sequence[PeerId] = (),
    ) -> Status:
        """Answer a query; *look* reads the protocol under its lock."""
        # Outside the lock, as a loss and a sample may have to come from a device.
        stats, sample, now = self._stats(), self._sample(), self._clock()
        figures = ((name, metric.get(stats)) for name, metric in METRICS.items())
        events = self._events.since(question.events_after, now)

        def glance(protocol: Protocol) -> Status:
            return Status(
                me=next(m for m in protocol.table.live() if m.id == protocol.account.id),
                uptime_s=now - self._began_s,
                swarm_steps=stats.swarm_steps,
                # The loss of a diverged model is shown as infinite.
                figures=tuple(
                    (name, math.inf if math.isnan(value) else float(value))
                    for name, value in figures
                    if value is not None
                ),
                settings=self._settings,
                awaits=tuple(awaits)[:NAMED_MAX],
                events=events,
                sample=sample,
                links=tuple(_links(stats.counters, protocol)),
                members=tuple(self._members(protocol)) if question.members else (),
            )

        return look(glance)

    def _members(self, protocol: Protocol) -> Iterator[Sighting]:
        """Yield as many other members as fit, those whose ids follow this peer's first."""
        own = protocol.account.id
        live = {member.id for member in protocol.table.live()}
        suspected, dead = self._events.doubted()

        def standing(member: Member) -> Standing:
            if member.phase is Phase.LEFT:
                return Standing.DEAD if member.id in dead else Standing.LEFT
            if member.id not in live:
                return Standing.DEAD
            return Standing.SUSPECTED if member.id in suspected else Standing.LIVE

        others = sorted(protocol.last_heard(), key=lambda each: (each.id < own, each.id))
        steps = protocol.table.clock.rows()
        # Nothing more is known of peers that have left.
        gone = [Member(id, 1, 0, Phase.LEFT, steps.get(id, 0)) for id in protocol.departed()]
        room = _MEMBERS_CHARACTERS_MAX
        for member in [*others, *gone][:MEMBERS_TOLD_MAX]:
            member = replace(member, addresses=member.addresses[:_ADDRESSES_MAX])
            room -= sum(map(len, (member.id, *member.addresses)))
            if room < 0:
                return
            yield Sighting(member, standing(member))


def _links(counters: Counters, protocol: Protocol) -> Iterator[LinkStatus]:
    """Yield links to known peers, those with the most traffic first."""
    in_flight = Counter(peer for a in protocol.accounts for peer, _ in a.outstanding)
    known = {member.id for member in protocol.known()}
    links = [(peer, link) for peer, link in list(counters.links.items()) if peer in known]
    links.sort(key=lambda pair: -(pair[1].bytes_sent + pair[1].bytes_received))
    for peer, link in links[:LINKS_TOLD_MAX]:
        told = asdict(link)
        del told["asked_s"]
        shares_memory = protocol.state.shares_memory(peer)
        yield LinkStatus(peer=peer, shares_memory=shares_memory, in_flight=in_flight[peer], **told)


def printable(text: str, length_max: int) -> str:
    """Return a string that messages can carry."""
    return "".join(c if c.isprintable() else "?" for c in text)[:length_max]


class ModelSample:
    """Samples current numbers of a model, given as flat vectors that keep their memory.

    Sums of squares over the sample, times n over its size, are unbiased estimates of those over all
    n numbers of the model, which may be of two steps if it is training meanwhile.
    """

    def __init__(
        self, flats: Sequence[Tensor], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._taken_s = -math.inf
        self._taken: tuple[float, ...] = ()
        n = sum(flat.numel() for flat in flats)
        if n > SAMPLE_NUMBERS_MAX:
            drawn = stream(0, "swarm", "model sample").integers(n, size=SAMPLE_NUMBERS_MAX)
            places = np.sort(drawn)
        else:
            places = np.arange(n)
        self._picked: list[tuple[Tensor, Tensor]] = []
        start = 0
        for flat in flats:
            inside = places[(places >= start) & (places < start + flat.numel())] - start
            self._picked.append((flat, torch.from_numpy(inside).to(flat.device)))
            start += flat.numel()

    def __call__(self) -> tuple[float, ...]:
        """Return at most `SAMPLE_NUMBERS_MAX` recent numbers, none if one is not finite."""
        if (now := self._clock()) - self._taken_s >= _SAMPLE_EVERY_S:
            self._taken_s = now
            with torch.no_grad():
                found = [flat[places].double().tolist() for flat, places in self._picked]
            numbers = tuple(number for part in found for number in part)
            self._taken = numbers if all(map(math.isfinite, numbers)) else ()
        return self._taken


def distances(samples: Iterable[Sequence[float]]) -> list[float | None]:
    """Return the distance of each model from their mean, relative to the norm of the mean.

    It is None unless the model and another one have a sample of the most common length.

    >>> distances([(1.0, 0.0), (3.0, 0.0), ()])
    [0.5, 0.5, None]
    """
    told = [np.array(sample, np.float64) for sample in samples]
    lengths = [len(sample) for sample in told if len(sample)]
    length = max(set(lengths), key=lengths.count, default=0)
    known = [sample for sample in told if len(sample) == length]
    if len(known) < 2 or not length:
        return [None] * len(told)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.mean(known, axis=0)
        norm = float(np.linalg.norm(mean)) or 1.0
        apart = [
            float(np.linalg.norm(sample - mean)) / norm if len(sample) == length else math.nan
            for sample in told
        ]
    return [distance if math.isfinite(distance) else None for distance in apart]
