"""All steps of a level at once: one batched gradient over the rows of many workers.

``torch.func`` turns the model and the loss that a user wrote into a function of a stack of
vectors. For fully connected models it gives the loop's bits; for convolutions it gives others,
which do not depend on how workers are grouped.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional
from torch.optim import SGD, Optimizer

from ...gossip.errors import ConfigError
from ...train.tasks.sources import is_pair
from ...train.tasks.task import Task
from ..kernel.fast_path.levels import AnyLevel
from .compiled.row_passes import take_steps
from .loop import Batches, Ints, Replica
from .parameters import CPU, ParameterMatrix, view_of
from .stepper import Failures

__all__ = [
    "BatchedStepper",
    "Gradient",
    "stacked_gradient",
    "unbatchable",
    "why_unstacked",
    "written_out",
]


Gradient = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Stacked vectors, inputs and targets to stacked gradients and losses."""

# Wide enough that calling costs little, and narrow enough that a group stays in the cache.
_NUMBERS_PER_GROUP = 1 << 19
_GROUP_MIN, _GROUP_MAX = 8, 256

# Elsewhere each call costs more than what it computes; activations still have to fit.
_NUMBERS_PER_GROUP_ELSEWHERE = 1 << 24


def why_unstacked(task: Task) -> str:
    """Why the steps of a task are not those of stacked inputs and targets, or nothing."""
    if task.training_step is not None:
        return "it has a training_step"
    if not is_pair(task.train):
        return "its data are not two tensors"
    if task.augment is not None:
        return "it augments its batches"
    return "" if task.precision == "float32" else f"its precision is {task.precision}"


def unbatchable(rows: ParameterMatrix, task: Task) -> str:
    """Why a task cannot be batched at all, or nothing."""
    if why := why_unstacked(task):
        return why
    if len(rows.segments) != 1:
        return "its parameters have several dtypes"
    placed = rows.segments[0].tensors
    if any(rows.names[p.spec.name] != (p.spec.name,) for p in placed):
        return "its model is wrapped, or has parameters that are tied by their data"
    if any(p.spec.order for p in placed):
        return "its parameters are in another memory format"
    names = {name for name, _ in rows.module.named_buffers()}
    if any(p.spec.name in names for p in placed) or rows.local:
        return "it has buffers that change in training, such as batch normalization's"
    return ""


