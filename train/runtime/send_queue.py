"""The queue of the network thread: messages to send, connections to open and close."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ...gossip.effects.effects import Dismiss, Greet, Meet, Part, Release, Send
from ...gossip.transport.zmq_transport import Transport
from ...gossip.types import PeerId, SnapshotId
from ...gossip.wire.codec import encode
from ...gossip.wire.messages import Chunk, Envelope, Offer, Query
from ..tensors.store import TensorStore
from .telling.stats import Counters

__all__ = ["BULK", "Job", "SendQueue"]


# An offer takes the connection of its frames, and a query that of the share, so that neither
# overtakes the other.
BULK: Final = (Offer, Chunk, Query)
"""Messages sent on the connection for bulk."""

Job = Greet | Dismiss | Meet | Part | Send | Release
"""Effects that only the network thread executes."""


class SendQueue:
    """Jobs for the network thread, in order. Any thread may add; only that one takes them."""

    def __init__(self, transport: Transport, store: TensorStore, counters: Counters) -> None:
        self.greeted: dict[str, None] = {}
        """Addresses that were sent a hello, in order."""
        self._transport, self._store, self._counters = transport, store, counters
        self.jobs: deque[Job] = deque()
        """Pending jobs, in order."""

    def flush(self, refused: Callable[[Envelope], None], *, wait: bool = False) -> None:
        """Hand the queued messages to the sockets.

        Args:
            refused: Called with each message that the network refuses.
            wait: True to wait for devices, so that the queue becomes empty.
        """
        # Jobs that wait for a copy from a device stay queued, and so do jobs behind them in order.
        put_off: list[Job] = []
        behind: set[SnapshotId | PeerId] = set()
        while self.jobs:
            job = self.jobs.popleft()
            awaits = not wait and isinstance(job, Send) and self._store.awaits_device(job.snapshot)
            if awaits or (behind and behind & _in_order_of(job)):
                put_off.append(job)
                behind |= _in_order_of(job)
            else:
                self._hand_over(job, refused)
        self.jobs.extendleft(reversed(put_off))

    def _hand_over(self, job: Job, refused: Callable[[Envelope], None]) -> None:
        match job:
            case Greet(address, envelope):
                self.greeted[address] = None
                parts = encode(envelope)
                self._counters.note_sent(envelope, parts)
                self._transport.greet(address, parts)
            case Dismiss(address):
                self._transport.dismiss(address)
            case Meet(peer, addresses):
                self._transport.meet(peer, addresses)
            case Part(peer):
                self._transport.part(peer)
            case Send() as effect:
                if not self._send(effect):
                    refused(effect.envelope)
            case Release() as effect:
                self._store.release(effect)

    def _send(self, effect: Send) -> bool:
        frame, envelope = self._store.frame_of(effect), effect.envelope
        if frame is None:
            return False
        if effect.shown and effect.snapshot is not None and isinstance(envelope.body, Offer):
            # Only the store knows the snapshot's segment. Without one, the values are sent.
            segment = self._store.segment_of(effect.snapshot)
            envelope = replace(envelope, body=replace(envelope.body, segment=segment))
        parts = encode(envelope, frame)
        bulk = isinstance(envelope.body, BULK)
        if not self._transport.send(envelope.destination, parts, bulk=bulk):
            return False
        self._counters.note_sent(envelope, parts, to=envelope.destination)
        return True


def _in_order_of(job: Job) -> set[SnapshotId | PeerId]:
    """Return keys shared with the jobs that *job* must not overtake."""
    # Bulk messages to one peer stay in order, and a snapshot is released after all of it was sent.
    if isinstance(job, Release):
        return {job.snapshot}
    if isinstance(job, Part):
        return {job.peer}
    if not isinstance(job, Send) or not isinstance(job.envelope.body, BULK):
        return set()
    destination = job.envelope.destination
    return {destination} if job.snapshot is None else {destination, job.snapshot}
