"""The values at hand: snapshots on their way out, staged shares on their way in."""

import numpy as np
from torch import Tensor

from ..gossip.codec import Buffer
from ..gossip.effects import (
    Combine,
    Drop,
    Effect,
    Mix,
    Release,
    Send,
    ShareId,
    Snapshot,
    SnapshotId,
    Stage,
)
from .vector import Vector

__all__ = ["Workbench"]


class Workbench:
    """Carries out the effects that touch values.

    Training and network thread both use it, each on entries of its own: a share is staged before
    it is ready, and mixed after; a snapshot is taken before a message that needs it is queued.
    """

    def __init__(self, vector: Vector) -> None:
        self._vector = vector
        self._snapshots: dict[SnapshotId, memoryview] = {}
        self._staged: dict[ShareId, Tensor] = {}

    def carry_out(self, effect: Effect, frame: Buffer = b"") -> bool:
        """Do what *effect* asks for, where it is about values.

        Args:
            effect: Any effect.
            frame: The frame of the message that led to it.

        Returns:
            Whether it was about values.

        Raises:
            TrainingError: A snapshot has a value that is not finite; `frame_of` then has none.
        """
        match effect:
            case Snapshot():
                snapshot = self._vector.snapshot(effect.register, copy=effect.copy)
                self._snapshots[effect.id] = self._vector.snapshots.frames(snapshot)
            case Release():
                self._snapshots.pop(effect.snapshot, None)
            case Stage():
                self._stage(effect, frame)
            case Mix():
                self._vector.mix(self._staged[effect.share], effect.fraction, copy=effect.copy)
                self._unstage(effect.share)
            case Combine():
                terms = [
                    (c, self._staged[t] if isinstance(t, ShareId) else t) for c, t in effect.terms
                ]
                self._vector.combine(effect.register, terms)
            case Drop():
                self._unstage(effect.share)
            case _:
                return False
        return True

    def is_finite(self, share: ShareId) -> bool:
        """Whether all numbers of a staged share are finite; False where it was dropped by now."""
        # The training thread may have refused it since the network thread staged it.
        staged = self._staged.get(share)
        return staged is not None and self._vector.is_finite(staged)

    def frame_of(self, effect: Send) -> Buffer | None:
        """The bytes beside a message, not copied; None where their snapshot is of no use."""
        if effect.snapshot is None:
            return b""
        snapshot = self._snapshots.get(effect.snapshot)
        if snapshot is None:
            return None
        return snapshot[effect.start_bytes : effect.start_bytes + effect.envelope.frame_bytes]

    def _stage(self, effect: Stage, frame: Buffer) -> None:
        staged = self._staged.get(effect.share)
        if staged is None:
            staged = self._staged[effect.share] = self._vector.staging.lend(effect.size_bytes)
        stop = effect.offset_bytes + len(frame)
        staged.numpy()[effect.offset_bytes : stop] = np.frombuffer(frame, np.uint8)

    def _unstage(self, share: ShareId) -> None:
        staged = self._staged.pop(share, None)
        if staged is not None:
            self._vector.staging.take_back(staged)
