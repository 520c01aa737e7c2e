"""Chooses the engine that computes steps, and says why."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.random import fork_rng

from ....gossip.errors import ConfigError
from ....gossip.types import PeerId
from ....train.tasks.random_state import kept_random_state
from ....train.tasks.task import Task
from ..batches import Batches
from ..parameters import CPU, ParameterMatrix
from .dense import DenseGradient
from .loop import LoopStepper, Trainer, generators
from .stacked import Gradient, Group, StackedStepper, why_not_stacked
from .stepper import Stepper
from .vmapped import VmapGradient

__all__ = ["Engine", "Workshop", "alone", "choose"]

# A larger model keeps a core busy by itself.
_NUMBERS_MAX: Final = 1 << 20

# Maximum difference of gradients from the loop's, as a fraction of their norm: rounding makes a
# hundredth of this.
_TOLERANCE: Final = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Data that every engine needs."""

    make_rows: Callable[[int], ParameterMatrix]
    """Makes rows for that many workers, all at the model's start."""
    task: Task
    batches: Batches
    lr: float
    ids: tuple[PeerId, ...]
    seed: int

    def stacked(self, engine: str, rows: ParameterMatrix) -> StackedStepper:
        """Make a stepper that takes many steps at once.

        Raises:
            ConfigError: It cannot take this model or task.
        """
        gradient: Gradient
        if engine == "dense":
            gradient = DenseGradient(rows, self.task)
        else:
            gradient = VmapGradient(rows, self.task, self.ids, self.seed)
        return StackedStepper(rows, self.task, self.batches, self.lr, gradient)

    def stepper(self, engine: str, rows: ParameterMatrix) -> Stepper:
        """Make the stepper of these rows."""
        if engine == "loop":
            return LoopStepper(rows, self.task, self.batches, self.lr, self.ids, self.seed)
        return self.stacked(engine, rows)


class Engine(NamedTuple):
    """How steps are computed, and the reason of the choice."""

    name: str
    why: str


def choose(engine: str, workshop: Workshop) -> Engine:
    """Return the requested engine, or the one for models of this kind."""
    # The choice does not depend on timing, so that the same settings have the same digest.
    if engine != "auto":
        if engine != "loop" and (why := _why_not(workshop, engine)):
            raise ConfigError(
                f"engine {engine} cannot take the task {workshop.task.name}: {why}. "
                "Leave engine out, or take loop"
            )
        return Engine(engine, "asked for")
    if why := _why_one_by_one(workshop):
        return Engine("loop", why)
    if not _why_not(workshop, "dense"):
        return Engine("dense", "a multilayer perceptron")
    if why := _why_not(workshop, "vmap"):
        return Engine("loop", f"steps cannot be taken at once: {why}")
    return Engine("vmap", "its steps can be taken at once")


def _why_one_by_one(workshop: Workshop) -> str:
    """Return why taking steps at once would gain nothing, or ""."""
    if len(workshop.ids) < 2:
        return "there is one worker"
    rows = workshop.make_rows(1)
    if rows.device != CPU:
        return ""
    if rows.n_params > _NUMBERS_MAX:
        return "the model is large enough to keep a core busy"
    convolutions = nn.Conv1d | nn.Conv2d | nn.Conv3d
    if any(isinstance(part, convolutions) for part in rows.module.modules()):
        return "convolutions of several workers are no faster at once"
    return ""


def _why_not(workshop: Workshop, engine: str) -> str:
    """Return why an engine cannot take the steps of this task, or ""."""
    rows = workshop.make_rows(1)
    if why := why_not_stacked(rows, workshop.task):
        return why
    try:
        return _why_otherwise(workshop, workshop.stacked(engine, rows).gradient)
    except ConfigError as error:
        return str(error)
    except Exception as error:  # a user's model may raise anything on several workers' values
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        return f"a step of several workers fails ({said})"


def _why_otherwise(workshop: Workshop, gradient: Gradient) -> str:
    """Return why gradients, and what a step writes, differ from the loop's, or ""."""
    # A step of two batches shows whether a model does anything other than tensor operations.
    task, ours, theirs = workshop.task, workshop.make_rows(2), workshop.make_rows(2)
    workers, steps = np.zeros(2, np.int64), np.arange(2)
    inputs, targets = workshop.batches.stacked(workshop.batches.indices(workers, steps))
    drawn, values = generators(), ours.x[0]
    with torch.no_grad():
        found, _ = gradient(Group(values, ours.locals, inputs, targets, workers, steps))
    slopes = torch.zeros_like(values)
    for place, slope in found:
        slopes[:, place] = slope
    gradient.check()
    if drawn != generators():
        return "it draws random numbers other than by dropout"
    known = torch.zeros_like(slopes)
    for worker, batch in enumerate(zip(inputs, targets, strict=True)):
        trainer = Trainer(theirs, theirs.module, task, workshop.lr, worker)
        trainer.task.backward(trainer.task.batch_loss(trainer.module, batch))
        named = dict(trainer.module.named_parameters())
        for placed in theirs.groups[0]:
            parameter = named.get(placed.spec.name)
            if parameter is not None and parameter.requires_grad:
                if parameter.grad is None:
                    return f"{placed.spec.name} has no gradient"
                placed.view(known[worker]).copy_(parameter.grad)
    # Dropout is drawn otherwise than in the loop.
    is_known = drawn == generators()
    pairs = [(slopes, known), (values, theirs.x[0]), *zip(ours.locals, theirs.locals, strict=True)]
    alike = ((a.double() - b.double()).norm() <= _TOLERANCE * b.double().norm() for a, b in pairs)
    if is_known and not all(alike):
        return "its gradients are not those of one step after another"
    return ""


_ALONE = threading.RLock()


@contextmanager
def alone() -> Iterator[None]:
    """Admit one thread at a time, with one thread of torch, and restore all random state."""
    # A sum that is shared among threads rounds otherwise, and each worker's arithmetic is too small
    # to be worth sharing. A GPU that is not in use yet has drawn nothing.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with _ALONE, fork_rng(devices=devices), kept_random_state():
        n_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(n_threads)
