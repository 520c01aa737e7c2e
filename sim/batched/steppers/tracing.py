"""A step's gradient as the operations that torch carries out for it, one after another.

They are recorded once, while autograd goes back through a model and its loss, and called directly
from then on: the very kernels of the loop, and so its bits, without modules and autograd.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from ....gossip.errors import ConfigError
from .attributes import fingerprint
from .loop import generators
from .operations import aten

__all__ = ["Trace", "Traced", "writes", "written"]

# The same numbers under another name.
_SAME: Final = {aten.detach.default, aten.alias.default}

# They bring a number to Python.
_LOOKS: Final = {aten._local_scalar_dense.default, aten.equal.default}

# Arguments that are written, though the schema does not say so: running means.
_WRITES_UNSAID: Final = {
    aten.native_batch_norm.default: (3, 4),
    aten.cudnn_batch_norm.default: (3, 4),
    aten.miopen_batch_norm.default: (3, 4),
    aten.batch_norm_update_stats.default: (1, 2),
}

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
        lent = {f"module.{name}": tensor for name, tensor in tensors.items()}
        made: list[Tensor] = functional_call(
            _Whole(self.module, self.loss), lent, (inputs, targets, parameters)
        )
        return made


class _Whole(nn.Module):
    """A model, its loss and the way back, so that all of it is with tensors that are lent."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self.loss = loss

    def forward(
        self, inputs: Tensor, targets: Tensor, parameters: Sequence[Tensor]
    ) -> list[Tensor]:
        loss = self.loss(self.module(inputs), targets)
        slopes = torch.autograd.grad(loss, parameters)
        if any(slope.layout != torch.strided for slope in slopes):
            raise ConfigError("it has sparse gradients")
        return [*slopes, loss.detach()]


class Trace:
    """The operations of a step on a batch of one size.

    Args:
        own: What two workers have, axes ``(2, ...)``, in order of `Traced.own`; left as it is.
            What differs between them, and is no operation of tensors, is found by it.
        inputs: Their batches, axes ``(2, batch, ...)``.
        targets: Likewise.

    Raises:
        ConfigError: The step looks at values, draws random numbers, counts outside of tensors or
            writes where it must not.
    """

    def __init__(
        self, traced: Traced, own: Sequence[Tensor], inputs: Tensor, targets: Tensor
    ) -> None:
        self.fixed = [*traced.fixed().values()]
        before = fingerprint((traced.module, traced.loss))
        first, second = (
            _record(traced, mine, self.fixed, batch, target)
            for *mine, batch, target in zip(*own, inputs, targets, strict=True)
        )
        if before != fingerprint((traced.module, traced.loss)):
            raise ConfigError("a step changes attributes of the model or of its loss")
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
    drawn = generators()
    buffers = [x for name, x in zip(traced.own, given, strict=True) if name not in traced.trained]
    replaced = [*traced.module.parameters(), *traced.module.buffers()]
    recorder = _Recorder([*given, *fixed, inputs, targets], buffers, replaced)
    with recorder:
        made = traced.step(given, fixed, inputs, targets)
    if drawn != generators():
        raise ConfigError("it draws random numbers")
    recorder.end(made)
    return recorder


