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
    if not layers or task.loss is not functional.cross_entropy:
        raise ConfigError(
            f"engine fast cannot take the task {task.name}: it knows Sequential models of Linear "
            "and ReLU under torch.nn.functional.cross_entropy. Leave --engine out, or take auto"
        )
    segment = rows.segments[0]
    placed = {p.spec.name: p for p in segment.tensors}

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


def _layers(module: nn.Module) -> list[str]:
    """Names of the Linear layers in order, or none where the module is of another kind."""
    if type(module) is not nn.Sequential:
        return []
    parts = list(module.named_children())
    linear = [name for name, part in parts if type(part) is nn.Linear and part.bias is not None]
    alternating = all(
        type(part) is (nn.Linear if index % 2 == 0 else nn.ReLU)
        for index, (_, part) in enumerate(parts)
    )
    whole = len(linear) == (len(parts) + 1) // 2 and len(parts) % 2 == 1
    return linear if alternating and whole else []
