"""What a peer saves of itself between two steps, and restores in its next incarnation."""

import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from ...gossip import ConfigError, TrainingError
from ...gossip.types import PeerId
from ...gossip.wire.schema import FrozenTensor, Schema, TensorSpec
from ..config import CheckpointConfig
from ..model import travelling_tensors
from ..tensors.blocks import is_finite_tensor
from ..tensors.state import flatten_state, restore_state
from ..tensors.vector import Vector
from .checkpoint import Checkpoint, CheckpointFolder
from .environment import differences, machine
from .files import WriterThread

__all__ = ["Checkpointing", "Past", "Stateful", "restore_rng", "rng_state"]


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


_log = logging.getLogger("rumor")

_TAKEN = ("model", "anchor", "rng", "own")

_JOB: Final = "the checkpoint"


@runtime_checkable
class Stateful(Protocol):
    """What a checkpoint can keep: an optimizer, a scheduler, a sampler, anything of this form."""

    def state_dict(self) -> dict[str, Any]:
        """The state, as nested containers of tensors, arrays and plain values."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take up a state that `state_dict` gave."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a peer knows of its own earlier incarnations when it says its first hello."""

    id: PeerId
    """What it was called."""

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


class Checkpointing:
    """Writes a peer's checkpoints, and reads the last one.

    Args:
        config: Where, and how many are kept.
        model: The peer's.
        vector: The same, as a vector.
        writer: Writes the files.
    """

    def __init__(
        self, config: CheckpointConfig, model: nn.Module, vector: Vector, writer: WriterThread
    ) -> None:
        self._folder = CheckpointFolder(config.folder, config.kept)
        self._vector = vector
        self._tensors = travelling_tensors(model, vector.schema)
        self._constants = vector.constants
        self._constants.changed(self._constants.buffers())  # what they are at first
        self._writer = writer
        self._registered: dict[str, Stateful] = {}
        self._loaded: Checkpoint | None = None
        self.is_written = True
        """Whether the last one has reached the disk."""

    @property
    def keeps_model_alone(self) -> bool:
        """True if nothing was registered."""
        return not self._registered

    @property
    def is_fresh(self) -> bool:
        """Whether no earlier incarnation left a checkpoint here."""
        return not self._folder.paths()

    def register(self, objects: Mapping[str, Stateful]) -> None:
        """Keep the state of further objects; where a checkpoint was loaded, they get it back.

        Raises:
            ConfigError: One has no state, or a name was given before or cannot be one, or the
                checkpoint has nothing by it.
        """
        for name, each in objects.items():
            if not isinstance(each, Stateful):
                raise ConfigError(f"{name} cannot be kept: it has no state_dict to save and load")
            if name in self._registered:
                raise ConfigError(f"{name} is registered already")
            if name in _TAKEN or "." in name:
                # Tensors are named by it, beside those of the model itself.
                taken = ", ".join(_TAKEN)
                raise ConfigError(
                    f"{name} cannot be the name of what is registered: it must not be {taken}, nor "
                    "have a dot"
                )
            if self._loaded is not None:
                self._give_back(name, each, self._loaded)
            self._registered[name] = each

    def load(self) -> Past | None:
        """Read the last checkpoint into the model and all that is registered.

        Returns:
            What it says of the peer; None where there is no checkpoint yet.

        Raises:
            ConfigError: It is of another model, or of other objects; the first difference is named.
            TrainingError: There are some, and none can be read.
        """
        checkpoint = self._folder.latest()
        if checkpoint is None:
            return None
        try:
            self._require_fit(checkpoint)
            needs_anchor = self._vector.anchor_flats is not None
            past = Past.of(checkpoint, needs_anchor=needs_anchor)
        except (LookupError, TypeError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise TrainingError(f"the head of a checkpoint is not understood: {error!r}") from None
        for name, each in self._registered.items():
            self._give_back(name, each, checkpoint)
        self._restore(checkpoint.tensors)
        self._restore_own(restore_state(checkpoint.head.get("own"), checkpoint.tensors) or {})
        self._loaded = checkpoint
        return past

    def require_complete(self) -> None:
        """Make sure that everything in the checkpoint that was loaded was given back.

        Raises:
            ConfigError: Something was not; it is named.
        """
        kept = () if self._loaded is None else self._loaded.head["registered"]
        if forgotten := sorted(set(kept) - set(self._registered)):
            raise ConfigError(
                f"the checkpoint holds the state of {', '.join(forgotten)}: register it, too, "
                "before the peer starts"
            )
        self._loaded = None

    @property
    def is_writing(self) -> bool:
        """Whether the last one is still being written."""
        return self._writer.is_busy(_JOB)

    def save(self, head: Mapping[str, Any], steps: int) -> None:
        """Copy all that is to be kept; it is written while training goes on.

        Args:
            head: What to say of the peer: ``id``, ``incarnation``, ``swarm``, ``clock``,
                ``anchored``.
            steps: Of this peer, those of earlier incarnations included.

        Raises:
            ConfigError: Something that is registered has a state that cannot be kept.
        """
        rng, tensors = flatten_state(rng_state(), "rng")
        registered = {}
        for name, each in self._registered.items():
            registered[name], more = flatten_state(each.state_dict(), name)
            tensors |= more
        own, more = flatten_state(self._own_state(), "own")
        tensors |= more | self._copies(anchored=head["anchored"])
        schema = self._vector.schema
        whole = dict(head) | {
            "steps": steps,
            "rng": rng,
            "registered": registered,
            "own": own,
            "tensors": [
                [s.name, s.shape, s.dtype, s.shared, *([s.order] if s.order else [])]
                for s in schema.tensors
            ],
            "frozen": [[f.name, f.shape, f.dtype, f.checksum] for f in schema.frozen],
            "shards": schema.shards,
            "scattered": schema.scattered,
            "machine": machine(self._vector.flats[0].device),
            "unix_s": time.time(),
        }
        checkpoint = Checkpoint(head=whole, tensors=tensors)
        self.is_written = False
        self._writer.add(_JOB, lambda: self._write(checkpoint))

    def _own_state(self) -> dict[str, Any]:
        """Other state of the model: extra state, and changed tensors that do not travel."""
        constants, extra = self._constants, self._vector.extra_state
        state: dict[str, Any] = dict(constants.changed(constants.buffers() | constants.frozen()))
        return {"tensors": state, "extra": None if extra is None else extra.state()}

    def _copies(self, *, anchored: bool) -> dict[str, Tensor]:
        copies = {f"model.{name}": _copied(tensor) for name, tensor in self._tensors.items()}
        anchor = (self._vector.anchor_flats or ()) if anchored else ()
        return copies | {f"anchor.{i}": _copied(flat) for i, flat in enumerate(anchor)}

    def _write(self, checkpoint: Checkpoint) -> None:
        for spec in self._vector.schema.tensors:
            if not spec.shared:
                continue
            if not is_finite_tensor(checkpoint.tensors[f"model.{spec.name}"].reshape(-1)):
                _log.warning("%s is not finite: no checkpoint was written", spec.name)
                return
        self._folder.write(checkpoint)
        self.is_written = True

    def _require_fit(self, checkpoint: Checkpoint) -> None:
        head, schema = checkpoint.head, self._vector.schema
        specs = tuple(
            TensorSpec(name, tuple(shape), dtype, shared, tuple(*order))
            for name, shape, dtype, shared, *order in head["tensors"]
        )
        told = head.get("frozen") if schema.frozen else None
        frozen = [FrozenTensor(name, tuple(shape), *rest) for name, shape, *rest in told or ()]
        then = Schema(
            specs,
            head["shards"],
            head.get("scattered", False),
            # Where they are not compared, or were not then, nothing can be said.
            tuple(frozen) or schema.frozen,
        )
        if difference := schema.difference(then):
            raise ConfigError(
                f"the checkpoint is of another model: {difference.replace('there', 'in it')}"
            )
        for difference in differences(head["machine"], machine(self._vector.flats[0].device)):
            _log.info("since the checkpoint was written: %s", difference)

    def _give_back(self, name: str, each: Stateful, checkpoint: Checkpoint) -> None:
        registered = checkpoint.head["registered"]
        if name not in registered:
            kept = ", ".join(registered) or "nothing"
            raise ConfigError(f"the checkpoint has no state of {name}: it has {kept}")
        each.load_state_dict(restore_state(registered[name], checkpoint.tensors))

    @torch.no_grad()
    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self._tensors.items():
            tensor.copy_(tensors[f"model.{name}"])
        anchor = [name for name in tensors if name.startswith("anchor.")]
        flats = self._vector.anchor_flats or ()
        if len(anchor) == len(flats):
            for i, flat in enumerate(flats):
                flat.copy_(tensors[f"anchor.{i}"])
        self._vector.forget_sent()

    @torch.no_grad()
    def _restore_own(self, own: Mapping[str, Any]) -> None:
        for name, value in own.get("tensors", {}).items():
            if not self._constants.replace(name, value):
                _log.warning("the checkpoint has %s, which the model does not have now", name)
        if self._vector.extra_state is not None:
            self._vector.extra_state.restore(own.get("extra") or {})


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
