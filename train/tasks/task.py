"""Tasks: a model to build, data, a loss, and the default settings for training."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from ...gossip.errors import ConfigError, TrainingError
from ...gossip.protocol.rule import Rule, requirements_of
from ...gossip.specs.spec import find
from .data import (
    Batch,
    Collate,
    Data,
    batch_length,
    batches_in_order,
    check_data,
    is_pair,
    is_tensors,
    map_tensors,
    n_samples_of,
    targets_of,
)
from .lr_schedule import parse_lr_schedule
from .partition import split
from .precision import autocast, check_precision
from .random_state import seeded

__all__ = [
    "OPTIMIZERS",
    "Evaluation",
    "MakeOptimizer",
    "Task",
    "fraction_right",
    "require_one_lr",
    "require_optimizer",
    "sgd",
    "trained_by",
]

MakeOptimizer: TypeAlias = Callable[[Iterable[nn.Parameter], float], Optimizer]
"""Makes an optimizer from parameters and a learning rate."""


def sgd(parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
    """Make the default optimizer of a task: SGD with momentum 0.9."""
    return SGD(parameters, lr=lr, momentum=0.9)


def _nesterov(parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
    return SGD(parameters, lr=lr, momentum=0.9, nesterov=True)


OPTIMIZERS: Final[Mapping[str, MakeOptimizer]] = MappingProxyType(
    {
        "sgd": sgd,
        "nesterov": _nesterov,
        "adam": Adam,
        "adamw": AdamW,
        "rmsprop": RMSprop,
        "adagrad": Adagrad,
    }
)
"""Optimizers, by name, that may replace a task's own. Except for the learning rate and the momentum
0.9 of the first two, they have torch's defaults."""


