"""Schedule first, compute later: what workers do to their values, in an order that can be batched.

The protocol never looks at a value, so a fleet is scheduled ahead of its arithmetic. What the
schedule asks for becomes a program: an optimizer step of a worker, a copy of a shard of its vector
into a slot, a mix of a slot into a vector. An operation's *level* is one more than that of any step
it has to wait for. Steps of one level touch different workers and may be taken together; the other
operations of the level follow them, one by one, in the order of the schedule. So each worker's
arithmetic is that of the schedule to the last bit, however many steps are taken at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...gossip.effects.effects import X
from ...gossip.types import SnapshotId
from ...gossip.wire.formats import Form
from .faults.forgeries import Forgery

__all__ = [
    *("Combine", "Cut", "Exchange", "Forge", "Keep", "Level", "Mix", "Operation"),
    *("Program", "Release", "Slot", "Snapshot", "Start"),
    "levels_of",
    *("MIX", "RELEASE", "SNAPSHOT", "WHOLE"),
]


class Slot:
    """Buffer of one share, from its snapshot until its last reader releases it."""

    __slots__ = ("_level", "_window", "cut", "is_finite", "number", "readers")

    def __init__(self, number: int, cut: "Cut | None" = None) -> None:
        # Never reused.
        self.number = number
        # Messages and stagings that refer to it, and the sender until it releases it.
        self.readers = 1
        # None for a segment.
        self.cut = cut
        # As far as the schedule knows.
        self.is_finite = True
        self._level = 0
        self._window = -1


class Cut(NamedTuple):
    """Content and form of a share."""

    register: str | tuple[str, ...]
    form: Form = Form()
    shard: int = 0


class Snapshot(NamedTuple):
    """Copy a shard of what a worker pushes into a slot, which from then on holds that shard."""

    worker: int
    slot: int
    cut: Cut
    id: SnapshotId  # the worker's name for it, which seeds the random numbers of its rounding


class Forge(NamedTuple):
    """Write what a Byzantine worker sends to another, in place of its share in *source*."""

    worker: int
    slot: int
    source: int
    cut: Cut
    forgery: Forgery


class Mix(NamedTuple):
    """``x += fraction * (slot - x)`` in the slot's shard; a fraction of 1 is a copy."""

    worker: int
    slot: int
    fraction: float


class Combine(NamedTuple):
    """``register = sum of coefficient * term``."""

    worker: int
    register: str
    terms: tuple[tuple[float, str | tuple[int, int]], ...]
    """Each term is a register, or a slot's number and the position of a register in it."""


class Exchange(NamedTuple):
    """``d = register - segment; register -= taken * d; segment += given * d``."""

    worker: int
    segment: int
    register: str
    taken: float
    given: float
    fresh: bool  # true if it is created now, equal to the register


class Release(NamedTuple):
    """Free a slot for another share."""

    slot: int


class Keep(NamedTuple):
    """Keep a worker's values, its optimizer's state included, in place of the previous ones."""

    worker: int


class Start(NamedTuple):
    """Begin another incarnation of a worker, with the kept values or the initial ones."""

    worker: int
    kept: bool


Operation = Snapshot | Forge | Mix | Combine | Exchange | Release | Keep | Start


# Kinds of operations in the columns of a `Level`, as in those of the fast path.
SNAPSHOT: Final = 0
MIX: Final = 1
RELEASE: Final = 2
_RARE: Final = 3

WHOLE: Final = Cut(X)
"""A whole vector as it is, as in most shares."""


