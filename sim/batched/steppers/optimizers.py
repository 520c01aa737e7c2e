"""Optimizers on the rows of many workers at once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim import optimizer as hooks

from ..batches import Ints

__all__ = [
    *("Chosen", "Rates", "Slopes", "StackedAdam", "StackedOptimizer", "StackedSGD"),
    *("put_rows", "stacked_optimizer", "take_rows"),
]

Chosen = slice | Ints
"""Workers: a range, or any."""

Rates = NDArray[np.float64]
"""Factors of a learning rate, axis ``worker``."""

Slopes = Iterable[tuple[slice, Tensor]]
"""Gradients of a vector's trained parts: position, and values with axes ``(worker, number)``."""


class StackedSGD:
    """torch's SGD with momentum, Nesterov's or plain, and weight decay; a `Memory`."""

    def __init__(self, settings: Mapping[str, Any], x: Tensor) -> None:
        self._lr: float = settings["lr"]
        self._momentum: float = settings["momentum"]
        self._decay: float = settings["weight_decay"]
        self._is_nesterov = bool(settings["nesterov"])
        # From zeros, the first step equals that of a buffer which starts as the gradient.
        self._buffer = torch.zeros_like(x) if self._momentum else None

    def update(self, values: Tensor, slopes: Slopes, chosen: Chosen, rates: Rates) -> None:
        """Take a step of some workers.

        Args:
            values: Their vectors, axes ``(worker, number)``; updated.
            slopes: Their gradients; overwritten.
            chosen: Which workers these are. A worker that is listed twice has equal rows.
            rates: Factor of each worker's learning rate.
        """
        buffers = None if self._buffer is None else take_rows(self._buffer, chosen)
        rate = _column(-self._lr * rates, values)
        for span, slope in slopes:
            if self._decay:
                slope.add_(values[:, span], alpha=self._decay)
            if buffers is not None:
                buffer = buffers[:, span]
                torch.add(slope, buffer, alpha=self._momentum, out=buffer)
                slope = slope.add_(buffer, alpha=self._momentum) if self._is_nesterov else buffer
            values[:, span].addcmul_(slope, rate)
        if self._buffer is not None and buffers is not None:
            put_rows(self._buffer, chosen, buffers)

    def keep(self, worker: int) -> Tensor | None:
        return None if self._buffer is None else self._buffer[worker].clone()

    def restore(self, worker: int, kept: object | None) -> None:
        if self._buffer is not None:
            self._buffer[worker] = kept if isinstance(kept, Tensor) else 0.0


class StackedAdam:
    """torch's Adam, and AdamW, whose decay is decoupled; a `Memory`."""

    def __init__(self, settings: Mapping[str, Any], x: Tensor, *, decoupled: bool) -> None:
        self._lr: float = settings["lr"]
        self._betas: tuple[float, float] = settings["betas"]
        self._epsilon: float = settings["eps"]
        self._decay: float = settings["weight_decay"]
        self._is_decoupled = decoupled
        self._mean, self._square = torch.zeros_like(x), torch.zeros_like(x)
        self._taken = np.zeros(len(x), np.int64)

    def update(self, values: Tensor, slopes: Slopes, chosen: Chosen, rates: Rates) -> None:
        """See `StackedSGD.update`."""
        self._taken[chosen] += 1
        taken, (first, second) = self._taken[chosen], self._betas
        shrink = _column(1 - self._lr * self._decay * rates, values)
        rate = _column(-self._lr * rates / (1 - first**taken), values)
        correction = _column(np.sqrt(1 - second**taken), values)
        means, squares = (take_rows(part, chosen) for part in (self._mean, self._square))
        for span, slope in slopes:
            own, mean, square = values[:, span], means[:, span], squares[:, span]
            if self._decay and self._is_decoupled:
                own.mul_(shrink)
            elif self._decay:
                slope.add_(own, alpha=self._decay)
            mean.lerp_(slope, 1 - first)
            square.mul_(second).addcmul_(slope, slope, value=1 - second)
            root = square.sqrt().div_(correction).add_(self._epsilon)
            own.addcmul_(torch.div(mean, root, out=root), rate)
        put_rows(self._mean, chosen, means)
        put_rows(self._square, chosen, squares)

    def keep(self, worker: int) -> tuple[Tensor, Tensor, int]:
        return self._mean[worker].clone(), self._square[worker].clone(), int(self._taken[worker])

    def restore(self, worker: int, kept: object | None) -> None:
        mean, square, taken = kept if isinstance(kept, tuple) else (0.0, 0.0, 0)
        self._mean[worker], self._square[worker], self._taken[worker] = mean, square, taken


StackedOptimizer = StackedSGD | StackedAdam


def stacked_optimizer(
    optimizer: Optimizer, parameters: Sequence[Tensor], x: Tensor
) -> StackedOptimizer | None:
    """Adopt the settings of a task's optimizer; None if it is of another kind."""
    of_all = hooks._global_optimizer_pre_hooks, hooks._global_optimizer_post_hooks
    own = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    if len(optimizer.param_groups) != 1 or any((*of_all, *own)):
        return None
    settings = optimizer.param_groups[0]
    if {*map(id, settings["params"])} != {*map(id, parameters)}:
        return None
    variants = "amsgrad capturable dampening differentiable foreach fused maximize".split()
    if any(settings.get(name) for name in variants):
        return None
    numbers = (settings.get(name, 0) for name in ("lr", "momentum", "weight_decay", "eps"))
    if not all(isinstance(n, float | int) for n in (*numbers, *settings.get("betas", ()))):
        return None
    if type(optimizer) is SGD:
        return StackedSGD(settings, x)
    if type(optimizer) not in (Adam, AdamW):
        return None
    # Older versions of torch have no such setting.
    decoupled = settings.get("decoupled_weight_decay", type(optimizer) is AdamW)
    return StackedAdam(settings, x, decoupled=decoupled)


def take_rows(rows: Tensor, chosen: Chosen) -> Tensor:
    """Return the rows of some workers: a view of a range, a copy of others."""
    if isinstance(chosen, slice):
        return rows[chosen]
    return rows.index_select(0, torch.from_numpy(chosen).to(rows.device))


def put_rows(rows: Tensor, chosen: Chosen, values: Tensor) -> None:
    """Write back a result of `take_rows`; on a CPU five times as fast as torch does it."""
    if isinstance(chosen, slice):
        return
    if rows.device.type == "cpu":
        rows.numpy()[chosen] = values.numpy()
    else:
        rows.index_copy_(0, torch.from_numpy(chosen).to(rows.device), values)


def _column(numbers: NDArray[np.float64], like: Tensor) -> Tensor:
    return torch.from_numpy(numbers).to(like.device, like.dtype)[:, None]
