"""Operations of torch for a stack of workers: the first axis of each tensor counts workers.

Each is the form for all at once of an operation of one worker, with the same arguments. What a form
is not for it refuses by ``ValueError``, and another is taken; see `stacking`.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

from ..compiled.row_passes import alike

__all__ = [
    *("ALIKE", "BY_REGISTER", "LOSSES", "MOVES", "PRODUCTS", "REGISTER", "RULES"),
    *("aten", "number_by_number"),
]

aten: Final = torch.ops.aten

Rule = Callable[..., Any]

RULES: Final[dict[Any, list[Rule]]] = {}
"""By operation, the best first; where each worker has all of its tensors for itself."""


def _rule(*operations: Any) -> Callable[[Rule], Rule]:
    """Enter a function as the form of these operations for all at once."""

    def enter(function: Rule) -> Rule:
        for operation in operations:
            RULES.setdefault(operation, []).append(function)
        return function

    return enter


@_rule(aten.t.default)
def _t(x: Tensor) -> Tensor:
    """A matrix transposed."""
    return x if x.ndim < 3 else x.transpose(1, 2)


@_rule(aten.transpose.int)
def _transpose(x: Tensor, one: int, other: int) -> Tensor:
    """Two axes swapped."""
    return x.transpose(_after(x, one), _after(x, other))


@_rule(aten.permute.default)
def _permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Axes in another order."""
    return x.permute(0, *(_after(x, dim) for dim in dims))