def _group_size(rows: ParameterMatrix) -> int:
    """How many workers take a step at once, at most."""
    row = rows.x[0].shape[1]
    if rows.device == CPU:
        return max(_GROUP_MIN, min(_GROUP_MAX, _NUMBERS_PER_GROUP // row))
    return max(_GROUP_MIN, _NUMBERS_PER_GROUP_ELSEWHERE // row)


class BatchedStepper:
    """Steps of many workers as one stacked computation.

    Args:
        rows: The values.
        task: What is trained.
        batches: On what.
        lr: Learning rate.
        failures: Where a step that fails is noted.
        threads: How many groups of workers at a time; it changes no bit.
        gradient: Makes another way to the gradients than ``torch.func``.

    Raises:
        ConfigError: The model has what cannot be batched.
    """

    def __init__(
        self,
        rows: ParameterMatrix,
        task: Task,
        batches: Batches,
        lr: float,
        failures: Failures,
        threads: int = 1,
        *,
        gradient: Callable[[ParameterMatrix, Task], Gradient] | None = None,
    ) -> None:
        if why := unbatchable(rows, task):
            raise ConfigError(f"engine batched cannot take the task {task.name}: {why}")
        self._rows = rows
        self._batches = batches
        self._failures = failures
        # ``functional_call`` lends the module other tensors: each thread needs one of its own.
        self._own = threading.local()
        self._make_gradient = partial(gradient or stacked_gradient, rows, task)
        self._replica = Replica(rows, task, lr)
        self._sgd = _Momentum.of(self._replica.optimizer, rows.x[0])
        self._group = _group_size(rows)
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 and self._sgd else None

    def take(self, level: AnyLevel) -> None:
        """Take all steps of a level."""
        n = len(level.workers)
        n_groups = -(-n // self._group)
        if self._pool is not None and n >= _GROUP_MIN * self._threads:
            # As many groups for each thread.
            n_groups = -(-n_groups // self._threads) * self._threads
        cuts = [n * at // n_groups for at in range(n_groups + 1)] if n else []
        groups = [slice(*cut) for cut in pairwise(cuts)]
        if self._pool is None or len(groups) == 1:
            for group in groups:
                self._take_group(level, group)
        else:
            list(self._pool.map(lambda group: self._take_group(level, group), groups))

    def keep(self, worker: int) -> object:
        """A copy of what a worker's optimizer remembers."""
        return self._replica.keep(worker) if self._sgd is None else self._sgd.keep(worker)

    def restore(self, worker: int, kept: object | None) -> None:
        """Let a worker's optimizer remember what was kept; nothing where that is None."""
        (self._replica if self._sgd is None else self._sgd).restore(worker, kept)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def _take_group(self, level: AnyLevel, group: slice) -> None:
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
        chosen = torch.from_numpy(workers).to(x.device)
        values = x.index_select(0, chosen)
        inputs, targets = self._batches.stacked(self._batches.indices(workers, steps))
        if self._batches.flipped:
            targets = self._batches.turned(workers, targets)
        gradients, losses = self._gradient()(values, inputs, targets)
        if self._sgd is not None and self._sgd.is_plain and self._rows.in_passes:
            is_finite = self._sgd.pass_over(x, gradients, workers, steps)
        else:
            if self._sgd is not None:
                self._sgd.update(values, gradients, chosen, steps)
                x.index_copy_(0, chosen, values)
            else:
                self._update_each(workers, gradients)
            values = x.index_select(0, chosen)
            is_finite = bool(torch.isfinite(values.sum()))
        # One sum for all: only where it is not finite is each looked at.
        if not (is_finite and bool(torch.isfinite(losses.sum()))):
            values = x.index_select(0, chosen)
            finite = torch.isfinite(values).all(dim=1) & torch.isfinite(losses)
            for at in torch.nonzero(~finite).flatten().tolist():
                self._failures.note(int(orders[at]), int(workers[at]), int(steps[at]))

    def _gradient(self) -> Gradient:
        found: Gradient | None = getattr(self._own, "gradient", None)
        if found is None:
            found = self._own.gradient = self._make_gradient()
        return found

    def _update_each(self, workers: Ints, gradients: Tensor) -> None:
        """Let the task's own optimizer update worker after worker."""
        replica, segment = self._replica, self._rows.segments[0]
        for worker, row in zip(workers.tolist(), gradients, strict=True):
            replica.lay_over(worker)
            for placed, parameter in zip(segment.tensors, replica.parameters, strict=True):
                parameter.grad = view_of(placed, segment.start_bytes, row)
            replica.apply()


class _Momentum:
    """torch's SGD on stacked vectors: the same operations on the same numbers in the same order.

    Args:
        settings: Of the optimizer's only group.
        x: All workers' vectors.
    """

    def __init__(self, settings: dict[str, float], x: Tensor) -> None:
        self._lr = settings["lr"]
        self._momentum = settings["momentum"]
        self._dampening = settings["dampening"]
        self._decay = settings["weight_decay"]
        self._nesterov = bool(settings["nesterov"])
        self._buffer = torch.zeros_like(x) if self._momentum else None
        self.is_plain = not (self._dampening or self._nesterov)
        """Whether `pass_over` can do what `update` does."""

    @classmethod
    def of(cls, optimizer: Optimizer, x: Tensor) -> "_Momentum | None":
        """Take over an optimizer's settings; None where it is none that can be stacked."""
        groups = optimizer.param_groups
        plain = type(optimizer) is SGD and len(groups) == 1 and not groups[0]["maximize"]
        if not plain or any(groups[0][name] for name in ("foreach", "fused", "differentiable")):
            return None
        return cls(groups[0], x) if isinstance(groups[0]["lr"], float) else None

    def keep(self, worker: int) -> Tensor | None:
        """A copy of a worker's momentum; None where there is none."""
        return None if self._buffer is None else self._buffer[worker].clone()

    def restore(self, worker: int, kept: object | None) -> None:
        """Give a worker the momentum that was kept, or none: its first step then makes it."""
        if self._buffer is not None:
            self._buffer[worker] = kept if isinstance(kept, Tensor) else 0.0

    def pass_over(self, x: Tensor, gradients: Tensor, workers: Ints, steps: Ints) -> bool:
        """Take a step in the rows of some workers; returns whether all values are finite then."""
        momenta = x if self._buffer is None else self._buffer
        return take_steps(
            x,
            momenta,
            gradients,
            workers,
            steps,
            lr=self._lr,
            momentum=self._momentum,
            decay=self._decay,
        )

    def update(self, values: Tensor, gradients: Tensor, chosen: Tensor, steps: Ints) -> None:
        """Take a step in place.

        Args:
            values: Stacked vectors, axes ``(worker, number)``.
            gradients: Likewise; used up.
            chosen: Rows of the workers, int64, ``(worker,)``.
            steps: Which step of each.
        """
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


def stacked_gradient(rows: ParameterMatrix, task: Task) -> Gradient:
    """Batch the gradient of a task's loss over a stack of vectors.

    Args:
        rows: Whose layout the vectors have.
        task: Whose model and loss.

    Returns:
        A function of stacked vectors (padding included), inputs and targets; for one thread.
    """
    module, segment = deepcopy(rows.module), rows.segments[0]
    task_loss = task.loss
    assert task_loss is not None
    buffers = dict(module.named_buffers())
    frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}

    def loss(parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        outputs = functional_call(module, {**parameters, **frozen, **buffers}, (inputs,))
        return task_loss(outputs, targets)

    batched = vmap(grad_and_value(loss))

    def gradient(values: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        parameters = {
            placed.spec.name: view_of(placed, segment.start_bytes, values)
            for placed in segment.tensors
        }
        found, losses = batched(parameters, inputs, targets)
        flat = torch.zeros_like(values)
        for placed in segment.tensors:
            view_of(placed, segment.start_bytes, flat).copy_(found[placed.spec.name])
        return flat, losses

    return gradient


def written_out(rows: ParameterMatrix, task: Task) -> Gradient:
    """Write out the gradient of a fully connected classifier over a stack of vectors.

    Args:
        rows: Whose layout the vectors have.
        task: A ``Sequential`` of ``Linear`` layers with ``ReLU`` between them, under
            ``cross_entropy`` of integer targets.

    Returns:
        A function of stacked vectors (padding included), inputs ``(worker, batch, feature)`` and
        targets ``(worker, batch)``.

    Raises:
        ConfigError: The task is none of that kind.
    """
    layers = _layers(rows.module)
    placed = {p.spec.name: p for segment in rows.segments for p in segment.tensors}
    trained = {f"{name}.{part}" for name in layers for part in ("weight", "bias")} == set(placed)
    if not (layers and trained and _is_classification(task)):
        raise ConfigError(
            f"the gradient of the task {task.name} is not written out: that is only for Sequential "
            "models of Linear and ReLU, none of them frozen, under "
            "torch.nn.functional.cross_entropy of integer targets"
        )
    segment = rows.segments[0]

    def gradient(values: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        flat = torch.zeros_like(values)

        def of(stack: Tensor, name: str) -> Tensor:
            return view_of(placed[name], segment.start_bytes, stack)

        activations = [inputs]
        for index, name in enumerate(layers):
            outputs = torch.baddbmm(
                of(values, f"{name}.bias").unsqueeze(1),
                activations[-1],
                of(values, f"{name}.weight").transpose(1, 2),
            )
            activations.append(outputs.relu_() if index + 1 < len(layers) else outputs)
        losses, slope = _cross_entropy(activations.pop(), targets)
        for index in reversed(range(len(layers))):
            name, before = layers[index], activations[index]
            torch.bmm(slope.transpose(1, 2), before, out=of(flat, f"{name}.weight"))
            torch.sum(slope, dim=1, out=of(flat, f"{name}.bias"))
            if index:
                slope = torch.bmm(slope, of(values, f"{name}.weight"))
                slope = torch.ops.aten.threshold_backward(slope, before, 0)
        return flat, losses

    return gradient


def _cross_entropy(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean loss of each worker, axes ``(worker,)``, and its slope by the outputs.

    By the kernel that autograd calls, so that the bits are those of the loop.
    """
    logs = functional.log_softmax(outputs, dim=2)
    at = targets.unsqueeze(2)
    losses = -logs.gather(2, at).mean(dim=(1, 2))
    seed = torch.zeros_like(logs).scatter_(2, at, -1.0 / outputs.shape[1])
    return losses, torch._log_softmax_backward_data(seed, logs, 2, logs.dtype)


def _is_classification(task: Task) -> bool:
    """Whether rows of numbers are told apart by an integer class each."""
    inputs, targets = task.train
    plain = inputs.ndim == 2 and targets.ndim == 1 and not targets.is_floating_point()
    return task.loss is functional.cross_entropy and plain and bool((targets >= 0).all())


def _layers(module: nn.Module) -> list[str]:
    """Names of the Linear layers in order, or none where the module is of another kind."""
    if type(module) is not nn.Sequential:
        return []
    # Not named_children, which passes over a layer that stands there twice.
    parts = [(name, part) for name, part in module._modules.items() if part is not None]
    if len({id(part) for _, part in parts if type(part) is nn.Linear}) < (len(parts) + 1) // 2:
        return []
    linear = [name for name, part in parts if type(part) is nn.Linear and part.bias is not None]
    alternating = all(
        type(part) is (nn.Linear if index % 2 == 0 else nn.ReLU)
        for index, (_, part) in enumerate(parts)
    )
    whole = len(linear) == (len(parts) + 1) // 2 and len(parts) % 2 == 1
    return linear if alternating and whole else []
