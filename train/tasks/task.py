"""What a task is: a model to build, data, a loss, and the settings that train it by default."""

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
"""Parameters and learning rate to an optimizer."""


def sgd(parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
    """The optimizer of a task that names none: SGD with momentum 0.9."""
    return SGD(parameters, lr=lr, momentum=0.9)


def _nesterov(parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
    return SGD(parameters, lr=lr, momentum=0.9, nesterov=True)


OPTIMIZERS: Final[Mapping[str, MakeOptimizer]] = MappingProxyType(
    {
        "sgd": sgd,
        "nesterov": _nesterov,
        "adam": lambda parameters, lr: Adam(parameters, lr=lr),
        "adamw": lambda parameters, lr: AdamW(parameters, lr=lr),
        "rmsprop": lambda parameters, lr: RMSprop(parameters, lr=lr),
        "adagrad": lambda parameters, lr: Adagrad(parameters, lr=lr),
    }
)
"""By name, those that a task may be trained with in place of its own; all but the learning rate,
and the momentum .9 of the first two, is as torch has it."""


def fraction_right(outputs: Tensor, targets: Tensor) -> float:
    """The accuracy of a classifier, whose *outputs* have classes on their last axis."""
    return (outputs.argmax(dim=-1) == targets).double().mean().item()


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """How good a model is on a task's held-out data."""

    loss: float
    """Mean over the held-out samples."""

    accuracy: float | None
    """Fraction of the held-out samples that are right; None where that makes no sense."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Task:
    """Something to train, the same on every peer.

    How a batch becomes a loss is said by `loss`, for pairs of inputs and targets, or else by
    `training_step`, for batches of any form.

    Raises:
        ConfigError: A setting is out of range, data have none of the forms that there are, or
            something is missing or given twice.
    """

    name: str
    """Its name in tables and files."""

    model: Callable[[], nn.Module]
    """Builds the model at its start; the caller seeds torch before."""

    train: Data
    """What to train on: tensors (inputs and targets, or any tuple or dict of them, the first axis
    of all ``n_samples``), or a map-style dataset."""

    test: Data
    """Held-out data, in one of these forms; their batches as those of ``train``."""

    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    """Outputs and targets to a scalar, the mean over the samples."""

    training_step: Callable[[nn.Module, Batch], Tensor] | None = None
    """Model and batch to a scalar, the mean loss over the samples; in place of ``loss``."""

    accuracy: Callable[[Tensor, Tensor], float] | None = None
    """Outputs and targets to the fraction that is right; None where that makes no sense."""

    evaluation_step: Callable[[nn.Module, Batch], Evaluation] | None = None
    """Model, in evaluation mode, and batch to means over its samples; what ``loss`` and
    ``accuracy``, or ``training_step``, say unless given."""

    augment: Callable[[Batch], Batch] | None = None
    """A batch to train on, on its device, to another one. Torch, numpy and Python are seeded before
    each call, by the run's seed, the peer and the step."""

    collate: Collate | None = None
    """A list of a dataset's samples to a batch; default: torch's ``default_collate``."""

    targets: Tensor | NDArray[Any] | None = None
    """One value per sample of ``train``, by which partitions such as ``dirichlet`` go. Needed where
    these are neither the second of two tensors nor ``targets`` of a dataset."""

    precision: str = "float32"
    """Of the numbers that steps and evaluations compute with: ``float32``, as the model has it, or
    ``bfloat16`` under autocast; ``auto`` is ``bfloat16`` on a GPU that computes with it, elsewhere
    and in simulations ``float32``."""

    optimizer: MakeOptimizer = sgd
    """Parameters and learning rate to an optimizer."""

    lr: float
    """Learning rate. Raise it for speed, lower it when the loss is not finite."""

    lr_schedule: str = "constant"
    """How the learning rate changes as training goes on, see `parse_lr_schedule`."""

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
        """The same task with another optimizer, one of `OPTIMIZERS`, momentum of it, or precision.

        Raises:
            ConfigError: There is no such one, a momentum is out of range, or, once the optimizer
                is made, that has none.
        """
        make = self.optimizer if optimizer is None else find("optimizer", optimizer, OPTIMIZERS)
        if momentum is not None:
            if not 0 <= momentum < 1:
                raise ConfigError(f"momentum is {momentum}: it must be at least 0 and below 1")
            make = partial(_with_momentum, make, momentum)
        return replace(self, optimizer=make, precision=precision or self.precision)

    def split(self, partition: str, n: int, seed: int) -> list[NDArray[np.int64]]:
        """Say which samples each of *n* peers trains on, see `rumor.train.tasks.partition.split`.

        Returns:
            For each peer the indices of its samples: int64, axes ``(n_own,)``.

        Raises:
            ConfigError: The partition is not valid, there are too few samples for it, or the task
                does not say what it needs.
        """
        targets = self.targets if self.targets is not None else targets_of(self.train)
        return split(partition, targets, n, seed, n_samples=n_samples_of(self.train))

    def batch_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of *model* on a batch on its device: a scalar, from which gradients go back.

        Raises:
            TrainingError: The batch is no pair, as `loss` needs it, or the step returned no scalar.
        """
        with autocast(self.precision, _device_of(model)):
            if self.training_step is None:
                return self._pair_loss(model, batch)
            loss = self.training_step(model, batch)
        if not (isinstance(loss, Tensor) and loss.numel() == 1):
            what = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise TrainingError(
                f"training_step of task {self.name} returned {what}: it must return a scalar "
                "tensor, the mean loss over the samples of the batch"
            )
        return loss

    def evaluate(self, model: nn.Module) -> Evaluation:
        """Loss and accuracy of *model* on the held-out data, means over all samples.

        The samples go through in batches of ``batch_size``, moved to the model's device one
        batch at a time: what fits there in training fits here. Every submodule is left in
        the mode, training or evaluation, that it was in.

        Raises:
            TrainingError: A batch is not of the form it must be.
        """
        # Tensors draw nothing; a dataset may, and shall not change what is drawn later.
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

    def _pair_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        inputs, targets = self._pair(batch)
        assert self.loss is not None
        return self.loss(model(inputs), targets)

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
    """Have a model in evaluation mode; every submodule then is in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _name_of(function: Callable[..., Any]) -> str:
    """Name of a function, without its module."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _device_of(model: nn.Module) -> torch.device:
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _form_of(batch: Batch) -> str:
    """A batch in words."""
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
    """What a task is trained by: ``optimizer``, ``momentum`` (None for one without), ``lr``, and
    ``lr_schedule`` where that is not constant. What is not given is the task's.

    Raises:
        ConfigError: The optimizer has no momentum, and the task was given one.

    >>> from rumor.train.tasks.digits import noisy_digits
    >>> trained_by(noisy_digits())
    {'optimizer': 'SGD', 'momentum': 0.0, 'lr': 0.05}
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
    """Check that a rule can work behind the optimizer of a task.

    *model* is of the task, and its parameters may be in several groups; default: a single one.

    Raises:
        ConfigError: It cannot.
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
    """Check that an optimizer's groups have one learning rate, where a rule looks at it.

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
