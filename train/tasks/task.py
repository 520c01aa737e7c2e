"""Tasks: a model to build, data, a loss, and the default settings for training."""

import inspect
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
from torch.nn import functional
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from ...gossip.errors import ConfigError, RumorError, TrainingError
from ...gossip.protocol.rule import Rule, requirements_of
from ...gossip.rules.plugin import as_raised
from ...gossip.specs.parameter import listed, plain_numbers
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
    unwrapped,
)
from .lr_schedule import parse_lr_schedule
from .partition import split
from .precision import PRECISIONS, autocast
from .random_state import seeded

__all__ = [
    "OPTIMIZERS",
    "Evaluation",
    "MakeOptimizer",
    "Task",
    "fraction_right",
    "mean_of",
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


OPTIMIZERS: Final[Mapping[str, MakeOptimizer]] = MappingProxyType(
    {
        "sgd": sgd,
        "nesterov": partial(SGD, momentum=0.9, nesterov=True),
        "adam": Adam,
        "adamw": AdamW,
        "rmsprop": RMSprop,
        "adagrad": Adagrad,
    }
)
"""Optimizers, by name, that may replace a task's own. Except for the learning rate and the momentum
0.9 of the first two, they have torch's defaults."""


def fraction_right(outputs: Tensor, targets: Tensor, axis: int = -1) -> float:
    """Return the accuracy of a classifier, whose *outputs* have the classes on an axis."""
    return (outputs.argmax(dim=axis) == targets).double().mean().item()


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Result of a model on a task's held-out data."""

    loss: float
    """Mean over the held-out samples."""

    accuracy: float | None
    """Fraction of the held-out samples that are right; None if undefined."""


def mean_of(batches: Iterable[tuple[int, Evaluation]]) -> Evaluation:
    """Return the mean over all samples, from the size of each batch and its evaluation."""
    n_samples, loss, right = 0, 0.0, 0.0
    has_accuracy = True
    for n, found in batches:
        n_samples += n
        loss += n * found.loss
        has_accuracy &= found.accuracy is not None
        right += n * (found.accuracy or 0.0)
    return Evaluation(loss=loss / n_samples, accuracy=right / n_samples if has_accuracy else None)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Task:
    """Something to train, the same on every peer.

    A model and data are enough where targets are class labels. Either `loss`, for pairs of inputs
    and targets, or `training_step`, for batches of any form, computes the loss of a batch.

    Raises:
        ConfigError: A setting is out of range, data are of no supported form, or something is
            missing or given twice.
    """

    name: str = ""
    """Name in tables and files; default: that of ``model``."""

    model: Callable[[], nn.Module]
    """Builds the initial model; the caller seeds torch before."""

    train: Data
    """Training data: tensors (inputs and targets, or any tuple or dict of them, the first axis of
    all ``n_samples``), or a map-style dataset. A `TensorDataset`, or a `Subset` of one, becomes
    its tensors."""

    test: Data
    """Held-out data, in one of these forms, with batches like those of ``train``."""

    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    """Computes a scalar from outputs and targets, the mean over the samples; default: for class
    labels, which are integers, the cross-entropy."""

    training_step: Callable[[nn.Module, Batch], Tensor] | None = None
    """Computes a scalar from a model and a batch, the mean loss over the samples; replaces
    ``loss``."""

    accuracy: Callable[[Tensor, Tensor], float] | None = None
    """Computes the fraction that is right from outputs and targets; default: for class labels, the
    fraction whose output is the largest; undefined for other targets."""

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

    lr: float = 0.01
    """Learning rate. Raise it for speed, lower it when the loss is not finite."""

    lr_schedule: str = "constant"
    """Learning rate schedule, see `parse_lr_schedule`."""

    batch_size: int = 32
    """Samples per step and peer. Raise it for less noise, at more time per step."""

    steps: int = 200
    """Steps that each peer takes."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        if isinstance(self.model, nn.Module) or not callable(self.model):
            raise ConfigError(
                f"model is a {type(self.model).__name__}: it must be what makes an nn.Module, a "
                "class or a function without arguments, as in model=lambda: Net(10)"
            )
        object.__setattr__(self, "name", self.name or _name_of(self.model))
        for field in ("train", "test"):
            data = getattr(self, field)
            check_data(field, data)
            if self.collate is None:
                object.__setattr__(self, field, unwrapped(data))
        self._check_steps()
        n_samples = n_samples_of(self.train)
        if self.targets is not None and len(self.targets) != n_samples:
            raise ConfigError(
                f"task {self.name} has {n_samples:,} samples and {len(self.targets):,} targets"
            )
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision is {self.precision!r}: it must be {listed(PRECISIONS)}")
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
        """Return the task with another optimizer, one of `OPTIMIZERS`, momentum or precision.

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

    def build(self) -> nn.Module:
        """Build the initial model, or raise TrainingError; the caller seeds torch before."""
        try:
            made = self.model()
        except Exception as error:  # a user's model may raise anything
            raise TrainingError(
                f"the model of task {self.name} raised {as_raised(error)}"
            ) from error
        if not isinstance(made, nn.Module):
            what = type(made).__name__
            raise TrainingError(
                f"the model of task {self.name} is a {what}: it must be an nn.Module"
            )
        return made

    def make_optimizer(self, parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
        """Make an optimizer of parameters, or raise ConfigError if its steps need a closure."""
        made = self.optimizer(parameters, lr)
        closure = inspect.signature(made.step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            raise ConfigError(
                f"task {self.name} trains with {type(made).__name__}, whose step needs a closure "
                "that computes the loss again: use an optimizer whose step takes no arguments"
            )
        return made

    def split(self, partition: str, n: int, seed: int) -> list[NDArray[np.int64]]:
        """Assign samples to *n* peers, or raise ConfigError; see `tasks.partition.split`.

        Returns:
            For each peer the indices of its samples: int64, axes ``(n_own,)``.
        """
        targets = self.targets if self.targets is not None else targets_of(self.train)
        return split(partition, targets, n, seed, n_samples=n_samples_of(self.train))

    def batch_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the loss of *model* on a batch on its device, or raise TrainingError."""
        with autocast(self.precision, _device_of(model)):
            loss, _ = self._compute(model, batch)
        if not (isinstance(loss, Tensor) and loss.numel() == 1):
            step = "loss" if self.training_step is None else "training_step"
            raise TrainingError(
                f"{step} of task {self.name} returned {_form_of(loss)}: it must return a scalar "
                "tensor, the mean loss over the samples of the batch"
            )
        return loss

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of a batch's loss, or raise TrainingError if it has none."""
        if not loss.requires_grad:
            raise TrainingError(
                f"the loss of task {self.name} has no gradient: it does not depend on a parameter "
                "that requires one, or was computed under detach() or torch.no_grad()"
            )
        loss.backward()

    def _compute(self, model: Any, batch: Batch) -> tuple[Tensor, Any]:
        """Return the loss of a batch, and the outputs, unless there is a training step."""
        outputs: Any = None
        try:
            if self.training_step is not None:
                return self.training_step(model, batch), outputs
            inputs, targets = self._pair(batch)
            outputs = model(inputs)
            assert self.loss is not None
            return self.loss(outputs, targets), outputs
        except RumorError:
            raise
        except Exception as error:  # a user's model and loss may raise anything
            made = "" if outputs is None else f" gave {_form_of(outputs)}, and the loss"
            raise TrainingError(
                f"the model of task {self.name}, of a batch of {_form_of(batch)},{made} raised "
                f"{as_raised(error)}"
            ) from error

    def evaluate(self, model: nn.Module) -> Evaluation:
        """Return loss and accuracy of *model* on the held-out data, means over all samples.

        Raises:
            TrainingError: A batch does not have the required form, or the evaluation raised
                something.
        """
        device = _device_of(model)
        found: list[tuple[int, Evaluation]] = []
        # Tensors draw no random numbers; a dataset may, but must not change later draws.
        draws = nullcontext() if is_tensors(self.test) else seeded(0)
        with draws, _evaluating(model), torch.no_grad():
            # One batch at a time: a model that can be trained on its device can be evaluated there.
            for batch in batches_in_order(self.test, self.batch_size, self.collate):
                moved = map_tensors(batch, lambda side: side.to(device))
                with autocast(self.precision, device):
                    found.append((batch_length(batch), self.evaluate_batch(model, moved)))
        return mean_of(found)

    def evaluate_batch(self, model: Any, batch: Batch) -> Evaluation:
        """Return loss and accuracy on a batch on the model's device, or raise TrainingError."""
        try:
            if self.evaluation_step is None:
                loss, outputs = self._compute(model, batch)
                paired = outputs is not None
                accuracy = self.accuracy_of(outputs, self._pair(batch)[1]) if paired else None
                return Evaluation(loss=float(loss), accuracy=accuracy)
            found = self.evaluation_step(model, batch)
        except RumorError:
            raise
        except Exception as error:  # a user's model, accuracy and evaluation may raise anything
            raise TrainingError(
                f"the evaluation of task {self.name}, of a batch of {_form_of(batch)}, raised "
                f"{as_raised(error)}"
            ) from error
        if not isinstance(found, Evaluation):
            raise TrainingError(
                f"evaluation_step of task {self.name} returned a {type(found).__name__}: it must "
                "return an Evaluation"
            )
        return found

    def accuracy_of(self, outputs: Any, targets: Tensor) -> float | None:
        """Return the fraction of outputs that is right; None if it is undefined."""
        if self.accuracy is not None:
            return float(self.accuracy(outputs, targets))
        if not (isinstance(outputs, Tensor) and _are_labels(targets)):
            return None
        # As in torch's cross-entropy, or with the classes last.
        for axis in (1, outputs.ndim - 1):
            shape = (*outputs.shape[:axis], *outputs.shape[axis + 1 :])
            if 0 < axis < outputs.ndim and shape == targets.shape and outputs.shape[axis] > 1:
                return fraction_right(outputs, targets, axis)
        return None

    def _pair(self, batch: Batch) -> tuple[Tensor, Tensor]:
        if not is_pair(batch):
            raise TrainingError(
                f"a batch of task {self.name} is {_form_of(batch)}: loss needs two tensors, inputs "
                "and targets; give training_step in its place"
            )
        inputs, targets = batch
        return inputs, targets

    def _check_steps(self) -> None:
        if self.loss is not None and self.training_step is not None:
            raise ConfigError(
                f"task {self.name} has both loss (outputs and targets to a scalar) and "
                "training_step (model and batch to a scalar): give one of them"
            )
        if self.training_step is None and self.loss is None:
            # A dataset may draw random numbers.
            with seeded(0):
                batch = next(batches_in_order(self.train, 1, self.collate))
            if not (is_pair(batch) and _are_labels(batch[1])):
                raise ConfigError(
                    f"a batch of task {self.name} is {_form_of(batch)}: without loss, it must be "
                    "inputs and class labels, which are integers. Give loss (outputs and targets "
                    "to a scalar), such as torch.nn.functional.mse_loss, or training_step (model "
                    "and batch to a scalar)"
                )
            object.__setattr__(self, "loss", functional.cross_entropy)
        for field in ("loss", "training_step", "accuracy", "optimizer"):
            value = getattr(self, field)
            if isinstance(value, type) and field != "optimizer":
                name = value.__name__
                raise ConfigError(f"{field} is the class {name}: give an instance, {name}()")
            if value is not None and not callable(value):
                raise ConfigError(f"{field} is a {type(value).__name__}: it must be a function")
        if self.training_step is not None and self.accuracy is not None:
            raise ConfigError(
                "accuracy is measured on the outputs that loss is computed from: with "
                "training_step, give evaluation_step, which says both"
            )


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode within a block; then restore each submodule's mode."""
    # `model.train()` would also set those that their user has frozen.
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


def _are_labels(targets: Tensor) -> bool:
    return not (targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool)


def _form_of(value: Any) -> str:
    """Describe a batch, or what a model or a loss made of it."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a dict of {', '.join(map(str, value))}"
    if is_pair(value):
        return " and ".join(map(_form_of, value))
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


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
    """Return the settings that train a task, for reports; defaults are the task's.

    Raises:
        ConfigError: The task sets a momentum, but the optimizer has none.

    >>> from rumor.train.tasks.digits import digits
    >>> trained_by(digits())
    {'optimizer': 'SGD', 'momentum': 0.9, 'lr': 0.1}
    """
    lr, schedule = task.lr if lr is None else lr, lr_schedule or task.lr_schedule
    changing = {} if parse_lr_schedule(schedule).is_constant else {"lr_schedule": schedule}
    try:
        optimizer = task.optimizer([_parameter()], lr)
    except ConfigError:
        raise
    except Exception:  # one of a user's own, which may want the parameters of a whole model
        return {"optimizer": _name_of(task.optimizer), "momentum": None, "lr": lr} | changing
    group = optimizer.param_groups[0]
    kind = type(optimizer).__name__ + (" (Nesterov)" if group.get("nesterov") else "")
    return {"optimizer": kind, "momentum": group.get("momentum"), "lr": lr} | changing


def require_optimizer(rule: Rule, task: Task, model: nn.Module | None = None) -> None:
    """Raise ConfigError unless a rule works with a task's optimizer, of *model*'s parameters."""
    requirements = requirements_of(rule)
    if not (requirements.plain_sgd or requirements.lr):
        return
    own = [_parameter()] if model is None else model.parameters()
    optimizer = task.make_optimizer([each for each in own if each.requires_grad], task.lr)
    kind = type(optimizer).__name__
    momentum = max((group.get("momentum", 0.0) for group in optimizer.param_groups), default=0.0)
    if requirements.plain_sgd and (type(optimizer) is not SGD or momentum):
        has = f"{kind} with momentum {momentum:g}" if type(optimizer) is SGD else kind
        raise ConfigError(
            f"rule {rule.name!r} needs plain SGD, and the task trains with {has}: give momentum 0 "
            "(--set momentum=0) and a learning rate to fit, or use another rule"
        )
    require_one_lr(rule, optimizer.param_groups)


def _parameter() -> nn.Parameter:
    return nn.Parameter(torch.zeros(1, dtype=torch.float32, device="cpu"))


def require_one_lr(rule: Rule, groups: Iterable[Mapping[str, Any]]) -> None:
    """Raise ConfigError if a rule goes by the learning rate, and an optimizer has several."""
    if not requirements_of(rule).lr:
        return
    rates = sorted({float(group["lr"]) for group in groups})
    if len(rates) > 1:
        raise ConfigError(
            f"rule {rule.name!r} goes by the learning rate of a step, and the optimizer's groups "
            f"of parameters have {len(rates)}, from {rates[0]:g} to {rates[-1]:g}: give all the "
            "same one, or use a rule that does not look at it, such as gosgd or dpsgd"
        )
