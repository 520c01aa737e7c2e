"""A whole step of a fully connected network in machine code; imported only where numba is.

Products are torch's own: the very function of the BLAS library that came with it. The rest rounds
as torch's kernels do: softmax by SLEEF's exponential and logarithm, and sums in the order of a
vector register's lanes.
"""

from typing import Any, Final

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .interface import (
    BY_INPUT,
    BY_WEIGHT,
    CALL_BYTES,
    FACTORS,
    FORWARD,
    SIZES,
    STRIDES,
    TRANSPOSED,
    Network,
    RowUpdate,
)
from .machine_code import Floats, fused, kept, update_row

__all__ = ["cross_entropy", "squared_error", "sum_rows", "take_steps"]

_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)
_TWO = np.float32(2.0)


@intrinsic
def _sgemm_of(typing_context: Any, function: Any, call: Any, a: Any, b: Any, c: Any) -> Any:
    """Call ``sgemm`` of BLAS: where it lies, a block of a call, and where the matrices lie."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function, call, a, b, c = arguments
        kind = ir.FunctionType(ir.VoidType(), [_WORD] * 13).as_pointer()

        def place(offset: int) -> Any:
            return builder.add(call, ir.Constant(_WORD, offset))

        named, sizes, strides, factors = TRANSPOSED, SIZES, STRIDES, FACTORS
        builder.call(
            builder.inttoptr(function, kind),
            [
                *map(place, (*named, *sizes, factors[0])),
                *(a, place(strides[0]), b, place(strides[1])),
                *(place(factors[1]), c, place(strides[2])),
            ],
        )
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


_WORD = ir.IntType(64)

# To a type checker, it still takes the context.
_sgemm: Any = _sgemm_of


# Rows that are gone through side by side, so that a number of each fills a register.
_ROWS: Final = 16

_LOG2_E = np.float32(1.4426950408889634)
_LN2 = np.float32(0.693145751953125), np.float32(1.428606765330187e-06)
_EXP = tuple(
    np.float32(c)
    for c in (1.98527617612853646e-4, 1.39304355252534151e-3, 8.33336077630519867e-3,
              4.16664853692054749e-2, 0.166666671633720398, 0.5)
)  # fmt: skip
_EXP_MIN = np.float32(-104.0)


@numba.njit(inline="always")
def _exp(x: Any) -> Any:
    """SLEEF's ``expf`` of a number that is not positive.

    Source: Shibata and Petrogalli, IEEE Transactions on Parallel and Distributed Systems 31, 2020.
    """
    n = np.rint(x * _LOG2_E)
    rest = fused(n, -_LN2[1], fused(n, -_LN2[0], x))
    u = _EXP[0]
    for c in _EXP[1:]:
        u = fused(u, rest, c)
    u = _ONE + fused(rest * rest, u, rest)
    power = numba.int32(n)
    half = power >> 1
    u *= np.int32((half + 127) << 23).view(np.float32)
    u *= np.int32((power - half + 127) << 23).view(np.float32)
    return _ZERO if x < _EXP_MIN else u


_LN2_FLOAT = np.float32(0.69314718246459960938), np.float32(-1.904654323148236017e-09)
_LOG = np.float32(0.3027294874), np.float32(0.3996108174), np.float32(0.666669488)
_FOUR_THIRDS = np.float32(1.0 / 0.75)


@numba.njit(inline="always")
def _log(x: Any) -> Any:
    """SLEEF's ``logf`` of a number of at least 1, in pairs of numbers that are summed at the end.

    Source: as for `_exp`.
    """
    power = ((np.float32(x * _FOUR_THIRDS).view(np.int32) >> 23) & 255) - 127
    m = np.int32(np.float32(x).view(np.int32) - np.int32(power << 23)).view(np.float32)
    n = np.float32(power)
    high = _LN2_FLOAT[0] * n
    low = fused(_LN2_FLOAT[1], n, fused(_LN2_FLOAT[0], n, -high))
    # q = (m - 1) / (m + 1)
    above, below = m - _ONE, m + _ONE
    part_above = above + _ONE
    above_low = (-_ONE - (above - part_above)) + (m - part_above)
    part_below = below - _ONE
    below_low = (_ONE - (below - part_below)) + (m - part_below)
    inverse = _ONE / below
    q = above * inverse
    off = fused(-below_low, inverse, fused(-below, inverse, _ONE))
    q_low = fused(q, off, fused(above_low, inverse, fused(inverse, above, -q)))
    square = q * q
    series = square * q * fused(fused(_LOG[0], square, _LOG[1]), square, _LOG[2])
    total = high + q * _TWO
    total_low = ((high - total) + q * _TWO) + low + q_low * _TWO
    whole = total + series
    return whole + (((total - whole) + series) + total_low)


@numba.njit(inline="always")
def _sum_by_lanes(parts: Floats, n: int, lanes: int) -> None:
    """Leave the sums of columns in the first row, added up as torch does within a register."""
    if n < lanes:
        for k in range(1, n):
            for j in range(_ROWS):
                parts[0, j] += parts[k, j]
        return
    for k in range(lanes, n):
        for j in range(_ROWS):
            parts[k % lanes, j] += parts[k, j]
    half = lanes // 2
    while half > 0:
        for k in range(half):
            for j in range(_ROWS):
                parts[k, j] += parts[k + half, j]
        half //= 2


@kept
def cross_entropy(
    outputs: Floats,
    targets: NDArray[np.int64],
    slopes: Floats,
    losses: Floats,
    part: np.float32,
    lanes: int,
) -> None:
    """The slope of the mean cross-entropy by the outputs, and that mean.

    Args:
        outputs: Axes ``(worker * batch, class)``.
        targets: Axis ``worker * batch``.
        slopes: As outputs; written.
        losses: Zeros, axis ``worker``; written.
        part: 1 over the size of a batch.
        lanes: Numbers in one of torch's registers.
    """
    n_rows, n = outputs.shape
    batch = n_rows // len(losses)
    logs, parts = np.empty((n, _ROWS), np.float32), np.empty((n, _ROWS), np.float32)
    most = np.empty(_ROWS, np.float32)
    for first in range(0, n_rows, _ROWS):
        n_here = min(_ROWS, n_rows - first)
        for j in range(_ROWS):
            # The last ones once more, where there are fewer.
            row = first + min(j, n_here - 1)
            for k in range(n):
                logs[k, j] = outputs[row, k]
        for j in range(_ROWS):
            most[j] = logs[0, j]
        for k in range(1, n):
            for j in range(_ROWS):
                most[j] = max(most[j], logs[k, j])
        for k in range(n):
            for j in range(_ROWS):
                logs[k, j] -= most[j]
                parts[k, j] = _exp(logs[k, j])
        _sum_by_lanes(parts, n, lanes)
        for j in range(_ROWS):
            most[j] = _log(parts[0, j])
        for k in range(n):
            for j in range(_ROWS):
                logs[k, j] -= most[j]
                parts[k, j] = _exp(logs[k, j])
        for j in range(n_here):
            row = first + j
            target = targets[row]
            losses[row // batch] -= logs[target, j]
            for k in range(n):
                slopes[row, k] = parts[k, j] * part
            slopes[row, target] = fused(parts[target, j], part, -part)
    for worker in range(len(losses)):
        # Summed up first: what is too large then fails here as it does in torch.
        losses[worker] *= part


@kept
def squared_error(
    outputs: Floats, targets: Floats, slopes: Floats, losses: Floats, part: np.float32
) -> None:
    """The slope of the mean squared error by the outputs, and that mean.

    Args:
        outputs: Axes ``(batch, output)``.
        targets: Likewise.
        slopes: Likewise; written.
        losses: A zero, axis of one; written.
        part: 2 over the number of outputs.
    """
    for row in range(outputs.shape[0]):
        for k in range(outputs.shape[1]):
            off = outputs[row, k] - targets[row, k]
            slopes[row, k] = off * part
            losses[0] += off * off
    losses[0] *= part / _TWO


# torch adds up so many columns side by side in runs of so many rows, and runs of runs.
_COLUMNS: Final = 32
_RUN: Final = 16
_LEVELS: Final = 4


@kept
def sum_rows(slopes: Floats, sums: Floats, lanes: int) -> None:
    """Sum rows in torch's order, which for a single column is one of whole registers first.

    Args:
        slopes: Axes ``(batch, number)``.
        sums: Axis ``number``; written.
        lanes: Numbers in one of the registers that it uses for a single column.
    """
    batch, n = slopes.shape
    whole = batch // lanes
    if n > 1 or whole == 0:
        _sum_columns(slopes, sums)
        return
    parts = np.empty(lanes, np.float32)
    _sum_columns(slopes[: whole * lanes].reshape(whole, lanes), parts)
    total = _ZERO
    for k in range(whole * lanes, batch):
        total += slopes[k, 0]
    for k in range(lanes):
        total += parts[k]
    sums[0] = total


@kept
def _sum_columns(slopes: Floats, sums: Floats) -> None:
    """Sum over rows, in torch's order.

    Args:
        slopes: Axes ``(batch, number)``.
        sums: Axis ``number``; written.
    """
    batch, n = slopes.shape
    parts = np.empty((_LEVELS, n), np.float32)
    wide = n // _COLUMNS * _COLUMNS
    if wide:
        _sum_run(slopes, 0, wide, 0, 1, batch, parts)
        for k in range(wide):
            sums[k] = parts[0, k]
    if wide == n:
        return
    # Every fourth row, and what is left over with the first of them.
    each = batch // 4
    for start in range(4):
        _sum_run(slopes, wide, n, start, 4, each, parts)
        if start == 0:
            for row in range(4 * each, batch):
                for k in range(wide, n):
                    parts[0, k] += slopes[row, k]
            for k in range(wide, n):
                sums[k] = parts[0, k]
        else:
            for k in range(wide, n):
                sums[k] += parts[0, k]


@kept
def _sum_run(
    slopes: Floats, first: int, stop: int, start: int, every: int, n: int, parts: Floats
) -> None:
    """Sum some columns of rows, every so many of them, into the first of their *parts*."""
    for level in range(_LEVELS):
        for k in range(first, stop):
            parts[level, k] = _ZERO
    for at in range(n):
        for k in range(first, stop):
            parts[0, k] += slopes[start + at * every, k]
        done, level = at + 1, 1
        while level < _LEVELS and done % _RUN == 0:
            for k in range(first, stop):
                parts[level, k] += parts[level - 1, k]
                parts[level - 1, k] = _ZERO
            done //= _RUN
            level += 1
    for level in range(1, _LEVELS):
        for k in range(first, stop):
            parts[0, k] += parts[level, k]


@kept
def _repeat(source: Floats, target: Floats) -> None:
    """Fill a vector with copies of a shorter one."""
    n = len(source)
    rows = target.reshape(len(target) // n, n)
    for row in range(len(rows)):
        for k in range(n):
            rows[row, k] = source[k]


@kept
def _rectify(values: Floats) -> None:
    """ReLU, in place; what is no number stays none."""
    for k in range(len(values)):
        values[k] = _ZERO if values[k] < _ZERO else values[k]


@kept
def _block(values: Floats, slopes: Floats) -> None:
    """The slope of ReLU, in place: 0 where it gave 0."""
    for k in range(len(values)):
        slopes[k] = _ZERO if values[k] <= _ZERO else slopes[k]


@kept
def take_steps(
    x: Floats,
    workers: NDArray[np.int64],
    update: RowUpdate,
    inputs: Floats,
    classes: NDArray[np.int64],
    targets: Floats,
    samples: NDArray[np.int32],
    losses: Floats,
    network: Network,
) -> bool:
    """Take a step in the rows of some workers, from their samples to their new values.

    Args:
        x: All workers' vectors, axes ``(worker, number)``.
        inputs: All samples, axes ``(sample, feature)``.
        classes: Of these; none where errors are squared.
        targets: Likewise, axes ``(sample, output)``; none where there are classes.
        samples: Which ones, axes ``(step, batch)``.
        losses: Zeros, axis ``step``; the mean loss of each step is written there.
        network: Its places are written.

    Returns:
        Whether all values are finite after it.
    """
    batch, n_features = samples.shape[1], inputs.shape[1]
    taken = network.scratch[: batch * n_features].reshape(batch, n_features)
    chosen, room = np.empty(batch, np.int64), np.empty(x.shape[1], np.float32)
    wanted = np.empty((batch, targets.shape[1]), np.float32)
    spoilt = False
    for at in range(len(workers)):
        for b in range(batch):
            sample = samples[at, b]
            if network.squared:
                for k in range(targets.shape[1]):
                    wanted[b, k] = targets[sample, k]
            else:
                chosen[b] = classes[sample]
            for k in range(n_features):
                taken[b, k] = inputs[sample, k]
        row = x[workers[at]]
        _go_forward(network, row, batch)
        _go_back(network, row, chosen, wanted, losses[at : at + 1])
        spoilt |= not update_row(update, row, network.gradient, workers[at], at, room)
    return not spoilt


@kept
def _go_forward(network: Network, row: Floats, batch: int) -> None:
    """From the batch to what each layer makes of it."""
    scratch, n_layers = network.scratch, len(network.layers)
    values_at, room_at = row.ctypes.data, scratch.ctypes.data
    for index in range(n_layers):
        weight, bias, _, n_out, before, after = network.layers[index]
        outputs = scratch[after : after + batch * n_out]
        _repeat(row[bias : bias + n_out], outputs)
        call = network.calls.ctypes.data + CALL_BYTES * (3 * index + FORWARD)
        places = values_at + 4 * weight, room_at + 4 * before, room_at + 4 * after
        _sgemm(network.sgemm, call, places[0], places[1], places[2])
        if index + 1 < n_layers:
            _rectify(outputs)


@kept
def _go_back(
    network: Network, row: Floats, classes: NDArray[np.int64], targets: Floats, losses: Floats
) -> None:
    """From what is wanted of a batch to its loss and the gradient."""
    scratch, gradient, batch = network.scratch, network.gradient, len(classes)
    slope, other = network.slopes
    values_at, room_at = row.ctypes.data, scratch.ctypes.data
    gradient_at, calls_at = gradient.ctypes.data, network.calls.ctypes.data
    for index in range(len(network.layers) - 1, -1, -1):
        weight, bias, n_in, n_out, before, after = network.layers[index]
        slopes = scratch[slope : slope + batch * n_out].reshape(batch, n_out)
        if index + 1 == len(network.layers):
            outputs = scratch[after : after + batch * n_out].reshape(batch, n_out)
            if network.squared:
                squared_error(outputs, targets, slopes, losses, network.part)
            else:
                cross_entropy(outputs, classes, slopes, losses, network.part, network.lanes)
        call = calls_at + CALL_BYTES * (3 * index + BY_WEIGHT)
        slope_at, weights_at = room_at + 4 * slope, gradient_at + 4 * weight
        _sgemm(network.sgemm, call, room_at + 4 * before, slope_at, weights_at)
        sum_rows(slopes, gradient[bias : bias + n_out], network.sum_lanes)
        if index:
            call = calls_at + CALL_BYTES * (3 * index + BY_INPUT)
            _sgemm(network.sgemm, call, values_at + 4 * weight, slope_at, room_at + 4 * other)
            _block(scratch[before : before + batch * n_in], scratch[other:])
            slope, other = other, slope
