"""Gradients of many workers at once: functions of a stack of vectors.

``torch.func`` turns the model and the loss that a user wrote into one. For fully connected models
it gives the loop's bits; for convolutions it gives others, which do not depend on how workers are
grouped. Those of fully connected classifiers are written out.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional

from ....gossip.errors import ConfigError
from ....train.tasks.sources import is_pair
from ....train.tasks.task import Task
from ..compiled.dense import DenseLayer
from ..parameters import ParameterMatrix, view_of

__all__ = [
    "Gradient",
    "dense_layers",
    "stacked_gradient",
    "unbatchable",
    "why_unstacked",
    "written_out",
]

Gradient = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Stacked vectors, inputs and targets to stacked gradients and losses."""


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
    layers = dense_layers(rows, task)

    def gradient(values: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        flat = torch.zeros_like(values)
        activations = [inputs]
        for index, layer in enumerate(layers):
            weights, biases = layer.of(values)
            outputs = torch.baddbmm(biases.unsqueeze(1), activations[-1], weights.transpose(1, 2))
            activations.append(outputs.relu_() if index + 1 < len(layers) else outputs)
        losses, slope = _cross_entropy(activations.pop(), targets)
        for index in reversed(range(len(layers))):
            before = activations[index]
            weights, biases = layers[index].of(flat)
            torch.bmm(slope.transpose(1, 2), before, out=weights)
            torch.sum(slope, dim=1, out=biases)
            if index:
                slope = torch.bmm(slope, layers[index].of(values)[0])
                slope = torch.ops.aten.threshold_backward(slope, before, 0)
        return flat, losses

    return gradient


def dense_layers(rows: ParameterMatrix, task: Task) -> list[DenseLayer]:
    """Where the layers of a fully connected classifier lie in a worker's vector, in order.

    Raises:
        ConfigError: The task is none.
    """
    names = _layers(rows.module)
    (segment,) = rows.segments
    placed = {p.spec.name: p for p in segment.tensors}
    trained = {f"{name}.{part}" for name in names for part in ("weight", "bias")} == set(placed)
    layers = []
    if names and trained:
        start, size = segment.start_bytes, rows.x[0].element_size()
        for name in names:
            weight, bias = placed[f"{name}.weight"], placed[f"{name}.bias"]
            # Not what the module says of itself: its parameters may have been replaced.
            n_out, n_in = weight.spec.shape
            places = [(part.offset_bytes - start) // size for part in (weight, bias)]
            layers.append(DenseLayer(places[0], places[1], n_in, n_out))
    if not (layers and _is_classification(task, layers)):
        raise ConfigError(
            f"the gradient of the task {task.name} is not written out: that is only for Sequential "
            "models of Linear and ReLU, none of them frozen, under "
            "torch.nn.functional.cross_entropy of integer targets"
        )
    return layers


def _cross_entropy(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean loss of each worker, axes ``(worker,)``, and its slope by the outputs.

    By the kernel that autograd calls, so that the bits are those of the loop.
    """
    logs = functional.log_softmax(outputs, dim=2)
    at = targets.unsqueeze(2)
    losses = -logs.gather(2, at).mean(dim=(1, 2))
    seed = torch.zeros_like(logs).scatter_(2, at, -1.0 / outputs.shape[1])
    return losses, torch._log_softmax_backward_data(seed, logs, 2, logs.dtype)


def _is_classification(task: Task, layers: Sequence[DenseLayer]) -> bool:
    """Whether such layers tell rows of numbers apart by an integer class each."""
    inputs, targets = task.train
    plain = inputs.ndim == 2 and targets.ndim == 1 and not targets.is_floating_point()
    if task.loss is not functional.cross_entropy or not plain:
        return False
    widths = [inputs.shape[1], *(layer.n_out for layer in layers)]
    fit = all(layer.n_in == width for layer, width in zip(layers, widths, strict=False))
    return fit and 0 <= int(targets.min()) and int(targets.max()) < widths[-1]


def _layers(module: nn.Module) -> list[str]:
    """Names of the Linear layers in order, or none where the module is of another kind."""
    if type(module) is not nn.Sequential:
        return []
    # Not named_children, which passes over a layer that stands there twice.
    parts = [(name, part) for name, part in module._modules.items() if part is not None]
    linear = {name: part for name, part in parts if type(part) is nn.Linear}
    alternating = all(
        type(part) is (nn.Linear if index % 2 == 0 else nn.ReLU)
        for index, (_, part) in enumerate(parts)
    )
    each_once = len({id(layer) for layer in linear.values()}) == len(linear)
    have_bias = all(layer.bias is not None for layer in linear.values())
    whole = alternating and each_once and have_bias and len(parts) % 2 == 1
    return [*linear] if whole else []
