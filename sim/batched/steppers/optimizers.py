"""Optimizers on the rows of many workers at once, with the bits of torch's own."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from ..batches import Ints
from ..compiled.dense import DenseStep
from ..compiled.row_passes import take_steps
from ..parameters import ParameterMatrix, view_of
from .loop import Replica

__all__ = ["OneByOne", "RowOptimizer", "StackedSGD", "stacked_optimizer"]


class RowOptimizer(Protocol):
    """Takes the steps of many workers, and remembers what each needs for its next one."""

    def keep(self, worker: int) -> object:
        """A copy of what is remembered of a worker."""

    def restore(self, worker: int, kept: object | None) -> None:
        """Remember of a worker what was kept; nothing where that is None."""

    def update(self, x: Tensor, gradients: Tensor, workers: Ints, steps: Ints) -> bool:
        """Take a step in the rows of some workers, in place.

        Args:
            x: All workers' vectors, axes ``(worker, number)``.
            gradients: Of those who take a step, axes ``(step, number)``; used up.
            workers: Who.
            steps: Which step of each, counted from 0.

        Returns:
            Whether all their values are finite after it.
        """


def stacked_optimizer(
    optimizer: Optimizer, x: Tensor, *, in_passes: bool = False
) -> "StackedSGD | None":
    """Take over an optimizer's settings; None where it is none that can be stacked.

    Args:
        optimizer: A task's own.
        x: All workers' vectors.
        in_passes: Whether machine code may pass over rows.
    """
    groups = optimizer.param_groups
    plain = type(optimizer) is SGD and len(groups) == 1 and not groups[0]["maximize"]
    if not plain or any(groups[0][name] for name in ("foreach", "fused", "differentiable")):
        return None
    if not isinstance(groups[0]["lr"], float):
        return None
    return StackedSGD(groups[0], x, in_passes=in_passes)


class StackedSGD:
    """torch's SGD on stacked vectors: the same operations on the same numbers in the same order.

    Args:
        settings: Of the optimizer's only group.
        x: All workers' vectors.
        in_passes: Whether machine code may pass over rows.
    """

    def __init__(self, settings: dict[str, float], x: Tensor, *, in_passes: bool) -> None:
        self._lr = settings["lr"]
        self._momentum = settings["momentum"]
        self._dampening = settings["dampening"]
        self._decay = settings["weight_decay"]
        self._nesterov = bool(settings["nesterov"])
        self._buffer = torch.zeros_like(x) if self._momentum else None
        self.in_passes = in_passes and not (self._dampening or self._nesterov)
        """Whether machine code takes the steps."""

    def keep(self, worker: int) -> Tensor | None:
        """A copy of a worker's momentum; None where there is none."""
        return None if self._buffer is None else self._buffer[worker].clone()

    def restore(self, worker: int, kept: object | None) -> None:
        """Give a worker the momentum that was kept, or none: its first step then makes it."""
        if self._buffer is not None:
            self._buffer[worker] = kept if isinstance(kept, Tensor) else 0.0

    def update(self, x: Tensor, gradients: Tensor, workers: Ints, steps: Ints) -> bool:
        """See `RowOptimizer.update`."""
        if self.in_passes:
            return take_steps(x, self._momenta(x), gradients, workers, steps, **self._rates())
        chosen = torch.from_numpy(workers).to(x.device)
        values = x.index_select(0, chosen)
        self._descend(values, gradients, chosen, steps)
        x.index_copy_(0, chosen, values)
        return bool(torch.isfinite(values.sum()))

    def take_whole(
        self, x: Tensor, step: DenseStep, workers: Ints, steps: Ints, samples: Ints
    ) -> tuple[bool, Tensor]:
        """Take whole steps of a classifier in machine code; see `DenseStep.take`."""
        return step.take(x, self._momenta(x), workers, steps, samples, **self._rates())

    def _momenta(self, x: Tensor) -> Tensor:
        return x if self._buffer is None else self._buffer

    def _rates(self) -> dict[str, float]:
        return {"lr": self._lr, "momentum": self._momentum, "decay": self._decay}

    def _descend(self, values: Tensor, gradients: Tensor, chosen: Tensor, steps: Ints) -> None:
        """Take a step in place, in stacked vectors of the workers that are *chosen*."""
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
        values.add_(gradients, alpha=-self._lr)


class OneByOne:
    """A task's own optimizer, which updates worker after worker.

    Args:
        replica: Has the optimizer, and what it remembers.
        rows: All workers' values.
    """

    def __init__(self, replica: Replica, rows: ParameterMatrix) -> None:
        self._replica = replica
        self._rows = rows

    def keep(self, worker: int) -> object:
        """A copy of what is remembered of a worker."""
        return self._replica.keep(worker)

    def restore(self, worker: int, kept: object | None) -> None:
        """Remember of a worker what was kept; nothing where that is None."""
        self._replica.restore(worker, kept)

    def update(self, x: Tensor, gradients: Tensor, workers: Ints, steps: Ints) -> bool:
        """See `RowOptimizer.update`."""
        replica, segment = self._replica, self._rows.segments[0]
        for worker, row in zip(workers.tolist(), gradients, strict=True):
            replica.lay_over(worker)
            for placed, parameter in zip(segment.tensors, replica.parameters, strict=True):
                parameter.grad = view_of(placed, segment.start_bytes, row)
            replica.apply()
        return bool(torch.isfinite(x.index_select(0, torch.from_numpy(workers).to(x.device)).sum()))
