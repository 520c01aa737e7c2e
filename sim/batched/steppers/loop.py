"""One step after another, by each worker's own module and optimizer: works with any model."""

import random
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from ....gossip.errors import TrainingError
from ....gossip.types import PeerId
from ....train.tasks.data import Batch
from ....train.tasks.lr_schedule import FullRates
from ....train.tasks.random_state import kept_random_state, seed_all, seed_of
from ....train.tasks.task import Task
from ....train.tensors.vector import is_finite_tensor
from ...kernel.program import Level
from ..batches import Batches
from ..parameters import ParameterMatrix

__all__ = ["LoopStepper", "Trainer", "generators", "has_hooks"]


class LoopStepper:
    """Takes each worker's steps as a live peer does, on its row."""

    def __init__(
        self,
        rows: ParameterMatrix,
        task: Task,
        batches: Batches,
        lr: float,
        ids: tuple[PeerId, ...],
        seed: int,
    ) -> None:
        self._rows = rows
        # As they are at the start: measurements may change attributes of the originals.
        self._module, self._task = _own(rows.module, task)
        self._batches = batches
        self._lr = lr
        self._ids = ids
        self._seed = seed
        self._trainers: dict[int, Trainer] = {}
        with kept_random_state():
            (module, own), batch = _own(self._module, self._task), batches.one(0, 0)
            before = generators()
            own.batch_loss(module, batch)
            # Random layers draw from one generator, which threads would share, as they do a loss.
            draws = before != generators()
        alone = draws or batches.may_draw or has_hooks(rows.module)
        self._is_alone = alone or rows.threads.n == 1

    @property
    def memory(self) -> "LoopStepper":
        """State of its optimizers: a `Memory`."""
        return self

    def take(self, level: Level) -> list[int]:
        failed: list[int] = []
        places = range(len(level.workers))
        if not self._is_alone:
            # Each worker's arithmetic is done by one thread: their number changes no bit.
            self._rows.threads.share(lambda at: self._take(level, at, failed), places)
            return failed
        for at in places:
            # Each step has its own seed, whatever was computed before.
            seed = seed_of(self._seed, self._ids[level.workers[at]], f"torch\0{level.steps[at]}")
            seed_all(seed, self._rows.device)
            self._take(level, at, failed)
        return failed

    def check(self) -> None:
        # Each worker has its own module and loss.
        pass

    def keep(self, worker: int) -> object:
        return deepcopy(self.trainer(worker).optimizer.state_dict())

    def restore(self, worker: int, kept: Any) -> None:
        self._trainers.pop(worker, None)
        if kept is not None:
            self.trainer(worker).optimizer.load_state_dict(deepcopy(kept))

    def _take(self, level: Level, at: int, failed: list[int]) -> None:
        worker, step = level.workers[at], level.steps[at]
        rate = None if level.rates is None else level.rates[at]
        if not self.trainer(worker).step(self._batches.one(worker, step), rate):
            failed.append(worker)

    def trainer(self, worker: int) -> "Trainer":
        if worker not in self._trainers:
            given = self._rows, self._module, self._task, self._lr
            self._trainers[worker] = Trainer(*given, worker)
        return self._trainers[worker]


class Trainer:
    """A worker's own module, whose tensors are its row, its own loss and optimizer."""

    def __init__(
        self, rows: ParameterMatrix, module: nn.Module, task: Task, lr: float, worker: int
    ) -> None:
        self._rows = rows
        self._worker = worker
        self.module, self.task = _own(module, task)
        # Tensors that are its row, by place in their module.
        self._tensors: list[tuple[dict[str, Any], str, Tensor]] = []
        for placed, view in rows.tensors(worker):
            for name in rows.names[placed.spec.name]:
                path, _, own_name = name.rpartition(".")
                part = self.module.get_submodule(path)
                space = part._parameters if own_name in part._parameters else part._buffers
                space[own_name].data = view  # type: ignore[union-attr]
                self._tensors.append((space, own_name, space[own_name]))  # type: ignore[arg-type]
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer = self.task.make_optimizer(parameters, lr)
        self._full_rates = FullRates(self.optimizer)

    def step(self, batch: Batch, rate: float | None = None) -> bool:
        """Take a step, with this factor of the learning rate if that changes.

        Returns:
            True if loss and values are finite after it.
        """
        if rate is not None:
            self._full_rates.scale(rate)
        loss = self.task.batch_loss(self.module, batch)
        self.task.backward(loss)
        self.optimizer.step()
        # Gradients of all workers would take as much memory as their models.
        self.optimizer.zero_grad()
        for space, name, tensor in self._tensors:
            if space.get(name) is not tensor:
                raise TrainingError(
                    f"a step of task {self.task.name} assigns {name} anew: write into it with "
                    "copy_, which keeps the tensor that workers average"
                )
        finite = all(is_finite_tensor(part) for part in self._rows.row(self._worker))
        return finite and bool(torch.isfinite(loss.detach()))


_HOOKS: Final = "_backward_hooks", "_post_accumulate_grad_hooks"


def has_hooks(module: nn.Module) -> bool:
    """Return True if a hook is called when a parameter has its gradient."""
    return any(getattr(p, kind, None) for p in module.parameters() for kind in _HOOKS)


def _own(module: nn.Module, task: Task) -> tuple[nn.Module, Task]:
    """Copy a module with its hooks, and a task with its loss: both may have attributes."""
    memo: dict[int, Any] = {}
    copied = deepcopy(module, memo)
    for before, parameter in zip(module.parameters(), copied.parameters(), strict=True):
        for kind in _HOOKS:
            if (hooks := getattr(before, kind, None)) is not None:
                setattr(parameter, kind, deepcopy(hooks, memo))
    if isinstance(task.loss, nn.Module):
        task = replace(task, loss=deepcopy(task.loss, memo))
    return copied, task


def generators() -> tuple[object, ...]:
    """Return the states of torch's, numpy's and Python's random generators, comparable."""
    return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())
