"""The values of one peer's replay: snapshots that it hands over, shares that it mixes."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NamedTuple

from numpy.random import Generator as Random
from torch import Tensor

from ..gossip.codec import checksum, decode_header
from ..gossip.effects import (
    Combine,
    Drop,
    Effect,
    Mix,
    Reclaim,
    Release,
    Send,
    ShareId,
    Snapshot,
    SnapshotId,
    Stage,
)
from ..gossip.errors import TrainingError
from ..gossip.events import Event
from ..gossip.messages import Offer
from ..gossip.wire import Form
from ..train.inputs import Input, Receive
from ..train.vector import Vector
from .replay_difference import Differs
from .replay_post import Life, Made, Post, ShareKey

__all__ = ["Bench"]


@dataclass(frozen=True, slots=True)
class _Frame:
    """A part of a share, as the receiver's journal knows it."""

    offset_bytes: int
    size_bytes: int
    checksum: int


class _Taken(NamedTuple):
    """A snapshot of the peer's own."""

    payload: Tensor
    form: Form
    shard: int


class Bench:
    """Carries out the effects that touch values, as a live peer's workbench does.

    What a live peer takes from the wire, or from another's memory, it takes from the sender's
    replay.

    Args:
        vector: The peer's values.
        life: Whose they are.
        post: Takes the shares it makes, and gives those of others.
        rounding: Makes the random numbers that a snapshot is rounded by.
    """

    def __init__(
        self, vector: Vector, life: Life, post: Post, rounding: Callable[[SnapshotId], Random]
    ) -> None:
        self._vector = vector
        self._life = life
        self._post = post
        self._rounding = rounding
        self._snapshots: dict[SnapshotId, _Taken] = {}
        self._staged: dict[ShareId, list[_Frame]] = {}

    def carry_out(
        self, effect: Effect | Event, event: Input, record: int, step: int
    ) -> Generator[ShareKey, None, None]:
        """Do what *effect* asks for, where it is about values.

        Args:
            effect: Any effect.
            event: What led to it.
            record: Of the journal, that this was.
            step: Optimizer steps taken by then.

        Yields:
            A share that is not made yet: go on when it is.

        Raises:
            Differs: A share is not what came over the wire.
        """
        match effect:
            case Snapshot():
                self._snapshot(effect)
            case Release():
                self._snapshots.pop(effect.snapshot, None)
            case Send():
                self._hand_over(effect, record, step)
            case Stage() if isinstance(event, Receive):
                checksum = decode_header(event.header)[1]
                frame = _Frame(effect.offset_bytes, event.envelope.frame_bytes, checksum)
                self._staged.setdefault(effect.share, []).append(frame)
            case Mix(share, fraction, form):
                made = yield from self._made(share)
                self._vector.mix(made.payload, fraction, form, share.shard)
                self._unstage(share)
            case Reclaim(snapshot, fraction):
                # One that was not finite was never taken, and is passed over live, too.
                if snapshot in self._snapshots:
                    payload, form, shard = self._snapshots[snapshot]
                    self._vector.mix(payload, fraction, form, shard)
            case Combine():
                yield from self._combine(effect)
            case Drop():
                self._unstage(effect.share)
            case _:
                pass

    def _snapshot(self, effect: Snapshot) -> None:
        try:
            payload = self._vector.snapshot(
                effect.register, effect.form, effect.shard, self._rounding(effect.id)
            )
        except TrainingError:
            return  # not finite: what was to be sent of it is unsent in the journal, too
        self._snapshots[effect.id] = _Taken(payload, effect.form, effect.shard)

    def _hand_over(self, effect: Send, record: int, step: int) -> None:
        envelope, body = effect.envelope, effect.envelope.body
        snapshot = self._snapshots.get(effect.snapshot or 0)
        if isinstance(body, Offer) and snapshot is not None:
            receiver = Life(envelope.destination, envelope.destination_incarnation)
            key = ShareKey(self._life, receiver, body.seq, envelope.shard)
            self._post.put(key, Made(snapshot.payload, snapshot.form, record, step))

    def _combine(self, effect: Combine) -> Generator[ShareKey, None, None]:
        terms: list[tuple[float, str | tuple[Tensor, Form]]] = []
        for coefficient, term in effect.terms:
            if isinstance(term, ShareId):
                made = yield from self._made(term)
                terms.append((coefficient, (made.payload, made.form)))
            else:
                terms.append((coefficient, term))
        self._vector.combine(effect.register, terms)

    def _made(self, share: ShareId) -> Generator[ShareKey, None, Made]:
        """Wait for a share, and see whether it is what came over the wire."""
        key = self._key(share)
        while (made := self._post.find(key)) is None:
            yield key
        for frame in self._staged.get(share, ()):
            stop = frame.offset_bytes + frame.size_bytes
            part = made.payload.numpy()[frame.offset_bytes : stop]
            if len(part) != frame.size_bytes or checksum(part.data) != frame.checksum:
                raise Differs(
                    f"{key}, made after its record {made.record} and step {made.step}, has other "
                    f"bytes than came over the wire (from byte {frame.offset_bytes} on)"
                )
        return made

    def _unstage(self, share: ShareId) -> None:
        self._staged.pop(share, None)
        self._post.done(self._key(share))

    def _key(self, share: ShareId) -> ShareKey:
        return ShareKey(Life(share.sender, share.incarnation), self._life, share.seq, share.shard)
