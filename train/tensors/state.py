"""Convert the state of any object to JSON values and plain tensors, so that nothing is pickled."""

import io
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ...gossip.errors import ConfigError, TrainingError
from ..model import with_extra_state

__all__ = ["ExtraState", "flatten_state", "pack_state", "restore_state", "unpack_state"]


_PLAIN = (bool, int, str, type(None))

# Dtypes that every supported version of safetensors can hold.
_DTYPES = frozenset(
    [
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    ]
)


_FROM_ITEMS: Final[Mapping[str, type[Any]]] = {"tuple": tuple, "set": set, "frozenset": frozenset}

_FROM_TEXT: Final[Mapping[str, Callable[[str], object]]] = {
    "float": float,
    "complex": complex,
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "file": lambda text: io.BytesIO(bytes.fromhex(text)),
}


def flatten_state(state: object, name: str) -> tuple[Any, dict[str, Tensor]]:
    """Split a state into JSON values and tensors, which are copied to host memory.

    The state has nested dictionaries, lists, tuples and sets of tensors, arrays and plain values.
    Each tensor is named by *name* and its place in the state, in the JSON values too.

    Raises:
        ConfigError: A checkpoint cannot hold a value; the message names its place.

    >>> flatten_state({"lr": 0.1, 0: (1, None)}, "sgd")
    ({'dict': [['lr', 0.1], [0, {'tuple': [1, None]}]]}, {})
    """
    tensors: dict[str, Tensor] = {}
    return _flatten(state, name, tensors), tensors


