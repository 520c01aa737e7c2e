"""The protocol's settings, with the reason for each number."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np

from .errors import ConfigError
from .specs.spec import find
from .wire.formats import NATIVE, parse_wire

__all__ = ["TIMINGS", "ProtocolConfig", "ShardOrder", "Timing", "plain_numbers", "timing"]


ShardOrder = Literal["round-robin", "random"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolConfig:
    """Sizes and times of an exchange.

    Raises:
        ConfigError: A field is not positive, or two contradict each other.
    """

    inline_bytes_max: int = 256 * 1024
    """Largest share that travels in one PUSH; a larger one is offered first, in frames."""

    wire: str = NATIVE
    """Format in which this peer's shares travel, see docs/reference/wires.md. Peers of one swarm
    may differ, but where any uses a 16-bit format or int8, all need the anchor: give each such a
    format."""

    shards_per_push: int = 1
    """How many shards a push carries, where the vector is cut into shards. Lower it on slow links;
    with all of them, a push is a whole vector again."""

    shard_order: ShardOrder = "round-robin"
    """Which shards a push carries: the next ones in order, or some at random."""

    exact: bool = False
    """Keep each snapshot until it is settled, and mix back what was not accepted, so that the
    weighted mean of all models is conserved, too. Costs the memory of the snapshots; those toward
    a peer that stays dead are let go after ten times `dead_s`."""

    bandwidth_bytes_s: float | None = None
    """What this peer may send, bytes per second; pushes beyond that are skipped, not queued. None
    for as much as there is."""

    shared_memory: bool = True
    """Whether neighbors on the same machine read shares from this peer's memory."""

    frame_bytes: int = 1 << 20
    """Size of a frame toward a neighbor of which nothing is known yet."""

    frame_bytes_min: int = 64 * 1024
    """Smallest frame: below this, what a message costs outweighs what it carries."""

    frame_bytes_max: int = 2 << 20
    """Largest frame. Of larger ones too few are under way at once."""

    frame_s: float = 0.02
    """How long a frame shall take: slow links get smaller ones. Lower it where control messages
    are late."""

    window_bytes: int = 32 << 20
    """Bytes of one share that may be on their way: what a slow receiver can cost a sender."""

    staged_max: int = 8
    """Shares that may lie staged here; further ones are refused before their bytes move."""

    query_s_min: float = 0.25
    """Shortest wait for an answer before it is asked for."""

    query_s_max: float = 30.0
    """Longest wait between two questions about the same share."""

    stall_s: float = 10.0
    """A transfer that has not got going within this time is given up. Once its frames come, it is
    their own pace that tells how long is too long: from a fifth of this to twelve times as much."""

    gossip_s: float = 1.0
    """Between two exchanges of the member table. Lower finds deaths sooner and costs messages."""

    suspect_s: float = 12.0
    """A peer whose heartbeat stands still for so long is passed over by pushes, and asked. This
    and `dead_s` grow where this peer itself is late (local health)."""

    dead_s: float = 30.0
    """A peer whose heartbeat stands still for so long is considered dead; triple it on a WAN."""

    redial_s_max: float = 60.0
    """Longest mean wait between two attempts to reach a dead peer, or a seed that does not answer.
    Lower heals partitions sooner and dials more."""

    incarnation_ahead_max: int = 86_400_000
    """How far ahead of this peer's own a life may claim to be: lives are counted in milliseconds
    of the calendar, and this is a day. Beyond it, a damaged clock would shut its peer out of the
    swarm for as long."""

    seek_s: float = 0.2
    """Between two HELLOs to an address while no swarm is found."""

    found_s: float = 5.0
    """How long newcomers that see only one another look for a holder before one founds."""

    found_alone_s: float = 30.0
    """How long a peer that returns with a checkpoint looks for its swarm before it founds it anew,
    where it meets nobody at all."""

    roll_s: float = 60.0
    """How long a roll call waits for the missing founders."""

    retry_s: float = 1.0
    """How long a peer that could not be reached is passed over."""

    merge_rounds: int = 12
    """Pushes of each peer, after all have finished, before models are compared. Each takes off a
    third or so of the distance that is left, on dense topologies. Where models are further apart
    than ``merge_tolerance`` then, as many more follow."""

    merge_tolerance: float = 1e-3
    """Merging ends when no two models are further apart, Euclidean distance over norm. A smaller
    one takes more pushes: half as many again for each further digit."""

    members_max: int = 4096
    """Peers that are kept in mind. For a further one, the longest dead is forgotten toward which no
    escrow is open; where there is none, it is passed over."""

    def __post_init__(self) -> None:
        plain_numbers(self)
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) in (int, float) and not value > 0:
                raise ConfigError(f"{field.name} is {value}: it must be above 0")
        if not parse_wire(self.wire).is_native and self.exact:
            raise ConfigError(f"wire is {self.wire!r}: with exact it must be {NATIVE}")
        if self.shard_order not in get_args(ShardOrder):
            allowed = " or ".join(get_args(ShardOrder))
            raise ConfigError(f"shard_order is {self.shard_order!r}: it must be {allowed}")
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


def plain_numbers(config: Any) -> None:
    """Put Python's numbers in place of numpy's in a frozen dataclass."""
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(value, np.generic):
            object.__setattr__(config, field.name, value.item())


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
    return asdict(find("timing", name, TIMINGS))
