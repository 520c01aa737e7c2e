"""Counts of a peer's actions, from the protocol's own effects."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ....gossip.effects.effects import Effect
from ....gossip.effects.events import NO_MEMORY, Event, PushSkipped, ShareMixed, ShareRefused
from ....gossip.effects.ledger import Entry, Kind
from ....gossip.types import PeerId
from ....gossip.wire.codec import Buffer
from ....gossip.wire.messages import Envelope, Hello, Leave

__all__ = ["Counters", "LinkCounts"]

# Bounded, as a stranger can make up any number of names.
_LINKS_MAX: Final = 1024


@dataclass(slots=True)
class LinkCounts:
    """Traffic between this peer and another one, see `LinkStatus`."""

    bytes_sent: int = 0
    bytes_received: int = 0
    pushes: int = 0
    refusals: int = 0
    mixed: int = 0
    asked_s: float | None = None
    """Time of a hello to it that it has not answered yet."""
    roundtrip_s: float = 0.0
    """Round trip of the last answered hello, seconds; 0 before the first."""


@dataclass(slots=True)
class Counters:
    """Counts since the peer's start; `stats.METRICS` describes them."""

    pushes: int = 0
    skipped: int = 0
    no_memory: int = 0
    refusals: int = 0
    refused: int = 0
    mixed: int = 0
    staleness_steps: int = 0
    staleness_steps_max: int = 0
    messages: int = 0
    frames: int = 0
    bytes_sent: int = 0
    membership_bytes: int = 0
    bytes_received: int = 0
    errors: int = 0
    links: dict[PeerId, LinkCounts] = field(default_factory=dict, repr=False)
    """Traffic with each other peer; see `link`."""

    def link(self, peer: PeerId) -> LinkCounts:
        """Return the counts of one other peer."""
        found = self.links.get(peer)
        if found is None:
            if len(self.links) >= _LINKS_MAX:
                # Names that a stranger made up are sent hellos and no models. Another thread may
                # add one meanwhile.
                least, _ = min(list(self.links.items()), key=lambda pair: pair[1].bytes_sent)
                self.links.pop(least)
            found = self.links.setdefault(peer, LinkCounts())
        return found

    def note_sent(
        self, envelope: Envelope, parts: Sequence[Buffer], *, to: PeerId | None = None
    ) -> None:
        """Count a message that was handed to the network, and its receiver if that is a member."""
        size = sum(len(part) for part in parts)
        body = envelope.body
        self.messages += 1
        self.frames += len(parts) > 1
        self.bytes_sent += size
        if isinstance(body, Hello | Leave):
            self.membership_bytes += size
        if to is not None:
            link = self.link(to)
            link.bytes_sent += size
            if isinstance(body, Hello) and body.reply:
                link.asked_s = time.monotonic()

    def note_received(self, envelope: Envelope, size_bytes: int) -> None:
        """Count a message that the protocol has accepted."""
        link, body = self.link(envelope.source), envelope.body
        link.bytes_received += size_bytes
        if isinstance(body, Hello) and not body.reply and link.asked_s is not None:
            link.roundtrip_s, link.asked_s = time.monotonic() - link.asked_s, None

    def count(self, effect: Effect | Event) -> None:
        """Count one effect."""
        match effect:
            case Entry(kind=Kind.PUSHED) as entry:
                self.pushes += 1
                self.link(entry.peer).pushes += 1
            case Entry(kind=Kind.SETTLED, weight=0) as entry:
                self.refusals += 1
                self.link(entry.peer).refusals += 1
            case PushSkipped(reason=reason) | ShareRefused(reason=reason):
                is_push = isinstance(effect, PushSkipped)
                self.skipped += is_push
                self.refused += not is_push
                self.no_memory += reason == NO_MEMORY
            case ShareMixed():
                self.mixed += 1
                self.staleness_steps += effect.staleness_steps
                self.staleness_steps_max = max(self.staleness_steps_max, effect.staleness_steps)
                self.link(effect.sender).mixed += 1
