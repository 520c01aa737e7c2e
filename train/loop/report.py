"""The end of a peer, as told in ``peer.json``."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

from ..runtime.shutdown import MergeResult
from ..runtime.telling.stats import METRICS, PeerStats
from ..storage.files import write_json

__all__ = ["Report", "State"]

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

    def write(self, folder: Path) -> None:
        """Write ``peer.json`` atomically.

        Raises:
            OSError: It cannot be written; an existing file is unchanged.
        """
        write_json(folder / "peer.json", self.as_json())
