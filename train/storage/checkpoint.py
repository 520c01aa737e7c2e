"""Checkpoints of one peer on disk.

Each is one safetensors file, with a JSON head and an XXH3 checksum of everything in its metadata.
"""

import json
import logging
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self, runtime_checkable

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.optim import Optimizer
from xxhash import xxh3_128

from ...gossip.errors import ConfigError, RumorError, TrainingError
from ...gossip.rules.plugin import as_raised
from ...gossip.types import PeerId
from .files import json_of, remove_drafts
from .merge import save_model

__all__ = [
    "Checkpoint",
    "CheckpointFolder",
    "Past",
    "Stateful",
    "give_back",
    "read_checkpoint",
    "restore_rng",
    "rng_state",
    "write_checkpoint",
]


_log = logging.getLogger("rumor")

_FORMAT: Final = "rumor checkpoint 3"
_NAME: Final = re.compile(r"checkpoint-(\d+)\.safetensors")


@runtime_checkable
class Stateful(Protocol):
    """An object that a checkpoint can save, such as an optimizer, a scheduler or a sampler."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as nested containers of tensors, arrays and plain values."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Restore a state that `state_dict` returned."""
        ...


def give_back(name: str, each: Stateful, state: dict[str, Any]) -> None:
    """Restore the state of an object that is registered by *name*, or raise ConfigError."""
    told = f"the checkpoint's state of {name} does not fit this {type(each).__name__}"
    if isinstance(each, Optimizer):
        # Torch loads the state of any other optimizer, and fails in its next step.
        for own, saved in zip(each.param_groups, state.get("param_groups", ()), strict=False):
            missing, unknown = each.defaults.keys() - saved.keys(), saved.keys() - own.keys()
            if missing and unknown:
                raise ConfigError(
                    f"{told}: it has {', '.join(sorted(unknown))} in place of "
                    f"{', '.join(sorted(missing))}, as another optimizer would"
                )
    try:
        each.load_state_dict(state)
    except RumorError:
        raise
    except Exception as error:  # an object of a user's own may raise anything
        raise ConfigError(f"{told}: {as_raised(error)}") from error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Checkpoint:
    """The state of a peer between two steps."""

    head: Mapping[str, Any]
    """All but tensors, as JSON values."""

    tensors: Mapping[str, Tensor]
    """Tensors by name: contiguous, in host memory, no two of them sharing memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A peer's knowledge of its earlier incarnations when it sends its first hello."""

    id: PeerId

    steps: int
    """Optimizer steps up to the checkpoint."""

    swarm: bytes
    """Hash of the swarm's anchor."""

    returns: bool
    """True if it can found its swarm again; without the anchor that its wire needs, it is a
    newcomer."""

    clock: Mapping[PeerId, int]
    """Optimizer steps of all peers."""

    rng: Mapping[str, Any]
    """State of the global random streams; empty if the caller restores them."""

    @classmethod
    def of(cls, state: Mapping[str, Any], rng: Mapping[str, Any], *, returns: bool) -> Self:
        """Read this from the head of a checkpoint, or from a `Peer.state_dict`."""
        return cls(
            id=str(state.get("id", "")),
            steps=int(state["steps"]),
            swarm=bytes.fromhex(state.get("swarm", "")),
            returns=returns,
            clock={str(peer): int(steps) for peer, steps in state.get("clock", {}).items()},
            rng=rng,
        )


def rng_state() -> dict[str, Any]:
    """Return the random states of torch, on the CPU and each GPU in use, of numpy and Python."""
    in_use = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if in_use else [],
        "numpy": np.random.get_state(),
        "python": random.getstate(),
    }


