"""The store of all values: outgoing snapshots, incoming shares, and the model.

Two threads use it. The training thread takes snapshots, mixes and combines; the network thread
receives, sends, and checks received shares. Neither waits for the other except for the lock:

- The model and its registers change only under the lock, on either thread: when a peer leaves, the
  thread that receives the last answer settles its values.
- A share has one owner. The network thread creates and fills its entry; the thread that pops the
  entry, to mix or drop it, owns it from then on. A decided share is recorded as gone before it is
  popped, and this record is checked after an entry is created, so that no entry is left over.
- A message that needs a snapshot is queued when that is complete, or, if it is large, has begun:
  then the network thread waits until the bytes of a frame are there. It may release the snapshot
  even earlier: that too is recorded first, and checked after its entry is created.
- A share lies in a buffer of the pool, or stays in the messages that brought it (`Frames`).
- Memory returns to its pool with the last reference: the entry, a frame being received, a check, a
  frame in a socket. Memory that a device still reads or writes is kept until it is done, and
  released only by the network thread.

An effect on values is one method, which raises `TrainingError` if a value is not finite.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ...gossip.effects.effects import (
    Attach,
    Combine,
    Exchange,
    Measure,
    Mix,
    Release,
    Send,
    Snapshot,
    Stage,
    X,
)
from ...gossip.errors import DecodeError, LocalProtocolError, TrainingError
from ...gossip.transport.sockets import Received
from ...gossip.types import ShareId, SharePart, SnapshotId
from ...gossip.wire.codec import Buffer, Checksum, checksum
from ...gossip.wire.formats import Form, parse_wire
from ...gossip.wire.messages import Envelope
from .blocks import sketch_of, squared_distance
from .buffers import IDLE_S, Frames, Payload
from .centers import SharedCenters
from .cuda import Mark, passed, wait
from .shared_memory import Attachments
from .vector import Taken, Term, Vector, not_finite

__all__ = ["Staged", "TensorStore"]


# A decided share is never requested again, but one of its frames may be arriving at that moment.
_GONE_MAX: Final = 1024

# A frame is copied, summed and checked block by block, in the cache, so that main memory is read
# only once. Smaller blocks lose as much to calls as they gain.
_BLOCK_BYTES: Final = 1 << 20

# The first frames of larger snapshots are sent while the last ones are copied. Measured over
# loopback at 44 and 400 MB, an exchange without this takes 12 and 14 % longer.
_EARLY_BYTES_MIN: Final = 16 << 20


@dataclass(slots=True, eq=False)
class Staged:
    """A share that was received, in whole or in part."""

    payload: Payload
    form: Form
    shard: int
    segment: str = ""
    """Name of the segment of another process that it lies in, if any."""
    finite: dict[int, int] = field(default_factory=dict)
    """Blocks found finite on arrival: their offsets and lengths, bytes."""


class TensorStore:
    """Values of a peer, and the effects on them.

    Args:
        rounding: Returns random numbers for one snapshot in a format that rounds at random.
        attachments: Opens the segments of neighbors on this machine, and is closed with the store;
            None without shared memory.
        centers: Centers to exchange with, for rules that use them; closed with the store.
    """

    def __init__(
        self,
        vector: Vector,
        rounding: Callable[[SnapshotId], np.random.Generator] | None = None,
        attachments: Attachments | None = None,
        *,
        centers: SharedCenters | None = None,
    ) -> None:
        self.schema = vector.schema
        """Schema of the model."""
        self.failure: TrainingError | None = None
        """Error of a snapshot that a device copied; the caller takes it and resets this."""
        self._vector = vector
        self._centers = centers
        self._rounding = rounding
        self._attachments = attachments
        self._snapshots: dict[SnapshotId, Taken] = {}
        self._released: set[SnapshotId] = set()
        self._shares: dict[ShareId, Staged] = {}
        self._gone: deque[ShareId] = deque(maxlen=_GONE_MAX)
        # Memory that a device still reads or writes.
        self._held: deque[tuple[Sequence[Mark], Payload]] = deque()
        self._lock = threading.Lock()

    def free_idle(self) -> None:
        """Free memory that was not used for some seconds; for the network thread."""
        self._let_go()
        self._vector.memory.free_idle()
        if self._attachments is not None:
            self._attachments.forget_gone(IDLE_S)

    @property
    def is_bounded(self) -> bool:
        """True if memory is bounded, so that `lacks_room` must be called."""
        return self._vector.memory.is_bounded

    def lacks_room(self, incoming: Mapping[ShareId, int], outgoing: Iterable[SnapshotId]) -> bool:
        """True if memory does not suffice for one more than accepted shares, whose sizes are given
        in bytes, and snapshots that are requested or taken."""
        schema = self.schema
        coming = sum(size for share, size in incoming.items() if share not in self._shares)
        going = sum(each not in self._snapshots for each in outgoing)
        promised = coming + going * schema.copy_bytes // schema.shards
        return self._vector.memory.lacks_room(schema.copy_bytes, promised)

    def measured(self, effect: Measure) -> dict[ShareId, float]:
        """Return the Euclidean distances of ``x`` from the first registers of shares, unless they
        were dropped meanwhile."""
        found = {}
        self._vector.refresh()
        with self._lock:
            for share in effect.shares:
                if (staged := self._shares.get(share)) is not None:
                    pairs = self._vector.numbers_in(staged.payload, staged.form, staged.shard)
                    parts = [squared_distance(theirs, own) for theirs, own in pairs]
                    found[share] = math.sqrt(math.fsum(parts))
        return found

    def sketch(self) -> tuple[float, ...]:
        """Return a sketch of the model, see `sketch_of`."""
        self._vector.refresh()
        with self._lock:
            return sketch_of(self._vector.flats)

    def close(self) -> None:
        """Release all memory once devices have finished reading it."""
        self._shares.clear()
        self._snapshots.clear()
        while self._held:
            wait(self._held.popleft()[0])
        if self._attachments is not None:
            self._attachments.close()
        if self._centers is not None:
            self._centers.close()

    # Snapshots

    def frame_of(self, effect: Send) -> Buffer | None:
        """Return the payload of a message, not copied, once a device has copied it; None if its
        snapshot is unusable."""
        if effect.snapshot is None:
            return b""
        stop_bytes = effect.start_bytes + effect.envelope.frame_bytes
        taken = self._usable(effect.snapshot, stop_bytes)
        return None if taken is None else taken.host.numpy().data[effect.start_bytes : stop_bytes]

    def awaits_device(self, snapshot: SnapshotId | None) -> bool:
        """True if `frame_of` would wait for a device, and so for all work queued there."""
        taken = None if snapshot is None else self._snapshots.get(snapshot)
        return taken is not None and taken.is_finite is None and not passed(taken.marks)

    def segment_of(self, snapshot: SnapshotId) -> str:
        """Return the name of a snapshot's segment for neighbors on this machine; empty if they
        cannot read it. Waits as `frame_of` does."""
        taken = self._usable(snapshot)
        return "" if taken is None else self._vector.memory.segments.name_of(taken.host)

    def take(self, effect: Snapshot, begun: Callable[[], object] = lambda: None) -> None:
        """Take a snapshot; if it is not finite, `frame_of` returns None. If a device copies it,
        that shows later, see `failure`.

        *begun* is called before a large one is copied, whose bytes `frame_of` then waits for.
        """
        form, shard, rng, vector = effect.form, effect.shard, None, self._vector
        layout = vector.plan(form, shard)
        is_shown = effect.shown and self._attachments is not None
        host = vector.memory.lend(layout.size_bytes, is_segment=is_shown)
        if parse_wire(form.wire).is_random and self._rounding is not None:
            rng = self._rounding(effect.id)
        taken = Taken(host, form, shard)
        if vector.parts is not None and effect.register == X and not form.copy:
            is_finite = vector.parts.take(host, vector.memory.segments.name_of(host), layout)
            if is_finite is False:
                raise not_finite(form)
            if is_finite:
                taken.is_finite = True
                taken.reach()
                self._keep(effect.id, taken)
                return
        vector.refresh()
        # The network thread must not wait for a device or other processes, nor until a whole model
        # is converted.
        is_early = layout.size_bytes >= _EARLY_BYTES_MIN and vector.is_here and not layout.converts
        is_early &= not is_shown
        if is_early:
            self._keep(effect.id, taken)
            begun()
        try:
            with self._lock:
                vector.take(taken, effect.register, rng)
        except BaseException:
            self._snapshots.pop(effect.id, None)
            taken.reach()  # no thread may wait for it any more
            raise
        if not is_early:
            self._keep(effect.id, taken)

    def _keep(self, snapshot: SnapshotId, taken: Taken) -> None:
        self._snapshots[snapshot] = taken
        if snapshot in self._released:
            self.release(Release(snapshot))

    def release(self, effect: Release) -> None:
        """Release a snapshot; the last of its frames that a socket holds returns the memory."""
        # The id of a snapshot that was not finite, and so never taken, stays here.
        self._released.add(effect.snapshot)
        taken = self._snapshots.pop(effect.snapshot, None)
        if taken is not None:
            self._released.discard(effect.snapshot)
            if effect.abandoned:
                self._vector.memory.segments.abandon(taken.host)
            if taken.marks:
                self._held.append((taken.marks, taken.host))

    def _usable(self, snapshot: SnapshotId, stop_bytes: float = math.inf) -> Taken | None:
        taken = self._snapshots.get(snapshot)
        # The thread that failed to copy one knows.
        is_from_device = taken is not None and taken.is_finite is None
        if taken is None or taken.wait(stop_bytes):
            return taken
        if is_from_device:
            self.failure = not_finite(taken.form)
        return None

    # Shares

    def receive(
        self, stage: Stage | None, envelope: Envelope, check: int, received: Received
    ) -> Buffer:
        """Accept a message's frame, which must have the `checksum` *check*, and stage it if its
        place is known by now; else return it.

        Raises:
            DecodeError: The frame is damaged, or differs from the header.
        """
        frame = received.frame()
        if len(frame) != envelope.frame_bytes or received.more:
            raise DecodeError("the frame is not as long as the header says", envelope.source)
        if stage is None:
            if checksum(frame) != check:
                raise DecodeError("the frame was damaged", envelope.source)
            return frame
        try:
            self.stage(stage, frame, check)
        except TrainingError as error:
            raise DecodeError(f"a share that cannot be read here: {error}") from error
        return b""

    def stage(self, stage: Stage, frame: Buffer, check: int | None = None) -> None:
        """Put a frame in its place, and check it in the same pass over memory.

        *check* is the `checksum` that it must have; None for memory that may change.

        Raises:
            LocalProtocolError: The frame is not within the share.
            DecodeError: The frame is damaged.
        """
        start, stop = stage.offset_bytes, stage.offset_bytes + len(frame)
        if not 0 <= start <= stop <= stage.size_bytes:
            raise LocalProtocolError(f"a frame from {start} to {stop} of {stage.size_bytes} bytes")
        self._let_go()
        staged = self._shares.get(stage.share)
        if staged is None:
            shard, memory, size = stage.share.shard, self._vector.memory, stage.size_bytes
            # A share that is converted for mixing, or goes to a device, is copied anyway.
            is_held = check is not None and memory.holds_messages
            is_held = is_held and not self._vector.plan(stage.form, shard).converts
            payload = memory.hold(size) if is_held else memory.lend(size)
            staged = self._enter(stage.share, Staged(payload, stage.form, shard))
        raw, digest = np.frombuffer(frame, np.uint8), Checksum()
        if isinstance(staged.payload, Frames):
            is_own = check is not None and raw.flags.writeable
            room = torch.from_numpy(raw if is_own else raw.copy())
        else:
            room = staged.payload[start:stop]
        for offset in range(0, len(frame), _BLOCK_BYTES):
            block, place = room[offset : offset + _BLOCK_BYTES], start + offset
            if isinstance(staged.payload, Tensor):
                block.numpy()[:] = raw[offset : offset + _BLOCK_BYTES]
            if check is not None:
                digest.update(block.numpy().data)
            staged.finite.pop(place, None)
            if self._vector.look(block, staged.form, staged.shard, place):
                staged.finite[place] = block.numel()
        if check is not None and digest.intdigest() != check:
            raise DecodeError("the frame was damaged", stage.share.sender)
        if isinstance(staged.payload, Frames):
            staged.payload.add(start, room)

    def attach(self, effect: Attach) -> bool:
        """Stage a share from another process's memory; return True if that can be read."""
        share, form = effect.share, effect.form
        if self._attachments is None:
            return False
        payload = self._attachments.open(effect.segment, effect.size_bytes)
        if payload is None:
            return False
        if self._vector.is_here:
            self._enter(share, Staged(payload, form, share.shard, effect.segment))
        else:
            # Copy the share: an answer may be sent before a device has read it, and the sender then
            # reuses its memory.
            self.stage(Stage(share, 0, effect.size_bytes, form), payload.numpy().data)
        return True

    def is_sound(self, share: ShareId, swarm: bytes) -> bool:
        """True if a staged share may be mixed: it has not been dropped, all numbers are finite, and
        its anchor, if any, has the swarm's hash."""
        staged = self._shares.get(share)
        if staged is None:
            return False
        payload, form, shard = staged.payload, staged.form, staged.shard
        is_finite = sum(staged.finite.values()) == payload.numel()
        if not is_finite and not self._vector.is_finite(payload, form, shard):
            return False
        return not form.anchor or self._vector.anchor_matches(payload, form, shard, swarm)

    def holds(self, share: ShareId) -> bool:
        """True if a share is staged, in whole or in part."""
        return share in self._shares

    def pop(self, share: ShareId) -> Staged | None:
        """Remove and return a share, if it is staged; later frames of it are ignored."""
        self._gone.append(share)
        return self._shares.pop(share, None)

    def _enter(self, share: ShareId, staged: Staged) -> Staged:
        self._shares[share] = staged
        if share in self._gone:
            self._shares.pop(share, None)
        return staged

    def mix(self, effect: Mix) -> None:
        """Mix a share, and release it."""
        staged = self.pop(effect.share)
        if staged is None:
            raise LocalProtocolError(f"{effect.share} is not staged, or was mixed before")
        payload, form, shard, parts = staged.payload, effect.form, staged.shard, self._vector.parts
        if parts is not None and isinstance(payload, Tensor) and not form.copy:
            segment = staged.segment or self._vector.memory.segments.name_of(payload)
            if parts.mix(payload, segment, effect.fraction, self._vector.plan(form, shard)):
                return
        self._vector.refresh()
        with self._lock:
            marks = self._vector.mix(payload, effect.fraction, form, shard)
        if marks:
            self._held.append((marks, payload))

    def combine(self, effect: Combine) -> None:
        """Set a register to a weighted sum; its shares stay."""
        self._vector.refresh()
        payloads: list[Payload] = []
        terms: list[tuple[float, Term]] = []
        for coefficient, term in effect.terms:
            if isinstance(term, str):
                terms.append((coefficient, term))
                continue
            payload: Payload
            if isinstance(term, int):
                # This peer's own snapshot, as its receivers decode it.
                taken = self._usable(term)
                if taken is None:
                    raise TrainingError(f"snapshot {term} was not taken, and nothing is combined")
                payload, form, index = taken.host, taken.form, 0
            else:
                share, index = SharePart.of(term)
                payload, form = self._shares[share].payload, self._shares[share].form
            payloads.append(payload)
            terms.append((coefficient, (payload, form, index)))
        with self._lock:
            marks = self._vector.combine(effect.register, terms)
        if marks:
            self._held.extend((marks, payload) for payload in payloads)

    def exchange(self, effect: Exchange) -> None:
        """Exchange a register with a center that the peers of this machine share."""
        if self._centers is None:
            raise LocalProtocolError("nothing is shared: requirements.one_machine is not set")
        self._vector.refresh()
        with self._lock:
            self._centers.exchange(effect, self._vector)

    def _let_go(self) -> None:
        while self._held and passed(self._held[0][0]):
            self._held.popleft()
