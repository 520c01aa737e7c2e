"""Steps and losses of the processes of a demo, by the time since all of them trained."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["NAMES", "Floats", "Story", "way_of"]

Floats = NDArray[np.float64]

NAMES: Final = {"rumor": "rumor", "all-reduce": "all-reduce (torch DDP over gloo)"}
"""The two ways to train."""


def way_of(id: str) -> str:
    """Return the way that a process trains, by its name."""
    return "all-reduce" if id.startswith("rank-") else "rumor"


@dataclass(slots=True)
class Story:
    """Rows of metrics of all processes."""

    phases: Mapping[str, float]
    """Beginnings of the times between faults, by name, in order."""
    seconds: float
    """Duration of the demo."""
    rows: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    """By name of the process, each in order."""
    began_unix_s: float | None = None
    """When all trained."""

    def take(self, id: str, row: Mapping[str, Any]) -> None:
        """Add a row of a process."""
        self.rows.setdefault(id, []).append(row)

    def of(self, way: str) -> list[str]:
        """Return the names of the processes of one way, newcomers last."""
        ids = (id for id in self.rows if way_of(id) == way)
        return sorted(ids, key=lambda id: (id.startswith("join-"), id))

    def times(self, ids: Iterable[str], column: str = "step") -> tuple[Floats, Floats]:
        """Return the times and values of a column, of several processes together."""
        rows = [row for id in ids for row in self.rows[id] if row.get(column) is not None]
        pairs = sorted((row["unix_s"] - (self.began_unix_s or 0.0), row[column]) for row in rows)
        times_s, values = np.array(pairs, np.float64).reshape(-1, 2).T
        return times_s, values

    def losses(self, way: str) -> tuple[Floats, Floats]:
        """Return times and losses on held-out data of the first process of a way."""
        return self.times(self.of(way)[:1], "test_loss")

    def speeds(self, id: str, edges: Floats) -> Floats:
        """Return the steps per second of a process between edges in time."""
        # A step that crosses an edge counts in part on either side.
        times_s, _ = self.times([id])
        counts = np.arange(1.0, len(times_s) + 1)
        found: Floats = np.diff(np.interp(edges, times_s, counts, left=0.0)) / np.diff(edges)
        return found

    def figures(self, way: str) -> dict[str, Any]:
        """Return speed and last loss by phase, and the longest time without a step of any."""
        edges = np.array([*self.phases.values(), self.seconds])
        speeds = sum((self.speeds(id, edges) for id in self.of(way)), np.zeros(len(self.phases)))
        at_s, losses = self.losses(way)
        known = [losses[at_s <= end_s].tolist() for end_s in edges[1:]]
        times_s = np.clip(self.times(self.of(way))[0], 0.0, self.seconds)
        return {
            "steps_per_s": dict(zip(self.phases, speeds.tolist(), strict=True)),
            "loss": dict(zip(self.phases, [(each or [None])[-1] for each in known], strict=True)),
            "pause_s": float(np.diff(times_s, prepend=0.0, append=self.seconds).max()),
        }
