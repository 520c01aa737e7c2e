"""What a task is: a model to build, data, a loss, and the settings that train it by default."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from ...gossip.errors import ConfigError
from ...gossip.protocol.rule import Rule, requirements_of

__all__ = ["Evaluation", "Task", "fraction_right", "require_optimizer", "sgd"]


def sgd(parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
    """Make the optimizer of a task that names none: SGD with momentum 0.9.

    Args:
        parameters: What to train.
        lr: Learning rate, > 0.

    Returns:
        A fresh optimizer.
    """
    return SGD(parameters, lr=lr, momentum=0.9)


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

    Raises:
        ConfigError: A setting is out of range, or inputs and targets do not pair up.
    """

    name: str
    """What to call it in tables and files."""

    model: Callable[[], nn.Module]
    """Builds the model at its start; the caller seeds torch before."""

    train: tuple[Tensor, Tensor]
    """Inputs and targets to train on; the first axis of both is ``n_samples``."""

    test: tuple[Tensor, Tensor]
    """Held-out inputs and targets, in the same form."""

    loss: Callable[[Tensor, Tensor], Tensor]
    """Outputs and targets to a scalar, the mean over the samples."""

    accuracy: Callable[[Tensor, Tensor], float] | None = None
    """Outputs and targets to the fraction that is right; None where that makes no sense."""

    optimizer: Callable[[Iterable[nn.Parameter], float], Optimizer] = sgd
    """Parameters and learning rate to an optimizer."""

    lr: float
    """Learning rate. Raise it for speed, lower it when the loss is not finite."""

    batch_size: int
    """Samples per step and peer. Raise it for less noise, at more time per step."""

    steps: int
    """Steps that each peer takes."""

    def __post_init__(self) -> None:
        _check_pair("train", self.train)
        _check_pair("test", self.test)
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ConfigError(f"lr is {self.lr}: it must be a finite number above 0")
        for field in ("batch_size", "steps"):
            if (value := getattr(self, field)) < 1:
                raise ConfigError(f"{field} is {value}: it must be 1 or more")

    def with_momentum(self, momentum: float | None) -> "Task":
        """The same task, its optimizer with another momentum; None for the one it has.

        Raises:
            ConfigError: It is out of range, or, once the optimizer is made, that has none.
        """
        if momentum is None:
            return self
        if not 0 <= momentum < 1:
            raise ConfigError(f"momentum is {momentum}: it must be at least 0 and below 1")
        return replace(self, optimizer=partial(_with_momentum, self.optimizer, momentum))

    def evaluate(self, model: nn.Module) -> Evaluation:
        """Measure *model* on the held-out data.

        The samples go through in batches of ``batch_size``, moved to the model's device one
        batch at a time: what fits there in training fits here. Every submodule is left in
        the mode, training or evaluation, that it was in.

        Args:
            model: A model as ``Task.model`` builds it, on any device.

        Returns:
            Loss and accuracy, means over all held-out samples.
        """
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        try:
            return self._mean_over_batches(model)
        finally:
            for module, mode in modes:
                module.training = mode

    @torch.no_grad()
    def _mean_over_batches(self, model: nn.Module) -> Evaluation:
        parameter = next(model.parameters(), None)
        device = self.test[0].device if parameter is None else parameter.device
        loss_sum = right = 0.0
        for start in range(0, len(self.test[0]), self.batch_size):
            inputs, targets = (
                side[start : start + self.batch_size].to(device) for side in self.test
            )
            outputs = model(inputs)
            loss_sum += len(inputs) * float(self.loss(outputs, targets))
            if self.accuracy is not None:
                right += len(inputs) * float(self.accuracy(outputs, targets))
        n_samples = len(self.test[0])
        accuracy = None if self.accuracy is None else right / n_samples
        return Evaluation(loss=loss_sum / n_samples, accuracy=accuracy)


def _with_momentum(
    make: Callable[[Iterable[nn.Parameter], float], Optimizer],
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


def require_optimizer(rule: Rule, task: Task) -> None:
    """Check that a rule can work behind the optimizer of a task.

    Raises:
        ConfigError: It cannot.
    """
    if not requirements_of(rule).plain_sgd:
        return
    optimizer = task.optimizer([nn.Parameter(torch.zeros(1))], task.lr)
    kind = type(optimizer).__name__
    momentum = max((group.get("momentum", 0.0) for group in optimizer.param_groups), default=0.0)
    if type(optimizer) is not SGD or momentum:
        has = f"{kind} with momentum {momentum:g}" if type(optimizer) is SGD else kind
        raise ConfigError(
            f"rule {rule.name!r} needs plain SGD, and the task trains with {has}: give momentum 0 "
            "(--momentum 0) and a learning rate to fit, or use another rule"
        )


def _check_pair(field: str, pair: tuple[Tensor, Tensor]) -> None:
    if len(pair) != 2 or not all(isinstance(side, Tensor) and side.ndim > 0 for side in pair):
        raise ConfigError(
            f"{field} must be two tensors, inputs and targets, with an axis of samples"
        )
    n_inputs, n_targets = map(len, pair)
    if n_inputs != n_targets or n_inputs == 0:
        raise ConfigError(
            f"{field} has {n_inputs} inputs and {n_targets} targets: "
            "it must have one target per input, and at least one"
        )
