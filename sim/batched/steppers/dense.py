"""Gradients of multilayer perceptrons in closed form, for many workers at once."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from ....gossip.errors import ConfigError
from ....train.model import deep_copy
from ....train.tasks.task import Task
from ..parameters import ParameterMatrix
from .optimizers import Slopes
from .stacked import LANES, Group

__all__ = ["DenseGradient"]

_aten: Final = torch.ops.aten


# Numbers in a cache line, 4 bytes each.
_PER_LINE: Final = 16


class _Linear(NamedTuple):
    """Positions of a layer's parameters in a vector; the bias is None if absent."""

    weight: slice
    bias: slice | None
    n_in: int
    n_out: int

    def weight_of(self, vectors: Tensor) -> Tensor:
        """Return its weight matrices, axes ``(worker, n_out, n_in)``, a view."""
        return vectors[:, self.weight].view(-1, self.n_out, self.n_in)


class _Activation(NamedTuple):
    """An elementwise function, and its backward pass."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor, Tensor], Tensor]
    """Returns the gradient by its input, given that by its output, its input and its output."""


_Layer = _Linear | _Activation


class DenseGradient:
    """The gradient of a chain of linear layers and activations; see `stacked.Gradient`."""

    def __init__(self, rows: ParameterMatrix, task: Task) -> None:
        self._flattens, self._layers = _chain(rows)
        self._squared = _is_squared(task)
        is_linear = [isinstance(layer, _Linear) for layer in self._layers]
        self._first = is_linear.index(True)
        linear = [layer for layer in self._layers if isinstance(layer, _Linear)]
        self._widths = {linear[0].n_in, *(layer.n_out for layer in linear)}
        # Other data of a wrong form fail in the trial step.
        targets = task.train[1]
        if not self._squared and not 0 <= targets.min() <= targets.max() < linear[-1].n_out:
            raise ConfigError("its targets are not classes")

    def __call__(self, group: Group) -> tuple[Slopes, Tensor]:
        values, targets = group.values, group.targets
        inputs = group.inputs.flatten(2) if self._flattens else group.inputs
        samples = inputs.shape[1]
        # Rows of zeros align each worker's matrices to cache lines; see `_product`.
        unused = -samples % (_PER_LINE // math.gcd(_PER_LINE, *self._widths))
        made = [_padded(inputs, unused)]
        for layer in self._layers:
            if isinstance(layer, _Activation):
                made.append(layer.forward(made[-1]))
                continue
            weight = layer.weight_of(values).transpose(1, 2)
            if layer.bias is None:
                made.append(made[-1].bmm(weight))
            else:
                made.append(torch.baddbmm(values[:, layer.bias].unsqueeze(1), made[-1], weight))
        outputs = made[-1][:, :samples]
        slope, losses = (_squared_error if self._squared else _cross_entropy)(outputs, targets)
        slope = _padded(slope, unused)
        slopes = list[tuple[slice, Tensor]]()
        for at in range(len(self._layers) - 1, self._first - 1, -1):
            layer = self._layers[at]
            if isinstance(layer, _Activation):
                slope = layer.backward(slope, made[at], made[at + 1])
                continue
            slopes.append((layer.weight, _product(slope.transpose(1, 2), made[at]).flatten(1)))
            if layer.bias is not None:
                slopes.append((layer.bias, slope.sum(1)))
            if at > self._first:
                slope = slope.bmm(layer.weight_of(values))
        return slopes, losses

    def multiple(self, inputs: Tensor, targets: Tensor) -> int:
        widths = (layer.n_out for layer in self._layers if isinstance(layer, _Linear))
        return LANES // math.gcd(LANES, *(len(inputs) * width for width in widths))

    def check(self) -> None:
        # It calls neither the model nor the loss.
        pass


def _padded(matrices: Tensor, rows: int) -> Tensor:
    return functional.pad(matrices, (0, 0, 0, rows)) if rows else matrices


def _product(one: Tensor, other: Tensor) -> Tensor:
    # Each product begins at a cache line: MKL's rounding depends on a matrix's alignment in a line,
    # and so would depend on the worker's place in the group.
    n, rows, columns = len(one), one.shape[1], other.shape[2]
    size = rows * columns
    room = one.new_empty(n, size + -size % _PER_LINE)
    return torch.bmm(one, other, out=room[:, :size].view(n, rows, columns))


def _cross_entropy(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of each worker's mean cross-entropy by the outputs, and that mean."""
    # Over few classes, softmax is faster if the samples are the contiguous axis.
    logs = outputs.transpose(1, 2).contiguous().log_softmax(1)
    at, batch = targets.unsqueeze(1), targets.shape[1]
    losses = logs.gather(1, at).sum((1, 2)).div_(-batch)
    slope = logs.exp_()
    slope.scatter_add_(1, at, slope.new_full((), -1.0).expand(at.shape))
    return slope.div_(batch).transpose(1, 2), losses