def fraction_right(outputs: Tensor, targets: Tensor) -> float:
    """Return the accuracy of a classifier, whose *outputs* have classes on their last axis."""
    return (outputs.argmax(dim=-1) == targets).double().mean().item()


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Result of a model on a task's held-out data."""

    loss: float
    """Mean over the held-out samples."""

    accuracy: float | None
    """Fraction of the held-out samples that are right; None if undefined."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Task:
    """Something to train, the same on every peer.

    Either `loss`, for pairs of inputs and targets, or `training_step`, for batches of any form,
    computes the loss of a batch.

    Raises:
        ConfigError: A setting is out of range, data are of no supported form, or something is
            missing or given twice.
    """

    name: str
    """Name in tables and files."""

    model: Callable[[], nn.Module]
    """Builds the initial model; the caller seeds torch before."""

    train: Data
    """Training data: tensors (inputs and targets, or any tuple or dict of them, the first axis of
    all ``n_samples``), or a map-style dataset."""

    test: Data
    """Held-out data, in one of these forms, with batches like those of ``train``."""

    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    """Computes a scalar from outputs and targets, the mean over the samples."""

    training_step: Callable[[nn.Module, Batch], Tensor] | None = None
    """Computes a scalar from a model and a batch, the mean loss over the samples; replaces
    ``loss``."""

    accuracy: Callable[[Tensor, Tensor], float] | None = None
    """Computes the fraction that is right from outputs and targets; None if undefined."""

    evaluation_step: Callable[[nn.Module, Batch], Evaluation] | None = None
    """Computes means over the samples from a model, in evaluation mode, and a batch; default: from
    ``loss`` and ``accuracy``, or ``training_step``."""

    augment: Callable[[Batch], Batch] | None = None
    """Changes a training batch, on its device. Torch, numpy and Python are seeded before each call,
    by the run's seed, the peer and the step."""

    collate: Collate | None = None
    """Makes a batch from a list of a dataset's samples; default: torch's ``default_collate``."""

    targets: Tensor | NDArray[Any] | None = None
    """One value per sample of ``train``, for partitions such as ``dirichlet``. Needed if these are
    neither the second of two tensors nor ``targets`` of a dataset."""

    precision: str = "float32"
    """Precision of steps and evaluations: ``float32`` for the model's own, or ``bfloat16`` under
    autocast; ``auto`` is ``bfloat16`` on a GPU that supports it, and ``float32`` elsewhere and in
    simulations."""

    optimizer: MakeOptimizer = sgd
    """Makes an optimizer from parameters and a learning rate."""

    lr: float
    """Learning rate. Raise it for speed, lower it when the loss is not finite."""

    lr_schedule: str = "constant"
    """Learning rate schedule, see `parse_lr_schedule`."""

    batch_size: int
    """Samples per step and peer. Raise it for less noise, at more time per step."""

    steps: int
    """Steps that each peer takes."""

    def __post_init__(self) -> None:
        check_data("train", self.train)
        check_data("test", self.test)
        self._check_steps()
        n_samples = n_samples_of(self.train)
        if self.targets is not None and len(self.targets) != n_samples:
            raise ConfigError(
                f"task {self.name} has {n_samples:,} samples and {len(self.targets):,} targets"
            )
        check_precision(self.precision)
        parse_lr_schedule(self.lr_schedule)
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ConfigError(f"lr is {self.lr}: it must be a finite number above 0")
        for field in ("batch_size", "steps"):
            if (value := getattr(self, field)) < 1:
                raise ConfigError(f"{field} is {value}: it must be 1 or more")

    def trained_with(
        self,
        *,
        optimizer: str | None = None,
        momentum: float | None = None,
        precision: str | None = None,
    ) -> "Task":
        """Return the task with another optimizer, one of `OPTIMIZERS`, another momentum, or another
        precision.

        Raises:
            ConfigError: The name is unknown, the momentum is out of range, or, once the optimizer
                is made, it has no momentum.
        """
        make = self.optimizer if optimizer is None else find("optimizer", optimizer, OPTIMIZERS)
        if momentum is not None:
            if not 0 <= momentum < 1:
                raise ConfigError(f"momentum is {momentum}: it must be at least 0 and below 1")
            make = partial(_with_momentum, make, momentum)
        return replace(self, optimizer=make, precision=precision or self.precision)

    def split(self, partition: str, n: int, seed: int) -> list[NDArray[np.int64]]:
        """Assign samples to *n* peers, see `rumor.train.tasks.partition.split`.

        Returns:
            For each peer the indices of its samples: int64, axes ``(n_own,)``.

        Raises:
            ConfigError: The partition is invalid, has too few samples, or needs targets that the
                task lacks.
        """
        targets = self.targets if self.targets is not None else targets_of(self.train)
        return split(partition, targets, n, seed, n_samples=n_samples_of(self.train))

    def batch_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss of *model* on a batch on its device: a scalar, for ``backward``.

        Raises:
            TrainingError: The batch is not a pair, which `loss` needs, or the step did not return a
                scalar.
        """
        with autocast(self.precision, _device_of(model)):
            if self.training_step is None:
                inputs, targets = self._pair(batch)
                assert self.loss is not None
                return self.loss(model(inputs), targets)
            loss = self.training_step(model, batch)
        if not (isinstance(loss, Tensor) and loss.numel() == 1):
            what = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise TrainingError(
                f"training_step of task {self.name} returned {what}: it must return a scalar "
                "tensor, the mean loss over the samples of the batch"
            )
        return loss

    def evaluate(self, model: nn.Module) -> Evaluation:
        """Return loss and accuracy of *model* on the held-out data, means over all samples.

        Batches of ``batch_size`` samples are moved to the model's device one at a time, so that a
        model that can be trained there can be evaluated. Every submodule keeps its mode, training
        or evaluation.

        Raises:
            TrainingError: A batch does not have the required form.
        """
        # Tensors draw no random numbers; a dataset may, but must not change later draws.
        draws = nullcontext() if is_tensors(self.test) else seeded(0)
        with draws, _evaluating(model):
            return self._mean_over_batches(model)

    @torch.no_grad()
    def _mean_over_batches(self, model: nn.Module) -> Evaluation:
        device = _device_of(model)
        loss_sum = right = 0.0
        n_samples, has_accuracy = 0, True
        for batch in batches_in_order(self.test, self.batch_size, self.collate):
            n = batch_length(batch)
            moved = map_tensors(batch, lambda side: side.to(device))
            with autocast(self.precision, device):
                found = self._evaluate_batch(model, moved)
            n_samples += n
            loss_sum += n * found.loss
            if found.accuracy is None:
                has_accuracy = False
            else:
                right += n * found.accuracy
        accuracy = right / n_samples if has_accuracy else None
        return Evaluation(loss=loss_sum / n_samples, accuracy=accuracy)

    def _evaluate_batch(self, model: nn.Module, batch: Batch) -> Evaluation:
        if self.evaluation_step is not None:
            found = self.evaluation_step(model, batch)
            if not isinstance(found, Evaluation):
                raise TrainingError(
                    f"evaluation_step of task {self.name} returned a {type(found).__name__}: it "
                    "must return an Evaluation"
                )
            return found
        if self.training_step is not None:
            return Evaluation(loss=float(self.training_step(model, batch)), accuracy=None)
        inputs, targets = self._pair(batch)
        assert self.loss is not None
        outputs = model(inputs)
        loss = float(self.loss(outputs, targets))
        accuracy = None if self.accuracy is None else float(self.accuracy(outputs, targets))
        return Evaluation(loss=loss, accuracy=accuracy)

    def _pair(self, batch: Batch) -> tuple[Tensor, Tensor]:
        if not is_pair(batch):
            raise TrainingError(
                f"a batch of task {self.name} is {_form_of(batch)}: loss needs two tensors, inputs "
                "and targets; give training_step in its place"
            )
        inputs, targets = batch
        return inputs, targets

    def _check_steps(self) -> None:
        if (self.loss is None) == (self.training_step is None):
            raise ConfigError(
                "a task needs either loss (outputs and targets to a scalar) or training_step "
                f"(model and batch to a scalar), and {self.name} has "
                + ("neither" if self.loss is None else "both")
            )
        if self.training_step is not None and self.accuracy is not None:
            raise ConfigError(
                "accuracy is measured on the outputs that loss is computed from: with "
                "training_step, give evaluation_step, which says both"
            )


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode within a block, and then restore each submodule's mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, without its module."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _device_of(model: nn.Module) -> torch.device:
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _form_of(batch: Batch) -> str:
    """Describe a batch."""
    if isinstance(batch, Mapping):
        return f"a dict of {', '.join(map(str, batch))}"
    if isinstance(batch, tuple | list):
        return f"a {type(batch).__name__} of {len(batch)}"
    return f"a {type(batch).__name__}"


def _with_momentum(
    make: MakeOptimizer,
    momentum: float,
    parameters: Iterable[nn.Parameter],
    lr: float,
) -> Optimizer:
    optimizer = make(parameters, lr)
    for group in optimizer.param_groups:
        if "momentum" not in group:
            kind = type(optimizer).__name__
            raise ConfigError(f"momentum is {momentum:g}: the task's optimizer, {kind}, has none")
        group["momentum"] = momentum
    return optimizer


def trained_by(
    task: Task, lr: float | None = None, lr_schedule: str | None = None
) -> dict[str, Any]:
    """Return the settings that train a task: ``optimizer``, ``momentum`` (None without any),
    ``lr``, and ``lr_schedule`` unless constant. Defaults are the task's.

    Raises:
        ConfigError: The task sets a momentum, but the optimizer has none.

    >>> from rumor.train.tasks.digits import digits
    >>> trained_by(digits())
    {'optimizer': 'SGD', 'momentum': 0.9, 'lr': 0.1}
    """
    lr, schedule = task.lr if lr is None else lr, lr_schedule or task.lr_schedule
    changing = {} if parse_lr_schedule(schedule).is_constant else {"lr_schedule": schedule}
    try:
        optimizer = task.optimizer(
            [nn.Parameter(torch.zeros(1, dtype=torch.float32, device="cpu"))], lr
        )
    except ConfigError:
        raise
    except Exception:  # one of a user's own, which may want the parameters of a whole model
        return {"optimizer": _name_of(task.optimizer), "momentum": None, "lr": lr} | changing
    group = optimizer.param_groups[0]
    kind = type(optimizer).__name__ + (" (Nesterov)" if group.get("nesterov") else "")
    return {"optimizer": kind, "momentum": group.get("momentum"), "lr": lr} | changing


def require_optimizer(rule: Rule, task: Task, model: nn.Module | None = None) -> None:
    """Check that a rule works with the optimizer of a task.

    **model* is the task's, whose parameters may be in several groups; default: a single one.

    Raises:
        ConfigError: It does not.
    """
    requirements = requirements_of(rule)
    if not (requirements.plain_sgd or requirements.lr):
        return
    own = (
        [nn.Parameter(torch.zeros(1, dtype=torch.float32, device="cpu"))]
        if model is None
        else model.parameters()
    )
    optimizer = task.optimizer([each for each in own if each.requires_grad], task.lr)
    kind = type(optimizer).__name__
    momentum = max((group.get("momentum", 0.0) for group in optimizer.param_groups), default=0.0)
    if requirements.plain_sgd and (type(optimizer) is not SGD or momentum):
        has = f"{kind} with momentum {momentum:g}" if type(optimizer) is SGD else kind
        raise ConfigError(
            f"rule {rule.name!r} needs plain SGD, and the task trains with {has}: give momentum 0 "
            "(--set momentum=0) and a learning rate to fit, or use another rule"
        )
    require_one_lr(rule, optimizer.param_groups)


def require_one_lr(rule: Rule, groups: Iterable[Mapping[str, Any]]) -> None:
    """Check that an optimizer's groups have one learning rate, if a rule uses it.

    Raises:
        ConfigError: They have several.
    """
    if not requirements_of(rule).lr:
        return
    rates = sorted({float(group["lr"]) for group in groups})
    if len(rates) > 1:
        raise ConfigError(
            f"rule {rule.name!r} goes by the learning rate of a step, and the optimizer's groups "
            f"of parameters have {len(rates)}, from {rates[0]:g} to {rates[-1]:g}: give all the "
            "same one, or use a rule that does not look at it, such as gosgd or dpsgd"
        )
