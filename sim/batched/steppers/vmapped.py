"""Gradients of many workers at once by ``torch.func``, of any model that only uses tensors."""

import math
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from io import BytesIO
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ....gossip.errors import ConfigError
from ....gossip.types import PeerId
from ....train.model import deep_copy
from ....train.tasks.random_state import seed_of
from ....train.tasks.task import Task
from ..batches import Ints
from ..parameters import ParameterMatrix
from .optimizers import Slopes
from .stacked import LANES, Group

__all__ = ["VmapGradient"]

_aten: Final = torch.ops.aten

# If everything is dropped, zeros are to stay zeros.
_LEAST: Final = 1e-9


class _Drop(NamedTuple):
    """One call of dropout in a step."""

    shape: torch.Size
    dtype: torch.dtype
    p: float


class _Functions(TorchFunctionMode):
    """Replaces functions that ``vmap`` does not support well.

    Args:
        masks: One for each call of dropout in a step, in order.
        drops: Where calls are recorded if nothing was drawn.
    """

    def __init__(self, masks: Sequence[Tensor], drops: list[_Drop] | None = None) -> None:
        super().__init__()
        self._masks = iter(masks)
        self._drops = drops

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # The random numbers of vmap depend on the other workers in the group.
        if func is functional.dropout:
            return self._drop(*args, **(kwargs or {}))
        if func is functional.scaled_dot_product_attention:
            return _aten._scaled_dot_product_attention_math(*args, **(kwargs or {}))[0]
        return func(*args, **(kwargs or {}))

    def _drop(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0:
            return input
        if self._drops is not None:
            self._drops.append(_Drop(input.shape, input.dtype, p))
            return input
        mask = next(self._masks)
        return input.mul_(mask) if inplace else input * mask


# Kernels round these alike at any position.
_EXACT: Final = frozenset(
    f"aten::{name}"
    for name in ("abs", "add", "clamp", "div", "mul", "neg", "relu", "sqrt", "sub", "where")
)


_PRODUCTS: Final = frozenset(f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm"))


class _Note(TorchDispatchMode):
    """Traces a step of one worker while this is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # A divisor of `LANES` and of how many numbers each elementwise function takes.
        self.n_alike = LANES
        # True if some matrix in a product does not fill whole cache lines.
        self.is_ragged = False
        self.drops: list[_Drop] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if func._schema.name in _PRODUCTS:
            matrices = (t for t in (made, *args) if isinstance(t, Tensor) and t.ndim > 1)
            self.is_ragged |= any(m.shape[-2:].numel() % LANES for m in matrices)
        is_exact = func._schema.name.rstrip("_") in _EXACT or torch.Tag.pointwise not in func.tags
        if not is_exact and isinstance(made, Tensor) and made.is_floating_point():
            self.n_alike = math.gcd(self.n_alike, made.numel())
        return made


class _Aligned(TorchDispatchMode):
    """Aligns stacked matrices to cache lines before multiplying them, while this is entered."""

    # On some processors the rounding of a product depends on the alignment of its matrices. If
    # matrices fill no whole lines, that depends on a worker's place in its group.

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not _aten.bmm.default:
            return func(*args, **(kwargs or {}))
        a, b = args
        n_columns = b.shape[2]
        fitting = LANES // math.gcd(LANES, a.shape[1])
        if n_columns % fitting:
            # A transposed matrix is contiguous by columns: its columns are added as rows.
            is_transposed = b.stride(1) == 1
            missing = -n_columns % fitting
            b = (
                functional.pad(b.mT, (0, 0, 0, missing)).mT
                if is_transposed
                else functional.pad(b, (0, missing))
            )
        return func(_at_lines(a), _at_lines(b))[..., :n_columns]


def _at_lines(matrices: Tensor) -> Tensor:
    """Return the matrices, axes ``(worker, row, column)``, a whole number of cache lines apart."""
    if matrices.stride(0) % LANES == 0:
        return matrices
    if matrices.stride(1) == 1:
        return _at_lines(matrices.mT).mT
    n, *shape = matrices.shape
    size = math.prod(shape)
    room = matrices.new_empty(n, size + -size % LANES)
    return room[:, :size].view(n, *shape).copy_(matrices)


# Workers share the Python attributes of a model. A model that counts its calls, or draws from its
# own generator, can only be stepped by the loop.

# Everything but what users assign.
_NOT_KEPT: Final = frozenset(vars(nn.Module())) - {"_buffers"}

# Code is the same for all workers.
_CODE: Final = (type, FunctionType, BuiltinFunctionType, ModuleType)


def _fingerprint(*roots: object) -> list[object]:
    """Return attributes of objects, comparable; unpicklable values equal only themselves."""
    found = list[object]()
    for space in _spaces(roots):
        for name, value in sorted(space.items()):
            if name in _NOT_KEPT:
                continue
            try:
                _Writer(buffer := BytesIO(), pickle.HIGHEST_PROTOCOL).dump(value)
                found += name, buffer.getvalue()
            except Exception:  # an object of a user's may raise anything
                found += name, id(value)
    return found


def _spaces(roots: Iterable[object]) -> Iterator[dict[str, Any]]:
    for root in roots:
        if isinstance(root, partial):
            yield from _spaces((root.func, *root.args, *root.keywords.values()))
            continue
        root = getattr(root, "__self__", root)
        for part in root.modules() if isinstance(root, nn.Module) else [root]:
            # The wrapper of `torch.compile` keeps compiled code, which is the same for all.
            is_wrapper = type(part).__module__.startswith("torch._dynamo")
            is_code = is_wrapper or isinstance(part, (*_CODE, Tensor))
            if not is_code and hasattr(part, "__dict__"):
                yield part.__dict__


class _Writer(pickle.Pickler):
    """Pickles a value, with ids in place of code."""

    def persistent_id(self, value: Any) -> object:
        return id(value) if isinstance(value, _CODE) else None

    def reducer_override(self, value: Any) -> Any:
        """Pickle only the numbers of a tensor: torch adds the place in its storage."""
        if type(value) is not Tensor or value.layout is not torch.strided or value.is_quantized:
            return NotImplemented
        numbers = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return str, (repr((value.dtype, value.shape, value.device, value.requires_grad)), numbers)


class VmapGradient:
    """The gradient by ``vmap(grad_and_value(...))``; see `stacked.Gradient`."""

    def __init__(self, rows: ParameterMatrix, task: Task, ids: Sequence[PeerId], seed: int) -> None:
        self._name = task.name
        # A loss that counts its calls is also the loop's.
        self._criterion = deepcopy(task.loss)
        self._ids, self._seed = ids, seed
        self._device = rows.device
        (self._placed,) = rows.groups
        self._locals = [p.spec.name for p in rows.local]
        self._module = deep_copy(rows.module)
        self._trained = {n for n, p in self._module.named_parameters() if p.requires_grad}
        self._places = {p.spec.name: p.place for p in self._placed if p.spec.name in self._trained}
        self._start = _fingerprint(self._module, self._criterion)
        self._own = threading.local()
        # One copy per thread, as a call replaces the tensors of a module.
        self._copies: list[nn.Module] = []
        self._notes: dict[torch.Size, _Note] = {}

    def __call__(self, group: Group) -> tuple[Slopes, Tensor]:
        inputs, targets = group.inputs, group.targets
        views = {p.spec.name: p.view(group.values) for p in self._placed}
        trained = {name: views.pop(name) for name in [*views] if name in self._trained}
        buffers = views | dict(zip(self._locals, group.locals, strict=True))
        # Running means are written only if they are contiguous.
        whole = {name: buffer.clone() for name, buffer in buffers.items()}
        note = self._of(inputs[0], targets[0])
        masks = self._draw(note.drops, group.workers, group.steps)
        given = trained, whole, masks, inputs, targets
        with _Aligned() if note.is_ragged else nullcontext():  # type: ignore[no-untyped-call]
            slopes, (losses, after) = self._function()(*given)
        for name, buffer in buffers.items():
            buffer.copy_(after[name])
        found = [
            (place, slopes[name].reshape(len(inputs), -1)) for name, place in self._places.items()
        ]
        return found, losses.detach()

    def multiple(self, inputs: Tensor, targets: Tensor) -> int:
        return LANES // self._of(inputs, targets).n_alike

    def check(self) -> None:
        """See `Stepper.check`."""
        for module in self._copies:
            if _fingerprint(module, self._criterion) != self._start:
                raise ConfigError(
                    f"a step of task {self._name} changes attributes of the model or of its "
                    "loss, which engine vmap lets workers share: take engine loop"
                )

    def _function(self) -> Callable[..., Any]:
        if not hasattr(self._own, "function"):
            module = deep_copy(self._module)
            self._copies.append(module)
            loss = partial(self._loss, module)
            self._own.function = vmap(grad_and_value(loss, has_aux=True))
        function: Callable[..., Any] = self._own.function
        return function

    def _loss(
        self,
        module: nn.Module,
        trained: dict[str, Tensor],
        buffers: dict[str, Tensor],
        masks: Sequence[Tensor],
        inputs: Tensor,
        targets: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return one worker's loss, and its buffers after the step."""
        assert self._criterion is not None
        tensors = trained | buffers
        with _Functions(masks):
            loss = self._criterion(functional_call(module, tensors, (inputs,)), targets)
        return loss, {name: tensors[name] for name in buffers}

    def _of(self, inputs: Tensor, targets: Tensor) -> "_Note":
        """Trace a step on a batch of that form."""
        if inputs.shape not in self._notes:
            assert self._criterion is not None
            module = deep_copy(self._module)
            with torch.no_grad(), _Note() as note, _Functions([], note.drops):
                self._criterion(module(inputs), targets)
            self._notes[inputs.shape] = note
        return self._notes[inputs.shape]

    def _draw(self, drops: Sequence[_Drop], workers: Ints, steps: Ints) -> list[Tensor]:
        """Return dropout masks for each call, 0 where dropped, axes ``(worker, *shape)``."""
        n, generator = len(workers), torch.Generator()
        masks = [torch.empty(n, *d.shape, dtype=d.dtype, device="cpu") for d in drops]
        for at, (worker, step) in enumerate(zip(workers, steps, strict=True) if drops else ()):
            purpose = f"dropout\0{step}"
            generator.manual_seed(seed_of(self._seed, self._ids[worker], purpose))
            for mask, drop in zip(masks, drops, strict=True):
                mask[at].bernoulli_(1 - drop.p, generator=generator)
        scaled = (m.div_(max(1 - d.p, _LEAST)) for m, d in zip(masks, drops, strict=True))
        return [mask.to(self._device) for mask in scaled]