def restore_state(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Restore the state that `flatten_state` split.

    Raises:
        TrainingError: The state is malformed, or a tensor is missing.
    """
    try:
        return _restore(plain, tensors)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise TrainingError(f"a state cannot be put together: {error!r}") from None


def _flatten(value: object, place: str, tensors: dict[str, Tensor]) -> Any:
    # Compare exact types: a member of an IntEnum would come back as a plain int.
    if type(value) in _PLAIN:
        return value
    match value:
        # This comes before plain numbers because numpy's float64 is a float.
        case np.ndarray() | np.generic():
            kind = "array" if isinstance(value, np.ndarray) else "number"
            name = _kept(_of_array(np.asarray(value), place), place, tensors)
            return {kind: name, "dtype": value.dtype.str}
        case float():
            return float(value) if math.isfinite(value) else {"float": str(float(value))}
        case Tensor():
            copy = _copied(value, place)
            if copy.dtype in _DTYPES:
                return {"tensor": _kept(copy, place, tensors)}
            raw = copy.unsqueeze(-1).view(torch.uint8)
            dtype = str(copy.dtype).removeprefix("torch.")
            return {"tensor": _kept(raw, place, tensors), "dtype": dtype}
        case complex():
            return {"complex": repr(value)}
        case bytes() | bytearray():
            return {type(value).__name__: value.hex()}
        case io.BytesIO():
            return {"file": value.getvalue().hex()}
        case Mapping():
            for key in value:
                if type(key) not in _PLAIN:
                    raise _unfit(f"a key in {place}", key)
            return {"dict": [[k, _flatten(v, f"{place}.{k}", tensors)] for k, v in value.items()]}
        case list():
            return [_flatten(v, f"{place}.{i}", tensors) for i, v in enumerate(value)]
        case tuple() | set() | frozenset():
            # A named tuple is restored as a plain tuple.
            kind = next(name for name, made in _FROM_ITEMS.items() if isinstance(value, made))
            return {kind: [_flatten(v, f"{place}.{i}", tensors) for i, v in enumerate(value)]}
        case _:
            raise _unfit(place, value)


def _kept(tensor: Tensor, place: str, tensors: dict[str, Tensor]) -> str:
    # The keys 1 and "1" differ, but give the same place.
    while place in tensors:
        place += "'"
    tensors[place] = tensor
    return place


def _copied(tensor: Tensor, place: str) -> Tensor:
    is_dense = tensor.layout is torch.strided and not tensor.is_meta
    if not is_dense or tensor.is_quantized or hasattr(tensor, "__tensor_flatten__"):
        raise ConfigError(
            f"{place} is a {type(tensor).__name__} of {tensor.dtype} on {tensor.device}, "
            f"{tensor.layout}: a checkpoint holds dense tensors that have values"
        )
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.to("cpu", copy=True, memory_format=torch.contiguous_format)


def _of_array(array: np.ndarray[Any, Any], place: str) -> Tensor:
    # Dtypes that torch may lack are stored as bytes.
    if array.dtype.hasobject:
        raise _unfit(place, array)
    return torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy()).reshape(
        (*array.shape, -1) if array.size else (*array.shape, array.dtype.itemsize)
    )


def _to_array(tensor: Tensor, dtype: str) -> np.ndarray[Any, Any]:
    raw = np.frombuffer(tensor.numpy().tobytes(), np.dtype(dtype))
    return raw.reshape(tuple(tensor.shape)[:-1]).copy()


def _restore(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(plain, list):
        return [_restore(item, tensors) for item in plain]
    if not isinstance(plain, dict):
        return plain
    match plain:
        case {"tensor": name, "dtype": dtype}:
            return tensors[name].view(getattr(torch, dtype)).squeeze(-1)
        case {"tensor": name}:
            return tensors[name]
        case {"array": name, "dtype": dtype}:
            return _to_array(tensors[name], dtype)
        case {"number": name, "dtype": dtype}:
            return _to_array(tensors[name], dtype)[()]
        case {"dict": pairs}:
            return {key: _restore(value, tensors) for key, value in pairs}
    ((kind, value),) = plain.items()
    if kind in _FROM_TEXT:
        return _FROM_TEXT[kind](value)
    return _FROM_ITEMS[kind](_restore(item, tensors) for item in value)


def _unfit(place: str, value: object) -> ConfigError:
    kind = type(value)
    return ConfigError(
        f"{place} is a {kind.__module__}.{kind.__qualname__}: a checkpoint holds tensors, arrays, "
        "numbers, strings, bytes, BytesIO, and lists, tuples, sets and dictionaries of these"
    )


_TREE: Final = "tree"


def pack_state(state: object) -> bytes:
    """Return a state as bytes for `unpack_state`; raise as `flatten_state` does."""
    plain, tensors = flatten_state(state, "state")
    tree = bytearray(json.dumps(plain, allow_nan=False).encode())
    return safetensors.torch.save(tensors | {_TREE: torch.frombuffer(tree, dtype=torch.uint8)})


def unpack_state(packed: bytes) -> Any:
    """Return the state from bytes made by `pack_state`.

    Raises:
        TrainingError: The bytes are not a packed state.
    """
    try:
        tensors = safetensors.torch.load(packed)
        plain = json.loads(tensors.pop(_TREE).numpy().tobytes())
    except (SafetensorError, LookupError, ValueError, RecursionError) as error:
        raise TrainingError(f"a state cannot be read: {error}") from None
    return restore_state(plain, tensors)


_ROOM_BYTES_MIN: Final = 1 << 16
_LENGTH_BYTES: Final = 8


class ExtraState:
    """The extra state of a module and its submodules, see `nn.Module.get_extra_state`.

    Raises:
        ConfigError: A state has a value that copies and checkpoints cannot hold.
    """

    def __init__(self, module: nn.Module) -> None:
        self._parts = with_extra_state(module)
        for name, part in self._parts.items():
            try:
                flatten_state(part.get_extra_state(), f"{name}._extra_state".lstrip("."))
            except ConfigError as error:
                raise ConfigError(f"{error}: let get_extra_state return such values") from None
        # All copies in a swarm have one size, and a state may grow.
        size_bytes = _ROOM_BYTES_MIN
        while self._parts and size_bytes < 2 * len(pack_state(self.state())):
            size_bytes *= 2
        self.room = torch.zeros(size_bytes, dtype=torch.uint8, device="cpu")
        """The bytes to send: a length, 0 for no state, then the state."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def state(self) -> dict[str, object]:
        """Return the extra state of each module, by the module's name."""
        return {name: part.get_extra_state() for name, part in self._parts.items()}

    def restore(self, state: dict[str, object]) -> None:
        """Give modules the state that `state` returned."""
        for name, part in self._parts.items():
            if name in state:
                part.set_extra_state(state[name])

    def pack(self) -> None:
        """Write the current state into `room`; if it is too long, write only its length."""
        packed = pack_state(self.state())
        raw = bytearray(len(packed).to_bytes(_LENGTH_BYTES, "little"))
        if len(raw) + len(packed) <= self.room.numel():
            raw += packed
        self.room[: len(raw)] = torch.frombuffer(raw, dtype=torch.uint8)

    def unpack(self) -> None:
        """Give modules the state that a copy has put into `room`, if any.

        Raises:
            TrainingError: The state was too long to send, or is malformed.
        """
        raw = self.room.numpy().tobytes()
        length, size = int.from_bytes(raw[:_LENGTH_BYTES], "little"), len(raw) - _LENGTH_BYTES
        self.room.zero_()
        if length > size:
            raise TrainingError(
                f"the donor's extra state has {length} bytes, and a copy has room for {size}: let "
                "get_extra_state return values whose size does not grow"
            )
        if length:
            self.restore(unpack_state(raw[_LENGTH_BYTES : _LENGTH_BYTES + length]))
