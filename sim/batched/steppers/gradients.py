"""Gradients of many workers at once, of any model whose step can be traced.

A step's operations are recorded for one worker, see `tracing`, and carried out for all of them, see
`stacking`; on a CPU with the loop's bits.
"""

import threading
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Final

import torch
from torch import Tensor

from ....train.tasks.sources import is_pair
from ....train.tasks.task import Task
from ..parameters import CPU, ParameterMatrix, view_of
from .loop import has_hooks
from .stacking import stack
from .tracing import Trace, Traced

__all__ = ["Gradient", "unbatchable", "why_unstacked"]

# What all operations of those who are computed at once make, most of which is soon let go of.
_NUMBERS_AT_ONCE: Final = 1 << 25
_NUMBERS_AT_ONCE_ELSEWHERE: Final = 1 << 30

Program = Callable[..., Sequence[Tensor]]


def why_unstacked(task: Task, device: torch.device = CPU) -> str:
    """Why the steps of a task are not those of stacked inputs and targets, or nothing."""
    if task.training_step is not None:
        return "it has a training_step"
    if not is_pair(task.train):
        return "its data are not two tensors"
    if task.augment is not None:
        return "it augments its batches"
    plain = ("float32", "auto") if device.type == "cpu" else ("float32",)
    return "" if task.precision in plain else f"its precision is {task.precision}"


def unbatchable(rows: ParameterMatrix, task: Task) -> str:
    """Why a task cannot be batched, whatever its model computes, or nothing."""
    if why := why_unstacked(task, rows.device):
        return why
    if len(rows.segments) != 1:
        return "its parameters have several dtypes"
    placed = rows.segments[0].tensors
    if any(rows.names[p.spec.name] != (p.spec.name,) for p in (*placed, *rows.local)):
        return "its model is wrapped, or has parameters that are tied by their data"
    if any(p.spec.order for p in placed):
        return "its parameters are in another memory format"
    if not all(side.is_contiguous() for side in task.train):
        return "its data are in another memory format"
    # Steps are taken with tensors in the place of parameters, which have none.
    return "its parameters have hooks" if has_hooks(rows.module) else ""


class Gradient:
    """The gradient of a task's loss for a stack of workers.

    Args:
        rows: Whose layout the vectors have.
        apart: Whether every operation is carried out for one worker after another.
    """

    def __init__(self, rows: ParameterMatrix, task: Task, *, apart: bool = False) -> None:
        assert task.loss is not None
        self._placed = rows.segments[0].tensors
        self._start_bytes = rows.segments[0].start_bytes
        module = deepcopy(rows.module)
        trained = {name for name, p in module.named_parameters() if p.requires_grad}
        names = [p.spec.name for p in self._placed]
        own = (*names, *(p.spec.name for p in rows.local))
        # A loss that counts is the loop's, too.
        loss = deepcopy(task.loss)
        self._traced = Traced(module, loss, tuple(name for name in names if name in trained), own)
        self._fixed = [*self._traced.fixed().values()]
        self._is_trained = [name in trained for name in names]
        self._exact = rows.device == CPU
        self._apart = apart
        self.buffers = [
            slice(at, at + placed.tensor.numel())
            for placed, is_trained in zip(self._placed, self._is_trained, strict=True)
            for at in [(placed.offset_bytes - self._start_bytes) // placed.tensor.element_size()]
            if not is_trained
        ]
        """Where in a vector those numbers lie that a step may write and that are not trained."""
        self._programs: dict[object, tuple[Program, int]] = {}
        self._lock = threading.Lock()

    def __call__(
        self, values: Tensor, locals: Sequence[Tensor], inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute it on one batch of each worker, all of one size.

        Args:
            values: Vectors, axes ``(worker, number)``, padding included; a step's buffers are
                written there.
            locals: What is not shared, axes ``(worker, *shape)``; written, too.
            inputs: Axes ``(worker, batch, ...)``.
            targets: Likewise.

        Returns:
            Gradients, laid out as *values*, and losses, axis ``worker``.

        Raises:
            ConfigError: The step cannot be traced.
        """
        flat, losses = torch.zeros_like(values), values.new_empty(len(values))
        given = *self._views(values), *locals, inputs, targets
        places = [
            place
            for place, is_trained in zip(self._views(flat), self._is_trained, strict=True)
            if is_trained
        ]
        program, at_once = self._program(given)
        with torch.no_grad():
            for start in range(0, len(values), at_once):
                group = slice(start, start + at_once)
                *own, x, y = (part[group] for part in given)
                *slopes, losses[group] = program(*own, *self._fixed, x, y)
                for place, slope in zip(places, slopes, strict=True):
                    place[group] = slope
        return flat, losses

    def _views(self, stacked: Tensor) -> list[Tensor]:
        return [view_of(placed, self._start_bytes, stacked) for placed in self._placed]

    def _program(self, given: Sequence[Tensor]) -> tuple[Program, int]:
        """What is carried out for batches like these, and for how many workers at once."""
        key = tuple((part.shape[1:], part.dtype) for part in given[-2:])
        with self._lock:
            if key not in self._programs:
                self._programs[key] = self._make(given)
        return self._programs[key]

    def _make(self, given: Sequence[Tensor]) -> tuple[Program, int]:
        n = len(given[0])
        some = [torch.stack([part[at] for at in (0, n // 2, n - 1)]) for part in given]
        # The last batch backwards, so that it is another one even where there is one worker.
        some[-2:] = (torch.stack([a, b, c.flip(0)]) for a, b, c in some[-2:])
        *own, inputs, targets = some
        self._tell_apart(own)
        trace = Trace(self._traced, [part[::2] for part in own], inputs[::2], targets[::2])
        most = _NUMBERS_AT_ONCE if self._exact else _NUMBERS_AT_ONCE_ELSEWHERE
        with torch.no_grad():
            stacked = stack(trace, some, exact=self._exact, apart=self._apart)
        return stacked.forward, max(1, most // max(1, trace.n_numbers))

    def _tell_apart(self, own: Sequence[Tensor]) -> None:
        """Change what two of three workers have: zeros, and what all have, would hide roundings."""
        drawn = torch.Generator().manual_seed(0)
        is_trained = [*self._is_trained, *[False] * (len(own) - len(self._is_trained))]
        for part, trained in zip(own, is_trained, strict=True):
            if part.is_floating_point():
                changed = part[1:]
                noise = (
                    torch.randn(
                        changed.shape, generator=drawn, dtype=torch.float32, device="cpu"
                    ).to(part)
                    / 100
                )
                # Variances among buffers stay positive.
                changed.mul_(1 + noise.abs()).add_(noise if trained else 0)
