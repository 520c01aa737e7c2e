"""Checkpoints of one peer on disk: safetensors and JSON, whole or not there.

Each is one file: tensors, and in its metadata a head in JSON and an XXH3 checksum of all of it. It
is written beside its place, brought to the disk, and renamed; the one before stays, so that there
is always one to go back to.
"""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from xxhash import xxh3_128

from ...gossip.errors import TrainingError
from .files import json_of, remove_drafts
from .merge import save_model

__all__ = [
    "Checkpoint",
    "CheckpointFolder",
    "read_checkpoint",
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