@_rule(aten.view.default, aten._unsafe_view.default, aten.reshape.default)
def _view(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The same numbers in another shape."""
    return x.reshape(len(x), *shape)


@_rule(aten.unsqueeze.default)
def _unsqueeze(x: Tensor, dim: int) -> Tensor:
    """One more axis."""
    return x.unsqueeze(_after(x, dim))


@_rule(aten.expand.default)
def _expand(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Repeated along axes of length one."""
    missing = len(shape) - (x.ndim - 1)
    return x.view(len(x), *[1] * missing, *x.shape[1:]).expand(len(x), *shape)


_rule(aten.mm.default)(torch.bmm)


@_rule(aten.addmm.default)
def _addmm(added: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Products of matrices, and what is added to each row or number."""
    _see(added.ndim > 1)
    return torch.baddbmm(added.unsqueeze(1) if added.ndim == 2 else added, a, b)


@_rule(aten.bmm.default)
def _bmm(a: Tensor, b: Tensor) -> Tensor:
    """Products of stacks of matrices."""
    found = torch.bmm(a.flatten(0, 1), b.flatten(0, 1))
    return found.view(*a.shape[:2], *found.shape[1:])


@_rule(aten.sum.dim_IntList)
def _reduce_sum(x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    """Sums over some axes."""
    _see(bool(dims) and x.ndim > 1)  # of none means over all
    return x.sum([_after(x, dim) for dim in dims], keepdim)


@_rule(aten.mean.dim)
def _reduce_mean(x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    """Means over some axes."""
    _see(bool(dims) and x.ndim > 1)
    return x.mean([_after(x, dim) for dim in dims], keepdim)


@_rule(aten._log_softmax.default)
def _log_softmax_by_columns(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Logarithms of a softmax over few numbers."""
    _see(_fits_columns(x, dim))
    return _by_columns(aten._log_softmax, x, half_to_float=half_to_float)


@_rule(aten._log_softmax_backward_data.default)
def _log_softmax_backward_by_columns(
    slope: Tensor, logs: Tensor, dim: int, dtype: torch.dtype
) -> Tensor:
    """The slope by what went into that over few numbers."""
    _see(_fits_columns(logs, dim))
    return _by_columns(torch._log_softmax_backward_data, slope, logs, input_dtype=dtype)


def _softmax(operation: Rule) -> Rule:
    """A softmax or its logarithms, or the slope by what went in."""

    def softmax(*given: Any) -> Any:
        *tensors, dim, setting = given
        _see(tensors[-1].ndim > 1)
        return operation(*tensors, _after(tensors[-1], dim), setting)

    return softmax


for _operation in (
    *(aten._log_softmax.default, aten._log_softmax_backward_data.default),
    *(aten._softmax.default, aten._softmax_backward_data.default),
):
    _rule(_operation)(_softmax(_operation))


_MEAN: Final = 1


@_rule(aten.nll_loss_forward.default)
def _nll_loss(
    logs: Tensor, targets: Tensor, weight: None, reduction: int, ignored: int
) -> tuple[Tensor, Tensor]:
    """Mean negative logarithms at the targets, and how many there are.

    Sums are taken in another order than torch's, whose bits no model sees.
    """
    _see(logs.ndim == 3 and weight is None and reduction == _MEAN)
    counted = targets != ignored
    at = targets.where(counted, 0).unsqueeze(2)
    total = counted.sum(1, dtype=logs.dtype)
    return -logs.gather(2, at).squeeze(2).where(counted, 0).sum(1) / total, total


@_rule(aten.nll_loss_backward.default)
def _nll_loss_backward(
    slope: Tensor,
    logs: Tensor,
    targets: Tensor,
    weight: None,
    reduction: int,
    ignored: int,
    total: Tensor,
) -> Tensor:
    """The slope by the logarithms."""
    _see(logs.ndim == 3 and weight is None and reduction == _MEAN)
    counted = targets != ignored
    at = targets.where(counted, 0).unsqueeze(2)
    each = (-(slope / total)).unsqueeze(1).where(counted, 0)
    return torch.zeros_like(logs).scatter_(2, at, each.unsqueeze(2))


@_rule(aten.mse_loss.default)
def _mse_loss(outputs: Tensor, targets: Tensor, reduction: int = _MEAN) -> Tensor:
    """Mean squared errors."""
    _see(outputs.shape == targets.shape and reduction == _MEAN)
    return (outputs - targets).square_().flatten(1).mean(1)


@_rule(aten.mse_loss_backward.default)
def _mse_loss_backward(slope: Tensor, outputs: Tensor, targets: Tensor, reduction: int) -> Tensor:
    """The slope by the outputs."""
    _see(outputs.shape == targets.shape and reduction == _MEAN)
    each = (outputs - targets).mul_(2.0 / outputs[0].numel())
    return each.mul_(slope.view(-1, *[1] * (outputs.ndim - 1)))


@_rule(aten.embedding.default)
def _embedding(weight: Tensor, at: Tensor, *settings: Any) -> Tensor:
    """Rows of a table."""
    rows = weight.flatten(0, 1).index_select(0, _rows_of_all(at, weight.shape[1]).flatten())
    return rows.view(*at.shape, weight.shape[2])


@_rule(aten.embedding_dense_backward.default)
def _embedding_backward(
    slope: Tensor, at: Tensor, n_rows: int, padding: int, scaled: bool
) -> Tensor:
    """The slope by the table."""
    _see(padding < 0 and not scaled)
    n = len(at) * n_rows
    rows = slope.reshape(-1, slope.shape[-1])
    found: Tensor = aten.embedding_dense_backward(
        rows, _rows_of_all(at, n_rows).flatten(), n, -1, False
    )
    return found.view(len(at), n_rows, -1)


@_rule(aten.max_pool2d_with_indices.default)
def _max_pool2d(x: Tensor, *settings: Any) -> tuple[Tensor, Tensor]:
    """Maxima of windows, and where they lie."""
    _see(x.ndim == 5)
    outputs, at = aten.max_pool2d_with_indices(x.flatten(0, 1), *settings)
    return outputs.unflatten(0, x.shape[:2]), at.unflatten(0, x.shape[:2])


@_rule(aten.max_pool2d_with_indices_backward.default)
def _max_pool2d_backward(slope: Tensor, x: Tensor, *settings: Any) -> Tensor:
    """The slope by what went in."""
    _see(x.ndim == 5)
    *rest, at = settings
    flat = slope.flatten(0, 1), x.flatten(0, 1), *rest, at.flatten(0, 1)
    found: Tensor = aten.max_pool2d_with_indices_backward(*flat)
    return found.view_as(x)


# Rows of fewer float32 fill no register of the widest kind, and torch takes them one by one.
_FEW: Final = 16

REGISTER: Final = 64
"""Numbers in the registers that a kernel fills at once, or a multiple of it."""


def _by_columns(operation: Rule, *given: Tensor, **settings: Any) -> Tensor:
    """An operation on each row of few numbers, on many rows side by side in registers."""
    shape = given[0].shape
    n_rows = shape[:-1].numel()
    columns = []
    for x in given:
        # What fills no register would be rounded otherwise.
        wide = x.new_zeros(shape[-1], -(-n_rows // REGISTER) * REGISTER)
        wide[:, :n_rows] = x.reshape(n_rows, -1).t()
        columns.append(wide)
    found: Tensor = operation(*columns, dim=0, **settings)
    # Not a view, as products round by how their matrices lie in memory.
    return found[:, :n_rows].t().contiguous().view(shape)


def _fits_columns(x: Tensor, dim: int) -> bool:
    """Whether a softmax over that axis of one worker's *x* rounds alike `_by_columns`."""
    is_known = x.device.type == "cpu" and x.dtype == torch.float32 and x.ndim > 1
    return (
        is_known and dim in (-1, x.ndim - 2) and x.shape[-1] < _FEW and _rounds_alike(x.shape[-1])
    )


@cache
def _rounds_alike(n: int) -> bool:
    """Whether torch adds up a softmax over *n* numbers in the same order either way."""
    drawn = torch.Generator().manual_seed(0)
    # Numbers that are as good as certain and as good as impossible, too.
    x = torch.randn(4, REGISTER, n, generator=drawn, dtype=torch.float32, device="cpu")
    x *= torch.tensor([0.1, 2.0, 10.0, 100.0], dtype=torch.float32, device="cpu").view(-1, 1, 1)
    logs, slope = (
        x.log_softmax(2),
        torch.randn(x.shape, generator=drawn, dtype=torch.float32, device="cpu"),
    )
    backward = torch._log_softmax_backward_data
    return alike(_by_columns(aten._log_softmax, x, half_to_float=False), logs) and alike(
        _by_columns(backward, slope, logs, input_dtype=x.dtype), backward(slope, logs, 2, x.dtype)
    )


ALIKE: Final = {
    *(aten.relu.default, aten.relu_.default, aten.threshold_backward.default),
    *(aten.add_.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor),
    *(aten.neg.default, aten.abs.default, aten.sqrt.default, aten.where.self),
    *(aten.ones_like.default, aten.zeros_like.default, aten.clone.default),
}
"""Operations on each number by itself that all kernels round alike."""

BY_REGISTER: Final = {
    *(aten.gelu.default, aten.gelu_backward.default, aten.silu.default, aten.silu_backward.default),
    *(aten.tanh.default, aten.tanh_backward.default, aten.pow.Tensor_Scalar, aten.rsqrt.default),
    *(aten.sigmoid.default, aten.sigmoid_backward.default, aten.exp.default, aten.log.default),
}
"""Those of which kernels compute the last numbers, which fill no register, otherwise."""

MOVES: Final = {
    *(aten.t.default, aten.transpose.int, aten.permute.default, aten.unsqueeze.default),
    *(aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.expand.default),
}
"""Those that compute nothing."""

PRODUCTS: Final = {aten.mm.default, aten.addmm.default, aten.bmm.default}
"""Those that round by where their matrices lie in memory."""

LOSSES: Final = {aten.nll_loss_forward.default, aten.mse_loss.default}
"""Those of which what comes out first is a mean, which is added up otherwise for all at once."""


def number_by_number(operation: Rule, which: Sequence[bool], *given: Any, **settings: Any) -> Any:
    """An operation on tensors of different ranks, whose axes are matched from the last on.

    Args:
        operation: Of one worker.
        which: Whether an argument is each worker's own, with an axis of workers.
        given: Arguments.
        settings: What else there is.
    """
    rank = max(x.ndim - own for own, x in zip(which, given, strict=True) if isinstance(x, Tensor))
    aligned = (
        x.view(len(x), *[1] * (rank - x.ndim + 1), *x.shape[1:]) if own else x
        for own, x in zip(which, given, strict=True)
    )
    return operation(*aligned, **settings)


def _after(x: Tensor, dim: int) -> int:
    """An axis of one worker's tensor among those of all."""
    return dim + 1 if dim >= 0 else dim


def _rows_of_all(at: Tensor, n_rows: int) -> Tensor:
    """Rows of each worker's table, counted through all tables.

    Raises:
        IndexError: There is no such row, which would be another worker's.
    """
    if at.device.type == "cpu" and at.numel() and not 0 <= int(at.min()) <= int(at.max()) < n_rows:
        raise IndexError("index out of range in self")
    first = torch.arange(len(at), device=at.device) * n_rows
    return at + first.view(-1, *[1] * (at.ndim - 1))


def _see(is_of_that_kind: bool) -> None:
    """Refuse what a form is not for; then another is taken."""
    if not is_of_that_kind:
        raise ValueError
