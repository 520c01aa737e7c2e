"""A step's gradient as the operations that torch carries out for it, one after another.

They are recorded once, while autograd goes back through a model and its loss, and called directly
from then on: the very kernels of the loop, and so its bits, without modules and autograd.
"""

import operator
import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from ....gossip.errors import ConfigError
from .operations import aten

__all__ = ["Trace", "Traced", "writes"]

# Other names for the same numbers.
_SAME: Final = {aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default}

# They bring a number to Python.
_LOOKS: Final = {aten._local_scalar_dense.default, aten.equal.default}

# It writes running means, and does not say so.
_WRITES_UNSAID: Final = {aten.native_batch_norm.default}

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Traced:
    """A model, its loss, and which of its tensors each worker has for itself."""

    module: nn.Module
    loss: Loss
    trained: tuple[str, ...]
    """Parameters whose gradients are asked for."""
    own: tuple[str, ...]
    """What each worker has for itself: those, and buffers."""

    def fixed(self) -> dict[str, Tensor]:
        """What is the same for all, by name."""
        named = (*self.module.named_parameters(), *self.module.named_buffers())
        return {name: tensor.detach() for name, tensor in named if name not in self.own}

    def step(
        self, own: Sequence[Tensor], fixed: Sequence[Tensor], inputs: Tensor, targets: Tensor
    ) -> list[Tensor]:
        """Gradients of all that is trained, and the loss."""
        tensors = dict(zip(self.own, own, strict=True))
        parameters = [tensors[name].requires_grad_() for name in self.trained]
        tensors |= zip(self.fixed(), fixed, strict=True)
        loss = self.loss(functional_call(self.module, tensors, (inputs,)), targets)
        return [*torch.autograd.grad(loss, parameters), loss.detach()]


class Trace:
    """The operations of a step on a batch of one size.

    Args:
        traced: Whose.
        own: What a worker has, in order of `Traced.own`; left as it is.
        inputs: Two batches, axes ``(2, batch, ...)``: what differs between them is no operation of
            tensors alone.
        targets: Likewise.

    Raises:
        ConfigError: The step looks at values, draws random numbers or counts outside of tensors.
    """

    def __init__(
        self, traced: Traced, own: Sequence[Tensor], inputs: Tensor, targets: Tensor
    ) -> None:
        self.fixed = [*traced.fixed().values()]
        kept = [tensor.clone() for tensor in self.fixed]
        before = _plain_state(traced.module)
        first, second = (
            _record(traced, own, self.fixed, batch, target)
            for batch, target in zip(inputs, targets, strict=True)
        )
        if not all(map(torch.equal, kept, self.fixed)):
            raise ConfigError("it writes into a tensor that is no part of its state")
        if before != _plain_state(traced.module):
            raise ConfigError("its forward pass changes the module's attributes")
        if str(first.graph) != str(second.graph) or not _alike(first.constants, second.constants):
            raise ConfigError("its forward pass depends on values outside of tensors")
        self.graph = first.graph
        self.constants = first.constants
        self.n_numbers = first.n_numbers
        """How many numbers all of them make, for one worker."""


def _record(
    traced: Traced, own: Sequence[Tensor], fixed: Sequence[Tensor], inputs: Tensor, targets: Tensor
) -> "_Recorder":
    # Copies, as a step writes into buffers.
    given = [tensor.detach().clone() for tensor in own]
    drawn = _generators()
    recorder = _Recorder([*given, *fixed, inputs, targets])
    try:
        with recorder:
            made = traced.step(given, fixed, inputs, targets)
    except Exception as error:  # whatever a user's model does
        raise ConfigError(str(error).strip().partition("\n")[0] or type(error).__name__) from error
    if drawn != _generators():
        raise ConfigError("it draws random numbers")
    recorder.end(made)
    return recorder


class _Recorder(TorchDispatchMode):
    """Writes down what torch carries out while it is entered.

    Args:
        given: Tensors that differ from step to step; all others that turn up are constants.
    """

    def __init__(self, given: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = fx.Graph()
        self.constants: dict[str, Tensor] = {}
        self.n_numbers = 0
        self._nodes: dict[int, fx.Node] = {}
        self._alive: list[object] = []
        for index, tensor in enumerate(given):
            self._know(tensor, self.graph.placeholder(f"given_{index}"))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _LOOKS:
            raise ConfigError("it looks at values")
        if torch.Tag.dynamic_output_shape in func.tags and _may_differ_in_shape(func, args):
            raise ConfigError("values decide how many there are of others")
        made = func(*args, **(kwargs or {}))
        given = tree_map_only(Tensor, self._node, (args, dict(kwargs or {})))
        if func in _SAME:
            self._know(made, given[0][0])
            return made
        node = self.graph.call_function(func, *given)
        if isinstance(made, Tensor):
            self._know(made, node)
            self.n_numbers += made.numel()
        elif isinstance(made, tuple | list):
            for index, part in enumerate(made):
                if isinstance(part, Tensor):
                    self._know(part, self.graph.call_function(operator.getitem, (node, index)))
                    self.n_numbers += part.numel()
        return made

    def end(self, made: Sequence[Tensor]) -> None:
        """Nothing follows, and this came out."""
        self.graph.output([self._node(tensor) for tensor in made])
        self.graph.eliminate_dead_code(lambda node: node.is_impure() or writes(node))
        self._nodes.clear()
        self._alive.clear()

    def _know(self, tensor: Tensor, node: fx.Node) -> None:
        self._nodes[id(tensor)] = node
        # No other one may get its address meanwhile.
        self._alive.append(tensor)

    def _node(self, tensor: Tensor) -> fx.Node:
        if id(tensor) not in self._nodes:
            name = f"constant_{len(self.constants)}"
            self.constants[name] = tensor
            self._know(tensor, self.graph.get_attr(name))
        return self._nodes[id(tensor)]


def _may_differ_in_shape(func: Any, args: Sequence[Any]) -> bool:
    """Whether shapes of what comes out depend on values: indices of integers give their own."""
    return func is not aten.index.Tensor or any(
        at is not None and at.dtype in (torch.bool, torch.uint8) for at in args[1]
    )


def writes(node: fx.Node) -> bool:
    """Whether an operation writes into what it is given."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    return node.target._schema.is_mutable or node.target in _WRITES_UNSAID


def _generators() -> tuple[object, ...]:
    """Where all generators of random numbers stand."""
    return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())


def _alike(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[name], theirs[name]) for name in ours
    )


def _plain_state(module: nn.Module) -> list[dict[str, Any]]:
    """What modules keep beside tensors and other modules, as far as it can be compared."""
    kinds = bool, int, float, str, tuple, list, type(None)
    return [
        {name: deepcopy(v) for name, v in vars(part).items() if type(v) in kinds}
        for part in module.modules()
    ]
