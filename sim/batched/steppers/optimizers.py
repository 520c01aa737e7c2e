"""Optimizers on the rows of many workers at once, with the bits of torch's own."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim import optimizer as hooks

from ..batches import Ints
from ..compiled.interface import BY_ADAM, BY_ADAMW, BY_SGD, N_RATES, RowUpdate
from ..compiled.row_passes import take_steps

__all__ = ["StackedAdam", "StackedOptimizer", "StackedSGD", "stacked_optimizer"]

Parts = NDArray[np.float64]
"""Of a learning rate, axis ``step``."""


class StackedSGD:
    """torch's SGD on stacked vectors: the same operations on the same numbers in the same order.

    Args:
        settings: Of the optimizer's only group.
        x: All workers' vectors.
        in_passes: Whether machine code may pass over rows.
    """

    def __init__(self, settings: Mapping[str, Any], x: Tensor, *, in_passes: bool) -> None:
        self._lr: float = settings["lr"]
        self._momentum: float = settings["momentum"]
        self._dampening: float = settings["dampening"]
        self._decay: float = settings["weight_decay"]
        self._nesterov = bool(settings["nesterov"])
        self._x = x
        self._buffer = torch.zeros_like(x) if self._momentum else None
        self.in_passes = in_passes and not (self._dampening or self._nesterov)

    def keep(self, worker: int) -> Tensor | None:
        """A copy of a worker's momentum; None where there is none."""
        return None if self._buffer is None else self._buffer[worker].clone()

    def restore(self, worker: int, kept: object | None) -> None:
        """Give a worker the momentum that was kept, or none: its first step then makes it."""
        if self._buffer is not None:
            self._buffer[worker] = kept if isinstance(kept, Tensor) else 0.0

    def of(self, workers: Ints, steps: Ints, parts: Parts) -> RowUpdate:
        """How it updates the rows of some workers now; counts as a step of each.

        Args:
            workers: Who.
            steps: Which step of each, counted from 0.
            parts: Which part of the learning rate each uses.
        """
        rates = np.zeros((len(workers), N_RATES), np.float32)
        rates[:, 0] = self._lr * parts
        rates[:, 1:3] = self._momentum, self._decay
        rates[:, 3] = steps == 0
        kept = self._x if self._buffer is None else self._buffer
        return RowUpdate.of(BY_SGD, kept, kept, rates)

    def update(
        self, x: Tensor, gradients: Tensor, workers: Ints, steps: Ints, parts: Parts
    ) -> bool:
        """Take a step in the rows of some workers, in place.

        Args:
            x: All workers' vectors, axes ``(worker, number)``.
            gradients: Of those who take a step, axes ``(step, number)``; used up.
            workers: Who.
            steps: Which step of each, counted from 0.
            parts: Which part of the learning rate each uses.

        Returns:
            Whether all their values are finite after it.
        """
        if self.in_passes:
            return take_steps(x, gradients, workers, self.of(workers, steps, parts))
        chosen = torch.from_numpy(workers).to(x.device)
        values = x.index_select(0, chosen)
        gradients = self._slopes(values, gradients, chosen, steps)
        for part in np.unique(parts).tolist():
            if (parts == part).all():
                values.add_(gradients, alpha=-self._lr * part)
                continue
            at = torch.from_numpy(np.flatnonzero(parts == part)).to(x.device)
            moved = values.index_select(0, at).add_(gradients[at], alpha=-self._lr * part)
            values.index_copy_(0, at, moved)
        x.index_copy_(0, chosen, values)
        return bool(torch.isfinite(values.sum()))

    def _slopes(self, values: Tensor, gradients: Tensor, chosen: Tensor, steps: Ints) -> Tensor:
        """What the learning rate is applied to, of the workers that are *chosen*."""
        if self._decay:
            gradients = gradients.add(values, alpha=self._decay)
        if self._buffer is not None:
            buffer = self._buffer.index_select(0, chosen)
            buffer.mul_(self._momentum).add_(gradients, alpha=1 - self._dampening)
            fresh = torch.from_numpy(np.flatnonzero(steps == 0))
            if len(fresh):
                fresh = fresh.to(buffer.device)
                buffer[fresh] = gradients[fresh]
            self._buffer.index_copy_(0, chosen, buffer)
            if self._nesterov:
                gradients = gradients.add(buffer, alpha=self._momentum)
            else:
                gradients = buffer
        return gradients


