"""What a simulated peer keeps on disk, for its next life."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...gossip import PeerId
from ...gossip.messages import Incarnation
from .vector import Values

__all__ = ["Saved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint. Weight is no part of it: that is never restored."""

    incarnation: Incarnation
    """Of the life that wrote it."""
    swarm: bytes = b""
    """Hash of the anchor; empty before the peer belonged to a swarm, when it has nothing else."""
    values: Values | None = None
    """The model, float64, shape ``(size,)``."""
    clock: Mapping[PeerId, int] = field(default_factory=dict)
    """Steps by peer."""
    addresses: tuple[str, ...] = ()
    """Of the peers it knew."""
