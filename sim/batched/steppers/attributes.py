"""Python attributes of a task's model, which all simulated workers share: whether steps change any.

Live peers have a model each, which may count its calls, append to a list or draw from a generator
of its own. Workers take turns on one model: what it keeps has to be in parameters and buffers.
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

# All but what users assign.
_NOT_KEPT: Final = frozenset(vars(nn.Module())) - {"_buffers"}

# They are code, and the same for all.
_CODE: Final = (type, FunctionType, BuiltinFunctionType, ModuleType)


def fingerprint(roots: Iterable[object], carried: Collection[int] | None = None) -> list[object]:
    """Attributes of objects, comparable; a value that cannot be pickled equals itself only.

    Args:
        carried: Ids of buffers that are each worker's own, which are left out; so are tensors that
            are no buffers, leftovers of the last call. None to compare all.
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
            except Exception:  # whatever an object of a user's has against it
                found += name, id(value)
    return found


def _spaces(roots: Iterable[object]) -> Iterator[Space]:
    """The attributes of objects, and of the modules in them."""
    for root in roots:
        if isinstance(root, partial):
            yield from _spaces((root.func, *root.args, *root.keywords.values()))
            continue
        root = getattr(root, "__self__", root)
        for part in root.modules() if isinstance(root, nn.Module) else [root]:
            # What `torch.compile` wraps a module in keeps compiled code, which is the same for all.
            is_wrapper = type(part).__module__.startswith("torch._dynamo")
            is_code = is_wrapper or isinstance(part, (*_CODE, Tensor))
            if not is_code and hasattr(part, "__dict__"):
                yield part.__dict__


class _Writer(pickle.Pickler):
    """Writes down a value, and objects that are *by_id* by their ids."""

    by_id: tuple[type, ...]

    def persistent_id(self, value: Any) -> object:
        """None of what is written down."""
        return id(value) if isinstance(value, self.by_id) else None

    def reducer_override(self, value: Any) -> Any:
        """Only the numbers of a tensor: torch writes down where it lay, too."""
        if type(value) is not Tensor or value.layout is not torch.strided or value.is_quantized:
            return NotImplemented
        numbers = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return str, (repr((value.dtype, value.shape, value.device, value.requires_grad)), numbers)