class StackedAdam:
    """torch's Adam and AdamW on stacked vectors, in machine code; see `StackedSGD`.

    Args:
        decoupled: Whether decay shrinks values, as AdamW's does, or adds to slopes.
    """

    in_passes = True

    def __init__(self, settings: Mapping[str, Any], x: Tensor, *, decoupled: bool) -> None:
        self._lr: float = settings["lr"]
        self._betas: tuple[float, float] = settings["betas"]
        self._epsilon: float = settings["eps"]
        self._decay: float = settings["weight_decay"]
        self._is_decoupled = decoupled
        self._moments = torch.zeros_like(x), torch.zeros_like(x)
        self._taken = np.zeros(len(x), np.int64)

    def keep(self, worker: int) -> tuple[Tensor, Tensor, int]:
        """A copy of a worker's moments, and how many steps they are of."""
        first, second = (moment[worker].clone() for moment in self._moments)
        return first, second, int(self._taken[worker])

    def restore(self, worker: int, kept: object | None) -> None:
        """Give a worker the moments that were kept, or none."""
        first, second, taken = kept if isinstance(kept, tuple) else (0.0, 0.0, 0)
        self._moments[0][worker], self._moments[1][worker] = first, second
        self._taken[worker] = taken

    def of(self, workers: Ints, steps: Ints, parts: Parts) -> RowUpdate:
        """See `StackedSGD.of`."""
        self._taken[workers] += 1
        each = [*zip(self._taken[workers].tolist(), parts.tolist(), strict=True)]
        known = {pair: self._rates(*pair) for pair in set(each)}
        rates = np.array([known[pair] for pair in each], np.float32)
        kind = BY_ADAMW if self._is_decoupled else BY_ADAM
        return RowUpdate.of(kind, *self._moments, rates)

    def update(
        self, x: Tensor, gradients: Tensor, workers: Ints, steps: Ints, parts: Parts
    ) -> bool:
        """See `StackedSGD.update`."""
        return take_steps(x, gradients, workers, self.of(workers, steps, parts))

    def _rates(self, taken: int, part: float) -> tuple[float, ...]:
        """The numbers of a step, in Python's own floats as torch reckons them."""
        first, second = self._betas
        lr = self._lr * part
        size = lr / (1 - first**taken)
        root = (1 - second**taken) ** 0.5
        shrunk = 1 - lr * self._decay
        return size, root, 1 - first, 1 - second, second, self._epsilon, self._decay, shrunk


StackedOptimizer = StackedSGD | StackedAdam


def stacked_optimizer(
    optimizer: Optimizer, parameters: Sequence[Tensor], x: Tensor, *, in_passes: bool = False
) -> StackedOptimizer | None:
    """Take over a task's optimizer's settings; None where it is none that can be stacked.

    Args:
        parameters: All that are trained.
        x: All workers' vectors.
        in_passes: Whether machine code may pass over rows.
    """
    if len(optimizer.param_groups) != 1 or _has_hooks(optimizer):
        return None
    settings = optimizer.param_groups[0]
    if {*map(id, settings["params"])} != {*map(id, parameters)}:
        return None
    variants = ("amsgrad", "capturable", "differentiable", "foreach", "fused", "maximize")
    if any(settings.get(name) for name in variants) or not isinstance(settings["lr"], float):
        return None
    if type(optimizer) is SGD:
        return StackedSGD(settings, x, in_passes=in_passes)
    if type(optimizer) not in (Adam, AdamW) or not in_passes:
        return None
    numbers = (*settings["betas"], settings["eps"], settings["weight_decay"])
    if not all(isinstance(number, float | int) for number in numbers):
        return None
    # Older versions of torch have two classes, and no such setting.
    decoupled = settings.get("decoupled_weight_decay", type(optimizer) is AdamW)
    return StackedAdam(settings, x, decoupled=decoupled)


def _has_hooks(optimizer: Optimizer) -> bool:
    """Whether anything is to be called before or after its steps."""
    everybodys = hooks._global_optimizer_pre_hooks, hooks._global_optimizer_post_hooks
    own = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    return any((*everybodys, *own))
