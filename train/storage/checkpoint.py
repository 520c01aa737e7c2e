"""Checkpoints of one peer on disk: safetensors and JSON, whole or not there.

Each is one file: tensors, and in its metadata a head in JSON and an XXH3 checksum of all of it. It
is written beside its place, brought to the disk, and renamed; the one before stays, so that there
is always one to go back to.
"""

import json
import logging
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self, runtime_checkable

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from xxhash import xxh3_128

from ...gossip.errors import TrainingError
from ...gossip.types import PeerId
from ..tensors.state import restore_state
from .files import json_of, remove_drafts
from .merge import save_model

__all__ = [
    "Checkpoint",
    "CheckpointFolder",
    "Past",
    "Stateful",
    "read_checkpoint",
    "restore_rng",
    "rng_state",
    "write_checkpoint",
]


_log = logging.getLogger("rumor")

_FORMAT: Final = "rumor checkpoint 1"
_NAME: Final = re.compile(r"checkpoint-(\d+)\.safetensors")


@runtime_checkable
class Stateful(Protocol):
    """What a checkpoint can keep: an optimizer, a scheduler, a sampler, anything of this form."""

    def state_dict(self) -> dict[str, Any]:
        """The state, as nested containers of tensors, arrays and plain values."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take up a state that `state_dict` gave."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """What a peer was at one moment between two steps."""

    head: Mapping[str, Any]
    """All but tensors, as values that JSON has."""

    tensors: Mapping[str, Tensor]
    """By name; contiguous, in host memory, none of them sharing memory with another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a peer knows of its own earlier incarnations when it says its first hello."""

    id: PeerId

    steps: int
    """Optimizer steps up to the checkpoint."""

    swarm: bytes
    """Hash of the swarm's anchor."""

    returns: bool
    """Whether it has what its swarm could be founded anew from: the anchor, where the wire's
    format needs one. Else it is a newcomer like any other."""

    clock: Mapping[PeerId, int]
    """Optimizer steps of all peers."""

    rng: Mapping[str, Any]
    """Where the global random streams stood; empty where others restore them."""

    @classmethod
    def of(cls, checkpoint: Checkpoint, *, needs_anchor: bool) -> Self:
        """What a checkpoint says."""
        head = checkpoint.head
        has_anchor = any(name.startswith("anchor.") for name in checkpoint.tensors)
        return cls(
            id=head["id"],
            steps=head["steps"],
            swarm=bytes.fromhex(head["swarm"]),
            returns=has_anchor or not needs_anchor,
            clock={peer: int(steps) for peer, steps in head["clock"]},
            rng=restore_state(head["rng"], checkpoint.tensors),
        )


def rng_state() -> dict[str, Any]:
    """The streams of torch, on the CPU and on each GPU in use, of numpy and of Python."""
    in_use = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if in_use else [],
        "numpy": np.random.get_state(),
        "python": random.getstate(),
    }


def restore_rng(state: Mapping[str, Any]) -> None:
    """Let all streams go on where they stood; those of GPUs that are not here are passed over.

    Raises:
        TrainingError: These are no states of such streams.
    """
    try:
        torch.set_rng_state(state["torch"])
        here = torch.cuda.device_count() if torch.cuda.is_available() else 0
        for index, stream in enumerate(state["cuda"][:here]):
            torch.cuda.set_rng_state(stream, index)
        np.random.set_state(state["numpy"])
        random.setstate(state["python"])
    except (LookupError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise TrainingError(f"a checkpoint's random streams cannot go on: {error}") from None


def write_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint in the place of *path*, which stays what it was until all is on disk.

    Raises:
        OSError: It cannot be written; no half of it is left behind.
    """
    head = json.dumps(dict(checkpoint.head), allow_nan=False, separators=(",", ":"))
    checksum = _checksum(head, checkpoint.tensors)
    save_model(path, checkpoint.tensors, {"format": _FORMAT, "head": head, "checksum": checksum})


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, and make sure that it is what was written.

    Raises:
        TrainingError: It is torn, damaged, of another version, or none of rumor's; the message
            says which.
    """
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if (kind := metadata.get("format", "")) != _FORMAT:
                like = kind.startswith(_FORMAT.rpartition(" ")[0])
                raise ValueError(
                    f"it is a {kind!r}, and this version reads {_FORMAT!r}"
                    if like
                    else "it is no checkpoint of rumor"
                )
            # Copies: what is mapped would change under its owner with the file.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
        head = metadata.get("head", "")
        if _checksum(head, tensors) != metadata.get("checksum"):
            raise ValueError("it is damaged, its checksum is another")
        return Checkpoint(head=json_of(head), tensors=tensors)
    except (OSError, SafetensorError, ValueError) as error:
        why = str(error)
        if isinstance(error, OSError) and error.strerror:
            why = error.strerror
        elif not isinstance(error, ValueError):
            why = f"it is torn or damaged ({error})"
        raise TrainingError(f"{path} is of no use: {why}") from None


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
        return [path for _, path in self._numbered()]

    def _numbered(self) -> list[tuple[int, Path]]:
        named = ((_NAME.fullmatch(path.name), path) for path in self.path.glob("checkpoint-*"))
        return sorted((int(match[1]), path) for match, path in named if match)

    def write(self, checkpoint: Checkpoint) -> Path:
        """Write one more, and remove those that are too many; returns where it lies.

        Raises:
            OSError: It cannot be written; those before are all still there.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        before = self._numbered()
        number = before[-1][0] + 1 if before else 1
        path = self.path / f"checkpoint-{number:06}.safetensors"
        write_checkpoint(checkpoint, path)
        sound = [each for _, each in before if each not in self._refused]
        kept = sound[-(self._kept - 1) :] if self._kept > 1 else []
        for _, each in before:
            if each not in kept:
                each.unlink(missing_ok=True)
        return path

    def latest(self) -> Checkpoint | None:
        """The last checkpoint that can be read; None where there is none at all. A warning tells
        where it is not the last one of all.

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


def _checksum(head: str, tensors: Mapping[str, Tensor]) -> str:
    digest = xxh3_128(head.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
