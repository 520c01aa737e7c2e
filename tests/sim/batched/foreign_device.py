"""A fake device in place of a GPU: its tensors hold values, but cannot be mixed with host tensors.

Its tensors report the device ``meta``, the only one other than the CPU that torch has everywhere.
Like a GPU, it refuses operations on tensors of both devices, and access to memory from Python. The
CPU does the arithmetic, so that bits can be compared.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["NAME", "ForeignDevice"]

NAME = "meta"

_Func = Any
_COPIES = {torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default}
"""Operations that may read on one device and write on another."""


class _ForeignTensor(Tensor):
    """A tensor of the device; its values are in ``held``, a tensor of the host."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "_ForeignTensor":
        made: _ForeignTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME),
        )
        made.held = held
        return made

    @classmethod
    def __torch_function__(
        cls,
        func: _Func,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func == Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return True
        if func == Tensor.data.__set__:  # type: ignore[attr-defined]
            target, source = args
            target.held = source.held
            return None
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: _Func,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return _compute(func, args, kwargs or {})


class ForeignDevice(TorchDispatchMode):
    """Makes the device available while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: _Func,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return _compute(func, args, kwargs or {})


def _held(leaf: Any) -> Any:
    return leaf.held if isinstance(leaf, _ForeignTensor) else leaf


def _wrapped(leaf: Any) -> Any:
    return _ForeignTensor(leaf) if isinstance(leaf, Tensor) else leaf


def _compute(func: _Func, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    leaves, form = tree_flatten((tuple(args), dict(kwargs)))
    is_foreign = any(isinstance(leaf, _ForeignTensor) for leaf in leaves)
    if is_foreign and func not in _COPIES:
        for leaf in leaves:
            if isinstance(leaf, Tensor) and not isinstance(leaf, _ForeignTensor) and leaf.ndim:
                raise RuntimeError(f"{func} was given tensors of the device and of the host")
    held, named = tree_unflatten([_held(leaf) for leaf in leaves], form)
    if (wanted := kwargs.get("device")) is not None:
        named["device"] = "cpu"
        is_foreign = torch.device(wanted).type == NAME
    elif func is torch.ops.aten.copy_.default:
        is_foreign = isinstance(args[0], _ForeignTensor)
    found = func(*held, **named)
    if not is_foreign:
        return found
    return return_and_correct_aliasing(func, args, kwargs, tree_map(_wrapped, found))
