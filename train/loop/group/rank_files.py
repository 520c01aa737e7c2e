"""Checkpoints of each process of a group, with its part of the optimizer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from ....gossip.errors import ConfigError, TrainingError
from ...model import named_tensors
from ...storage.checkpoint import (
    Checkpoint,
    CheckpointFolder,
    Stateful,
    give_back,
    restore_rng,
    rng_state,
)
from ...storage.files import WriterThread
from ...tensors.state import flatten_state, restore_state
from .detection import is_spread

__all__ = ["RankFiles", "SpreadState"]

_SPREAD: Final = "DTensor"


class SpreadState:
    """An object whose state may have DTensors, such as an optimizer: only this process's parts are
    kept. *model* has the meshes over which they are spread."""

    def __init__(self, real: Stateful, model: nn.Module) -> None:
        self._real, self._model = real, model

    def state_dict(self) -> dict[str, Any]:
        """Return the state with the parts of DTensors, and how they are spread."""
        state: dict[str, Any] = _mapped(self._real.state_dict(), _apart)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned.

        Raises:
            ConfigError: A DTensor is spread over other processes than the model.
        """
        meshes = {
            _ranks(tensor): getattr(tensor, "device_mesh")  # noqa: B009
            for tensor in named_tensors(self._model).values()
            if is_spread(tensor)
        }
        state = _mapped(state_dict, lambda each: _together(each, meshes))
        give_back("a registered object", self._real, state)


def _mapped(state: Any, change: Any) -> Any:
    """Apply *change* to all values in nested dictionaries, lists and tuples."""
    changed = change(state)
    if changed is not state:
        return changed
    if isinstance(state, Mapping):
        return {key: _mapped(value, change) for key, value in state.items()}
    if isinstance(state, list | tuple):
        items = [_mapped(value, change) for value in state]
        return items if isinstance(state, list) else tuple(items)
    return state


def _apart(value: Any) -> Any:
    if not (isinstance(value, torch.Tensor) and is_spread(value)):
        return value
    spread: Any = value
    dims = [place.dim if place.is_shard() else None for place in spread.placements]
    form = list(spread.shape), list(spread.stride()), list(_ranks(spread)), dims
    return {_SPREAD: form, "part": spread.detach().to_local()}


def _together(value: Any, meshes: Mapping[tuple[int, ...], Any]) -> Any:
    if not (isinstance(value, Mapping) and _SPREAD in value):
        return value
    from torch.distributed.tensor import DTensor, Replicate, Shard

    shape, stride, ranks, dims = value[_SPREAD]
    mesh = meshes.get(tuple(ranks))
    if mesh is None:
        raise ConfigError(
            "the checkpoint's optimizer is spread over other processes than the model: resume "
            "with as many, in the same mesh"
        )
    placements = [Replicate() if dim is None else Shard(dim) for dim in dims]
    part = value["part"].to(mesh.device_type)
    return DTensor.from_local(
        part, mesh, placements, run_check=False, shape=torch.Size(shape), stride=tuple(stride)
    )


def _ranks(spread: Any) -> tuple[int, ...]:
    """Return the shape of a mesh, then its ranks."""
    return (*spread.device_mesh.shape, *spread.device_mesh.mesh.flatten().tolist())


class RankFiles:
    """Checkpoints of one follower: the states of its registered objects, and its random streams.

    They have the steps and numbers of the leader's checkpoints: one that the leader could not write
    is replaced by the next one, so that the leader's last ones are still there. *folder* is None
    without checkpoints, and on the leader, whose own checkpoints contain all of this.
    """

    def __init__(self, folder: Path | None, rank: int, kept: int) -> None:
        # The leader may be killed, or its disk full, before it has written the same one.
        own = None if folder is None else CheckpointFolder(folder / f"rank-{rank}", kept + 1)
        self._folder = own
        self._registered: dict[str, Stateful] = {}
        self._loaded: Checkpoint | None = None
        self._writer = WriterThread()

    def register(self, objects: Mapping[str, Stateful]) -> None:
        """Keep the state of these objects, and restore it now if a checkpoint was loaded."""
        for name, each in objects.items():
            self._registered[name] = each
            self._restore(name)

    def save(self, place: tuple[int, int, bool]) -> None:
        """Write checkpoint *number* at *steps*, and wait for it if the third of *place* is true."""
        number, steps, waits = place
        if (folder := self._folder) is None:
            return
        kept: dict[str, Any] = {}
        kept["rng"], tensors = flatten_state(rng_state(), "rng")
        for name, each in self._registered.items():
            kept[name], more = flatten_state(each.state_dict(), name)
            tensors |= more
        checkpoint = Checkpoint(head={"steps": steps, "kept": kept}, tensors=tensors)
        self._writer.add("the checkpoint", lambda: folder.write(checkpoint, number))
        if waits:
            self._writer.wait()

    def kept(self) -> set[int]:
        """Return the steps of all readable checkpoints."""
        if self._folder is None:
            return set()
        return {each.head["steps"] for each in self._folder.readable()}

    def load(self, steps: int) -> None:
        """Restore the last checkpoint of these steps, see `kept`."""
        for each in self._folder.readable() if self._folder is not None else ():
            if each.head["steps"] == steps:
                self._loaded = each
        for name in self._registered:
            self._restore(name)

    def enter(self) -> None:
        """Restore the random streams, if a checkpoint was loaded."""
        if self._loaded is not None:
            kept = self._loaded.head["kept"]
            restore_rng(restore_state(kept["rng"], self._loaded.tensors))
            self._loaded = None

    def close(self) -> None:
        """Finish writing."""
        self._writer.close()

    def _restore(self, name: str) -> None:
        if (loaded := self._loaded) is None:
            return
        if name not in loaded.head["kept"]:
            raise TrainingError(f"the checkpoint of this process has no state of {name}")
        state = restore_state(loaded.head["kept"][name], loaded.tensors)
        self._registered[name].load_state_dict(state)
