"""A small model in place of a large one: each message takes as long, and also comes in parts."""

from dataclasses import fields, replace
from math import ceil
from typing import Final, TypeVar

from ...gossip import ProtocolConfig
from .network import Host, Link, NetworkConfig

__all__ = ["slowed_network", "smaller_exchange"]

# Maximum number of frames of a whole model. The large one may have thousands, and each takes as
# long to decide; what matters is that a transfer shows progress long before it times out.
_FRAMES_MAX: Final = 32

_Limited = TypeVar("_Limited", NetworkConfig, Host, Link)


def slowed_network(network: NetworkConfig, factor: float) -> NetworkConfig:
    """Multiply every bandwidth by a factor; unlimited ones stay so."""
    hosts = tuple([_slowed(host, factor) for host in network.hosts])
    links = tuple([_slowed(link, factor) for link in network.links])
    return replace(_slowed(network, factor), hosts=hosts, links=links)


def smaller_exchange(config: ProtocolConfig, factor: float, share_bytes: int) -> ProtocolConfig:
    """Reduce frames and windows by a factor, for models of *share_bytes*."""

    def smaller(size_bytes: int) -> int:
        return max(1, round(size_bytes * factor))

    smallest = max(ceil(share_bytes / _FRAMES_MAX), smaller(config.frame_bytes_min))
    largest = max(smallest, smaller(config.frame_bytes_max))
    return replace(
        config,
        inline_bytes_max=smaller(config.inline_bytes_max),
        frame_bytes_min=smallest,
        frame_bytes_max=largest,
        frame_bytes=min(largest, max(smallest, smaller(config.frame_bytes))),
        window_bytes=max(largest, smaller(config.window_bytes)),
    )


def _slowed(part: _Limited, factor: float) -> _Limited:
    names = [field.name for field in fields(part) if field.name.endswith("_mbit")]
    limits = {name: limit for name in names if (limit := getattr(part, name)) is not None}
    return replace(part, **{name: limit * factor for name, limit in limits.items()})
