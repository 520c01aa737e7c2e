"""One step after another, by the module and the optimizer themselves: works with any model."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from ....gossip.errors import ConfigError
from ....gossip.types import PeerId
from ....train.tasks.data import Batch
from ....train.tasks.lr_schedule import FullRates
from ....train.tasks.random_state import kept_random_state, seed_of
from ....train.tasks.task import Task
from ....train.tensors.vector import is_finite_tensor
from ...kernel.program import Level
from ..batches import Batches
from ..cores import Cores, Threads
from ..parameters import ParameterMatrix
from .attributes import fingerprint
from .stepper import Failures

__all__ = ["LoopStepper", "Replica", "generators", "has_hooks"]


class LoopStepper:
    """Points a module at a worker's row, and takes a step there.

    Threads share a level's workers. Each worker's arithmetic is done by one thread, so that their
    number changes no bit.
    """

    def __init__(
        self,
        rows: ParameterMatrix,
        task: Task,
        batches: Batches,
        lr: float,
        ids: tuple[PeerId, ...],
        seed: int,
        failures: Failures,
        threads: int = 1,
    ) -> None:
        self._batches = batches
        self._failures = failures
        self._ids = ids
        self._seed = seed
        self._device = rows.device
        # Random layers draw from one generator, which threads would share, as they do a loss.
        self._draws = _draws(rows, task, batches)
        # A copy of the module has no hooks on its parameters.
        alone = self._draws or batches.may_draw or has_hooks(rows.module)
        threads = 1 if alone else threads
        self.memory = first = Replica(rows, task, lr)
        self._attributes: list[object] = []
        """Attributes that steps must not change, as they were at the end of the last window."""
        self._replicas = [first]
        self._replicas += [Replica(rows, task, lr, first=first) for _ in range(threads - 1)]
        self._threads = Threads(Cores(threads))

    def take(self, level: Level) -> None:
        """Take all steps of a level."""
        self._threads.share(lambda index: self._share(level, index), range(len(self._replicas)))

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def check(self) -> None:
        """Raise if workers have shared what live peers do not."""
        if self.memory.states:
            before, self._attributes = self._attributes, self.memory.attributes()
            _require_same(before or self._attributes, self._attributes, self.memory.task)

    def _share(self, level: Level, index: int) -> None:
        replica, every = self._replicas[index], len(self._replicas)
        for at in range(index, len(level.workers), every):
            worker, step = level.workers[at], level.steps[at]
            replica.lay_over(worker)
            if not self._take(replica, worker, step):
                self._failures.note(level.orders[at], worker, step)

    def _take(self, replica: "Replica", worker: int, step: int) -> bool:
        batch = self._batches.one(worker, step)
        if len(self._replicas) == 1:
            # Each step has its own seed, whatever was computed before.
            seed = seed_of(self._seed, self._ids[worker], f"torch\0{step}")
            torch.default_generator.manual_seed(seed)
            if self._device.type == "cuda":
                torch.cuda.default_generators[self._device.index].manual_seed(seed)
            if self._draws:
                np.random.seed(seed % 2**32)
                random.seed(seed)
        return replica.step(batch)


class Replica:
    """A module and an optimizer that serve one worker after another.

    Args:
        first: A replica whose workers this one serves as well, with its own module.
    """

    def __init__(
        self, rows: ParameterMatrix, task: Task, lr: float, *, first: "Replica | None" = None
    ) -> None:
        self._rows = rows
        self.task = task
        self.module: nn.Module = rows.module if first is None else deepcopy(rows.module)
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.optimizer: Optimizer = task.optimizer(self.parameters, lr)
        self._full_rates = FullRates(self.optimizer)
        self.states: dict[int, dict[object, object]] = {} if first is None else first.states
        """State of each worker's optimizer, by position of the parameter."""
        named = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        placed = [p for segment in rows.segments for p in segment.tensors]
        self._targets = [
            [named[name] for name in rows.names[p.spec.name]] for p in [*placed, *rows.local]
        ]
        self._worker = -1
        self._carried = _carried(rows)

    def attributes(self) -> list[object]:
        """Return the attributes that steps must not change, comparable."""
        groups = [{**group, "params": None} for group in self.optimizer.param_groups]
        return [groups, *_attributes(self.module, self.task, self._carried)]

    def lay_over(self, worker: int) -> None:
        """Point the module at a worker's values, and select its optimizer's state."""
        for tied, (_, view) in zip(self._targets, self._rows.tensors(worker), strict=True):
            for target in tied:
                target.data = view
        self._worker = worker

    def keep(self, worker: int) -> object:
        """Return a copy of the state of a worker's optimizer."""
        return deepcopy(self.states.get(worker, {}))

    def restore(self, worker: int, kept: object | None) -> None:
        """Restore the state of a worker's optimizer; clear it if *kept* is None."""
        assert isinstance(kept, dict | None)
        self.states[worker] = deepcopy(kept) if kept else {}

    def step(self, batch: Batch) -> bool:
        """Take a step there; return True if loss and values are finite after it."""
        factors = self._rows.lr_factors
        if factors is not None:
            self._full_rates.scale(float(factors[self._worker]))
        self.optimizer.zero_grad()
        loss = self.task.batch_loss(self.module, batch)
        loss.backward()
        with self._lent_state():
            self.optimizer.step()
        if factors is not None:
            # All workers share the rates that the optimizer began with.
            self._full_rates.scale(1.0)
        finite = all(is_finite_tensor(part) for part in self._rows.row(self._worker))
        return finite and bool(torch.isfinite(loss.detach()))

    @contextmanager
    def _lent_state(self) -> Iterator[None]:
        """Load the worker's state into the optimizer, and save it afterwards."""
        own = self.states.get(self._worker, {})
        state = self.optimizer.state
        state.clear()
        for index, parameter in enumerate(self.parameters):
            if index in own:
                state[parameter] = own[index]
        yield
        kept: dict[object, object] = {
            index: state[parameter]
            for index, parameter in enumerate(self.parameters)
            if parameter in state
        }
        self.states[self._worker] = kept