def _squared_error(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    off = outputs - targets
    return off * (2 / off[0].numel()), off.square().flatten(1).mean(1)


def _chain(rows: ParameterMatrix) -> tuple[bool, list[_Layer]]:
    """Return the layers of a model in order, and True if it flattens its inputs."""
    # Wrapped, since a model that is a single layer would itself be traced.
    module = nn.Sequential(deep_copy(rows.module))
    trained = {name for name, p in rows.module.named_parameters() if p.requires_grad}
    if trained != {p.spec.name for p in rows.groups[0]} or rows.local:
        raise ConfigError("its model has buffers")
    parts = [part for part in module.modules() if [*part.parameters(recurse=False)]]
    nodes = _traced(module) if all(type(p) is nn.Linear for p in parts) else []
    flattens, layers = False, list[_Layer]()
    for before, node in pairwise(nodes[:-1]):
        part = _part(module, before, node)
        if isinstance(part, nn.Linear):
            names = [f"{node.target}.{name}"[2:] for name, _ in part.named_parameters()]
            if not trained.issuperset(names):
                break
            trained.difference_update(names)
            layers.append(_linear(rows, *names))
        elif isinstance(part, nn.Flatten) and (part.start_dim, part.end_dim) == (1, -1):
            flattens |= not any(isinstance(layer, _Linear) for layer in layers)
        elif isinstance(part, nn.ReLU | nn.Tanh | nn.GELU):
            layers.append(_activation(part))
        elif not isinstance(part, nn.Identity):
            break
    else:
        if nodes and nodes[-1].args == (nodes[-2],) and not trained:
            return flattens, layers
    raise ConfigError("its model is not a chain of Linear, ReLU, Tanh, GELU and Flatten")


def _traced(module: nn.Module) -> list[fx.Node]:
    """Return the calls of a model, from its inputs to its outputs; none if it cannot be traced."""
    try:
        return [*fx.Tracer().trace(module).nodes]
    except Exception:  # a user's model may raise anything on inputs without numbers
        return []


# Functions and tensor methods, as the modules that do the same.
_PARTS: Final[dict[object, Callable[..., nn.Module]]] = {
    **dict.fromkeys((torch.relu, functional.relu, "relu"), nn.ReLU),
    **dict.fromkeys((torch.tanh, functional.tanh, "tanh"), nn.Tanh),
    functional.gelu: nn.GELU,
    **dict.fromkeys((torch.flatten, "flatten"), lambda start=0, end=-1: nn.Flatten(start, end)),
}


def _part(module: nn.Module, before: fx.Node, node: fx.Node) -> nn.Module | None:
    """Return the called module, or an equivalent one, if its only input is *before*."""
    if node.all_input_nodes != [before] or node.args[:1] != (before,):
        return None
    if node.op == "call_module":
        part = module.get_submodule(str(node.target))
        return part if type(part).__module__.startswith("torch.nn.modules.") else None
    try:
        return _PARTS[node.target](*node.args[1:], **node.kwargs)
    except (KeyError, TypeError):
        return None


def _linear(rows: ParameterMatrix, weight: str, bias: str | None = None) -> _Linear:
    (group,) = rows.groups
    placed = {p.spec.name: p for p in group}
    # Not the module's own attributes: its parameters may have been replaced.
    n_out, n_in = placed[weight].spec.shape
    return _Linear(placed[weight].place, placed[bias].place if bias else None, n_in, n_out)


def _activation(part: nn.Module) -> _Activation:
    if isinstance(part, nn.GELU):
        kind = part.approximate
        return _Activation(
            partial(functional.gelu, approximate=kind),
            lambda slope, x, y: _aten.gelu_backward(slope, x, approximate=kind),
        )
    if isinstance(part, nn.Tanh):
        return _Activation(torch.tanh, lambda slope, x, y: _aten.tanh_backward(slope, y))
    return _Activation(torch.relu, lambda slope, x, y: _aten.threshold_backward(slope, y, 0))


def _is_squared(task: Task) -> bool:
    """Return True if the loss is the mean squared error, False for the mean cross-entropy."""
    loss = task.loss
    if loss is functional.mse_loss or (type(loss) is nn.MSELoss and loss.reduction == "mean"):
        return True
    if loss is functional.cross_entropy or (
        type(loss) is nn.CrossEntropyLoss
        and loss.weight is None
        and (loss.reduction, loss.ignore_index, loss.label_smoothing) == ("mean", -100, 0.0)
    ):
        return False
    raise ConfigError("its loss is neither the cross-entropy nor the squared error")
