"""Shares of whole vectors, copied and mixed by machine code that touches each number once."""

from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..cores import Threads

__all__ = ["WholeShares", "mix"]

_SHARES_MIN: Final = 64
_GROWTH: Final = 1.5

# In place of a slot's place.
_NONE_YET: Final = -1
_RELEASED: Final = -2  # as in `row_kernels`


class WholeShares:
    """Shares in one block of memory, each in a place of its own until its slot is released.

    Args:
        x: The workers' vectors, float32 or float64, on the CPU, axes ``(worker, number)``.
        threads: Threads that share the columns; their number changes no bit.
    """

    def __init__(self, x: Tensor, threads: Threads) -> None:
        self._x = x.numpy()
        self._block = np.empty((_SHARES_MIN, x.shape[1]), self._x.dtype)
        # Slots count from the first that may still be used; machine code looks them up in arrays.
        self._first_slot = 0
        self._places = np.full(_SHARES_MIN, _NONE_YET, np.int64)
        self._free = np.zeros(_SHARES_MIN, np.int64)
        self._n_free = self._n_places = 0
        self._threads = threads

    def carry_out(self, rows: NDArray[np.int64], fractions: NDArray[np.float64]) -> None:
        """Execute a `Level`'s snapshots, mixes and releases in order; skip other operations."""
        from .row_kernels import carry_out, find_places

        self._reach(int(rows[:, 3].max()), len(rows))
        rows = rows.copy()
        lists = self._places, self._free, self._n_free, self._n_places
        self._n_free, self._n_places = find_places(rows, self._first_slot, *lists)
        self._make_room()
        n, free = self._x.shape[1], self._threads.free
        cuts = [n * at // free // 16 * 16 for at in range(free)] + [n]
        given = self._x, self._block, rows, fractions.astype(self._x.dtype)
        self._threads.share(lambda part: carry_out(*given, *part), [*pairwise(cuts)])

    def snapshot(self, slot: int, worker: int) -> None:
        """Copy a worker's vector."""
        self._reach(slot, 1)
        if self._n_free:
            self._n_free -= 1
            place = self._free[self._n_free]
        else:
            place, self._n_places = self._n_places, self._n_places + 1
        self._places[slot - self._first_slot] = place
        self._make_room()
        self._block[place] = self._x[worker]

    def share(self, slot: int) -> Tensor:
        """Return the share in a slot: a view, valid until the next snapshot."""
        return torch.from_numpy(self._block[self._places[slot - self._first_slot]])

    def release(self, slot: int) -> None:
        """Free the place of a share."""
        at = slot - self._first_slot
        self._free[self._n_free], self._places[at] = self._places[at], _RELEASED
        self._n_free += 1

    def _reach(self, slot: int, n: int) -> None:
        """Make room for slots up to this one, and for *n* more free shares."""
        if self._n_places + n > len(self._free):
            self._free = np.pad(self._free, (0, self._n_places + n))
        if slot - self._first_slot < len(self._places):
            return
        in_use = self._places != _RELEASED
        n_over = int(in_use.argmax()) if in_use.any() else len(in_use)
        kept = self._places[n_over:]
        self._first_slot += n_over
        n_slots = 2 * max(len(kept), slot + 1 - self._first_slot)
        self._places = np.pad(kept, (0, n_slots - len(kept)), constant_values=_NONE_YET)

    def _make_room(self) -> None:
        had = len(self._block)
        if self._n_places > had:
            # This is rare, as both blocks exist while one is copied; untouched pages cost nothing.
            block = np.empty((int(_GROWTH * self._n_places), self._block.shape[1]), self._x.dtype)
            block[:had] = self._block
            self._block = block


def mix(numbers: Tensor, arrived: Tensor, fraction: float) -> None:
    """``numbers += fraction * (arrived - numbers)``, both flat and of one dtype."""
    if fraction == 1.0:
        numbers.copy_(arrived)
    elif numbers.device.type == "cpu" and numbers.dtype in (torch.float32, torch.float64):
        # This is the kernel of `WholeShares`, whatever else a level asks for.
        from .row_kernels import mix as mix_row

        row: Any = numbers.numpy()
        mix_row(row, arrived.numpy(), row.dtype.type(fraction))
    else:
        numbers.lerp_(arrived, fraction)
