"""Nested state, such as an optimizer's ``state_dict()``, as JSON and tensors apart, and back.

Nothing is pickled: what is neither a tensor, an array, a number, a text nor a container of these
is refused by its place. Dictionaries keep their order, and keys that are no text.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..gossip.errors import ConfigError, TrainingError

__all__ = ["flatten_state", "restore_state"]

_PLAIN = (bool, int, str, type(None))

# What safetensors can hold, of any version that is supported.
_DTYPES = frozenset(
    [
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    ]
)


def flatten_state(state: object, name: str) -> tuple[Any, dict[str, Tensor]]:
    """Take a state apart, copying all of its tensors to host memory.

    Args:
        state: Nested dictionaries, lists and tuples of tensors, arrays and plain values.
        name: What to call it: tensors are named by it and their place.

    Returns:
        The state as values that JSON has, with names where tensors were; and these tensors, which
        are contiguous and nobody else's.

    Raises:
        ConfigError: A value is of a kind that a checkpoint cannot hold; its place is named.

    >>> flatten_state({"lr": 0.1, 0: (1, None)}, "sgd")
    ({'dict': [['lr', 0.1], [0, {'tuple': [1, None]}]]}, {})
    """
    tensors: dict[str, Tensor] = {}
    return _flatten(state, name, tensors), tensors


def restore_state(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Put together what `flatten_state` took apart.

    Raises:
        TrainingError: This is no such state, or a tensor of it is missing.
    """
    try:
        return _restore(plain, tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise TrainingError(f"a state cannot be put together: {error!r}") from None


def _flatten(value: object, place: str, tensors: dict[str, Tensor]) -> Any:
    # Exact types: an enumeration's member is an int, and would come back as one.
    if type(value) in _PLAIN:
        return value
    match value:
        case float():
            return float(value) if math.isfinite(value) else {"float": str(float(value))}
        case Tensor():
            return {"tensor": _kept(_copied(value, place), place, tensors)}
        case np.ndarray() | np.generic():
            kind = "array" if isinstance(value, np.ndarray) else "number"
            name = _kept(_of_array(np.asarray(value), place), place, tensors)
            return {kind: name, "dtype": value.dtype.str}
        case bytes():
            return {"bytes": value.hex()}
        case Mapping():
            return {"dict": list(_pairs(value, place, tensors))}
        case list():
            return [_flatten(v, f"{place}.{i}", tensors) for i, v in enumerate(value)]
        case tuple():
            return {"tuple": [_flatten(v, f"{place}.{i}", tensors) for i, v in enumerate(value)]}
        case _:
            raise _unfit(place, value)


def _pairs(
    mapping: Mapping[Any, object], place: str, tensors: dict[str, Tensor]
) -> Iterator[list[Any]]:
    for key, value in mapping.items():
        if type(key) not in _PLAIN:
            raise _unfit(f"a key in {place}", key)
        yield [key, _flatten(value, f"{place}.{key}", tensors)]


def _kept(tensor: Tensor, place: str, tensors: dict[str, Tensor]) -> str:
    # 1 and "1" are two keys, and one place.
    while place in tensors:
        place += "'"
    tensors[place] = tensor
    return place


def _copied(tensor: Tensor, place: str) -> Tensor:
    if tensor.dtype not in _DTYPES or tensor.layout is not torch.strided or tensor.is_meta:
        raise ConfigError(
            f"{place} is a tensor of {tensor.dtype} on {tensor.device}, {tensor.layout}: a "
            "checkpoint holds dense ones of real numbers"
        )
    layout = torch.contiguous_format
    return tensor.detach().to("cpu", copy=True, memory_format=layout)


def _of_array(array: np.ndarray[Any, Any], place: str) -> Tensor:
    # Kinds of numbers that torch may not have travel as their bytes.
    if array.dtype.hasobject:
        raise _unfit(place, array)
    return torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy()).reshape(
        (*array.shape, -1) if array.size else (*array.shape, array.dtype.itemsize)
    )


def _to_array(tensor: Tensor, dtype: str) -> np.ndarray[Any, Any]:
    shape = tuple(tensor.shape)[:-1]
    return np.frombuffer(tensor.numpy().tobytes(), np.dtype(dtype)).reshape(shape).copy()


def _restore(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(plain, list):
        return [_restore(item, tensors) for item in plain]
    if not isinstance(plain, dict):
        return plain
    match plain:
        case {"tensor": name}:
            return tensors[name]
        case {"array": name, "dtype": dtype}:
            return _to_array(tensors[name], dtype)
        case {"number": name, "dtype": dtype}:
            return _to_array(tensors[name], dtype)[()]
        case {"dict": pairs}:
            return {key: _restore(value, tensors) for key, value in pairs}
        case {"tuple": items}:
            return tuple(_restore(item, tensors) for item in items)
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"float": text}:
            return float(text)
        case _:
            raise ValueError(plain)


def _unfit(place: str, value: object) -> ConfigError:
    kind = type(value)
    return ConfigError(
        f"{place} is a {kind.__module__}.{kind.__qualname__}: a checkpoint holds tensors, arrays, "
        "numbers, texts, and lists, tuples and dictionaries of these"
    )
