"""What a peer has done so far, counted from the protocol's own effects."""

from dataclasses import dataclass, field

from ...gossip.effects.effects import Effect, Record
from ...gossip.effects.events import NO_MEMORY, Event, PushSkipped, ShareMixed, ShareRefused
from ...gossip.effects.ledger import Kind
from ...gossip.types import Incarnation, PeerId

__all__ = ["Counters"]


@dataclass(slots=True)
class Counters:
    """Counts since the peer's start."""

    pushes: int = 0
    """Shares pushed."""
    skipped: int = 0
    """Pushes that were due and found no weight, no neighbor, no credit or no memory."""
    no_memory: int = 0
    """Those among them that found no memory, and shares that were refused for want of it."""
    refusals: int = 0
    """Pushes that came back whole."""
    mixed: int = 0
    """Shares mixed in."""
    staleness_steps: int = 0
    """Sum over the shares mixed in."""
    messages: int = 0
    """Messages handed to the network."""
    frames: int = 0
    """Those among them that carried a part of a share."""
    bytes_sent: int = 0
    membership_bytes: int = 0
    """Of these, what said who lives."""
    bytes_received: int = 0
    errors: int = 0
    """Messages dropped for breaking the protocol."""
    _shown: set[tuple[PeerId, Incarnation, int]] = field(default_factory=set, repr=False)

    def count(self, effect: Effect | Event) -> None:
        """Take one effect into account."""
        match effect:
            case Record(entry) if entry.kind is Kind.PUSHED:
                # What is shown to be read has no weight, and is no push.
                self.pushes += entry.weight > 0
                if not entry.weight:
                    self._shown.add((entry.peer, entry.incarnation, entry.shard))
            case Record(entry) if entry.kind is Kind.SETTLED and entry.weight == 0:
                receiver = entry.peer, entry.incarnation, entry.shard
                self.refusals += receiver not in self._shown
                self._shown.discard(receiver)
            case PushSkipped(reason):
                self.skipped += 1
                self.no_memory += reason == NO_MEMORY
            case ShareRefused(_, reason):
                self.no_memory += reason == NO_MEMORY
            case ShareMixed():
                self.mixed += 1
                self.staleness_steps += effect.staleness_steps
            case _:
                pass
