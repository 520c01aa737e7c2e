"""A copy of the model for readers outside the swarm, such as `rumor pull`.

Their requests are not input to the protocol: no weight moves, and nothing is in the journal.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from ....gossip import TrainingError
from ....gossip.effects.effects import Release, Send, Snapshot, X
from ....gossip.types import PeerId, SnapshotId
from ....gossip.wire.codec import Buffer
from ....gossip.wire.formats import Form
from ....gossip.wire.messages import EXCERPT_BYTES, Envelope, Excerpt, Fetch
from ....gossip.wire.schema import SHARDS_MAX
from ...tensors.store import TensorStore
from .status import printable

__all__ = ["COPIED", "ModelCopy"]

COPIED: Final = Form(copy=True)
"""Contents of a shard for a reader: its numbers, and with the first one the local buffers."""

# A reader that asks for nothing for so long has died.
_IDLE_S: Final = 15.0

_WHY_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class _Copy:
    number: int
    held: tuple[int, ...]
    """Weight of each shard."""
    step: int
    why: str
    """Why it could not be taken; empty if it was."""


class ModelCopy:
    """At most one copy at a time, for one reader: that bounds the memory to one model.

    The training thread takes it between two steps, and the network thread answers from it.
    """

    def __init__(self, store: TensorStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._numbers = count(1)
        self._reader: PeerId = ""
        self._asked_s = clock()
        # Number of the copy that the reader needs; 0 without a reader.
        self._number = 0
        self._copy: _Copy | None = None

    @property
    def is_wanted(self) -> bool:
        """True if a reader waits for the training thread to call `take`."""
        return self._number != 0 and self._taken() is None

    def take(self, held: Sequence[int], step: int) -> None:
        """Copy the model, which holds this weight in each shard."""
        number, why = self._number, ""
        self._release()
        try:
            for shard in range(self._store.schema.shards):
                self._store.take(Snapshot(_id_of(number, shard), X, COPIED, shard))
        except TrainingError as error:
            why = str(error)
        self._copy = _Copy(number, tuple(held), step, why)

    def answer(self, question: Envelope, fetch: Fetch, why: str) -> tuple[Excerpt, Buffer]:
        """Answer a request, with a frame if there is a copy; *why* may refuse further readers."""
        self.expire()
        if not (self._reader or fetch.snapshot or fetch.done or why):
            self._reader, self._number = question.source, next(self._numbers)
        if question.source != self._reader:
            return _refusal(why or ("it was not fetched in time" if fetch.snapshot else "")), b""
        self._asked_s = self._clock()
        if fetch.done:
            self._end()
        copy = self._taken()
        return (_refusal(why), b"") if copy is None else self._excerpt(copy, question, fetch)

    def expire(self) -> None:
        """Release the copy of a reader that has died; call this about every second."""
        if self._reader and self._clock() - self._asked_s > _IDLE_S:
            self._end()
        if not self._number:
            # The training thread may have taken it after its reader had gone.
            self._release()

    def _excerpt(self, copy: _Copy, question: Envelope, fetch: Fetch) -> tuple[Excerpt, Buffer]:
        shard, start, why = question.shard, fetch.offset_bytes, copy.why
        room = max(0, COPIED.size_bytes(self._store.schema, shard) - start)
        # A request for a new copy is repeated often, so its answer is short.
        size_bytes = min(EXCERPT_BYTES, room) if fetch.snapshot else 0
        message = replace(question, frame_bytes=size_bytes)
        send = Send(message, _id_of(copy.number, shard), start)
        if not why and self._store.awaits_device(send.snapshot):
            return Excerpt(), b""
        frame = None if why else self._store.frame_of(send)
        if frame is None:
            why, self._store.failure = why or "its model is not finite", None
            self._end()
            return _refusal(why), b""
        told = Excerpt(
            snapshot=copy.number, offset_bytes=start, held=copy.held[shard], step=copy.step
        )
        # Not a view: frames in the queue of a reader that has stopped must not keep a whole model.
        return told, bytes(frame)

    def _taken(self) -> _Copy | None:
        copy = self._copy
        return copy if copy is not None and copy.number == self._number else None

    def _end(self) -> None:
        self._reader, self._number = "", 0
        self._release()

    def _release(self) -> None:
        copy, self._copy = self._copy, None
        if copy is not None:
            for shard in range(len(copy.held)):
                self._store.release(Release(_id_of(copy.number, shard)))


def _id_of(number: int, shard: int) -> SnapshotId:
    """Return the id of a snapshot; the protocol's are positive."""
    return -(number * SHARDS_MAX + shard)


def _refusal(why: str) -> Excerpt:
    return Excerpt(why=printable(why, _WHY_MAX))
