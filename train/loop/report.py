"""The end of a peer: its report in ``peer.json``, and its model."""

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn

from ...gossip.weight import in_units
from ..model import frozen_names, named_state
from ..runtime.shutdown import MergeResult
from ..runtime.telling.stats import METRICS, PeerStats
from ..storage.merge import save_model, write_schema
from ..tensors.vector import Vector

__all__ = ["Report", "State", "save_peer_model"]

State = Literal["finished", "left", "failed"]


_FIGURES: Final = (
    *("id", "address", "swarm", "steps", "swarm_steps", "ended_by", "weight_units"),
    *("rule", "p", "topology"),
)
"""Fields of `PeerStats` that are in a report besides `METRICS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The end of one peer."""

    stats: PeerStats
    """Its figures at the end; counts are those of its last incarnation."""
    index: int
    state: State
    error: str | None = None
    """Error message."""
    lives: int = 1
    """Number of incarnations, as far as this folder shows."""
    steps_per_s: float = 0.0
    wall_s: float = 0.0
    """Time from the first step to the last."""
    accuracy: float | None = None
    loss: float | None = None
    """Loss on held-out data at the end."""
    merge: MergeResult | None = None
    """Result of merging with the others; None if not begun."""

    def as_json(self) -> dict[str, Any]:
        """Return all figures as JSON values, as in ``peer.json``."""
        stats = self.stats
        told = {name: getattr(stats, name) for name in _FIGURES}
        told |= {name: metric.get(stats) for name, metric in METRICS.items()}
        told |= {each.name: getattr(self, each.name) for each in fields(self)[1:]}
        # A result that is not complete is false.
        merge = None if self.merge is None else asdict(self.merge)
        return told | {"shards": len(stats.weights), "merge": merge}


def save_peer_model(
    stats: PeerStats, model: nn.Module, vector: Vector, path: Path, *, with_frozen: bool
) -> None:
    """Write a peer's model with the data that merging needs: the peer, its weight, its shards.

    Extra state is included if it is a tensor.

    Raises:
        OSError: It cannot be written; an existing file is unchanged.
    """
    left_out = () if with_frozen else frozen_names(model, vector.layout.travelling)
    schema, named = vector.schema, named_state(model).items()
    state = {n: v for n, v in named if isinstance(v, Tensor) and n not in left_out}
    metadata = {
        "peer": stats.id,
        "weight_units": str(stats.weight_units),
        "step": str(stats.steps),
        "schema": json.dumps(write_schema(replace(schema, frozen=()))),
        "swarm": stats.swarm,
        "met": json.dumps(sorted(stats.met)),
    }
    if schema.shards > 1:
        metadata["shard_units"] = ",".join(str(in_units(weight)) for weight in stats.weights)
    tensors = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }
    save_model(path, tensors, metadata)