def restore_rng(state: Mapping[str, Any]) -> None:
    """Restore all random streams, except those of missing GPUs; raise TrainingError for others."""
    try:
        torch.set_rng_state(state["torch"])
        here = torch.cuda.device_count() if torch.cuda.is_available() else 0
        for index, stream in enumerate(state["cuda"][:here]):
            torch.cuda.set_rng_state(stream, index)
        np.random.set_state(state["numpy"])
        random.setstate(state["python"])
    except (LookupError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise TrainingError(f"a checkpoint's random streams cannot be restored: {error}") from None


def write_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Replace *path* by a checkpoint, once all of it is on disk."""
    head = json.dumps(dict(checkpoint.head), allow_nan=False, separators=(",", ":"))
    checksum = _checksum(head, checkpoint.tensors)
    save_model(path, checkpoint.tensors, {"format": _FORMAT, "head": head, "checksum": checksum})


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint and verify its checksum, or raise TrainingError."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if (kind := metadata.get("format", "")) != _FORMAT:
                like = kind.startswith(_FORMAT.rpartition(" ")[0])
                raise ValueError(
                    f"it is a {kind!r}, and this version reads {_FORMAT!r}"
                    if like
                    else "it is not a checkpoint of rumor"
                )
            # Copy, as a tensor mapped from the file would change with it.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
        head = metadata.get("head", "")
        if _checksum(head, tensors) != metadata.get("checksum"):
            raise ValueError("it is damaged, its checksum is another")
        return Checkpoint(head=json_of(head), tensors=tensors)
    except (OSError, SafetensorError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        if isinstance(error, SafetensorError):
            why = f"it is torn or damaged ({error})"
        raise TrainingError(f"{path} is of no use: {why}") from None


class CheckpointFolder:
    """The last few checkpoints of one peer.

    Args:
        path: The folder; made with the first checkpoint.
        kept: Number of checkpoints kept, at least 1. A single one has no fallback when damaged.
    """

    def __init__(self, path: Path, kept: int = 2) -> None:
        self.path = path
        self._kept = kept
        self._refused: set[Path] = set()

    def paths(self) -> list[Path]:
        """Return the paths of the checkpoints, oldest first."""
        return [path for _, path in self._numbered()]

    def _numbered(self) -> list[tuple[int, Path]]:
        named = ((_NAME.fullmatch(path.name), path) for path in self.path.glob("checkpoint-*"))
        return sorted((int(match[1]), path) for match, path in named if match)

    def next_number(self) -> int:
        """Return the number of the next checkpoint."""
        before = self._numbered()
        return before[-1][0] + 1 if before else 1

    def write(self, checkpoint: Checkpoint, number: int | None = None) -> Path:
        """Write a checkpoint, by default with the next number, and remove excess old ones.

        Raises:
            OSError: It cannot be written; all earlier ones are kept.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        number = number or self.next_number()
        path = self.path / f"checkpoint-{number:06}.safetensors"
        before = [each for each in self._numbered() if each[1] != path]
        write_checkpoint(checkpoint, path)
        # A damaged checkpoint is useless as a fallback, and is removed first.
        sound = [each for _, each in before if each not in self._refused]
        kept = sound[-(self._kept - 1) :] if self._kept > 1 else []
        for _, each in before:
            if each not in kept:
                each.unlink(missing_ok=True)
        return path

    def latest(self, is_usable: Callable[[Checkpoint], bool] | None = None) -> Checkpoint | None:
        """Return the last readable checkpoint that *is_usable*; None without any checkpoint.

        Raises:
            TrainingError: None of them can be used; the message has the reason for each.
        """
        if self.path.is_dir():
            remove_drafts(self.path)
        reasons = []
        for path in reversed(self.paths()):
            try:
                checkpoint = read_checkpoint(path)
                if is_usable is not None and not is_usable(checkpoint):
                    raise TrainingError(f"{path} is of no use: not all ranks of the peer have it")
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

    def readable(self) -> Iterator[Checkpoint]:
        """Iterate over the readable checkpoints, the oldest first."""
        for path in self.paths():
            try:
                yield read_checkpoint(path)
            except TrainingError as error:
                _log.warning("%s", error)


def _checksum(head: str, tensors: Mapping[str, Tensor]) -> str:
    digest = xxh3_128(head.encode())
    # A file lists tensors in an order of its own.
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