def has_hooks(module: nn.Module) -> bool:
    """Return True if a hook is called when a parameter has its gradient."""
    kinds = "_backward_hooks", "_post_accumulate_grad_hooks"
    return any(getattr(p, kind, None) for p in module.parameters() for kind in kinds)


def _carried(rows: ParameterMatrix) -> set[str]:
    """Return the module's names of the buffers that rows hold."""
    placed = [placed for segment in rows.segments for placed in segment.tensors] + [*rows.local]
    named = {name for each in placed for name in rows.names[each.spec.name]}
    return named & {name for name, _ in rows.module.named_buffers(remove_duplicate=False)}


def _attributes(module: nn.Module, task: Task, carried: set[str]) -> list[object]:
    ids = {id(b) for n, b in module.named_buffers(remove_duplicate=False) if n in carried}
    return fingerprint((module, task.loss, task.training_step, task.augment), ids)


def _require_same(before: list[object], after: list[object], task: Task) -> None:
    if before != after:
        raise ConfigError(
            f"a step of task {task.name} changes attributes of the model, its loss or its "
            "optimizer, which simulated workers share: keep what changes in buffers"
        )


def _draws(rows: ParameterMatrix, task: Task, batches: Batches) -> bool:
    """Return True if a step draws random numbers, as dropout or a user's model may do."""
    module, carried = deepcopy(rows.module), _carried(rows)
    with kept_random_state():
        batch = batches.one(0, 0)
        before = generators()
        task.batch_loss(module, batch)
        draws = before != generators()
        # The first call may create attributes that later ones leave alone.
        attributes = _attributes(module, task, carried)
        task.batch_loss(module, batch)
        _require_same(attributes, _attributes(module, task, carried), task)
    return draws


def generators() -> tuple[object, ...]:
    """Return the states of torch's, numpy's and Python's random generators, comparable."""
    return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())
