"""The protocol's settings, with the reason for each number."""

from dataclasses import dataclass, fields

from .errors import ConfigError

__all__ = ["ProtocolConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolConfig:
    """Sizes and times of an exchange.

    Raises:
        ConfigError: A field is not positive, or two contradict each other.
    """

    inline_bytes_max: int = 256 * 1024
    """Largest share that travels in one PUSH; a larger one is offered first, in frames."""

    frame_bytes: int = 1 << 20
    """Size of a frame. Raise it on fast links; ZeroMQ slows down beyond 16 MiB."""

    window_bytes: int = 8 << 20
    """Bytes of one share that may be on their way: what a slow receiver can cost a sender."""

    staged_max: int = 8
    """Shares that may lie staged here; further ones are refused before their bytes move."""

    query_s_min: float = 0.25
    """Shortest wait for an answer before it is asked for."""

    query_s_max: float = 30.0
    """Longest wait between two questions about the same share."""

    stall_s: float = 10.0
    """A transfer without progress for so long is given up."""

    gossip_s: float = 1.0
    """Between two exchanges of the roster. Lower finds deaths sooner and costs messages."""

    dead_s: float = 30.0
    """A peer whose heartbeat stands still for so long is held for dead; triple it on a WAN."""

    seek_s: float = 0.2
    """Between two greetings of an address while no swarm is found."""

    found_s: float = 5.0
    """How long newcomers that see only one another look for a holder before one founds."""

    roll_s: float = 60.0
    """How long a roll call waits for the missing founders."""

    retry_s: float = 1.0
    """How long a peer that could not be reached is passed over."""

    merge_rounds: int = 12
    """Pushes of each peer after all have finished. Each takes off a third or so of what is left of
    the disagreement, on dense topologies; raise it for large sparse ones."""

    members_max: int = 4096
    """Peers that are kept in mind; further names are passed over."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ConfigError(f"{field.name} is {value}: it must be above 0")
        if self.window_bytes < self.frame_bytes:
            raise ConfigError(
                f"window_bytes is {self.window_bytes}: it must hold a frame of {self.frame_bytes}"
            )
        if self.query_s_max < self.query_s_min:
            raise ConfigError(
                f"query_s_max is {self.query_s_max}: it must be at least {self.query_s_min}"
            )
