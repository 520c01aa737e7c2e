"""A vector of four numbers and one local buffer, so that values really travel and mix."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rumor.gossip import Schema, TensorSpec
from rumor.gossip.effects import (
    Combine,
    Drop,
    Effect,
    Inspect,
    Mix,
    Release,
    Send,
    ShareId,
    Snapshot,
    SnapshotId,
    Stage,
    X,
)

__all__ = ["SCHEMA", "SIZE", "Values", "Vector"]

Values = NDArray[np.float64]

SIZE = 4

SCHEMA = Schema(
    (
        TensorSpec("x", (SIZE,), "float64"),
        TensorSpec("local", (1,), "float64", shared=False),
    )
)


class Vector:
    """The values of one life: its registers, what leaves and what has come.

    Args:
        values: The model at the start, float64, shape ``(SIZE,)``.
        registers: What the rule keeps beside it; all zeros at first.
    """

    def __init__(self, values: Values, registers: Sequence[str] = ()) -> None:
        self.registers: dict[str, Values] = {name: np.zeros(SIZE) for name in registers}
        self.registers[X] = values.copy()
        self.local = values[:1].copy()
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.staged: dict[ShareId, bytearray] = {}

    @property
    def x(self) -> Values:
        """The model, float64, shape ``(SIZE,)``."""
        return self.registers[X]

    def carry_out(self, effect: Effect, frame: bytes) -> None:
        """Do what an effect asks of the values; those that ask nothing of them are passed over."""
        match effect:
            case Snapshot(id, register, copy):
                assert id not in self.snapshots, "a snapshot's number was used twice"
                self.snapshots[id] = self._bytes_of(register, copy=copy)
            case Release(id):
                del self.snapshots[id]
            case Stage(share, offset, size):
                room = self.staged.setdefault(share, bytearray(size))
                assert offset >= 0 and offset + len(frame) <= len(room) == size
                room[offset : offset + len(frame)] = frame
            case Drop(share):
                self.staged.pop(share, None)
            case Mix(share, fraction, copy):
                self._mix(share, fraction, copy=copy)
            case Combine(register, terms):
                self.registers[register] = sum(
                    (c * self._term(t) for c, t in terms), np.zeros(SIZE)
                )
            case _:
                pass

    def frame_of(self, send: Send) -> bytes:
        """Cut the frame of a message out of its snapshot."""
        size = send.envelope.frame_bytes
        if send.snapshot is None or size == 0:
            return b""
        frame = self.snapshots[send.snapshot][send.start_bytes : send.start_bytes + size]
        assert len(frame) == size
        return frame

    def is_finite(self, inspect: Inspect) -> bool:
        """Look at a staged share."""
        return bool(np.isfinite(self._term(inspect.share)).all())

    def _mix(self, share: ShareId, fraction: float, *, copy: bool) -> None:
        values = self._term(share)
        staged = self.staged.pop(share)
        if fraction == 1.0:
            self.registers[X] = values
            if copy:
                self.local = np.frombuffer(staged, np.float64, 1, SCHEMA.share_bytes).copy()
        else:
            self.registers[X] = self.x + fraction * (values - self.x)

    def _term(self, term: str | ShareId) -> Values:
        if isinstance(term, str):
            return self.registers[term]
        return np.frombuffer(self.staged[term], np.float64, SIZE).copy()

    def _bytes_of(self, register: str, *, copy: bool) -> bytes:
        shared = self.registers[register].tobytes().ljust(SCHEMA.share_bytes, b"\0")
        if not copy:
            return shared
        return (shared + self.local.tobytes()).ljust(SCHEMA.copy_bytes, b"\0")
