"""All steps of a level at once: one batched gradient over the rows of many workers."""

from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import mse_loss

from ....gossip.errors import ConfigError
from ....train.tasks.task import Task
from ...kernel.program import Level
from ..batches import Batches, Ints
from ..compiled.dense import DenseStep, dense_layers, why_not
from ..cores import ONE_CORE, Cores, Threads
from ..parameters import CPU, ParameterMatrix
from .gradients import Gradient
from .loop import Replica
from .optimizers import StackedOptimizer, stacked_optimizer
from .stepper import Failures

__all__ = ["BatchedStepper"]

# Wide enough that calling costs little, and narrow enough that a group stays in the cache.
_NUMBERS_PER_GROUP = 1 << 19
_GROUP_MIN, _GROUP_MAX = 8, 256

# Elsewhere each call costs more than what it computes; activations still have to fit.
_NUMBERS_PER_GROUP_ELSEWHERE = 1 << 24


def _group_size(rows: ParameterMatrix) -> int:
    """How many workers take a step at once, at most."""
    row = rows.x[0].shape[1]
    if rows.device == CPU:
        return max(_GROUP_MIN, min(_GROUP_MAX, _NUMBERS_PER_GROUP // row))
    return max(_GROUP_MIN, _NUMBERS_PER_GROUP_ELSEWHERE // row)


class BatchedStepper:
    """Steps of many workers as one stacked computation, of a task that is not `unbatchable`.

    Args:
        cores: So many groups of workers at a time; it changes no bit.
        gradient: Made of such rows and this task before; made anew unless given.
        dense: Whether whole steps are taken in machine code.
        apart: Whether operations are those of one worker after another.

    Raises:
        ConfigError: Machine code was asked for, and does not take the task's steps.
    """

    def __init__(
        self,
        rows: ParameterMatrix,
        task: Task,
        batches: Batches,
        lr: float,
        failures: Failures,
        cores: Cores = ONE_CORE,
        *,
        gradient: Gradient | None = None,
        dense: bool = False,
        apart: bool = False,
    ) -> None:
        self._rows = rows
        self._batches = batches
        self._failures = failures
        self.gradient = gradient or Gradient(rows, task, apart=apart)
        """Computes them; it serves other rows of the same layout, too."""
        replica = Replica(rows, task, lr)
        stacked = stacked_optimizer(
            replica.optimizer, replica.parameters, rows.x[0], in_passes=rows.in_passes
        )
        self.memory: StackedOptimizer | Replica = stacked or replica
        self._dense: tuple[DenseStep, StackedOptimizer] | None = None
        if dense:
            if stacked is None or not stacked.in_passes:
                raise ConfigError(f"machine code does not take the steps of the task {task.name}")
            self._dense = _dense_step(rows, task, batches), stacked
        self._group = _group_size(rows)
        self._threads = Threads(cores if stacked else ONE_CORE)

    def take(self, level: Level) -> None:
        """Take all steps of a level."""
        n, free = len(level.workers), self._threads.free
        n_groups = -(-n // self._group)
        if n >= _GROUP_MIN * free:
            # As many groups for each thread.
            n_groups = -(-n_groups // free) * free
        cuts = [n * at // n_groups for at in range(n_groups + 1)] if n else []
        groups = [slice(*cut) for cut in pairwise(cuts)]
        self._threads.share(lambda group: self._take_group(level, group), groups)

    def shown(self, worker: int) -> AbstractContextManager[None]:
        """Do nothing: steps change no attributes, or could not be traced."""
        return nullcontext()

    def check(self) -> None:
        """Raise where workers have shared what an optimizer keeps; the model keeps nothing."""
        if isinstance(self.memory, Replica):
            self.memory.attributes.check()

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def _take_group(self, level: Level, group: slice) -> None:
        workers, steps, orders = (
            np.array(column[group]) for column in (level.workers, level.steps, level.orders)
        )
        # Where the data does not divide evenly, small parts may make batches of different sizes.
        sizes = self._batches.sizes(workers)
        for size in np.unique(sizes):
            at = np.flatnonzero(sizes == size)
            self._take_alike(workers[at], steps[at], orders[at])

    def _take_alike(self, workers: Ints, steps: Ints, orders: Ints) -> None:
        x = self._rows.x[0]
        samples = self._batches.indices(workers, steps)
        if self._dense is not None and self._dense[0].fits(samples.shape[1]):
            step, optimizer = self._dense
            update = optimizer.of(workers, steps, self._lr_parts(workers))
            is_finite, losses = step.take(x, workers, update, samples)
        else:
            chosen = torch.from_numpy(workers).to(x.device)
            values = x.index_select(0, chosen)
            inputs, targets = self._batches.stacked(samples)
            if self._batches.flipped:
                targets = self._batches.turned(workers, targets)
            locals = [part.index_select(0, chosen) for part in self._rows.locals]
            gradients, losses = self.gradient(values, locals, inputs, targets)
            parts = self._lr_parts(workers)
            is_finite = self.memory.update(x, gradients, workers, steps, parts)
            # Which optimizers that take a row for one tensor may have let decay.
            for span in self.gradient.buffers:
                x[:, span].index_copy_(0, chosen, values[:, span])
                is_finite &= bool(torch.isfinite(values[:, span].sum()))
            for part, written in zip(self._rows.locals, locals, strict=True):
                part.index_copy_(0, chosen, written)
        # One sum for all: only where it is not finite is each looked at.
        if not (is_finite and bool(torch.isfinite(losses.sum()))):
            values = x.index_select(0, torch.from_numpy(workers).to(x.device))
            finite = torch.isfinite(values).all(dim=1) & torch.isfinite(losses)
            for at in torch.nonzero(~finite).flatten().tolist():
                self._failures.note(int(orders[at]), int(workers[at]), int(steps[at]))

    def _lr_parts(self, workers: Ints) -> NDArray[np.float64]:
        """Which part of its learning rate each uses."""
        scaled = self._rows.lr_factors
        return np.ones(len(workers)) if scaled is None else scaled[workers]


def _dense_step(rows: ParameterMatrix, task: Task, batches: Batches) -> DenseStep:
    """Whole steps of a fully connected network in machine code.

    Raises:
        ConfigError: The task is none, or this machine cannot do it with torch's bits.
    """
    layers = dense_layers(rows, task)
    why = why_not(layers, squared=task.loss is mse_loss)
    if batches.flipped:
        why = "labels are turned around"
    if why:
        raise ConfigError(f"steps of the task {task.name} are not taken in machine code: {why}")
    return DenseStep(layers, *batches.tensors, rows.x[0].shape[1])
