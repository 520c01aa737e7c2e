"""Presets of the times by which peers judge one another, with a reason beside each number."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from .errors import ConfigError

__all__ = ["TIMINGS", "Timing", "timing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of `ProtocolConfig` that belong together, seconds."""

    gossip_s: float
    suspect_s: float
    dead_s: float
    redial_s_max: float
    found_s: float
    found_alone_s: float
    stall_s: float
    query_s_max: float
    retry_s: float


TIMINGS: Mapping[str, Timing] = MappingProxyType(
    {
        "local": Timing(
            gossip_s=0.5,  # loopback: a view of a few peers costs nothing
            suspect_s=3.0,  # six heartbeats; a busy machine is late by two or three
            dead_s=8.0,  # a killed process is noticed while one still looks
            redial_s_max=5.0,  # processes come back within seconds or not at all
            found_s=3.0,  # all have started by then
            found_alone_s=10.0,
            stall_s=5.0,  # nothing on one machine is silent for longer
            query_s_max=5.0,
            retry_s=0.2,  # a reset connection is back within a few hundredths
        ),
        "lan": Timing(
            gossip_s=1.0,  # 23 KiB a second at 1,000 peers
            suspect_s=12.0,  # longer than a switch takes to find a new way
            dead_s=30.0,  # a machine that swaps, or writes a checkpoint, is not dead
            redial_s_max=60.0,  # a rack that is repaired is back within a minute or two
            found_s=5.0,
            found_alone_s=30.0,
            stall_s=10.0,
            query_s_max=30.0,
            retry_s=1.0,
        ),
        "wan": Timing(
            gossip_s=2.0,  # traffic is paid for, and round trips are long
            suspect_s=36.0,  # three times the LAN's: routes converge in tens of seconds
            dead_s=90.0,
            redial_s_max=60.0,
            found_s=15.0,  # seeds behind slow names and slow handshakes get their chance
            found_alone_s=90.0,
            stall_s=30.0,  # links pause for longer, and lose what they carry
            query_s_max=60.0,
            retry_s=2.0,
        ),
    }
)
"""By name; ``lan`` has the defaults of `ProtocolConfig`."""


def timing(name: str) -> dict[str, Any]:
    """The fields of `ProtocolConfig` that a preset sets.

    Raises:
        ConfigError: There is no such preset.

    >>> timing("lan")["dead_s"]
    30.0
    """
    if name not in TIMINGS:
        raise ConfigError(f"timing is {name!r}: it must be one of {', '.join(TIMINGS)}")
    return asdict(TIMINGS[name])
