"""Python attributes of a task's model, which workers share if many steps are taken at once.

A model may count its calls or draw from its own generator: then only the loop can take its steps.
"""

import pickle
from collections.abc import Iterable, Iterator
from functools import partial
from io import BytesIO
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import torch
from torch import Tensor, nn

__all__ = ["fingerprint"]

# Everything but what users assign.
_NOT_KEPT: Final = frozenset(vars(nn.Module())) - {"_buffers"}

# Code is the same for all workers.
_CODE: Final = (type, FunctionType, BuiltinFunctionType, ModuleType)


def fingerprint(*roots: object) -> list[object]:
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
