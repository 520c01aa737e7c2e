"""Python attributes of a task's model, which all simulated workers share: does a step change any?

Live peers have a model each, which may count its calls, append to a list or draw from its own
generator. Workers take turns on one model: its state has to be in parameters and buffers.
"""

import pickle
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from io import BytesIO
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import torch
from torch import Tensor, nn

__all__ = ["fingerprint"]

Space = dict[str, Any]

# Everything but what users assign.
_NOT_KEPT: Final = frozenset(vars(nn.Module())) - {"_buffers"}

# Code is the same for all workers.
_CODE: Final = (type, FunctionType, BuiltinFunctionType, ModuleType)


def fingerprint(roots: Iterable[object], carried: Collection[int] | None = None) -> list[object]:
    """Return attributes of objects, comparable; unpicklable values equal only themselves.

    Args:
        carried: Ids of buffers that each worker has for itself, which are left out; so are tensors
            that are not buffers, leftovers of the last call. None to compare all.
    """
    found = list[object]()
    for space in _spaces(roots):
        for name, value in sorted(space.items()):
            if name in _NOT_KEPT or (carried is not None and isinstance(value, Tensor)):
                continue
            if name == "_buffers":
                value = {n: b for n, b in value.items() if id(b) not in (carried or ())}
            try:
                writer = _Writer(buffer := BytesIO(), pickle.HIGHEST_PROTOCOL)
                writer.by_id = _CODE if carried is None else (*_CODE, nn.Parameter)
                writer.dump(value)
                found += name, buffer.getvalue()
            except Exception:  # an object of a user's may raise anything
                found += name, id(value)
    return found


def _spaces(roots: Iterable[object]) -> Iterator[Space]:
    """Iterate over the attributes of objects, and of the modules in them."""
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
    """Pickles a value, with ids in place of objects that are *by_id*."""

    by_id: tuple[type, ...]

    def persistent_id(self, value: Any) -> object:
        """Return the id of an object to be left out; None to pickle it."""
        return id(value) if isinstance(value, self.by_id) else None

    def reducer_override(self, value: Any) -> Any:
        """Pickle only the numbers of a tensor: torch adds the place in its storage."""
        if type(value) is not Tensor or value.layout is not torch.strided or value.is_quantized:
            return NotImplemented
        numbers = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return str, (repr((value.dtype, value.shape, value.device, value.requires_grad)), numbers)
