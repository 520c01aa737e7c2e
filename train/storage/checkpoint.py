"""Checkpoints of one peer on disk: safetensors and JSON, whole or not there.

Each is one file: tensors, and in its metadata a head in JSON and an XXH3 checksum of all of it. It
is written beside its place, brought to the disk, and renamed; the one before stays, so that there
is always one to go back to.
"""

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from xxhash import xxh3_128

from ...gossip.errors import ConfigError, TrainingError
from .files import json_of, remove_drafts
from .merge import save_model

__all__ = [
    "Checkpoint",
    "CheckpointFolder",
    "flatten_state",
    "read_checkpoint",
    "restore_state",
    "write_checkpoint",
]


_log = logging.getLogger("rumor")

_FORMAT: Final = "rumor checkpoint 1"
_NAME: Final = re.compile(r"checkpoint-(\d+)\.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """What a peer was at one moment between two steps."""

    head: Mapping[str, Any]
    """All but tensors, as values that JSON has."""

    tensors: Mapping[str, Tensor]
    """By name; contiguous, in host memory, none of them sharing memory with another."""


def write_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint in the place of *path*, which stays what it was until all is on disk.

    Raises:
        OSError: It cannot be written; no half of it is left behind.
    """
    head = json.dumps(dict(checkpoint.head), allow_nan=False, separators=(",", ":"))
    metadata = {
        "format": _FORMAT,
        "head": head,
        "checksum": _checksum(head, checkpoint.tensors),
    }
    save_model(path, checkpoint.tensors, metadata)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, and make sure that it is what was written.

    Raises:
        TrainingError: It is torn, damaged, of another version, or none of rumor's; the message
            says which.
    """
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            _require_ours(metadata.get("format", ""))
            # Copies: what is mapped would change under its owner with the file.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
    except (OSError, SafetensorError, ValueError) as error:
        raise TrainingError(f"{path} is of no use: {_why(error)}") from None
    head = metadata.get("head", "")
    if _checksum(head, tensors) != metadata.get("checksum"):
        raise TrainingError(f"{path} is of no use: it is damaged, its checksum is another")
    try:
        return Checkpoint(head=json_of(head), tensors=tensors)
    except ValueError as error:
        raise TrainingError(f"{path} is of no use: its head cannot be read: {error}") from None


class CheckpointFolder:
    """The checkpoints of one peer, of which the last few are kept.

    Args:
        path: Where they lie; made with the first one.
        kept: How many, at least 1. With one alone, damage to it is the end of it.
    """

    def __init__(self, path: Path, kept: int = 2) -> None:
        self.path = path
        self._kept = kept
        self._refused: set[Path] = set()

    def paths(self) -> list[Path]:
        """The checkpoints that are there, the oldest first."""
        named = ((_NAME.fullmatch(path.name), path) for path in self.path.glob("checkpoint-*"))
        return [path for _, path in sorted((int(m[1]), path) for m, path in named if m)]

    def write(self, checkpoint: Checkpoint) -> Path:
        """Write one more, and remove those that are too many.

        Returns:
            Where it lies.

        Raises:
            OSError: It cannot be written; those before are all still there.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        before = self.paths()
        number = _number(before[-1]) + 1 if before else 1
        path = self.path / f"checkpoint-{number:06}.safetensors"
        write_checkpoint(checkpoint, path)
        sound = [each for each in before if each not in self._refused]
        kept = sound[-(self._kept - 1) :] if self._kept > 1 else []
        for each in before:
            if each not in kept:
                each.unlink(missing_ok=True)
        return path

    def latest(self) -> Checkpoint | None:
        """The last checkpoint that can be read; says so where it is not the last one of all.

        Returns:
            None where there is none at all.

        Raises:
            TrainingError: There are some, and none of them can be read; the message has the
                reason for each.
        """
        if self.path.is_dir():
            remove_drafts(self.path)
        reasons = []
        for path in reversed(self.paths()):
            try:
                checkpoint = read_checkpoint(path)
            except TrainingError as error:
                _log.warning("%s", error)
                self._refused.add(path)
                reasons.append(str(error))
                continue
            if reasons:
                _log.warning("going back to the one before it, %s", path)
            return checkpoint
        if reasons:
            raise TrainingError(f"no checkpoint can be used: {'; '.join(reasons)}")
        return None


def _number(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def _checksum(head: str, tensors: Mapping[str, Tensor]) -> str:
    digest = xxh3_128(head.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _require_ours(kind: str) -> None:
    if kind != _FORMAT:
        like = kind.startswith(_FORMAT.rpartition(" ")[0])
        raise ValueError(
            f"it is a {kind!r}, and this version reads {_FORMAT!r}"
            if like
            else "it is no checkpoint of rumor"
        )


def _why(error: Exception) -> str:
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"it is torn or damaged ({error})"


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
