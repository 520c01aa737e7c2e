"""Shares on their way in, from their first frame until they are mixed or dropped.

The network thread fills them, the training thread takes them, and neither waits for the other: a
share that is refused while a frame of it lands keeps its memory until that frame has landed.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from torch import Tensor

from ...gossip.effects.effects import Attach, Stage
from ...gossip.errors import DecodeError, LocalProtocolError, TrainingError
from ...gossip.transport.received import Received
from ...gossip.types import ShareId
from ...gossip.wire.codec import Buffer, Checksum, checksum
from ...gossip.wire.formats import Form
from ...gossip.wire.messages import Envelope
from ...gossip.wire.schema import ALIGNMENT_BYTES
from .blocks import squared_distance
from .cuda import DONE, Held, Mark
from .frames import Frames, Payload, as_tensor
from .shared_memory import Attachments
from .vector import Vector

__all__ = ["Distances", "Progress", "Staged", "Staging", "distances_of"]

Distances = tuple[tuple[ShareId, float], ...]
"""How far shares are from the model: Euclidean norms."""

# What was decided is never asked for again, but a frame of it may be landing just then.
_GONE_MAX: Final = 1024

# What is copied from another process is looked at while it is in the cache.
_BLOCK_BYTES: Final = 1 << 20

# Whether a frame is undamaged and finite is looked at twice, of which the second costs little.
_LOOK_BYTES: Final = 1 << 20


@dataclass(slots=True, eq=False)
class Staged:
    """A share that has come, or is coming."""

    payload: Payload
    form: Form
    shard: int
    mapped: bool = False
    """Whether it lies in another process's memory."""
    looks: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """For frames that were looked at, by offset: how long, and whether finite."""
    landing: int = 0
    """Frames that are being received, and looks that are being taken."""
    read: Mark = DONE
    """When it has been read."""
    left: bool = False
    """Whether nobody but these frames needs its memory."""


