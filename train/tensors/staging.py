"""Shares on their way in, from their first frame until they are mixed or dropped.

The network thread fills them, the training thread takes them, and neither waits for the other: a
share that is refused while a frame of it lands keeps its memory until that frame has landed.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from torch import Tensor

from ...gossip.effects.effects import Attach, Stage
from ...gossip.errors import LocalProtocolError
from ...gossip.types import ShareId
from ...gossip.wire.codec import Buffer
from ...gossip.wire.formats import Form
from .cuda import DONE, Held, Mark
from .shared_memory import Attachments
from .vector import Vector

__all__ = ["Progress", "Staged", "Staging"]


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
    mapped: bool = False
    """Whether it lies in another process's memory."""
    looks: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """For frames that were looked at, by offset: how long, and whether finite."""
    landing: int = 0
    """Frames that are being received."""
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
        """
        start, stop = stage.offset_bytes, stage.offset_bytes + frame_bytes
        if not 0 <= start <= stop <= stage.size_bytes:
            raise LocalProtocolError(f"a frame from {start} to {stop} of {stage.size_bytes} bytes")
        staged = self._open(stage)
        try:
            staged.looks.pop(start, None)
            with staged.payload.numpy().data[start:stop] as room:
                yield room
            finite = self._vector.look(staged.payload, staged.form, staged.shard, start, stop)
            if finite is not None:
                staged.looks[start] = frame_bytes, finite
        finally:
            self._landed(staged)

    def take_in(self, stage: Stage, frame: Buffer) -> None:
        """Stage a frame that lies elsewhere."""
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

    def look(self, share: ShareId) -> Staged | None:
        """A share, unless it was dropped by now."""
        return self._staged.get(share)

    def find(self, share: ShareId) -> Staged:
        """A share that stays."""
        return self._staged[share]

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

    def _open(self, stage: Stage) -> Staged:
        for read in self._held.passed():
            self._vector.staging.take_back(read.payload)
        with self._lock:
            staged = self._staged.get(stage.share)
            if staged is None:
                payload = self._vector.staging.lend(stage.size_bytes)
                staged = Staged(payload, stage.form, stage.share.shard)
                if stage.share in self._gone:
                    staged.left = True
                else:
                    self._staged[stage.share] = staged
            staged.landing += 1
            return staged

    def _landed(self, staged: Staged) -> None:
        with self._lock:
            staged.landing -= 1
            needless = staged.left and not staged.landing
        if needless:
            self._let_go(staged)

    def _let_go(self, staged: Staged) -> None:
        if staged.mapped:
            return
        if staged.read.query():
            self._vector.staging.take_back(staged.payload)
        else:
            self._held.until(staged.read, staged)


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
