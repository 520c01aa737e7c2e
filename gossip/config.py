"""The protocol's settings, with the reason for each number."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from .errors import ConfigError
from .specs.parameter import check_settings, setting
from .specs.spec import described, find
from .wire.formats import NATIVE, WIRES, parse_wire

__all__ = ["TIMINGS", "ProtocolConfig", "ShareSettings", "timing"]

_positive = partial(setting, above=0, is_endless=True)


@dataclass(frozen=True, kw_only=True)
class ShareSettings:
    """How shares travel, for real and simulated peers alike."""

    wire: str = setting(
        NATIVE,
        f"How numbers travel, the same at all peers: {described(WIRES)}.",
        brief="Encoding of numbers.",
        metavar="FORMAT",
    )

    shards_per_push: int = setting(
        1,
        "Shards that a push carries. More keep models closer together and cost traffic.",
        low=1,
    )


@dataclass(frozen=True, kw_only=True)
class ProtocolConfig(ShareSettings):
    """Sizes and times of an exchange."""

    inline_bytes_max: int = setting(
        256 * 1024,
        "Largest share that travels in one PUSH; a larger one is offered first, in frames.",
        low=1,
    )

    shared_memory: bool = setting(
        True, "Neighbors on the same machine read shares from this peer's memory."
    )

    frame_bytes: int = setting(
        1 << 20, "Size of a frame toward a neighbor of which nothing is known yet.", low=1
    )

    frame_bytes_min: int = setting(
        64 * 1024,
        "Smallest frame: below this size, the cost of a message outweighs its content.",
        low=1,
    )

    frame_bytes_max: int = setting(
        2 << 20, "Largest frame: with larger ones, too few are in flight at once.", low=1
    )

    frame_s: float = _positive(
        0.02,
        "Target duration of a frame: slow links get smaller ones. Lower it if control "
        "messages are late.",
    )

    window_bytes: int = setting(
        32 << 20,
        "Bytes of one share that may be in flight: what a slow receiver can cost a sender.",
        low=1,
    )

    staged_max: int = setting(
        8,
        "Most shares staged here at a time; others are refused before their bytes are sent.",
        low=1,
    )

    query_s_min: float = _positive(0.25, "Shortest wait for an answer before it is asked for.")

    query_s_max: float = _positive(30.0, "Longest wait between two questions about the same share.")

    stall_s: float = _positive(
        10.0,
        "A transfer that has not begun within this time is given up. Once its frames arrive, "
        "their own pace sets the limit: from a fifth of this to twelve times as much.",
    )

    # 23 KiB a second at 1,000 peers.
    gossip_s: float = _positive(
        1.0,
        "Time between two exchanges of the member table. Less finds deaths sooner and costs "
        "messages.",
    )

    # Longer than a switch takes to reroute.
    suspect_s: float = _positive(
        12.0,
        "A peer whose heartbeat has not changed for this long gets no pushes, and is probed. "
        "This and `dead_s` grow while this peer itself is late (local health).",
    )

    # A machine that swaps, or writes a checkpoint, is not dead.
    dead_s: float = _positive(
        30.0,
        "A peer whose heartbeat has not changed for this long is considered dead; triple it "
        "on a WAN.",
    )

    # A repaired rack is back within a minute or two.
    redial_s_max: float = _positive(
        60.0,
        "Longest mean wait between two attempts to reach a dead peer, or a seed that does not "
        "answer. Lower heals partitions sooner and dials more.",
    )

    seek_s: float = _positive(0.2, "Time between two HELLOs to an address while no swarm is found.")

    found_s: float = _positive(
        5.0, "How long newcomers that see only one another look for a holder before one founds."
    )

    found_alone_s: float = _positive(
        30.0,
        "How long a peer that returns with a checkpoint looks for its swarm before it founds "
        "it anew, if it meets no peer.",
    )

    roll_s: float = _positive(60.0, "How long a roll call waits for the missing founders.")

    retry_s: float = _positive(1.0, "Time for which a peer that could not be reached is skipped.")

    merge_rounds: int = setting(
        12,
        "Pushes of each peer, after all have finished, before models are compared. Each takes off "
        "a third or so of the distance that is left, on dense topologies. Where models are "
        "further apart than ``merge_tolerance`` then, as many more follow.",
        low=1,
    )

    merge_tolerance: float = _positive(
        1e-3,
        "Merging ends when no two models are further apart, Euclidean distance over norm. A "
        "smaller one takes more pushes: half as many again for each further digit.",
    )

    members_max: int = setting(
        4096,
        "Largest number of known peers; further ones are ignored.",
        low=1,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        parse_wire(self.wire)
        if not self.frame_bytes_min <= self.frame_bytes <= self.frame_bytes_max:
            raise ConfigError(
                f"frame_bytes is {self.frame_bytes}: it must be from {self.frame_bytes_min} to "
                f"{self.frame_bytes_max}"
            )
        if self.window_bytes < self.frame_bytes_max:
            raise ConfigError(
                f"window_bytes is {self.window_bytes}: it must hold a frame of "
                f"{self.frame_bytes_max}"
            )
        if self.query_s_max < self.query_s_min:
            raise ConfigError(
                f"query_s_max is {self.query_s_max}: it must be at least {self.query_s_min}"
            )


TIMINGS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "local": dict(
            gossip_s=0.5,  # loopback: exchanging a view of a few peers costs nothing
            suspect_s=3.0,  # six heartbeats; a busy machine is late by two or three
            dead_s=8.0,  # a killed process is noticed while its user is still watching
            redial_s_max=5.0,  # processes come back within seconds or not at all
            found_s=3.0,  # all peers have started by then
            found_alone_s=10.0,
            stall_s=5.0,  # nothing on one machine is silent for longer
            query_s_max=5.0,
            retry_s=0.2,  # a reset connection is back within a few hundredths
        ),
        "lan": {},
        "wan": dict(
            gossip_s=2.0,  # traffic is paid for, and round trips are long
            suspect_s=36.0,  # three times the LAN's: routes converge in tens of seconds
            dead_s=90.0,
            redial_s_max=60.0,
            found_s=15.0,  # allows for slow name resolution and slow handshakes
            found_alone_s=90.0,
            stall_s=30.0,  # links stall for longer, and lose what they carry
            query_s_max=60.0,
            retry_s=2.0,
        ),
    }
)
"""Named presets of times in seconds; those of ``lan`` are the defaults of `ProtocolConfig`."""


def timing(name: str) -> dict[str, Any]:
    """Return the fields of `ProtocolConfig` that a preset sets."""
    return dict(find("timing", name, TIMINGS))