class Staging:
    """All shares that are staged.

    Args:
        vector: What they are made for; its pool lends the buffers.
        attachments: Opens memory of other processes; None where there is none to open.
        straight: Whether a share is mixed while its sender still keeps it, so that one in another
            process's memory need not be copied.
    """

    def __init__(self, vector: Vector, attachments: Attachments | None, *, straight: bool) -> None:
        self._vector = vector
        self._attachments = attachments
        self._straight = straight
        self._staged: dict[ShareId, Staged] = {}
        self._gone: OrderedDict[ShareId, None] = OrderedDict()
        self._lock = threading.Lock()
        self._held: Held[Staged] = Held()

    @contextmanager
    def landing(self, stage: Stage, frame_bytes: int) -> Iterator[memoryview]:
        """Receive a frame to where it belongs; it counts unless the block raises.

        Args:
            stage: Of which share, and where.
            frame_bytes: Length of the frame.

        Yields:
            Its room, to be filled within the block.

        Raises:
            LocalProtocolError: It does not lie within the share.
            DecodeError: Others of the same share are held, and it begins or ends between two cache
                lines.
        """
        start, stop = stage.offset_bytes, stage.offset_bytes + frame_bytes
        if not 0 <= start <= stop <= stage.size_bytes:
            raise LocalProtocolError(f"a frame from {start} to {stop} of {stage.size_bytes} bytes")
        staged = self._open(stage)
        try:
            if isinstance(staged.payload, Frames):
                raise DecodeError(
                    "a frame that is not made of whole cache lines", stage.share.sender
                )
            staged.looks.pop(start, None)
            with staged.payload.numpy().data[start:stop] as room:
                yield room
            finite = self._vector.look(staged.payload[start:stop], staged.form, staged.shard, start)
            if finite is not None:
                staged.looks[start] = frame_bytes, finite
        finally:
            self._landed(staged)

    def receive(
        self, stage: Stage | None, envelope: Envelope, check: int, received: Received
    ) -> Buffer:
        """Take in the frame beside a message: where it belongs, if that is known by now.

        Args:
            stage: Where it belongs; None where that is not known.
            envelope: The message.
            check: The `checksum` that the frame must have.
            received: Where it is still to be read from.

        Returns:
            The frame, or nothing where it lies in its place.

        Raises:
            DecodeError: It is damaged, or not what the header says.
        """
        size_bytes = envelope.frame_bytes
        if stage is None:
            frame = received.frame()
            _require_whole(envelope, len(frame), checksum(frame) == check, received)
            return frame
        try:
            if self.holds(stage, size_bytes):
                frame = received.frame()
                _require_whole(envelope, len(frame), True, received)
                self.hold(stage, frame, check)
                return b""
            with self.landing(stage, size_bytes) as room:
                size = received.frame_into(room) if received.more else 0
                _require_whole(envelope, size, checksum(room) == check, received)
        except TrainingError as error:
            raise DecodeError(f"a share that cannot be read here: {error}") from error
        return b""

    def holds(self, stage: Stage, frame_bytes: int) -> bool:
        """Whether a frame is to be held as it was received, see `hold`, and not copied."""
        start, stop = stage.offset_bytes, stage.offset_bytes + frame_bytes
        if start % ALIGNMENT_BYTES or (stop % ALIGNMENT_BYTES and stop != stage.size_bytes):
            return False
        staged = self._staged.get(stage.share)
        if staged is not None:
            return isinstance(staged.payload, Frames)
        return self._vector.holds_frames(stage.form, stage.share.shard)

    def hold(self, stage: Stage, frame: Buffer, check: int) -> None:
        """Stage a frame that was received into memory of its own, which stays where it is.

        Args:
            stage: Of which share, and where; `holds` has said so.
            frame: Its bytes; nobody else may write them.
            check: The `checksum` that it must have.

        Raises:
            DecodeError: It has another.
        """
        raw, digest, looks = as_tensor(frame), Checksum(), {}
        for offset in range(0, raw.numel(), _LOOK_BYTES):
            block, place = raw[offset : offset + _LOOK_BYTES], stage.offset_bytes + offset
            digest.update(block.numpy().data)
            finite = self._vector.look(block, stage.form, stage.share.shard, place)
            if finite is not None:
                looks[place] = block.numel(), finite
        if digest.intdigest() != check:
            raise DecodeError("the frame was damaged", stage.share.sender)
        staged = self._open(stage, held=True)
        try:
            assert isinstance(staged.payload, Frames)
            staged.payload.add(stage.offset_bytes, raw)
            staged.looks |= looks
        finally:
            self._landed(staged)

    def take_in(self, stage: Stage, frame: Buffer) -> None:
        """Stage a frame that lies elsewhere, and may change there."""
        with self.landing(stage, len(frame)) as room:
            np.frombuffer(room, np.uint8)[:] = np.frombuffer(frame, np.uint8)

    def attach(self, effect: Attach) -> bool:
        """Stage a share that lies in another process's memory.

        Returns:
            Whether that can be read.
        """
        if self._attachments is None:
            return False
        payload = self._attachments.open(effect.segment, effect.size_bytes)
        if payload is None:
            return False
        if self._straight:
            with self._lock:
                if effect.share not in self._gone:
                    found = Staged(payload, effect.form, effect.share.shard, mapped=True)
                    self._staged[effect.share] = found
            return True
        for start in range(0, effect.size_bytes, _BLOCK_BYTES):
            stage = Stage(effect.share, start, effect.size_bytes, effect.form)
            self.take_in(stage, payload[start : start + _BLOCK_BYTES].numpy().data)
        return True

    def is_finite(self, share: ShareId) -> bool:
        """Whether all numbers of a share are finite; False where it was dropped by now."""
        # The training thread may have refused it since the network thread staged it.
        staged = self._staged.get(share)
        if staged is None:
            return False
        looks = tuple(staged.looks.values())
        if sum(size for size, _ in looks) == staged.payload.numel():
            return all(finite for _, finite in looks)
        return self._vector.is_finite(staged.payload, staged.form, staged.shard)

    def bring(self, share: ShareId) -> None:
        """Let a whole share begin its way to the device where it will be mixed, if it is one."""
        if self._vector.is_here:
            return
        with self.reading(share) as staged:
            if staged is not None:
                staged.read = self._vector.bring(staged.payload, staged.form, staged.shard)

    def missing_bytes(self, share: ShareId, size_bytes: int) -> int:
        """How much memory a share of that size will still take here, once it is let in."""
        return 0 if share in self._staged else size_bytes

    def look(self, share: ShareId) -> Staged | None:
        """A share, unless it was dropped by now."""
        return self._staged.get(share)

    def find(self, share: ShareId) -> Staged:
        """A share that stays."""
        return self._staged[share]

    @contextmanager
    def reading(self, share: ShareId) -> Iterator[Staged | None]:
        """Keep the memory of a share from being used again within the block; None where the share
        was dropped by now."""
        with self._lock:
            staged = self._staged.get(share)
            if staged is not None:
                staged.landing += 1
        try:
            yield staged
        finally:
            if staged is not None:
                self._landed(staged)

    def pop(self, share: ShareId) -> Staged | None:
        """Take a share out, if it is there; it must be given back. No frame of it counts again."""
        with self._lock:
            self._gone[share] = None
            while len(self._gone) > _GONE_MAX:
                self._gone.popitem(last=False)
            return self._staged.pop(share, None)

    def give_back(self, staged: Staged) -> None:
        """Let its memory be used again, as soon as it is read and no frame lands in it."""
        with self._lock:
            staged.left = True
            needless = not staged.landing
        if needless:
            self._let_go(staged)

    def close(self) -> None:
        """Let go of what nobody will take any more."""
        for share in list(self._staged):
            if (staged := self.pop(share)) is not None:
                self.give_back(staged)
        for read in self._held.drained():
            self._take_back(read)

    def _open(self, stage: Stage, *, held: bool = False) -> Staged:
        for read in self._held.passed():
            self._take_back(read)
        with self._lock:
            staged = self._staged.get(stage.share)
            if staged is None:
                payload = self._room_for(stage.size_bytes, held=held)
                staged = Staged(payload, stage.form, stage.share.shard)
                if stage.share in self._gone:
                    staged.left = True
                else:
                    self._staged[stage.share] = staged
            staged.landing += 1
            return staged

    def _room_for(self, size_bytes: int, *, held: bool) -> Payload:
        if not held:
            return self._vector.staging.lend(size_bytes)
        memory = self._vector.memory
        memory.take("staged", size_bytes)
        memory.make_room()
        return Frames(size_bytes)

    def _landed(self, staged: Staged) -> None:
        with self._lock:
            staged.landing -= 1
            needless = staged.left and not staged.landing
        if needless:
            self._let_go(staged)

    def _let_go(self, staged: Staged) -> None:
        if staged.mapped:
            return
        self._vector.forget(staged.payload)
        if staged.read.query():
            self._take_back(staged)
        else:
            self._held.until(staged.read, staged)

    def _take_back(self, staged: Staged) -> None:
        if isinstance(staged.payload, Tensor):
            self._vector.staging.take_back(staged.payload)
        else:
            # The messages go back to ZeroMQ with the last look at them.
            self._vector.memory.give_back("staged", staged.payload.numel())


