"""How peers exchange, as ``rumor peer`` takes it and ``rumor launch`` hands it on."""

import re
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any, Final

from ...gossip.config import ProtocolConfig, timing
from ...gossip.errors import ConfigError
from ...gossip.rules.robust.registry import NONE
from ...gossip.wire.formats import NATIVE

__all__ = ["ExchangeConfig", "RuleConfig", "parse_rate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleConfig:
    """Which rule peers follow, and its parameters that have options of their own."""

    rule: str = "gosgd"
    """When to push and how to mix. Nobody waits: gosgd (sum-weight gossip), sgp (push-sum to all
    neighbors), adpsgd (averages of pairs). Everybody waits: dpsgd (for all neighbors), allreduce
    (for all)."""

    p: float | None = None
    """gosgd, adpsgd: probability of a push after a step; with ``emission`` per-second, pushes per
    second (gosgd only); 0.1 for gosgd and 1 for adpsgd unless given. More means models closer
    together, and more traffic."""

    emission: str = "per-step"
    """gosgd: per-step, each peer counts the same, whatever its speed; per-second, each step counts
    the same; adaptive, a share is under way for the part ``p`` of the time, however slow the
    links."""

    robust: str = NONE
    """What is taken of a share by how far it is from the model, so that members who lie move it by
    little (gosgd, sgp and dpsgd): none, clip, scc, cs+ or nna, as in clip:tau=0.5 or
    nna:byzantine=2. All peers should give the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeConfig:
    """What a push carries, at what rate, and when it is mixed.

    Raises:
        ConfigError: A field is out of range.
    """

    wire: str = NATIVE
    """How numbers travel: a name of ``WIRES``."""

    shards: int = 1
    """Cut the vector into K pieces, each with a weight of its own, so that a push carries 1/K of
    the model: for large models, slow links or little memory (gosgd and sgp only). All peers must
    give the same."""

    shards_per_push: int = 1
    """Shards that a push carries. More keep models closer together and cost traffic."""

    shard_order: str = "round-robin"
    """Which shards a push carries: the next in turn, or random ones, for when peers keep sending
    each other the same."""

    exact: bool = False
    """Keep each share until it is settled, and mix back what was not accepted: this conserves the
    weighted mean of all models, not weight alone. Costs the memory of the shares in flight, those
    to dead peers for some minutes; float32 only."""

    bandwidth: str | None = None
    """What a peer may send, as in 200mbit, 1gbit or 25MB/s, where others need the link, too; as
    much as there is unless given. Pushes beyond it are skipped, not queued."""

    mixing: str = "step"
    """When an incoming share is mixed. step: whole, between two optimizer steps. sliced: part of it
    after each step, for models that take longer than ``mix_budget_ms``. With ``journal`` only
    step."""

    mix_budget_ms: float = 2.0
    """With ``mixing`` sliced, how long mixing may take after a step, milliseconds."""

    memory_models: float = 3.0
    """How much memory shares on their way may take beside the model, in models, at least 2. Pushes
    for which there is none are skipped, and shares that come refused: both are counted, and no
    weight is lost. For rules where nobody waits, and models from 4 MiB on."""

    no_shared_memory: bool = False
    """Exchange through sockets with neighbors on this machine, too: to measure them, or where
    memory is short."""

    frozen_may_differ: bool = False
    """Let frozen parameters differ from peer to peer, as those of a backbone that some hold in
    fewer bits; otherwise a newcomer with others is refused. All peers must give the same."""

    timing: str = "lan"
    """How patient peers are with one another: on one machine, in one network, or across the
    internet."""

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
            "frozen_may_differ": self.frozen_may_differ,
            "mixing": self.mixing,
            "mix_budget_s": self.mix_budget_ms / 1e3,
            "memory_models": self.memory_models,
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


_SCALES: Final = {
    "": 1.0,
    "k": 1e3,
    "m": 1e6,
    "g": 1e9,
    "ki": 2.0**10,
    "mi": 2.0**20,
    "gi": 2.0**30,
}

# A small b says neither bits nor bytes for certain, so it is not taken.
_RATE: Final = re.compile(
    r"(?P<number>\d+(?:\.\d+)?|\.\d+) ?(?P<scale>[kKmMgG]i?|)(?P<unit>[bB][iI][tT]|B)(?:/s|ps)?",
    re.ASCII,
)


def parse_rate(text: str) -> float:
    """Read a rate.

    Args:
        text: A number and a unit: ``bit`` or ``B``, for bytes, after ``k``, ``M``, ``G`` or
            ``Ki``, ``Mi``, ``Gi``; ``/s`` may follow.

    Returns:
        Bytes per second, above 0.

    Raises:
        ConfigError: It has another form, or is 0.

    >>> parse_rate("200mbit")
    25000000.0
    >>> parse_rate("25 MB/s")
    25000000.0
    """
    match = _RATE.fullmatch(text.strip())
    rate = 0.0
    if match is not None:
        bits = 1 if match["unit"] == "B" else 8
        rate = float(match["number"]) * _SCALES[match["scale"].lower()] / bits
    if not 0 < rate or not isfinite(rate):
        raise ConfigError(
            f"bandwidth is {text!r}: it must be a number above 0 and a unit, as in 200mbit, "
            "1gbit or 25MB/s (1 byte, B, is 8 bit)"
        )
    return rate
