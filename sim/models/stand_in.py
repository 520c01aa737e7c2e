"""A small model in place of a large one: each message takes as long, and comes in parts, too."""

from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Final, TypeVar

from ...gossip import ProtocolConfig
from .network import Host, Link, NetworkConfig

__all__ = ["StandIn"]

_FLOAT32_BYTES: Final = 4

_FRAMES_MAX: Final = 32
"""Of a whole model. The large one may have thousands, and deciding each takes as long as that of
the large one would; what matters is that a transfer is seen to go on long before it is given up."""

_Limited = TypeVar("_Limited", NetworkConfig, Host, Link)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A small model, and how many parameters it stands for.

    >>> small = StandIn(share_bytes=400_000, stands_for=10e6)
    >>> small.network(NetworkConfig(bandwidth_mbit=100)).bandwidth_mbit
    1.0
    >>> small.protocol(ProtocolConfig()).frame_bytes
    12500
    """

    share_bytes: int
    """Of the small model."""

    stands_for: float
    """Parameters of the large one, of four bytes each."""

    @classmethod
    def of(cls, share_bytes: int, stands_for: float | None) -> "StandIn | None":
        """The stand-in, or None for a model that stands for itself."""
        return None if stands_for is None else cls(share_bytes=share_bytes, stands_for=stands_for)

    @property
    def factor(self) -> float:
        """The size of the small model as a part of the large one."""
        return self.share_bytes / (_FLOAT32_BYTES * self.stands_for)

    def network(self, network: NetworkConfig) -> NetworkConfig:
        """Multiply every bandwidth by the factor; what has no limit still has none."""
        hosts = tuple([self._slowed(host) for host in network.hosts])
        links = tuple([self._slowed(link) for link in network.links])
        return replace(self._slowed(network), hosts=hosts, links=links)

    def protocol(self, config: ProtocolConfig) -> ProtocolConfig:
        """Make frames, windows and the rate of pushes smaller by the factor.

        A share that would be offered and come in frames does so; but a whole model in no more than
        32.
        """
        least = ceil(self.share_bytes / _FRAMES_MAX)
        smallest = max(least, self._smaller(config.frame_bytes_min))
        largest = max(smallest, self._smaller(config.frame_bytes_max))
        rate = config.bandwidth_bytes_s
        return replace(
            config,
            inline_bytes_max=self._smaller(config.inline_bytes_max),
            frame_bytes_min=smallest,
            frame_bytes_max=largest,
            frame_bytes=min(largest, max(smallest, self._smaller(config.frame_bytes))),
            window_bytes=max(largest, self._smaller(config.window_bytes)),
            bandwidth_bytes_s=None if rate is None else rate * self.factor,
        )

    def _smaller(self, size_bytes: int) -> int:
        return max(1, round(size_bytes * self.factor))

    def _slowed(self, part: _Limited) -> _Limited:
        names = [field.name for field in fields(part) if field.name.endswith("_mbit")]
        limits = {name: limit for name in names if (limit := getattr(part, name)) is not None}
        return replace(part, **{name: limit * self.factor for name, limit in limits.items()})