class Progress:
    """Bytes that are written, from the first on. One thread writes, another waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._bytes = 0
        self._over = False

    def reached(self, size_bytes: int) -> None:
        """Note that so many bytes are there, and will not change."""
        with self._changed:
            self._bytes = size_bytes
            self._changed.notify_all()

    def over(self) -> None:
        """Note that no more will be written: all is there, or the rest never will be."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def wait(self, size_bytes: float) -> None:
        """Return when so many bytes are there, or nothing more will be written."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._bytes >= size_bytes)


def _require_whole(envelope: Envelope, size: int, undamaged: bool, received: Received) -> None:
    if size != envelope.frame_bytes or received.more:
        raise DecodeError("the frame is not as long as the header says", envelope.source)
    if not undamaged:
        raise DecodeError("the frame was damaged", envelope.source)


def distances_of(staging: Staging, vector: Vector, shares: Iterable[ShareId]) -> Distances:
    """How far staged shares are from ``x``: Euclidean norms of the differences between their first
    registers and the shards of ``x``; of those that were not dropped by now."""
    found = []
    for share in shares:
        with staging.reading(share) as staged:
            if staged is not None:
                pairs = vector.numbers_in(staged.payload, staged.form, staged.shard)
                parts = [squared_distance(theirs, own) for theirs, own, _ in pairs]
                found.append((share, math.sqrt(math.fsum(parts))))
    return tuple(found)
