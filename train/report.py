"""What one peer's run came to."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ..gossip.weight import Units, founders, from_units
from .durable import write_json

__all__ = ["Report", "State"]

State = Literal["finished", "left", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The end of one peer, as it goes into ``peer.json``."""

    id: str
    index: int
    state: State
    error: str | None = None
    """What went wrong, in words."""
    address: str | None = None
    steps: int = 0
    """Optimizer steps, those of former lives up to the last checkpoint included."""
    swarm_steps: int = 0
    """Of all peers that ever were in the swarm, as far as this one knows."""
    lives: int = 1
    """How many lives it took, as far as this folder knows; what is counted below is of the last
    one."""
    steps_per_s: float = 0.0
    wall_s: float = 0.0
    """Time from the first step to the last."""
    accuracy: float | None = None
    loss: float | None = None
    """On held-out data, at the end."""
    weight_units: Units = 0
    """Of all shards together, as `Peer.weight_units` tells it."""
    shards: int = 1
    """Into how many pieces the vector is cut."""
    messages: int = 0
    bytes_sent: int = 0
    pushes: int = 0
    skipped: int = 0
    refusals: int = 0

    @property
    def weight(self) -> float:
        """What the peer holds at its end, in founders; with shards, the mean over them."""
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