@dataclass(slots=True, eq=False)
class Level:
    """Steps that may be taken together, and the operations that follow them, in columns."""

    workers: list[int] = field(default_factory=list)  # workers that take a step, each once
    steps: list[int] = field(default_factory=list)  # number of each worker's step, counted from 0
    rates: list[float] | None = None  # factor of each learning rate; None if it stays
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 5), np.int64))
    """Operations in order, axes ``(operation, 5)``: kind, worker, number of the cut, slot and id of
    the snapshot; 0 for what an operation does not have."""
    fractions: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """Fraction of each mix."""
    cuts: Sequence[Cut] = (WHOLE,)  # cuts by number; the first is `WHOLE`
    rare: Mapping[int, Operation] = field(default_factory=dict)
    """Operations of other kinds, by their position in *rows*."""

    @property
    def operations(self) -> list[Operation]:
        """Operations as objects, in order."""
        found: list[Operation] = []
        columns = zip(self.rows.tolist(), self.fractions.tolist(), strict=True)
        for at, ((kind, worker, cut, slot, id), fraction) in enumerate(columns):
            if kind == SNAPSHOT:
                found.append(Snapshot(worker, slot, self.cuts[cut], id))
            elif kind == MIX:
                found.append(Mix(worker, slot, fraction))
            elif kind == RELEASE:
                found.append(Release(slot))
            else:
                found.append(self.rare[at])
        return found


def levels_of(
    steps: NDArray[np.int64],
    rates: NDArray[np.float64] | None,
    rows: NDArray[np.int64],
    levels: NDArray[np.int64],
    fractions: NDArray[np.float64],
    *,
    cuts: Sequence[Cut],
    rare: Mapping[int, Operation] = MappingProxyType({}),
) -> list[Level]:
    """Split what was decided into levels; within one, everything keeps its order.

    Args:
        steps: Axes ``(step, column)``: worker, level, number among the worker's own; further
            columns are ignored.
        rates: Factor of the learning rate of each step, or None.
        rows: Operations, see `Level.rows`; so are *fractions*, *cuts* and *rare*.
        levels: Level of each operation.
    """
    by_step = np.argsort(steps[:, 1], kind="stable")
    by_operation = np.argsort(levels, kind="stable")
    n = 1 + max(int(steps[:, 1].max(initial=0)), int(levels.max(initial=0)))
    starts = np.searchsorted(steps[by_step, 1], np.arange(n + 1)).tolist()
    ends = np.searchsorted(levels[by_operation], np.arange(n + 1)).tolist()
    found = []
    for at in range(n):
        taken, done = by_step[starts[at] : starts[at + 1]], by_operation[ends[at] : ends[at + 1]]
        places = enumerate(done.tolist()) if rare else ()
        rares = {place: rare[which] for place, which in places if which in rare}
        found.append(
            Level(
                steps[taken, 0].tolist(),
                steps[taken, 2].tolist(),
                None if rates is None else rates[taken].tolist(),
                rows[done],
                fractions[done],
                cuts,
                rares,
            )
        )
    return found


