"""Machine code that copies and mixes rows; imported only where some is to run.

It rounds as torch's ``lerp_`` does: by fused multiply-adds, from the nearer end.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numba
import numpy as np
from numba.extending import intrinsic
from numpy.typing import NDArray

from ..kernel.program import MIX, SNAPSHOT

__all__ = ["carry_out", "mix"]

Floats = NDArray[Any]
_Function = TypeVar("_Function", bound=Callable[..., None])


def _compiled(function: _Function) -> _Function:
    made: _Function = numba.njit(nogil=True, cache=True)(function)
    return made


@intrinsic
def _fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once; all three of one type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return a(a, a, a), generate


# The type of a float64 is kept, too.
_ONE: Final = np.float32(1.0)

# To a type checker, it still takes the context.
_fused: Any = _fma


# Loops over slices, whose places count from 0: only such loops fill whole registers.


@_compiled
def mix(own: Floats, share: Floats, fraction: Any) -> None:
    """Mix a share into a row; a fraction of 1 copies it."""
    if fraction == 1:
        own[:] = share
    elif fraction < 0.5:
        for k in range(len(own)):
            own[k] = _fused(fraction, share[k] - own[k], own[k])
    else:
        for k in range(len(own)):
            own[k] = _fused(fraction - _ONE, share[k] - own[k], share[k])


@_compiled
def carry_out(
    x: Floats,
    shares: Floats,
    rows: NDArray[np.int64],
    places: NDArray[np.int64],
    fractions: Floats,
    start: int,
    stop: int,
) -> None:
    """Carry out snapshots and mixes in order, from one column of *x* and *shares* to another."""
    for at in range(len(rows)):
        own, share = x[rows[at, 1], start:stop], shares[places[at], start:stop]
        if rows[at, 0] == SNAPSHOT:
            share[:] = own
        elif rows[at, 0] == MIX:
            mix(own, share, fractions[at])
