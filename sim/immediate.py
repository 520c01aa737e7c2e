"""Values at once: the effects of one peer's protocol, applied to its vector as they are decided.

Fuzzing does so with a few numbers, and a replay with a whole model. A simulation schedules the same
effects instead, see `rumor.sim.kernel.program`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from ..gossip.effects.effects import (
    Combine,
    Drop,
    Effect,
    Mix,
    Reclaim,
    Release,
    Snapshot,
    Stage,
)
from ..gossip.effects.events import Event
from ..gossip.errors import TrainingError
from ..gossip.types import ShareId, SharePart, SnapshotId
from ..gossip.wire.formats import Form

__all__ = ["ImmediateValues", "Taken"]

_P = TypeVar("_P")
"""Bytes of a share."""

_M = TypeVar("_M")
"""A message from which a part of a share is staged."""


class Taken(NamedTuple, Generic[_P]):
    """A snapshot of the peer's own vector."""

    payload: _P
    form: Form
    shard: int


class ImmediateValues(ABC, Generic[_P, _M]):
    """The vector of one peer, what was copied out of it, and the shares that have come.

    Attributes:
        snapshots: Those that were not released; None for one whose values were not finite.
    """

    def __init__(self) -> None:
        self.snapshots: dict[SnapshotId, Taken[_P] | None] = {}

    def apply(self, effect: Effect | Event, message: _M) -> None:
        """Do what an effect asks of the values; `Exchange` is left to the owner of the segments.

        Args:
            effect: Any; one that asks nothing of the values does nothing.
            message: What is being received.
        """
        match effect:
            case Snapshot():
                payload = self._take(effect)
                taken = None if payload is None else Taken(payload, effect.form, effect.shard)
                self.snapshots[effect.id] = taken
            case Release():
                taken = self.snapshots.pop(effect.snapshot)
                if taken is not None:
                    self._free(taken.payload, abandoned=effect.abandoned)
            case Stage():
                self._stage(effect, message)
            case Mix():
                payload, _ = self._received(effect.share)
                self._mix(payload, effect.fraction, effect.form, effect.share.shard)
                self._drop(effect.share)
            case Drop():
                self._drop(effect.share)
            case Combine():
                terms = [(coefficient, self._term(term)) for coefficient, term in effect.terms]
                self._combine(effect.register, terms)
            case Reclaim():
                taken = self.snapshots[effect.snapshot]
                if taken is not None:
                    # Local buffers and the anchor were not given away.
                    form = Form(taken.form.wire)
                    self._mix(taken.payload, effect.fraction, form, taken.shard)
            case _:
                pass

    def _term(
        self, term: str | ShareId | SharePart | SnapshotId
    ) -> str | tuple[_P, Form] | tuple[_P, Form, int]:
        if isinstance(term, str):
            return term
        if isinstance(term, int):
            taken = self.snapshots[term]
            if taken is None:
                raise TrainingError(f"snapshot {term} is not finite, and nothing is combined")
            return taken.payload, taken.form
        share, part = SharePart.of(term)
        return *self._received(share), part

    @abstractmethod
    def _take(self, effect: Snapshot) -> _P | None:
        """Copy registers out; None where a value is not finite and such a share is not sent."""

    def _free(self, payload: _P, *, abandoned: bool) -> None:
        """Use the memory of a snapshot again, unless a receiver that is gone may still read it."""

    @abstractmethod
    def _stage(self, effect: Stage, message: _M) -> None:
        """Keep a part of a share that has come."""

    @abstractmethod
    def _received(self, share: ShareId) -> tuple[_P, Form]:
        """Payload of a staged share, and what it consists of."""

    @abstractmethod
    def _drop(self, share: ShareId) -> None:
        """Forget a staged share, if there is one."""

    @abstractmethod
    def _mix(self, payload: _P, fraction: float, form: Form, shard: int) -> None:
        """Move the model toward a share."""

    @abstractmethod
    def _combine(
        self,
        register: str,
        terms: Sequence[tuple[float, str | tuple[_P, Form] | tuple[_P, Form, int]]],
    ) -> None:
        """Set a register to a sum of coefficients times registers and payloads of whole vectors."""
