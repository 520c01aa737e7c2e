"""The values at hand: snapshots on their way out, staged shares on their way in."""

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from torch import Tensor

from ...gossip.effects.effects import (
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
from ...gossip.errors import LocalProtocolError, TrainingError
from ...gossip.types import ShareId, SharePart, SnapshotId
from ...gossip.wire.codec import Buffer
from ...gossip.wire.formats import Form
from .blocks import sketch_of
from .buffers import IDLE_S, not_finite
from .cuda import DeviceSnapshot, Held, Mark
from .shared_memory import Attachments, SegmentPool
from .staging import Distances, Progress, Staged, Staging, distances_of
from .vector import Term, Vector

__all__ = ["Preallocation", "Segments", "TensorStore"]


_ALL = float("inf")

# Smaller ones cost no more than a few hundred pages.
_WARM_BYTES_MIN = 4 << 20

# Of shards there may be many, of which a push carries a few.
_PREALLOCATED_MAX = 2

# Snapshots that were not finite are released, too, and never taken.
_RELEASED_MAX = 64


class Segments(Protocol):
    """Segments that other peers share."""

    def exchange(self, effect: Exchange, vector: Vector) -> None:
        """Exchange a register of *vector* with a segment.

        Raises:
            TrainingError: A number is not finite, or no segment is to be had; nothing was changed.
        """

    def met(self) -> None:
        """Take note that another peer of the swarm is known now."""

    def close(self) -> None:
        """Let go of them."""


@dataclass(slots=True, eq=False)
class _Kept:
    """A snapshot, while the protocol wants it."""

    host: Tensor
    view: memoryview
    """What frames are cut from; with the last of them, the buffer comes back to its pool."""
    form: Form
    shard: int
    thread: int
    """Which took it, and must hear of what is wrong with it."""
    taken: DeviceSnapshot | None = None
    """None while it is being taken."""
    progress: Progress = field(default_factory=Progress)
    blamed: bool = False


class TensorStore:
    """Carries out the effects that touch values.

    Training and network thread both use it, each on entries of its own: a share is staged before
    it is ready, and mixed after; a snapshot is taken before a message that needs it is queued.
    Snapshots, mixes, combinations and what is reclaimed are for the training thread.

    Args:
        vector: The values.
        rounding: Random numbers for one snapshot, which ``int8`` rounds with; None where no
            snapshot is taken in it.
        segments: Where snapshots are put so that neighbors on this machine can read them; None
            for ordinary memory. Closed with the store, as are the next two.
        attachments: Opens the segments of neighbors; None where none is attached.
        shared: Segments to exchange with, for rules that do; None where there are none.
    """

    def __init__(
        self,
        vector: Vector,
        rounding: Callable[[SnapshotId], np.random.Generator] | None = None,
        segments: SegmentPool | None = None,
        attachments: Attachments | None = None,
        *,
        shared: Segments | None = None,
    ) -> None:
        self._vector = vector
        self.schema = vector.schema
        """Of the model."""
        self._shared = shared
        self._rounding = rounding
        self._segments = segments
        self._attachments = attachments
        # An answer may leave before a device has read a share, and then its sender's memory is used
        # for something else.
        self.staging = Staging(vector, attachments, straight=vector.is_here)
        """Shares on their way in: frames land there, and neighbors' memory is attached."""
        self._snapshots: dict[SnapshotId, _Kept] = {}
        self._lock = threading.Lock()
        self._released: OrderedDict[SnapshotId, None] = OrderedDict()
        self._held: Held[memoryview] = Held()
        # A leaver's values are settled by whichever thread hears the last answer.
        self._values = threading.RLock()
        self._failures: dict[int, TrainingError] = {}

    def carry_out(self, effect: Effect, frame: Buffer = b"") -> bool:
        """Do what *effect* asks for, where it is about values.

        Args:
            effect: Any effect.
            frame: The frame of the message that led to it; empty where it was received into
                `Staging.landing`.

        Returns:
            Whether it was about values.

        Raises:
            TrainingError: A snapshot has a value that is not finite; `frame_of` then has none.
                Where it was taken on a device, this thread hears of it with a later effect, which
                was carried out.
        """
        done = self._carry_out(effect, frame)
        self._raise_failure()
        return done

    def preallocate(self, form: Form, count: int, *, shown: bool) -> None:
        """Have the system make the memory for snapshots now, so that the first push need not wait.

        Args:
            form: What will be pushed.
            count: How many shares may be under way at once.
            shown: Whether neighbors on this machine will read them where they lie.
        """
        pool = self._segments if shown and self._segments else self._vector.snapshots
        sizes = Counter(
            self._vector.plan(form, shard).size_bytes for shard in range(self._vector.schema.shards)
        )
        for size_bytes, shards in sizes.items():
            if size_bytes >= _WARM_BYTES_MIN:
                for _ in range(min(shards * count, _PREALLOCATED_MAX)):
                    pool.make_ahead(size_bytes)

    def expect(self, effect: Snapshot) -> None:
        """Let frames of a snapshot be asked for before it is taken, which it must be after this:
        whoever asks for one waits until its bytes are there."""
        self._prepare(effect)

    def cancel(self, snapshot: SnapshotId) -> None:
        """Let nobody wait for a snapshot that was expected and will not be taken."""
        kept = self._snapshots.get(snapshot)
        if kept is not None and kept.taken is None:
            self._snapshots.pop(snapshot, None)
            kept.progress.over()

    def forget_gone(self) -> None:
        """Let go of memory whose owners are gone."""
        if self._attachments is not None:
            self._attachments.forget_gone()

    def free_idle(self) -> None:
        """Let go of memory that was not used for some seconds; call it every second or so."""
        self._vector.memory.free_idle()
        if self._attachments is not None:
            self._attachments.forget_gone(IDLE_S)

    @property
    def is_bounded(self) -> bool:
        """Whether memory has a bound, so that `lacks_room` need be asked."""
        return self._vector.memory.is_bounded

    def lacks_room(self, incoming: Mapping[ShareId, int], outgoing: Iterable[SnapshotId]) -> bool:
        """Whether memory has no room for one share more.

        Args:
            incoming: Shares that are let in, and their sizes in bytes.
            outgoing: Snapshots that are asked for, or taken.
        """
        memory, schema = self._vector.memory, self._vector.schema
        coming = sum(map(self.staging.missing_bytes, incoming.keys(), incoming.values()))
        going = sum(each not in self._snapshots for each in outgoing)
        promised = coming + going * schema.copy_bytes // schema.shards
        return memory.lacks_room(schema.copy_bytes, promised)

    def met(self) -> None:
        """Take note that another peer of the swarm is known now."""
        if self._shared is not None:
            self._shared.met()

    def is_sound(self, share: ShareId, swarm: bytes) -> bool:
        """Whether a staged share may be mixed.

        Args:
            share: Which; False where it was dropped by now.
            swarm: Hash of the swarm's anchor, which an anchor that comes along must have.
        """
        if not self.staging.is_finite(share):
            return False
        staged = self.staging.look(share)
        if staged is None or not staged.form.anchor:
            return staged is not None
        return self._vector.anchor_matches(staged.payload, staged.form, staged.shard, swarm)

    def measured(self, effect: Measure) -> Distances:
        """What a `Measure` asks for, of those shares that were not dropped by now."""
        with self._values:
            return distances_of(self.staging, self._vector, effect.shares)

    def sketch(self) -> tuple[float, ...]:
        """A sketch of the model, see `sketch_of`."""
        with self._values:
            return sketch_of(self._vector.flats)

    def frame_of(self, effect: Send) -> Buffer | None:
        """The bytes beside a message, not copied; None where their snapshot is of no use.

        Waits for a snapshot that is being taken, or on its way from a device: not for the thread
        that trains.
        """
        if effect.snapshot is None:
            return b""
        stop_bytes = effect.start_bytes + effect.envelope.frame_bytes
        kept = self._usable(effect.snapshot, stop_bytes)
        return None if kept is None else kept.view[effect.start_bytes : stop_bytes]

    def awaits_device(self, snapshot: SnapshotId | None) -> bool:
        """Whether `frame_of` would wait for a device to copy a snapshot out, which may take as long
        as all that training has queued there."""
        kept = self._snapshots.get(snapshot) if snapshot is not None else None
        if kept is None or self._vector.is_here:
            return False
        return kept.taken is None or not kept.taken.is_over

    def segment_of(self, snapshot: SnapshotId) -> str:
        """Where a snapshot lies for neighbors on this machine; empty where they cannot read it.

        Waits as `frame_of` does.
        """
        kept = self._usable(snapshot) if self._segments is not None else None
        if kept is None or self._segments is None:
            return ""
        return self._segments.name_of(kept.host)

    def follow(self) -> None:
        """Note that this thread trains, and on which streams of a device."""
        self._vector.follow()

    def close(self) -> None:
        """Let go of memory that is shared with other processes."""
        self.staging.close()
        if self._attachments is not None:
            self._attachments.close()
        if self._segments is not None:
            self._segments.close()
        if self._shared is not None:
            self._shared.close()
        self._snapshots.clear()

    def _carry_out(self, effect: Effect, frame: Buffer) -> bool:
        match effect:
            case Snapshot():
                with self._values:
                    self._take(effect)
            case Release():
                self._release(effect)
            case Reclaim():
                with self._values:
                    self._reclaim(effect)
            case Stage():
                if len(frame):
                    self.staging.take_in(effect, frame)
            case Mix():
                with self._values:
                    self._mix(effect)
            case Combine():
                with self._values:
                    self._combine(effect)
            case Exchange():
                with self._values:
                    self._exchange(effect)
            case Drop():
                self._drop(effect.share)
            case _:
                return False
        return True

    def _prepare(self, effect: Snapshot) -> _Kept:
        self._held.passed()
        form, shard = effect.form, effect.shard
        pool = self._segments if effect.shown and self._segments else self._vector.snapshots
        host = pool.lend(self._vector.plan(form, shard).size_bytes)
        kept = _Kept(host, pool.frames(host), form, shard, threading.get_ident())
        self._snapshots[effect.id] = kept
        return kept

    def _take(self, effect: Snapshot) -> None:
        kept = self._snapshots.get(effect.id) or self._prepare(effect)
        try:
            rng = None if self._rounding is None else self._rounding(effect.id)
            taken = self._vector.take(
                kept.host, effect.register, kept.form, kept.shard, rng, kept.progress.reached
            )
            with self._lock:
                kept.taken = taken
                is_released = self._released.pop(effect.id, False) is None
            if is_released:
                self._drop_snapshot(effect.id)
        except BaseException:
            self._snapshots.pop(effect.id, None)
            raise
        finally:
            # Whoever waits for it must not wait for ever.
            kept.progress.over()

    def _usable(self, snapshot: SnapshotId, stop_bytes: float = _ALL) -> _Kept | None:
        kept = self._snapshots.get(snapshot)
        if kept is None:
            return None
        kept.progress.wait(stop_bytes)
        if kept.taken is None:
            # Where it failed, it is not among the others any more.
            return self._snapshots.get(snapshot)
        if kept.taken.wait():
            return kept
        if not kept.blamed:
            kept.blamed = True
            self._failures[kept.thread] = not_finite(kept.form)
        return None

    def _raise_failure(self) -> None:
        failure = self._failures.pop(threading.get_ident(), None) if self._failures else None
        if failure is not None:
            raise failure

    def _release(self, effect: Release) -> None:
        with self._lock:
            kept = self._snapshots.get(effect.snapshot)
            if kept is None or kept.taken is None:
                # Settled before it is taken, on another thread: it is let go right after that.
                self._released[effect.snapshot] = None
                while len(self._released) > _RELEASED_MAX:
                    self._released.popitem(last=False)
                return
        if effect.abandoned and self._segments is not None:
            self._segments.abandon(kept.host)
        self._drop_snapshot(effect.snapshot)

    def _drop_snapshot(self, snapshot: SnapshotId) -> None:
        kept = self._snapshots.pop(snapshot, None)
        if kept is not None and kept.taken is not None:
            self._hold(kept.taken.mark, kept.view)

    def _reclaim(self, effect: Reclaim) -> None:
        kept = self._snapshots.get(effect.snapshot)
        if kept is None:
            # It was not finite, and nothing of it has left. Nor is what it was taken of.
            return
        # Local buffers and the anchor were not given away.
        form = Form(kept.form.wire)
        self._hold(self._vector.mix(kept.host, effect.fraction, form, kept.shard), kept.view)

    def _hold(self, mark: Mark, view: memoryview) -> None:
        """Keep a snapshot's memory from being used again while a device reads or writes it."""
        if not mark.query():
            self._held.until(mark, view)

    def _mix(self, effect: Mix) -> None:
        staged = self.staging.pop(effect.share)
        if staged is None:
            raise LocalProtocolError(f"{effect.share} is not staged, or was mixed before")
        given = staged.payload, effect.fraction, effect.form, staged.shard
        staged.read = self._vector.mix(*given)
        self.staging.give_back(staged)

    def _combine(self, effect: Combine) -> None:
        shares: list[Staged] = []
        terms: list[tuple[float, Term]] = []
        for coefficient, term in effect.terms:
            if isinstance(term, str):
                terms.append((coefficient, term))
                continue
            if isinstance(term, int):
                terms.append((coefficient, self._sent_as(term)))
                continue
            share, part = SharePart.of(term)
            staged = self.staging.find(share)
            shares.append(staged)
            terms.append((coefficient, (staged.payload, staged.form, part)))
        mark = self._vector.combine(effect.register, terms)
        for staged in shares:
            staged.read = mark

    def _sent_as(self, snapshot: SnapshotId) -> Term:
        """A snapshot of this peer's own, as its receivers read it; it must have been taken."""
        kept = self._usable(snapshot)
        if kept is None:
            raise TrainingError(f"snapshot {snapshot} was not taken, and nothing is combined")
        return kept.host, kept.form

    def _exchange(self, effect: Exchange) -> None:
        if self._shared is None:
            raise LocalProtocolError("nothing is shared: requirements.one_machine is not set")
        self._shared.exchange(effect, self._vector)

    def _drop(self, share: ShareId) -> None:
        staged = self.staging.pop(share)
        if staged is not None:
            self.staging.give_back(staged)


class Preallocation:
    """Allocates the buffers of a store ahead, once for each of its two kinds of memory.

    Args:
        store: Where snapshots are put.
        form: What pushes will consist of.
        count: How many pushes may be under way at once.
    """

    def __init__(self, store: TensorStore, form: Form, count: int) -> None:
        self._store = store
        self._form = form
        self._count = count
        self._threads: dict[bool, threading.Thread] = {}

    def met(self, *, shares_memory: bool) -> None:
        """Make what pushes to such a neighbor need, unless that was begun before.

        Args:
            shares_memory: Whether it may read this peer's memory.
        """
        if shares_memory not in self._threads:
            thread = threading.Thread(
                target=self._run,
                args=(shares_memory,),
                name="rumor-preallocation",
                daemon=True,
            )
            self._threads[shares_memory] = thread
            thread.start()

    def _run(self, shares_memory: bool) -> None:
        # When many join at once, this must not take their cores.
        with suppress(AttributeError, OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        self._store.preallocate(self._form, self._count, shown=shares_memory)

    def close(self) -> None:
        """Wait until nothing is touched any more."""
        for thread in self._threads.values():
            thread.join()
