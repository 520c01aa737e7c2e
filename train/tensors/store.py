"""The one store of values: snapshots on their way out, shares on their way in, the model between.

Two threads use it. The training thread takes snapshots, mixes and combines; the network thread
receives, sends, and looks at what has come. Neither waits for the other but for the lock:

- The model and its registers change under the lock, whichever thread it is: a leaver's values are
  settled by the one that hears the last answer.
- A share has one owner. The network thread makes its entry and fills it; whichever thread pops the
  entry, to mix or to drop it, has it from then on. A share that was decided on is noted before it
  is popped, and looked for after an entry was made, so that none stays that is never popped.
- A snapshot is whole before a message that needs it is queued. It may be released earlier, by the
  other thread: that is noted first, too, and looked for after its entry was made.
- Memory comes back to its pool with the last reference: the entry, a frame that lands, a look, a
  frame in a socket. What a device still reads or writes is held until then, and let go by the
  network thread alone.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from torch import Tensor

from ...gossip.effects.effects import (
    Attach,
    Combine,
    Drop,
    Effect,
    Exchange,
    Measure,
    Mix,
    Reclaim,
    Release,
    Send,
    Snapshot,
    Stage,
)
from ...gossip.errors import DecodeError, LocalProtocolError, TrainingError
from ...gossip.transport.received import Received
from ...gossip.types import ShareId, SharePart, SnapshotId
from ...gossip.wire.codec import Buffer, checksum
from ...gossip.wire.formats import Form
from ...gossip.wire.messages import Envelope
from .blocks import sketch_of, squared_distance
from .buffers import IDLE_S
from .centers import SharedCenters
from .cuda import Mark
from .shared_memory import Attachments
from .vector import Taken, Term, Vector, not_finite

__all__ = ["Staged", "TensorStore"]


# What was decided is never asked for again, but a frame of it may be landing just then.
_GONE_MAX: Final = 1024

# What is copied from another process is looked at while it is in the cache.
_BLOCK_BYTES: Final = 1 << 20


@dataclass(slots=True, eq=False)
class Staged:
    """A share that has come, or is coming."""

    payload: Tensor
    """uint8, shape ``(size_bytes,)``."""
    form: Form
    shard: int
    finite: dict[int, int] = field(default_factory=dict)
    """Frames that were found finite when they landed: where they begin, and their length, bytes."""


class TensorStore:
    """Carries out the effects that touch values.

    Args:
        vector: The values; its memory is lent for shares.
        rounding: Random numbers for one snapshot, which ``int8`` rounds with; None where no
            snapshot is taken in it.
        attachments: Opens the segments of neighbors on this machine; None where no memory is
            shared with any. Closed with the store, as is the next.
        centers: Shared memory to exchange with, for rules that do; None where there is none.
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
        """Of the model."""
        self.failure: TrainingError | None = None
        """What was wrong with a snapshot that a device has copied out; take it away from here."""
        self._vector = vector
        self._centers = centers
        self._rounding = rounding
        self._attachments = attachments
        self._snapshots: dict[SnapshotId, Taken] = {}
        self._released: set[SnapshotId] = set()
        self._shares: dict[ShareId, Staged] = {}
        self._gone: deque[ShareId] = deque(maxlen=_GONE_MAX)
        self._held: deque[tuple[Mark, Tensor]] = deque()
        self._lock = threading.Lock()

    def carry_out(self, effect: Effect, frame: Buffer = b"") -> None:
        """Do what an effect asks for, where it is about values. The frame of the message that led
        to it is empty where `receive` has put it where it belongs.

        Raises:
            TrainingError: A snapshot has a value that is not finite; `frame_of` then has none.
                Where it was taken on a device, that shows later, see `failure`.
        """
        match effect:
            case Snapshot():
                self._take(effect)
            case Release():
                self._release(effect)
            case Reclaim():
                self._reclaim(effect)
            case Stage():
                if len(frame):
                    self._take_in(effect, frame)
            case Mix():
                self._mix(effect)
            case Combine():
                self._combine(effect)
            case Exchange():
                self._exchange(effect)
            case Drop():
                self.pop(effect.share)

    def free_idle(self) -> None:
        """Let go of memory that was not used for some seconds; on the network thread, every second
        or so."""
        self._let_go()
        self._vector.memory.free_idle()
        if self._attachments is not None:
            self._attachments.forget_gone(IDLE_S)

    @property
    def is_bounded(self) -> bool:
        """True if memory has a bound, so that `lacks_room` need be asked."""
        return self._vector.memory.is_bounded

    def lacks_room(self, incoming: Mapping[ShareId, int], outgoing: Iterable[SnapshotId]) -> bool:
        """True if memory has no room for one share more.

        Args:
            incoming: Shares that are let in, and their sizes in bytes.
            outgoing: Snapshots that are asked for, or taken.
        """
        schema = self.schema
        coming = sum(size for share, size in incoming.items() if share not in self._shares)
        going = sum(each not in self._snapshots for each in outgoing)
        promised = coming + going * schema.copy_bytes // schema.shards
        return self._vector.memory.lacks_room(schema.copy_bytes, promised)

    def met(self) -> None:
        """Take note that another peer of the swarm is known now."""
        if self._centers is not None:
            self._centers.met()

    def follow(self) -> None:
        """Note that this thread trains, and on which streams of a device."""
        self._vector.follow()

    def measured(self, effect: Measure) -> dict[ShareId, float]:
        """Euclidean norms of the differences between the first registers of staged shares and the
        shards of ``x``; of those that were not dropped by now."""
        found = {}
        with self._lock:
            for share in effect.shares:
                if (staged := self._shares.get(share)) is not None:
                    pairs = self._vector.numbers_in(staged.payload, staged.form, staged.shard)
                    parts = [squared_distance(theirs, own) for theirs, own, _ in pairs]
                    found[share] = math.sqrt(math.fsum(parts))
        return found

    def sketch(self) -> tuple[float, ...]:
        """A sketch of the model, see `sketch_of`."""
        with self._lock:
            return sketch_of(self._vector.flats)

    def close(self) -> None:
        """Let go of all memory, once devices have read what they read."""
        self._shares.clear()
        self._snapshots.clear()
        while self._held:
            self._held.popleft()[0].synchronize()
        if self._attachments is not None:
            self._attachments.close()
        if self._centers is not None:
            self._centers.close()

    # Snapshots

    def frame_of(self, effect: Send) -> Buffer | None:
        """The bytes beside a message, not copied; None where their snapshot is of no use.

        Waits for a snapshot that is on its way from a device.
        """
        if effect.snapshot is None:
            return b""
        taken = self._usable(effect.snapshot)
        stop_bytes = effect.start_bytes + effect.envelope.frame_bytes
        return None if taken is None else taken.host.numpy().data[effect.start_bytes : stop_bytes]

    def awaits_device(self, snapshot: SnapshotId | None) -> bool:
        """True if `frame_of` would wait for a device to copy a snapshot out, which may take as long
        as all that training has queued there."""
        taken = self._snapshots.get(snapshot) if snapshot is not None else None
        return taken is not None and not taken.mark.query()

    def segment_of(self, snapshot: SnapshotId) -> str:
        """Where a snapshot lies for neighbors on this machine; empty where they cannot read it.

        Waits as `frame_of` does.
        """
        taken = self._usable(snapshot)
        return "" if taken is None else self._vector.memory.segments.name_of(taken.host)

    def _take(self, effect: Snapshot) -> None:
        size_bytes = self._vector.plan(effect.form, effect.shard).size_bytes
        is_read_here = effect.shown and self._attachments is not None
        host = self._vector.memory.lend(size_bytes, "segments" if is_read_here else "snapshots")
        rng = None if self._rounding is None else self._rounding(effect.id)
        with self._lock:
            taken = self._vector.take(host, effect.register, effect.form, effect.shard, rng)
        self._snapshots[effect.id] = taken
        if effect.id in self._released:
            self._release(Release(effect.id))

    def _release(self, effect: Release) -> None:
        # One that was not finite was never taken, and its number stays here.
        self._released.add(effect.snapshot)
        taken = self._snapshots.pop(effect.snapshot, None)
        if taken is not None:
            self._released.discard(effect.snapshot)
            if effect.abandoned:
                self._vector.memory.segments.abandon(taken.host)
            self._hold(taken.mark, taken.host)

    def _usable(self, snapshot: SnapshotId) -> Taken | None:
        taken = self._snapshots.get(snapshot)
        if taken is None:
            return None
        is_news = taken.is_finite is None
        if taken.wait():
            return taken
        if is_news:
            self.failure = not_finite(taken.form)
        return None

    def _reclaim(self, effect: Reclaim) -> None:
        taken = self._usable(effect.snapshot)
        if taken is None:
            # It was not finite, and nothing of it has left. Nor is what it was taken of.
            return
        # Local buffers and the anchor were not given away.
        form = Form(taken.form.wire)
        with self._lock:
            mark = self._vector.mix(taken.host, effect.fraction, form, taken.shard)
        self._hold(mark, taken.host)

    # Shares

    @contextmanager
    def landing(self, stage: Stage, frame_bytes: int) -> Iterator[memoryview]:
        """Receive a frame to where it belongs: its room is filled within the block, and counts
        unless the block raises.

        Raises:
            LocalProtocolError: It does not lie within the share.
        """
        start, stop = stage.offset_bytes, stage.offset_bytes + frame_bytes
        if not 0 <= start <= stop <= stage.size_bytes:
            raise LocalProtocolError(f"a frame from {start} to {stop} of {stage.size_bytes} bytes")
        self._let_go()
        staged = self._shares.get(stage.share)
        if staged is None:
            payload = self._vector.memory.lend(stage.size_bytes, "staged")
            staged = self._enter(stage.share, Staged(payload, stage.form, stage.share.shard))
        staged.finite.pop(start, None)
        with staged.payload.numpy().data[start:stop] as room:
            yield room
        if self._vector.look(staged.payload[start:stop], staged.form, staged.shard, start):
            staged.finite[start] = frame_bytes

    def receive(
        self, stage: Stage | None, envelope: Envelope, check: int, received: Received
    ) -> Buffer:
        """Take in the frame beside a message, which must have the `checksum` *check*: to where it
        belongs, if that is known by now.

        Returns:
            The frame, or nothing where it lies in its place.

        Raises:
            DecodeError: It is damaged, or not what the header says.
        """
        if stage is None:
            frame = received.frame()
            _require_whole(envelope, len(frame), checksum(frame) == check, received)
            return frame
        try:
            with self.landing(stage, envelope.frame_bytes) as room:
                size = received.frame_into(room) if received.more else 0
                _require_whole(envelope, size, checksum(room) == check, received)
        except TrainingError as error:
            raise DecodeError(f"a share that cannot be read here: {error}") from error
        return b""

    def attach(self, effect: Attach) -> bool:
        """Stage a share that lies in another process's memory; whether that can be read."""
        if self._attachments is None:
            return False
        payload = self._attachments.open(effect.segment, effect.size_bytes)
        if payload is None:
            return False
        if self._vector.is_here:
            self._enter(effect.share, Staged(payload, effect.form, effect.share.shard))
            return True
        # An answer may leave before a device has read a share, and then its sender's memory is used
        # for something else.
        for start in range(0, effect.size_bytes, _BLOCK_BYTES):
            stage = Stage(effect.share, start, effect.size_bytes, effect.form)
            self._take_in(stage, payload[start : start + _BLOCK_BYTES].numpy().data)
        return True

    def is_sound(self, share: ShareId, swarm: bytes) -> bool:
        """True if a staged share was not dropped by now and may be mixed: all numbers are finite,
        and an anchor that comes along has the hash of the swarm's."""
        staged = self._shares.get(share)
        if staged is None:
            return False
        payload, form, shard = staged.payload, staged.form, staged.shard
        is_finite = sum(staged.finite.values()) == payload.numel()
        if not is_finite and not self._vector.is_finite(payload, form, shard):
            return False
        return not form.anchor or self._vector.anchor_matches(payload, form, shard, swarm)

    def holds(self, share: ShareId) -> bool:
        """True if a share is staged, whole or in part."""
        return share in self._shares

    def pop(self, share: ShareId) -> Staged | None:
        """Take a share out; None where it is not there. No frame of it counts again."""
        self._gone.append(share)
        return self._shares.pop(share, None)

    def _enter(self, share: ShareId, staged: Staged) -> Staged:
        self._shares[share] = staged
        if share in self._gone:
            self._shares.pop(share, None)
        return staged

    def _take_in(self, stage: Stage, frame: Buffer) -> None:
        """Stage a frame that lies elsewhere, and may change there."""
        with self.landing(stage, len(frame)) as room:
            np.frombuffer(room, np.uint8)[:] = np.frombuffer(frame, np.uint8)

    def _mix(self, effect: Mix) -> None:
        staged = self.pop(effect.share)
        if staged is None:
            raise LocalProtocolError(f"{effect.share} is not staged, or was mixed before")
        with self._lock:
            mark = self._vector.mix(staged.payload, effect.fraction, effect.form, staged.shard)
        self._hold(mark, staged.payload)

    def _combine(self, effect: Combine) -> None:
        payloads: list[Tensor] = []
        terms: list[tuple[float, Term]] = []
        for coefficient, term in effect.terms:
            if isinstance(term, str):
                terms.append((coefficient, term))
                continue
            if isinstance(term, int):
                # A snapshot of this peer's own, as its receivers read it.
                taken = self._usable(term)
                if taken is None:
                    raise TrainingError(f"snapshot {term} was not taken, and nothing is combined")
                payloads.append(taken.host)
                terms.append((coefficient, (taken.host, taken.form)))
                continue
            share, part = SharePart.of(term)
            staged = self._shares[share]
            payloads.append(staged.payload)
            terms.append((coefficient, (staged.payload, staged.form, part)))
        with self._lock:
            mark = self._vector.combine(effect.register, terms)
        for payload in payloads:
            self._hold(mark, payload)

    def _exchange(self, effect: Exchange) -> None:
        if self._centers is None:
            raise LocalProtocolError("nothing is shared: requirements.one_machine is not set")
        with self._lock:
            self._centers.exchange(effect, self._vector)

    def _hold(self, mark: Mark, payload: Tensor) -> None:
        """Keep memory from being used again while a device reads or writes it."""
        if not mark.query():
            self._held.append((mark, payload))

    def _let_go(self) -> None:
        while self._held and self._held[0][0].query():
            self._held.popleft()


def _require_whole(envelope: Envelope, size: int, undamaged: bool, received: Received) -> None:
    if size != envelope.frame_bytes or received.more:
        raise DecodeError("the frame is not as long as the header says", envelope.source)
    if not undamaged:
        raise DecodeError("the frame was damaged", envelope.source)
