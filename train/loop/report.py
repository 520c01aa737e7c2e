"""The end of a peer: how it went, in ``peer.json``, and its model."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...gossip.weight import Units, founders, from_units, in_units
from ..model import frozen_names, named_state
from ..runtime.shutdown import MergeResult
from ..runtime.telling.stats import PeerStats
from ..storage.files import write_json
from ..storage.merge import as_text, runs_of, save_model, with_aliases
from ..tensors.vector import Vector

__all__ = ["Report", "State", "save_peer_model"]

State = Literal["finished", "left", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The end of one peer, as it goes into ``peer.json``."""

    id: str
    index: int
    state: State
    error: str | None = None
    """Error message."""
    address: str | None = None
    swarm: str = ""
    """Hash of its swarm's first model."""
    steps: int = 0
    """Optimizer steps, those of earlier incarnations up to the last checkpoint included."""
    ended_by: str = ""
    """Id of the peer whose end ended this one, too, under rules that allow it; else empty."""
    swarm_steps: int = 0
    """Steps of all peers that ever were in the swarm, as far as this one knows."""
    lives: int = 1
    """How many incarnations it took, as far as this folder knows; the counts below are of the last
    one."""
    steps_per_s: float = 0.0
    wall_s: float = 0.0
    """Time from the first step to the last."""
    accuracy: float | None = None
    loss: float | None = None
    """On held-out data, at the end."""
    weight_units: Units = 0
    """Of all shards together, see `PeerStats.weight_units`."""
    shards: int = 1
    """Into how many pieces the vector is cut."""
    messages: int = 0
    bytes_sent: int = 0
    pushes: int = 0
    skipped: int = 0
    refusals: int = 0
    rule: str | None = None
    """Name of the algorithm."""
    p: float | None = None
    """The rule's parameter of that name, where it has one."""
    topology: str | None = None
    """Spec of the graph."""
    merge: MergeResult | None = None
    """How merging with the others ended; None where it was not begun."""

    @property
    def weight(self) -> float:
        """Weight that the peer holds at its end, in founders; with shards, the mean over them."""
        return founders(from_units(self.weight_units)) / self.shards

    def as_json(self) -> dict[str, Any]:
        """All fields and the weight, as JSON has them."""
        return asdict(self) | {"weight": self.weight}

    def write(self, folder: Path) -> None:
        """Write ``peer.json``; readers see all of it or nothing.

        Raises:
            OSError: It cannot be written; what was there still is.
        """
        write_json(folder / "peer.json", self.as_json())


def save_peer_model(
    stats: PeerStats, model: nn.Module, vector: Vector, path: Path, *, with_frozen: bool
) -> None:
    """Write a peer's model with what merging needs to know: the peer, its weight, its shards.

    Extra state is in it where it is a tensor, and frozen parameters are *with_frozen*.

    Raises:
        OSError: It cannot be written; what was there still is.
    """
    schema, state = vector.schema, named_state(model)
    state = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    if not with_frozen:
        left_out = frozen_names(model, vector.layout.travelling)
        state = {name: value for name, value in state.items() if name not in left_out}
    metadata = {
        "peer": stats.id,
        "weight_units": str(stats.weight_units),
        "step": str(stats.steps),
        "schema": schema.hash.hex(),
        "swarm": stats.swarm,
        "met": json.dumps(sorted(stats.met)),
    }
    local = {placed.tensor.data_ptr() for placed in vector.layout.local}
    if own := sorted(name for name, value in state.items() if value.data_ptr() in local):
        metadata["local"] = json.dumps(own)
    if schema.shards > 1:
        metadata["shard_units"] = ",".join(str(in_units(weight)) for weight in stats.weights)
        metadata["shard_runs"] = as_text(with_aliases(runs_of(schema), state))
        if orders := {tensor.name: tensor.axes for tensor in schema.tensors if tensor.order}:
            metadata["shard_orders"] = as_text(with_aliases(orders, state))
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }
    save_model(path, tensors, metadata)
