"""Loops over rows for numba; imported only where that is installed.

They round as torch's kernels do: ``lerp_`` by fused multiply-adds from the nearer end, SGD's
momentum by two roundings and its step by one.
"""

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ...kernel.fast_path.tables import MIX, RELEASE, SNAPSHOT

__all__ = [
    "as_bits",
    "carry_out",
    "carry_out_plainly",
    "descend",
    "fused",
    "place",
    "take_steps",
]

Floats = NDArray[np.float32]

_HALF = np.float32(0.5)
_ONE = np.float32(1.0)
_ZERO = np.float32(0.0)
_EXPONENT = np.int32(0x7F800000)
_EXPONENT_STEP = np.int32(0x00800000)


@intrinsic
def _fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic
def _bits_of(typing_context: Any, number: Any) -> Any:
    """The bits of a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


# To a type checker, they still take the context.
fused: Any = _fma
as_bits: Any = _bits_of


@numba.njit(nogil=True, cache=True)
def place(
    rows: NDArray[np.int64],
    places: NDArray[np.int64],
    free: NDArray[np.int64],
    n_free: int,
    n_places: int,
) -> tuple[int, int]:
    """Give each share a place in memory from its snapshot to its release, in place of its room.

    Args:
        rows: Operations in order.
        places: Of the shares under way, by room.
        free: Places that are not in use, of which the last is taken first.
        n_free: How many those are.
        n_places: How many places there are.

    Returns:
        The latter two afterwards.
    """
    for at in range(len(rows)):
        kind, room = rows[at, 0], rows[at, 4]
        if kind == SNAPSHOT:
            if n_free:
                n_free -= 1
                places[room] = free[n_free]
            else:
                places[room] = n_places
                n_places += 1
        rows[at, 4] = places[room]
        if kind == RELEASE:
            free[n_free] = places[room]
            n_free += 1
    return n_free, n_places


# Loops over slices, whose places count from 0: only such loops fill whole registers.


@numba.njit(nogil=True, cache=True)
def carry_out(
    x: Floats,
    shares: Floats,
    rows: NDArray[np.int64],
    fractions: Floats,
    start: int,
    stop: int,
) -> None:
    """Copy rows out and mix shares in, in order, from one column to another."""
    for at in range(len(rows)):
        kind, worker, room = rows[at, 0], rows[at, 1], rows[at, 4]
        own, share = x[worker, start:stop], shares[room, start:stop]
        if kind == SNAPSHOT:
            _copy(own, share)
        elif kind == MIX:
            _mix(own, share, fractions[at])


@numba.njit(nogil=True, cache=True)
def _copy(source: Any, target: Any) -> None:
    for k in range(len(source)):
        target[k] = source[k]


@numba.njit(nogil=True, cache=True)
def _mix(own: Floats, share: Floats, part: np.float32) -> None:
    if part == _ONE:
        _copy(share, own)
    elif part < _HALF:
        for k in range(len(own)):
            own[k] = fused(part, share[k] - own[k], own[k])
    else:
        rest = part - _ONE
        for k in range(len(own)):
            own[k] = fused(rest, share[k] - own[k], share[k])


@numba.njit(nogil=True, cache=True)
def carry_out_plainly(
    x: NDArray[np.float64],
    shares: NDArray[np.float64],
    rows: NDArray[np.int64],
    fractions: NDArray[np.float64],
    start: int,
    stop: int,
) -> None:
    """As `carry_out`, with each operation rounded by itself, as numpy does."""
    for at in range(len(rows)):
        kind, worker, room = rows[at, 0], rows[at, 1], rows[at, 4]
        own, share = x[worker, start:stop], shares[room, start:stop]
        if kind == SNAPSHOT:
            _copy(own, share)
        elif kind == MIX:
            _mix_plainly(own, share, fractions[at])


@numba.njit(nogil=True, cache=True)
def _mix_plainly(
    own: NDArray[np.float64], share: NDArray[np.float64], part: np.float64
) -> None:
    if part == 1.0:
        _copy(share, own)
    else:
        for k in range(len(own)):
            own[k] += part * (share[k] - own[k])


@numba.njit(nogil=True, cache=True)
def take_steps(
    x: Floats,
    momenta: Floats,
    gradients: Floats,
    workers: NDArray[np.int64],
    steps: NDArray[np.int64],
    lr: np.float32,
    momentum: np.float32,
    decay: np.float32,
) -> bool:
    """Take a step of SGD in the rows of some workers; their first one makes their momentum.

    Returns:
        Whether all values are finite after it.
    """
    spoilt = False
    for at in range(len(workers)):
        row, kept = x[workers[at]], momenta[workers[at]]
        spoilt |= not descend(row, kept, gradients[at], steps[at] == 0, lr, momentum, decay)
    return not spoilt


@numba.njit(nogil=True, cache=True)
def descend(
    x: Floats,
    kept: Floats,
    gradient: Floats,
    first: bool,
    lr: np.float32,
    momentum: np.float32,
    decay: np.float32,
) -> bool:
    """Take a step of SGD in one row; the first one makes its momentum.

    Returns:
        Whether all values are finite after it.
    """
    exponents = numba.int32(0)
    for k in range(len(x)):
        slope = gradient[k]
        if decay != _ZERO:
            slope = fused(x[k], decay, slope)
        if momentum != _ZERO:
            if not first:
                slope = kept[k] * momentum + slope
            kept[k] = slope
        x[k] = fused(slope, -lr, x[k])
        # Where an exponent is all ones, this reaches the sign; integers add up in any order.
        exponents |= numba.int32((as_bits(x[k]) & _EXPONENT) + _EXPONENT_STEP)
    return bool(exponents >= 0)
