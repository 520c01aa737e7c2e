"""Machine code that copies and mixes rows; imported only when it is to run.

It rounds as torch's ``lerp_`` does: by fused multiply-adds, from the nearer end.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from numba.extending import intrinsic
from numpy.typing import NDArray

from ..kernel.program import MIX, RELEASE, SNAPSHOT

__all__ = ["carry_out", "find_places", "mix"]

Floats = NDArray[Any]
Ints = NDArray[np.int64]

_RELEASED: Final = -2  # in place of a slot's place, as in `WholeShares`
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _compiled(function: _Function) -> _Function:
    made: Any = numba.njit(nogil=True, cache=True)(function)
    return cast("_Function", made)


@intrinsic
def _fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once; all three of one type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return a(a, a, a), generate


# The type of a float64 is kept too.
_ONE: Final = np.float32(1.0)

# To a type checker, it still takes the context.
_fused: Any = _fma


# Loops over slices, which count from 0: only such loops fill whole registers.


@_compiled
def _copy(source: Floats, target: Floats) -> None:
    for k in range(len(source)):
        target[k] = source[k]


@_compiled
def mix(own: Floats, share: Floats, fraction: Any) -> None:
    """Mix a share into a row; a fraction of 1 copies it."""
    if fraction == 1:
        _copy(share, own)
    elif fraction < 0.5:
        for k in range(len(own)):
            own[k] = _fused(fraction, share[k] - own[k], own[k])
    else:
        rest = fraction - _ONE
        for k in range(len(own)):
            own[k] = _fused(rest, share[k] - own[k], share[k])


@_compiled
def find_places(
    rows: Ints, first_slot: int, places: Ints, free: Ints, n_free: int, n_places: int
) -> tuple[int, int]:
    """Replace the slots of operations by the places of their shares.

    Args:
        rows: Operations of a `Level`; their slots are replaced.
        places: Place of each slot from the first on; updated.
        free: Free places, of which the last is taken first; updated.
        n_places: Number of all places.
    """
    for at in range(len(rows)):
        kind, slot = rows[at, 0], rows[at, 3] - first_slot
        if kind > RELEASE:
            continue
        if kind == SNAPSHOT:
            if n_free:
                n_free -= 1
                places[slot] = free[n_free]
            else:
                places[slot] = n_places
                n_places += 1
        rows[at, 3] = places[slot]
        if kind == RELEASE:
            free[n_free] = places[slot]
            n_free += 1
            places[slot] = _RELEASED
    return n_free, n_places


@_compiled
def carry_out(
    x: Floats, shares: Floats, rows: Ints, fractions: Floats, start: int, stop: int
) -> None:
    """Execute snapshots and mixes in order, from one column of *x* and *shares* to another."""
    for at in range(len(rows)):
        if rows[at, 0] > MIX:
            continue
        own, share = x[rows[at, 1], start:stop], shares[rows[at, 3], start:stop]
        if rows[at, 0] == SNAPSHOT:
            _copy(own, share)
        else:
            mix(own, share, fractions[at])
