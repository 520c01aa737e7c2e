"""Shares of whole vectors, copied out and mixed by machine code that touches each number once."""

from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..kernel.program import MIX, RELEASE, SNAPSHOT
from .cores import Cores, Threads

__all__ = ["WholeShares", "mix"]

_SHARES_MIN: Final = 64
_GROWTH: Final = 1.5


class WholeShares:
    """Shares in one block of memory, each in a place of its own until its slot is released.

    Args:
        x: The workers' vectors, float32 or float64, on the CPU, axes ``(worker, number)``.
        cores: So many threads share the columns; it changes no bit.
    """

    def __init__(self, x: Tensor, cores: Cores) -> None:
        self._x = x.numpy()
        self._block = np.empty((_SHARES_MIN, x.shape[1]), self._x.dtype)
        self._places: dict[int, int] = {}
        self._free: list[int] = []
        self._n_places = 0
        self._threads = Threads(cores)

    def carry_out(self, rows: NDArray[np.int64], fractions: NDArray[np.float64]) -> None:
        """Carry out the snapshots, mixes and releases of a `Level`, in order; pass over others."""
        from .row_kernels import carry_out

        places = np.zeros(len(rows), np.int64)
        for at, (kind, slot) in enumerate(rows[:, [0, 3]].tolist()):
            if kind == SNAPSHOT:
                places[at] = self._take_place(slot)
            elif kind == MIX:
                places[at] = self._places[slot]
            elif kind == RELEASE:
                self.release(slot)
        self._make_room()
        n, free = self._x.shape[1], self._threads.free
        cuts = [n * at // free // 16 * 16 for at in range(free)] + [n]
        given = self._x, self._block, rows, places, fractions.astype(self._x.dtype)
        self._threads.share(lambda part: carry_out(*given, *part), [*pairwise(cuts)])

    def snapshot(self, slot: int, worker: int) -> None:
        """Copy a worker's vector."""
        place = self._take_place(slot)
        self._make_room()
        self._block[place] = self._x[worker]

    def share(self, slot: int) -> Tensor:
        """The share in a slot: a view, until the next snapshot."""
        return torch.from_numpy(self._block[self._places[slot]])

    def release(self, slot: int) -> None:
        """Let another share take the place of this one."""
        self._free.append(self._places.pop(slot))

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def _take_place(self, slot: int) -> int:
        if self._free:
            place = self._free.pop()
        else:
            place, self._n_places = self._n_places, self._n_places + 1
        self._places[slot] = place
        return place

    def _make_room(self) -> None:
        had = len(self._block)
        if self._n_places > had:
            # Rarely, as both blocks exist while one is copied; untouched pages cost nothing.
            block = np.empty((int(_GROWTH * self._n_places), self._block.shape[1]), self._x.dtype)
            block[:had] = self._block
            self._block = block


def mix(numbers: Tensor, arrived: Tensor, fraction: float) -> None:
    """``numbers += fraction * (arrived - numbers)``, both flat and of one dtype."""
    if fraction == 1.0:
        numbers.copy_(arrived)
    elif numbers.device.type == "cpu" and numbers.dtype in (torch.float32, torch.float64):
        # As `WholeShares` does, whatever else a level asks for.
        from .row_kernels import mix as mix_row

        row: Any = numbers.numpy()
        mix_row(row, arrived.numpy(), row.dtype.type(fraction))
    else:
        numbers.lerp_(arrived, fraction)
