"""Loops over rows for numba; imported only where that is installed.

They round as torch's kernels do: ``lerp_`` by fused multiply-adds from the nearer end, SGD's
momentum by two roundings and its step by one, Adam's moments likewise.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ...kernel.fast_path.compiler import version_of
from .interface import BY_ADAMW, BY_SGD, RowUpdate

__all__ = [
    *("adapt", "descend", "fused", "kept", "take_steps", "update_row"),
]

Floats = NDArray[np.float32]
_Function = TypeVar("_Function", bound=Callable[..., Any])

_VERSION: Final = version_of(Path(__file__).parent)


def kept(function: _Function) -> _Function:
    """Compile a function, and keep it on disk until a file of this folder changes.

    numba looks at the file of the function alone, though it takes in those that are called.
    """
    function.__qualname__ = f"{function.__qualname__}_{_VERSION}"
    compiled: Any = numba.njit(nogil=True, cache=True)(function)
    return cast("_Function", compiled)


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
def _roots_of(typing_context: Any, function: Any, n: Any, source: Any, target: Any) -> Any:
    """Call ``vmsSqrt`` of MKL: where it lies, how many numbers, from where and to where."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function, *given = arguments
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 4).as_pointer()
        accuracy = ir.Constant(ir.IntType(64), _ACCURACY)
        builder.call(builder.inttoptr(function, kind), [*given, accuracy])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


# High accuracy, small numbers as they are, errors passed over: as torch asks for.
_ACCURACY: Final = 0x2 | 0x140000 | 0x100

# To a type checker, they still take the context.
_take_roots: Any = _roots_of
fused: Any = _fma


@kept
def take_steps(x: Floats, gradients: Floats, workers: NDArray[np.int64], update: RowUpdate) -> bool:
    """See `row_passes.take_steps`."""
    spoilt, room = False, np.empty(x.shape[1], np.float32)
    for at in range(len(workers)):
        worker = workers[at]
        spoilt |= not update_row(update, x[worker], gradients[at], worker, at, room)
    return not spoilt


@kept
def update_row(
    update: RowUpdate, x: Floats, gradient: Floats, worker: int, at: int, room: Floats
) -> bool:
    """Take a worker's step, the one *at* that place; returns whether its values are finite then."""
    first, rates = update.first[worker], update.rates[at]
    if update.optimizer == BY_SGD:
        return descend(x, first, gradient, rates)
    second, decoupled = update.second[worker], update.optimizer == BY_ADAMW
    return adapt(x, first, second, gradient, rates, decoupled, update.root, room)


@kept
def descend(x: Floats, kept: Floats, gradient: Floats, rates: Floats) -> bool:
    """SGD: *rates* are the learning rate, momentum, decay, and 1 where a step is the first."""
    lr, momentum, decay, is_first = rates[0], rates[1], rates[2], rates[3] > _ZERO
    exponents = numba.int32(0)
    for k in range(len(x)):
        slope = gradient[k]
        if decay != _ZERO:
            slope = fused(x[k], decay, slope)
        if momentum != _ZERO:
            if not is_first:
                slope = kept[k] * momentum + slope
            kept[k] = slope
        x[k] = fused(slope, -lr, x[k])
        exponents |= _exponent(x[k])
    return bool(exponents >= 0)


@kept
def adapt(
    x: Floats,
    mean: Floats,
    square: Floats,
    gradient: Floats,
    rates: Floats,
    decoupled: bool,
    root: int,
    room: Floats,
) -> bool:
    """Adam: *rates* are the step's size, the root of the second moment's correction, parts of the
    first and of the second moment that are new, the part of the second that stays, epsilon, decay,
    and by what AdamW (*decoupled*) shrinks values.
    """
    size, corrected, new_mean, new_square, old_square, epsilon, decay, shrunk = (
        rates[0], rates[1], rates[2], rates[3], rates[4], rates[5], rates[6], rates[7]
    )  # fmt: skip
    rest_mean = new_mean - _ONE
    for k in range(len(x)):
        slope = gradient[k]
        if decay != _ZERO:
            if decoupled:
                x[k] *= shrunk
            else:
                slope = fused(x[k], decay, slope)
        if new_mean < _HALF:
            mean[k] = fused(new_mean, slope - mean[k], mean[k])
        else:
            mean[k] = fused(rest_mean, slope - mean[k], slope)
        square[k] = fused(new_square * slope, slope, square[k] * old_square)
    if root:
        _take_roots(root, len(x), square.ctypes.data, room.ctypes.data)
    else:
        for k in range(len(x)):
            room[k] = np.sqrt(square[k])
    exponents = numba.int32(0)
    for k in range(len(x)):
        x[k] += (-size * mean[k]) / (room[k] / corrected + epsilon)
        exponents |= _exponent(x[k])
    return bool(exponents >= 0)


@numba.njit(inline="always")
def _exponent(number: Any) -> Any:
    """An integer that is negative where a float is not finite; such may be joined by bits."""
    return numba.int32((np.float32(number).view(np.int32) & _EXPONENT) + _EXPONENT_STEP)