class _Recorder(TorchDispatchMode):
    """Writes down what torch carries out while it is entered.

    Args:
        given: Tensors that differ from step to step; all others that turn up are constants,
        buffers: those of them that a step may write into, and
        replaced: no constants, as others are lent in their place.
    """

    def __init__(
        self, given: Sequence[Tensor], buffers: Sequence[Tensor], replaced: Sequence[Tensor]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = fx.Graph()
        self.constants: dict[str, Tensor] = {}
        self.n_numbers = 0
        self._nodes: dict[int, fx.Node] = {}
        self._alive: list[object] = []
        self._views: dict[int, set[fx.Node]] = {}
        """What lies in a piece of memory."""
        self._written: dict[int, bool] = {}
        """Whether a piece of memory that was there before may be written."""
        for index, tensor in enumerate(given):
            self._know(tensor, self.graph.placeholder(f"given_{index}"))
            self._written[_memory(tensor)] = False
        self._written.update((_memory(tensor), True) for tensor in buffers)
        self._foreign = {_memory(tensor) for tensor in replaced}.difference(self._written)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if why := _why_not(func, args, kwargs or {}):
            raise ConfigError(why)
        given = tree_map_only(Tensor, self._node, (args, dict(kwargs or {})))
        for target in (args[index] for index in written(func) if index < len(args)):
            if isinstance(target, Tensor):
                self._check_write(target)
        made = func(*args, **(kwargs or {}))
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
        for kept in (self._nodes, self._alive, self._views):
            kept.clear()

    def _check_write(self, target: Tensor) -> None:
        """Let a step write into buffers, and into what it has made and nothing is a view of."""
        memory = _memory(target)
        if not self._written.get(memory, True):
            raise ConfigError("it writes into a tensor that is no buffer of its state")
        if len(self._views[memory]) > 1:
            raise ConfigError("it writes into a tensor of which there are views")

    def _know(self, tensor: Tensor, node: fx.Node) -> None:
        self._nodes[id(tensor)] = node
        # No other one may get its address meanwhile.
        self._alive.append(tensor)
        views = self._views.setdefault(_memory(tensor), set())
        if node.args and written(node.target):
            # What was written is the same tensor under the name of the operation.
            views.clear()
        views.add(node)

    def _node(self, tensor: Tensor) -> fx.Node:
        if id(tensor) not in self._nodes:
            if _memory(tensor) in self._foreign:
                raise ConfigError("it uses parameters of the module that are not those it was lent")
            name = f"constant_{len(self.constants)}"
            self.constants[name] = tensor
            self._written[_memory(tensor)] = False
            self._know(tensor, self.graph.get_attr(name))
        return self._nodes[id(tensor)]


def _why_not(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Why an operation cannot be recorded, or nothing."""
    if func in _LOOKS:
        return "it looks at values"
    if torch.Tag.dynamic_output_shape in func.tags and _may_differ_in_shape(func, args):
        return "values decide how many there are of others"
    if torch.Tag.nondeterministic_seeded in func.tags and not _is_certain(func, args):
        return "it draws random numbers"
    if func._schema.name.startswith("aten::as_strided"):
        return "it reads memory by strides"
    if any(isinstance(value, Tensor) for value in kwargs.values()):
        return f"{func} is given a tensor by name"
    return ""


def _is_certain(func: Any, args: Sequence[Any]) -> bool:
    """Whether what may draw random numbers does not: attention without dropout."""
    names = [argument.name for argument in func._schema.arguments]
    at = names.index("dropout_p") if "dropout_p" in names else len(args)
    return "scaled_dot_product" in func._schema.name and (at >= len(args) or args[at] == 0)


def _may_differ_in_shape(func: Any, args: Sequence[Any]) -> bool:
    """Whether shapes of what comes out depend on values: indices of integers give their own."""
    return func is not aten.index.Tensor or any(
        at is not None and at.dtype in (torch.bool, torch.uint8) for at in args[1]
    )


def _memory(tensor: Tensor) -> int:
    """The piece of memory in which a tensor lies."""
    memory: int = tensor.untyped_storage()._cdata
    return memory


@cache
def written(func: Any) -> tuple[int, ...]:
    """Which arguments an operation writes into."""
    if not isinstance(func, torch._ops.OpOverload):
        return ()
    said = (
        index
        for index, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    return tuple(said) or _WRITES_UNSAID.get(func, ())


def writes(node: fx.Node) -> bool:
    """Whether an operation writes into what it is given."""
    return node.op == "call_function" and bool(written(node.target))


def _alike(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(
        torch.equal(ours[name], theirs[name]) for name in ours
    )
