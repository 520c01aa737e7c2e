"""The models of all workers: trained by a stepper, measured one by one and merged."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call

from ...train.tasks.data import is_pair
from ...train.tasks.task import Evaluation, Task, mean_of
from ...train.tensors.layout import Placed
from ..kernel.program import Level
from .parameters import CPU, ParameterMatrix, tensors_of
from .schedule import WeightUnits, in_proportion
from .steppers.stacked import why_unpaired
from .steppers.stepper import Failure, Stepper
from .vector_tasks import Present

__all__ = ["Models"]

# Number of single workers measured, evenly spaced: enough for quartiles.
_WORKERS_MAX: Final = 32

# Held-out samples per forward pass.
_SAMPLES_MAX: Final = 512

# Rows converted to float64 at a time.
_ROWS_AT_ONCE: Final = 64


class Models:
    """Rows of parameters, and what trains them.

    Args:
        workers_tested: Maximum number of single workers that are measured.
    """

    def __init__(
        self,
        rows: ParameterMatrix,
        stepper: Stepper,
        task: Task,
        *,
        workers_tested: int | None = None,
    ) -> None:
        self.rows = rows
        self.task = task
        self.stepper = stepper
        self.workers_tested = _WORKERS_MAX if workers_tested is None else workers_tested
        self.workers_tested = min(self.workers_tested, rows.n)
        # Full-precision steps on pairs of tensors are measured with fewer calls.
        self._test: tuple[Tensor, ...] | None = None
        is_plain = not why_unpaired(task, rows.device) and task.evaluation_step is None
        if is_pair(task.test) and is_plain:
            self._test = tuple(side.to(rows.device) for side in task.test)

    def live_again(self) -> None:
        """Prepare for workers that crash and return; called before any training."""
        self.rows.live_again(self.stepper.memory)

    def execute(self, levels: Iterable[Level]) -> None:
        """Execute levels in order: the steps of each, then its other operations.

        Raises:
            Failure: Values are not finite, or do not fit into the wire's format; all levels were
                executed.
        """
        first: Failure | None = None
        for level in levels:
            failed = self.stepper.take(level) if level.workers else []
            with torch.no_grad():
                failed += self.rows.shares.carry_out_level(level)
            if failed and first is None:
                worker = min(failed)
                step = dict(zip(level.workers, level.steps, strict=True)).get(worker)
                first = Failure(worker, step)
        if first is not None:
            raise first
        self.stepper.check()

    def measure(self, levels: Iterable[Level], worker: int, slots: Sequence[int]) -> list[float]:
        """Execute what was scheduled, and return how far shares then are from a worker's model."""
        self.execute(levels)
        return [self.rows.shares.distance(worker, slot) for slot in slots]

    def merged(self, weight_units: WeightUnits) -> dict[str, Tensor]:
        """Return the state_dict of all workers' mean in float64; weights are per worker and shard.

        Local buffers, whose mean is meaningless, are the heaviest worker's.
        """
        rows = self.rows
        means = [_zeros(part) for part in rows.x]
        if not weight_units.any():
            # Before the swarm is founded, all workers have their initial values.
            weight_units = np.ones_like(weight_units)
        for shard, held in enumerate(in_proportion(weight_units).T.tolist()):
            for span in rows.spans(shard):
                mean = span.of(means)
                _add_weighted(mean, span.of(rows.x), held)
                mean /= sum(held)
                span.put(means, mean)
        found: list[tuple[Placed, Tensor]] = []
        for group, part, mean in zip(rows.groups, rows.x, means, strict=True):
            flat = mean.to(part.dtype)
            found += [(p, p.view(flat)) for p in group]
        heaviest = int(weight_units.sum(axis=1).argmax())
        found += [(p, part[heaviest]) for p, part in zip(rows.local, rows.locals, strict=True)]
        return rows.state(found)

    def evaluate(self, state: dict[str, Tensor]) -> Evaluation:
        """Evaluate a result of `merged` on the held-out data, as a live peer does its model."""
        tensors = tensors_of(self.rows.module)
        own = {name: tensor.data for name, tensor in tensors.items()}
        try:
            for name, tensor in tensors.items():
                tensor.data = state[name]
            return self.task.evaluate(self.rows.module)
        finally:
            for name, tensor in tensors.items():
                tensor.data = own[name]

    def tensors_of(self, worker: int) -> dict[str, Tensor]:
        """Return a worker's tensors by all their names, as views."""
        return {
            name: view
            for placed, view in self.rows.tensors(worker)
            for name in self.rows.names[placed.spec.name]
        }

    @torch.no_grad()
    def evaluate_workers(
        self, present: Present = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return loss and accuracy, or None, of evenly spaced workers, axes ``(worker,)``."""
        n = self.rows.n if present is None else len(present)
        chosen = np.unique(np.linspace(0, n - 1, min(n, self.workers_tested)).round().astype(int))
        if present is not None:
            chosen = present[chosen]
        modes = [(part, part.training) for part in self.rows.module.modules()]
        self.rows.module.eval()
        try:
            found = [self._evaluate_one(worker) for worker in chosen.tolist()]
        finally:
            for part, mode in modes:
                part.training = mode
        losses = np.array([each.loss for each in found])
        accuracies = [each.accuracy for each in found]
        if None in accuracies:
            return losses, None
        return losses, np.array(accuracies)

    def _evaluate_one(self, worker: int) -> Evaluation:
        task = self.task
        state = self.tensors_of(worker)
        if self._test is None or task.loss is None:
            return self.evaluate(tensors_of(self.rows.module) | state)
        inputs, targets = self._test
        model = partial(functional_call, self.rows.module, state)
        batches: list[tuple[int, Evaluation]] = []
        for start in range(0, len(inputs), _SAMPLES_MAX):
            part = slice(start, start + _SAMPLES_MAX)
            batch = inputs[part], targets[part]
            batches.append((len(inputs[part]), task.evaluate_batch(model, batch)))
        return mean_of(batches)

    def consensus_distance(self, present: Present = None) -> float:
        """Return ``sqrt(mean_i |x_i - mean|^2) / |mean|``, undivided if ``|mean|`` is 0."""
        spread = size = 0.0
        n = self.rows.n if present is None else len(present)
        for whole in self.rows.x:
            part = whole
            if present is not None:
                part = whole[torch.from_numpy(present).to(whole.device)]
            mean = _zeros(part)
            for chunk in part.split(_ROWS_AT_ONCE):
                mean += chunk.sum(dim=0, dtype=torch.float64)
            mean /= n
            for chunk in part.split(_ROWS_AT_ONCE):
                spread += float((chunk.double() - mean).square().sum())
            size += float(mean.square().sum())
        distance = math.sqrt(spread / n)
        return distance / math.sqrt(size) if size else distance


def _zeros(part: Tensor) -> Tensor:
    return torch.zeros(part.shape[1], dtype=torch.float64, device=part.device)


def _add_weighted(total: Tensor, rows: Tensor, weights: list[float]) -> None:
    """Add weighted rows: on the CPU in their order, which other devices need not keep."""
    if rows.device == CPU:
        for weight, row in zip(weights, rows, strict=True):
            if weight:
                total += row.double() * weight
        return
    told = torch.tensor(weights, dtype=torch.float64, device="cpu").to(rows.device)
    each = zip(told.split(_ROWS_AT_ONCE), rows.split(_ROWS_AT_ONCE), strict=True)
    for share, chunk in each:
        total += share @ chunk.double()