class Program:
    """Collects the operations of *n* workers, one window after another."""

    def __init__(self, n: int) -> None:
        self.steps = 0
        """Optimizer steps scheduled since the start of the run."""
        self._row_levels = [0] * n
        self._window = -1
        self._slots = 0
        self._cuts = {WHOLE: 0}
        self._begin_window()

    def take(self) -> list[Level]:
        """Return the window's levels, in order, and begin another window."""
        levels = levels_of(
            np.array(self._steps, np.int64).reshape(-1, 3),
            np.array(self._rates, np.float64) if self._rates else None,
            np.array(self._rows, np.int64).reshape(-1, 5),
            np.array(self._levels, np.int64),
            np.array(self._fractions, np.float64),
            cuts=list(self._cuts),
            rare=self._rare,
        )
        self._begin_window()
        return levels

    def _begin_window(self) -> None:
        self._steps: list[int] = []
        self._rates: list[float] = []
        self._rows: list[int] = []
        self._levels: list[int] = []
        self._fractions: list[float] = []
        self._rare: dict[int, Operation] = {}
        self._row_levels = [0] * len(self._row_levels)
        self._window += 1

    def _add(
        self,
        level: int,
        kind: int,
        worker: int = 0,
        slot: int = 0,
        fraction: float = 0.0,
        cut: int = 0,
        id: int = 0,
    ) -> None:
        self._rows += (kind, worker, cut, slot, id)
        self._levels.append(level)
        self._fractions.append(fraction)

    def _add_rare(self, level: int, operation: Operation) -> None:
        self._rare[len(self._levels)] = operation
        self._add(level, _RARE)

    def step(self, worker: int, step: int, rate: float | None) -> None:
        """Take an optimizer step, with this factor of the learning rate if that changes."""
        level = self._row_levels[worker] + 1
        self._row_levels[worker] = level
        self._steps += (worker, level, step)
        if rate is not None:
            self._rates.append(rate)
        self.steps += 1

    def snapshot(self, worker: int, cut: Cut, id: SnapshotId) -> Slot:
        """Copy values into a slot with one reader: the sender."""
        slot = Slot(self._slots, cut)
        self._slots += 1
        level = slot._level = self._row_levels[worker]
        slot._window = self._window
        number = self._cuts.setdefault(cut, len(self._cuts))
        self._add(level, SNAPSHOT, worker, slot.number, cut=number, id=id)
        return slot

    def forge(self, worker: int, source: Slot, forgery: Forgery) -> Slot:
        """Write a forgery of *source* into a slot with one reader, from current values."""
        assert source.cut is not None
        seen = (worker, forgery.target, *forgery.honest)
        level = self._meet(worker, source)
        level = source._level = max([level, *[self._row_levels[row] for row in seen]])
        for row in seen:
            # None of them takes its next step before that.
            self._row_levels[row] = level
        slot = Slot(self._slots, source.cut)
        self._slots += 1
        slot._level, slot._window = level, self._window
        self._add_rare(level, Forge(worker, slot.number, source.number, source.cut, forgery))
        return slot

    def mix(self, worker: int, slot: Slot, fraction: float) -> None:
        level = self._meet(worker, slot)
        self._add(level, MIX, worker, slot.number, fraction)

    def combine(
        self, worker: int, register: str, terms: tuple[tuple[float, str | tuple[Slot, int]], ...]
    ) -> None:
        """Set a register to a sum of registers, and of registers in slots."""
        plain: list[tuple[float, str | tuple[int, int]]] = []
        slots: list[Slot] = []
        for coefficient, term in terms:
            if isinstance(term, str):
                plain.append((coefficient, term))
                continue
            slot, part = term
            self._meet(worker, slot)
            slots.append(slot)
            plain.append((coefficient, (slot.number, part)))
        # Only after all slots are met: the last may have the highest level.
        level = self._row_levels[worker]
        for slot in slots:
            slot._level = level
        self._add_rare(level, Combine(worker, register, tuple(plain)))

    def segment(self) -> Slot:
        """Name a segment, which stays for good."""
        self._slots += 1
        return Slot(self._slots - 1)

    def exchange(
        self, worker: int, segment: Slot, register: str, *, taken: float, given: float, fresh: bool
    ) -> None:
        """Exchange a register of a worker with a segment, after all earlier exchanges."""
        level = self._meet(worker, segment)
        self._add_rare(level, Exchange(worker, segment.number, register, taken, given, fresh))

    def keep(self, worker: int) -> None:
        self._add_rare(self._row_levels[worker], Keep(worker))

    def start(self, worker: int, *, kept: bool) -> None:
        self._add_rare(self._row_levels[worker], Start(worker, kept))

    def let_go(self, slot: Slot) -> None:
        """Remove one reader; the last one frees the slot."""
        slot.readers -= 1
        if slot.readers == 0:
            level = slot._level if slot._window == self._window else 0
            self._add(level, RELEASE, slot=slot.number)

    def _meet(self, worker: int, slot: Slot) -> int:
        """Bring a worker and a slot that it reads to one level."""
        level = self._row_levels[worker]
        if slot._window != self._window:
            slot._window = self._window
        elif slot._level > level:
            level = slot._level
        self._row_levels[worker] = slot._level = level
        return level
