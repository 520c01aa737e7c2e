"""Fully connected classifiers with a gradient written out by hand: fewer passes over memory.

The same mathematics as the loop in another order of operations, so that last bits differ from
its; they do not depend on the grouping of workers, on windows or on threads.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..gossip.errors import ConfigError
from ..train.task import Task
from .batched import Gradient
from .rows import Rows, view_of

__all__ = ["written_out"]


def written_out(rows: Rows, task: Task) -> Gradient:
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
            f"engine fast cannot take the task {task.name}: it knows Sequential models of Linear "
            "and ReLU, none of them frozen, under torch.nn.functional.cross_entropy of integer "
            "targets. Leave --engine out, or take auto"
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
                slope = torch.bmm(slope, of(values, f"{name}.weight")).mul_(before > 0)
        return flat, losses

    return gradient


def _cross_entropy(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean loss of each worker, axes ``(worker,)``, and its slope by the outputs."""
    logs = functional.log_softmax(outputs, dim=2)
    at = targets.unsqueeze(2)
    losses = -logs.gather(2, at).mean(dim=(1, 2))
    slope = logs.exp_()
    slope.scatter_add_(2, at, slope.new_full((1, 1, 1), -1.0).expand(at.shape))
    return losses, slope.div_(outputs.shape[1])


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
