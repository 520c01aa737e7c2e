"""What Python hands to machine code: functions of torch's library, updates, places."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from ...kernel.fast_path.decisions.tables import RELEASE, SNAPSHOT

__all__ = ["BY_ADAM", "BY_ADAMW", "BY_SGD", "N_RATES", "ROOT", "RowUpdate", "address", "place"]

Floats = NDArray[Any]

ROOT: Final = "vmsSqrt"
"""Square roots, of MKL, which may round otherwise than the processor does."""


@cache
def address(name: str) -> int:
    """Where a function of that name lies; 0 where none shows."""
    for path in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        try:
            function = getattr(ctypes.CDLL(str(path)), name)
        except (OSError, AttributeError):
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


# Optimizers, and how many numbers each wants to know of a step.
BY_SGD: Final = 0
BY_ADAM: Final = 1
BY_ADAMW: Final = 2
N_RATES: Final = 8


class RowUpdate(NamedTuple):
    """How an optimizer updates the rows of some workers in one step of each."""

    optimizer: int
    """``BY_SGD``, ``BY_ADAM`` or ``BY_ADAMW``."""
    first: Floats
    """What it keeps of each number, float32, axes ``(worker, number)``; updated."""
    second: Floats
    """What else it keeps, likewise."""
    rates: Floats
    """Numbers of each step, float32, axes ``(step, N_RATES)``; see `machine_code`."""
    root: int
    """Where the library's function lies by which torch takes square roots; 0 where it takes the
    processor's."""

    @classmethod
    def of(cls, optimizer: int, first: Tensor, second: Tensor, rates: Floats) -> "RowUpdate":
        """Such an update on this machine, of tensors."""
        return cls(optimizer, first.numpy(), second.numpy(), rates, address(ROOT))


def place(kinds: Any, rooms: Any, places: Any, free: Any, n_free: int, n_places: int) -> Any:
    """Give each share a place in memory from its snapshot to its release, in place of its room.

    What is released becomes free behind all these operations, so that those before it need not
    have been carried out when another share is copied.

    Args:
        kinds: Of operations, in order.
        rooms: Of each; changed to places.
        places: Of the shares under way, by room.
        free: Places that are not in use, by number, of which the last is taken first.
        n_free: How many those are.
        n_places: How many places there are.

    Returns:
        The latter two afterwards.
    """
    for at in range(len(kinds)):
        room = rooms[at]
        if kinds[at] == SNAPSHOT:
            if n_free:
                n_free -= 1
                places[room] = free[n_free]
            else:
                places[room] = n_places
                n_places += 1
        rooms[at] = places[room]
    for at in range(len(kinds)):
        if kinds[at] == RELEASE:
            free[n_free] = rooms[at]
            n_free += 1
    return n_free, n_places
