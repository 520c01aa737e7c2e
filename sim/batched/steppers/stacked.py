"""Steps of many workers at once: one gradient over the rows of a group."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ....gossip.errors import ConfigError
from ....train.tasks.data import is_pair
from ....train.tasks.task import Task
from ...kernel.program import Level
from ..batches import Batches, Ints
from ..parameters import CPU, ParameterMatrix
from .loop import has_hooks
from .optimizers import Rates, Slopes, put_rows, stacked_optimizer, take_rows

__all__ = ["LANES", "Gradient", "Group", "StackedStepper", "why_not_stacked", "why_unpaired"]

# The rows of a group, their gradients and momentum stay in a core's cache, and its calls cost
# little compared with what they compute.
_NUMBERS_PER_GROUP: Final = 1 << 19
_GROUP_MIN: Final = 8
_GROUP_MAX: Final = 256

# On other devices each call costs more than its arithmetic; activations still have to fit.
_NUMBERS_PER_GROUP_ELSEWHERE: Final = 1 << 24

LANES: Final = 32
"""Maximum number of values that kernels of torch take at a time."""


class Group(NamedTuple):
    """Workers that take a step together, each on one batch, all batches of one size."""

    values: Tensor  # their vectors, axes ``(worker, number)``; untrained numbers may be written
    locals: Sequence[Tensor]  # values that are not shared, axes ``(worker, *shape)``; also written
    inputs: Tensor  # axes ``(worker, batch, ...)``, as `targets`
    targets: Tensor
    workers: Ints  # rows of the workers
    steps: Ints  # number of each worker's step, counted from 0


class Gradient(Protocol):
    """The gradient of a task's loss for a stack of workers."""

    def __call__(self, group: Group) -> tuple[Slopes, Tensor]:
        """Compute gradients, and losses, axis ``worker``."""

    def multiple(self, inputs: Tensor, targets: Tensor) -> int:
        """Return the divisor of the number of workers in a group, for batches of this form."""
        # Kernels of torch take up to `LANES` numbers at a time. The remainder takes another code
        # path, which may round otherwise.

    def check(self) -> None:
        """See `Stepper.check`."""


class StackedStepper:
    """Takes the steps of a level group by group; no bit depends on who else is in a group."""

    def __init__(
        self,
        rows: ParameterMatrix,
        task: Task,
        batches: Batches,
        lr: float,
        gradient: Gradient,
    ) -> None:
        self._rows = rows
        self._batches = batches
        self.gradient = gradient
        parameters = [p for p in rows.module.parameters() if p.requires_grad]
        made = task.make_optimizer(parameters, lr)
        memory = stacked_optimizer(made, parameters, rows.x[0])
        if memory is None:
            raise ConfigError(
                f"its optimizer is not plain SGD, Adam or AdamW of all parameters alike "
                f"({type(made).__name__})"
            )
        self.memory = memory
        per_group = _NUMBERS_PER_GROUP if rows.device == CPU else _NUMBERS_PER_GROUP_ELSEWHERE
        self._group = max(_GROUP_MIN, per_group // rows.x[0].shape[1])
        if rows.device == CPU:
            self._group = min(_GROUP_MAX, self._group)

    def take(self, level: Level) -> list[int]:
        by_worker = np.argsort(level.workers)
        workers, steps = (np.array(column)[by_worker] for column in (level.workers, level.steps))
        rates = np.ones(len(workers)) if level.rates is None else np.array(level.rates)[by_worker]
        # If the data does not divide evenly, small parts may have batches of different sizes.
        sizes = self._batches.sizes(workers)
        groups: list[Ints] = []
        failed: list[int] = []
        for size in np.unique(sizes):
            alike = np.flatnonzero(sizes == size)
            at_most = -(-len(alike) // -(-len(alike) // self._group))
            # All groups but the last have a size that suits the kernels.
            each = LANES * -(-at_most // LANES)
            groups += np.split(alike, range(each, len(alike), each))
        self._rows.threads.share(
            lambda part: failed.extend(self._take_group(workers[part], steps[part], rates[part])),
            groups,
        )
        return failed

    def check(self) -> None:
        self.gradient.check()

    def _take_group(self, workers: Ints, steps: Ints, rates: Rates) -> list[int]:
        n = len(workers)
        samples = self._batches.indices(workers, steps)
        form = (side[: samples.shape[1]] for side in self._batches.tensors)
        # The product of a single pair of matrices also rounds otherwise.
        every = max(2, self.gradient.multiple(*form))
        if missing := -n % every:
            # The last worker is repeated.
            at = np.r_[:n, [-1] * missing]
            workers, steps, rates, samples = workers[at], steps[at], rates[at], samples[at]

        rows, x = self._rows, self._rows.x[0]
        # A range of workers is not copied.
        is_row = len(workers) == n and workers[-1] - workers[0] == n - 1
        chosen = slice(workers[0], workers[-1] + 1) if is_row else workers
        values = take_rows(x, chosen)
        locals = [take_rows(part, chosen) for part in rows.locals]
        inputs, targets = self._batches.stacked(samples)
        with torch.no_grad():
            slopes, losses = self.gradient(Group(values, locals, inputs, targets, workers, steps))
            self.memory.update(values, slopes, chosen, rates)
            put_rows(x, chosen, values)
            for part, written in zip(rows.locals, locals, strict=True):
                put_rows(part, chosen, written)
            # One sum for all: only if it is not finite is each checked.
            if bool(torch.isfinite(values.sum() + losses.sum())):
                return []
            finite = torch.isfinite(values).all(dim=1) & torch.isfinite(losses)
            return [int(workers[at]) for at in torch.nonzero(~finite[:n]).flatten().tolist()]


def why_unpaired(task: Task, device: torch.device = CPU) -> str:
    """Return why a task's steps do not take stacked inputs and targets, or ""."""
    if task.training_step is not None:
        return "it has a training_step"
    if not is_pair(task.train):
        return "its data are not two tensors"
    if task.augment is not None:
        return "it augments its batches"
    plain = ("float32", "auto") if device.type == "cpu" else ("float32",)
    return "" if task.precision in plain else f"its precision is {task.precision}"


def why_not_stacked(rows: ParameterMatrix, task: Task) -> str:
    """Return why the steps of several workers cannot be taken at once for any model, or ""."""
    if why := why_unpaired(task, rows.device):
        return why
    if len(rows.groups) != 1:
        return "its parameters have several dtypes"
    if rows.x[0].dtype not in (torch.float32, torch.float64):
        return f"its parameters are {str(rows.x[0].dtype).removeprefix('torch.')}"
    placed = rows.groups[0]
    if any(rows.names[p.spec.name] != (p.spec.name,) for p in (*placed, *rows.local)):
        return "its model is wrapped, or has parameters that are tied by their data"
    if any(p.spec.order for p in placed):
        return "its parameters are in another memory format"
    kinds = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
    called = any(getattr(part, kind, None) for part in rows.module.modules() for kind in kinds)
    return "its model has hooks" if called or has_hooks(rows.module) else ""
