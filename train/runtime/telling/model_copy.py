"""A copy of a peer's model for its readers: `Peer.average` of other members, and `rumor pull`.

Their requests are not input to the protocol: no weight moves, and nothing is in the journal.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ....gossip import TrainingError, TransportError
from ....gossip.effects.effects import Release, Send, Snapshot, X
from ....gossip.errors import IncompatiblePeer, RemoteProtocolError
from ....gossip.types import PeerId, SnapshotId
from ....gossip.wire.codec import Buffer
from ....gossip.wire.formats import Form
from ....gossip.wire.messages import EXCERPT_BYTES, Envelope, Excerpt, Fetch
from ....gossip.wire.schema import SHARDS_MAX, Schema
from ...tensors.store import TensorStore
from ...tensors.weighted_sum import are_finite
from .status import printable

__all__ = ["COPIED", "Ask", "ModelCopy", "ModelRead", "read_model"]

COPIED: Final = Form(copy=True)
"""Contents of a shard for a reader: its numbers, and with the first one the local buffers."""

# A reader that asks for nothing for so long has died.
_IDLE_S: Final = 15.0

_WHY_MAX: Final = 256

# Requests for a copy that is not taken yet are repeated often. Those for excerpts, which only a
# lost connection loses, are repeated ever less often, and on a slow link hardly at all.
_WANTED_AGAIN_S: Final = 0.1
_EXCERPT_AGAIN_S: Final = 4.0
_TIMES: Final = 4


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


Ask = Callable[[Fetch, int, float], Iterator[tuple[Envelope, Excerpt, Buffer]]]
"""Sends a request for a shard, and yields the excerpts that arrive until a time, by
`time.perf_counter`."""


@dataclass(frozen=True, slots=True)
class ModelRead:
    """A model that was read from its peer."""

    step: int
    """Optimizer steps behind it."""
    time_s: float
    """Time at which reading began, seconds since the epoch; the model is of about then."""
    weights: Sequence[int]
    """Weight that the peer held in each shard, in quanta."""
    payloads: Sequence[Tensor]
    """Numbers of each shard in the form `COPIED`, uint8."""


def read_model(
    ask: Ask,
    id: PeerId,
    swarm: bytes,
    schema: Schema,
    wait_s: float,
    tell: Callable[[float], object] = lambda part: None,
) -> ModelRead:
    """Read a peer's model, waiting up to *wait_s* for the copy and for each excerpt.

    Calls *tell* with the part that has arrived, in [0, 1].

    Raises:
        TransportError: It does not answer in time, or says why it shows no model.
        RemoteProtocolError: Another peer answers, or one of another swarm; or a number is not
            finite.
    """
    sizes = [COPIED.size_bytes(schema, shard) for shard in range(schema.shards)]
    weights = [0] * schema.shards
    payloads = [torch.empty(size, dtype=torch.uint8, device="cpu") for size in sizes]
    places = [(k, start) for k, size in enumerate(sizes) for start in range(0, size, EXCERPT_BYTES)]
    if not places:
        raise RemoteProtocolError("its model has no numbers")
    _, told, _ = _excerpt(ask, Fetch(), 0, wait_s, _WANTED_AGAIN_S)
    snapshot, time_s = told.snapshot, time.time()
    took_s = 0.0
    for number, (shard, start) in enumerate(places, 1):
        began_s, fetch = time.perf_counter(), Fetch(snapshot=snapshot, offset_bytes=start)
        again_s = max(_EXCERPT_AGAIN_S, _TIMES * took_s)
        envelope, told, frame = _excerpt(ask, fetch, shard, wait_s, again_s)
        if envelope.source != id:
            raise RemoteProtocolError(f"{envelope.source} answers at its address")
        if envelope.swarm != swarm:
            raise RemoteProtocolError("it belongs to another swarm")
        if envelope.schema != schema.hash:
            raise IncompatiblePeer("it trains another model than the others", id)
        room = payloads[shard][start : start + EXCERPT_BYTES]
        if len(frame) != len(room):
            raise RemoteProtocolError(f"an excerpt of {len(frame)} bytes", id)
        room.numpy()[:] = np.frombuffer(frame, np.uint8)
        weights[shard], took_s = told.held, time.perf_counter() - began_s
        tell(number / len(places))
    ask(Fetch(snapshot=snapshot, done=True), 0, 0.0)
    if not are_finite(schema, payloads):
        raise RemoteProtocolError("its model is not finite")
    return ModelRead(told.step, time_s, weights, payloads)


def _excerpt(
    ask: Ask, fetch: Fetch, shard: int, wait_s: float, again_s: float
) -> tuple[Envelope, Excerpt, Buffer]:
    """Return the excerpt that answers a request, with its frame; repeat the request."""
    give_up_s = time.perf_counter() + wait_s
    while time.perf_counter() < give_up_s:
        again_s *= 2 if fetch.snapshot else 1
        until_s = min(time.perf_counter() + again_s, give_up_s)
        for envelope, told, frame in ask(fetch, shard, until_s):
            if told.why:
                raise TransportError(told.why)
            wanted = fetch.snapshot or told.snapshot, shard, fetch.offset_bytes
            # The last answer before a copy was read has its number, too, and no bytes.
            is_one = told.snapshot > 0 and (envelope.frame_bytes > 0) is (fetch.snapshot > 0)
            if is_one and (told.snapshot, envelope.shard, told.offset_bytes) == wanted:
                return envelope, told, frame
    raise TransportError(f"it has shown no model for {wait_s:g} s")
