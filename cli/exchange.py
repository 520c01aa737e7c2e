"""How peers exchange, as ``rumor peer`` takes it and ``rumor launch`` hands it on."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from ..gossip import ConfigError, ProtocolConfig
from ..gossip.timing import timing
from ..gossip.wire import NATIVE
from .rates import parse_rate

__all__ = ["ExchangeConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeConfig:
    """What a push carries, at what rate, and when it is mixed.

    Raises:
        ConfigError: A field is out of range.
    """

    wire: str = NATIVE
    """Format in which shares travel."""

    shards: int = 1
    """Pieces into which the vector is cut."""

    shards_per_push: int = 1
    """How many of them a push carries."""

    shard_order: str = "round-robin"
    """Which of them."""

    exact: bool = False
    """Whether what was not accepted is mixed back."""

    bandwidth: str | None = None
    """What a peer may send, as people type it; None for as much as there is."""

    mixing: str = "step"
    """When a share that has come is mixed."""

    mix_budget_ms: float = 2.0
    """How long mixing may take within a step, milliseconds."""

    no_shared_memory: bool = False
    """Whether neighbors on one machine exchange through sockets, too."""

    timing: str = "lan"
    """How patient peers are with one another."""

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise ConfigError(f"shards is {self.shards}: it must be at least 1")
        if not 1 <= self.shards_per_push <= self.shards:
            raise ConfigError(
                f"shards_per_push is {self.shards_per_push}: it must be from 1 to shards, "
                f"{self.shards}"
            )
        self._protocol()

    def settings(self) -> dict[str, Any]:
        """The fields of a `PeerConfig` that say the same."""
        return {
            "shards": self.shards,
            "mixing": self.mixing,
            "mix_budget_s": self.mix_budget_ms / 1e3,
            "protocol": self._protocol(),
        }

    def arguments(self) -> list[str]:
        """The options of ``rumor peer`` that say the same; what is as by default is left out."""
        arguments = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                name = "--" + field.name.replace("_", "-")
                arguments.append(name if value is True else f"{name}={value}")
        return arguments

    def as_json(self) -> dict[str, Any]:
        """All fields, as values that JSON has."""
        return asdict(self)

    def _protocol(self) -> ProtocolConfig:
        order: Any = self.shard_order
        times: dict[str, Any] = timing(self.timing)
        return ProtocolConfig(
            **times,
            wire=self.wire,
            shards_per_push=self.shards_per_push,
            shard_order=order,
            exact=self.exact,
            bandwidth_bytes_s=None if self.bandwidth is None else parse_rate(self.bandwidth),
            shared_memory=not self.no_shared_memory,
        )
