"""Passes over rows: copies, mixes and steps of optimizers, in which each number is touched once.

numba compiles them where it is installed (the extra ``compiled``). Those over models round as
torch's kernels do, by fused multiply-adds; whether that holds on this machine is tried before they
are used, and else torch itself mixes. Those over vectors round as numpy does, which can do without
numba.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...kernel.fast_path.decisions import tables
from ..cores import ONE_CORE, Cores, Threads
from .interface import RowUpdate, place

__all__ = [
    *("Kernels", "RowPasses"),
    *("alike", "over_models", "over_vectors", "rounds_as_torch", "take_steps"),
]

Floats = NDArray[Any]
Ints = NDArray[np.int64]

Pass = Callable[[Floats, Floats, Ints, Floats, int, int], None]
"""Takes the workers' vectors and the shares under way, operations and the fractions of mixes, and
the columns from which and to which it goes."""

Place = Callable[[Any, Any, Any, Any, int, int], tuple[int, int]]
"""See `interface.place`."""


class Kernels(NamedTuple):
    """What passes over rows."""

    carry_out: Pass
    place: Place | None = None
    """Does in machine code what `interface.place` does, on arrays."""


_ROOMS_MIN = 64

# Operations within which no place is used twice, so that torch mixes many rows by one call.
_TOGETHER = 256

# Of one call: what they wait for is looked for one by one.
_MIXES_MAX = 32
_GROWTH = 1.5


class RowPasses:
    """Shares under way in one block of memory, and the passes over it and the workers' rows.

    Args:
        x: The workers' vectors, axes ``(worker, number)``, contiguous.
        cores: So many threads share the columns; it changes no bit.
    """

    def __init__(self, x: Floats, kernels: Kernels, cores: Cores = ONE_CORE) -> None:
        self._x = x
        self._pass = kernels.carry_out
        self._place = kernels.place
        # Python looks up numbers in dictionaries, machine code in arrays.
        self._places: Any = {} if self._place is None else np.zeros(_ROOMS_MIN, np.int64)
        # There may be so many places more than rooms.
        self._free: Any = {} if self._place is None else np.zeros(_ROOMS_MIN + _TOGETHER, np.int64)
        self._n_free = self._n_places = 0
        self._shares: Floats = np.empty((_ROOMS_MIN, x.shape[1]), x.dtype)
        self._slots = np.full(_ROOMS_MIN, -1, np.int64)
        self._threads = Threads(cores)

    def carry_out(self, rows: Ints, fractions: NDArray[np.float64]) -> None:
        """Do what a `ColumnLevel` asks for, in order."""
        if not len(rows):
            return
        rows = self._placed(rows)
        self._make_room(int(rows[:, 4].max()) + 1)
        n, free = self._x.shape[1], self._threads.free
        cuts = [n * at // free // 16 * 16 for at in range(free)] + [n]
        given = self._x, self._shares, rows, fractions.astype(self._x.dtype)
        self._threads.share(lambda part: self._pass(*given, *part), [*pairwise(cuts)])
        changes = rows[rows[:, 0] != tables.MIX]
        # A place may be let go and taken again in one level: the last word counts.
        taken = changes[:, 0] == tables.SNAPSHOT
        self._slots[changes[:, 4]] = np.where(taken, changes[:, 3], -1)

    def left(self) -> dict[int, Floats]:
        """Shares that are still under way, by slot."""
        rooms = np.flatnonzero(self._slots >= 0)
        return {int(self._slots[room]): self._shares[room] for room in rooms}

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def _placed(self, rows: Ints) -> Ints:
        """The same operations, with places in memory instead of rooms.

        There may be four times as many rooms as shares under way.
        """
        rows = rows.copy()
        give: Place = self._place or place
        kinds: Any = rows[:, 0]
        rooms: Any = rows[:, 4]
        if self._place is None:
            kinds, rooms = kinds.tolist(), rooms.tolist()
        elif (short := int(rooms.max()) + 1 - len(self._places)) > 0:
            self._places = np.pad(self._places, (0, short + len(self._places)))
            self._free = np.pad(self._free, (0, short + len(self._free)))
        for start in range(0, len(rows), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            given, counts = rooms[part], (self._n_free, self._n_places)
            counts = give(kinds[part], given, self._places, self._free, *counts)
            rooms[part], (self._n_free, self._n_places) = given, counts
        rows[:, 4] = rooms
        return rows

    def _make_room(self, n: int) -> None:
        had = len(self._shares)
        if n <= had:
            return
        # While they are copied they all lie there twice, and pages that nobody has written to cost
        # nothing: so it is seldom, and the first time it is to more than is asked for.
        shares = np.empty((int(_GROWTH * n), self._shares.shape[1]), self._shares.dtype)
        shares[:had] = self._shares
        slots = np.full(len(shares), -1, np.int64)
        slots[:had] = self._slots
        self._shares, self._slots = shares, slots


def over_models(*, compiled: bool) -> Kernels:
    """What passes over rows of models.

    Args:
        compiled: Whether machine code may: over float32, if it `rounds_as_torch`.
    """
    if not compiled:
        return Kernels(_ByTorch())
    from . import machine_code

    return Kernels(cast("Pass", machine_code.carry_out), cast("Place", machine_code.place))


class _ByTorch:
    """Rows copied by numpy, and mixed by torch: many mixes by one call, in order."""

    def __init__(self) -> None:
        self._rows: Sequence[Tensor] = ()
        self._held: Sequence[Tensor] = ()
        self._shares: Floats | None = None

    def __call__(
        self, x: Floats, shares: Floats, rows: Ints, fractions: Floats, start: int, stop: int
    ) -> None:
        """See `Pass`; it passes over all columns."""
        if self._shares is not shares:
            self._shares, self._held = shares, torch.from_numpy(shares).unbind()
        self._rows = self._rows or torch.from_numpy(x).unbind()
        changing: list[int] = []
        read: list[int] = []
        parts: list[float] = []

        def mix() -> None:
            self._mix(changing, read, parts)
            for each in (changing, read, parts):
                each.clear()

        asked = rows[:, 0] != tables.RELEASE
        columns = (rows[asked, at].tolist() for at in (0, 1, 4))
        for kind, worker, room, part in zip(*columns, fractions[asked].tolist(), strict=True):
            if kind == tables.SNAPSHOT:
                if worker in changing or room in read:
                    mix()
                shares[room] = x[worker]
            elif kind == tables.MIX and part == 1.0:
                mix()
                x[worker] = shares[room]
            elif kind == tables.MIX:
                changing.append(worker)
                read.append(room)
                parts.append(part)
                if len(parts) == _MIXES_MAX:
                    mix()
        mix()

    def _mix(self, workers: Sequence[int], rooms: Sequence[int], parts: Sequence[float]) -> None:
        if not parts:
            return
        own, told = [self._rows[at] for at in workers], [self._held[at] for at in rooms]
        if _takes_a_fraction_each():
            torch._foreach_lerp_(own, told, parts)
            return
        for row, share, part in zip(own, told, parts, strict=True):
            row.lerp_(share, part)


@cache
def _takes_a_fraction_each() -> bool:
    """Whether this version of torch mixes by several fractions at a time."""
    try:
        torch._foreach_lerp_(
            [torch.zeros(1, dtype=torch.float32, device="cpu")],
            [torch.ones(1, dtype=torch.float32, device="cpu")],
            [0.5],
        )
    except (AttributeError, TypeError, RuntimeError):
        return False
    return True


def over_vectors(*, compiled: bool) -> Kernels:
    """What passes over float64 rows."""
    if not compiled:
        return Kernels(_carry_out_in_turn)
    from . import machine_code

    return Kernels(cast("Pass", machine_code.carry_out_plainly), cast("Place", machine_code.place))


def _carry_out_in_turn(
    x: Floats, shares: Floats, rows: Ints, fractions: Floats, start: int, stop: int
) -> None:
    part = slice(start, stop)
    for (kind, worker, _, _, room, _), fraction in zip(
        rows.tolist(), fractions.tolist(), strict=True
    ):
        if kind == tables.SNAPSHOT:
            shares[room, part] = x[worker, part]
        elif kind == tables.MIX and fraction == 1.0:
            x[worker, part] = shares[room, part]
        elif kind == tables.MIX:
            row = x[worker, part]
            row += fraction * (shares[room, part] - row)


@cache
def rounds_as_torch() -> bool:
    """Whether these passes give torch's bits on this machine."""
    x = torch.randn(
        2, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float32, device="cpu"
    )
    for fraction in (1e-3, 0.3, 0.49999, 0.5, 0.7, 0.999):
        ours, theirs = x.clone(), x.clone()
        rows = np.array([[tables.SNAPSHOT, 1, 0, 0, 0, 1], [tables.MIX, 0, 0, 0, 0, 0]])
        RowPasses(ours.numpy(), over_models(compiled=True)).carry_out(
            rows, np.array([0.0, fraction])
        )
        theirs[0].lerp_(theirs[1].clone(), fraction)
        if not alike(ours, theirs):
            return False
    return True


def alike(ours: Tensor, theirs: Tensor) -> bool:
    """Whether two tensors are the same in every bit."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    return torch.equal(*(x.flatten().view(torch.uint8) for x in (ours, theirs)))


def take_steps(x: Tensor, gradients: Tensor, workers: Ints, update: RowUpdate) -> bool:
    """Take a step in the rows of some workers, in place.

    Args:
        x: All workers' vectors, float32, axes ``(worker, number)``.
        gradients: Of those who take a step, axes ``(step, number)``.

    Returns:
        Whether all values are finite after it.
    """
    from . import machine_code

    return bool(machine_code.take_steps(x.numpy(), gradients.numpy(), workers, update))
