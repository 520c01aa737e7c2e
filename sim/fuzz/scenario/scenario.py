"""The swarm of a seed, its settings, and the rules that only fuzzing has."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ....gossip import ConfigError, GoSGD, ProtocolConfig, Rule, RuleContext
from ....gossip.effects.effects import Wait
from ....gossip.protocol.rule import Requirements
from ....gossip.protocol.state import Neighbors
from ....gossip.rules.registry import make_rule
from ....gossip.types import PeerId
from ....gossip.weight import coarse
from ....train.faults import schedule
from ..peers import chain, complete, ring
from ..vector import SIZE

__all__ = [
    *("CUTTING", "FAULTS_S", "OUTER", "WIDE", "WORKERS_MAX", "WORKERS_MIN", "Scenario"),
]

# The vectors are four numbers that are checked after every event, which excludes Byzantine peers.
_KINDS = tuple(kind for kind in schedule.KINDS if kind not in schedule.ATTACKS)


class _PickyGoSGD:
    """`GoSGD` that now and then pushes twice in a turn, refuses a share, or accepts a part of it,
    which no public rule does."""

    name = "picky"
    registers: tuple[str, ...] = ()
    requirements = Requirements(whole=False)
    outstanding_max = 2

    def __init__(self, p: float) -> None:
        self._gosgd = GoSGD(p, outstanding_max=self.outstanding_max)

    def step(self, turn: RuleContext) -> Wait | None:
        if not turn.merging:
            for share in turn.shares():
                mood = turn.rng.random()
                if mood < 0.05:
                    turn.refuse(share, "not today")
                elif mood < 0.1:
                    turn.mix(share, weight=coarse(share.weight // 3))
                elif mood < 0.12:
                    turn.mix(share, weight=0)
            if turn.trained and turn.rng.random() < 0.1:
                turn.push_half()
        return self._gosgd.step(turn)


FAULTS_S = 15.0
"""Faults that are drawn happen before this time, seconds."""

# Limit of the time of given faults: each second takes some thousand events.
_LAST_FAULT_S = 3600.0

WORKERS_MIN = 2
WORKERS_MAX = 64

# A tenth of the defaults, so that everything can settle within a minute.
_CONFIG = ProtocolConfig(
    query_s_min=0.2,
    query_s_max=1.5,
    stall_s=1.5,
    gossip_s=0.5,
    suspect_s=1.5,
    dead_s=3.0,
    redial_s_max=4.0,
    found_s=1.5,
    found_alone_s=3.0,
    roll_s=3.0,
    retry_s=0.5,
    staged_max=3,
    merge_rounds=5,
    inline_bytes_max=256,
)

WIDE = 20
"""Length of a vector large enough to be cut: 192 bytes in one shard, 64 each in three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A swarm, and its faults."""

    seed: int
    peers: tuple[PeerId, ...]
    founders: int = 1
    """Number of peers that call the roll together; the others join."""
    rolls: tuple[int, ...] = ()
    """Number of founders in each roll call, with two swarms."""
    meet_s: float = 0.0
    """When a peer of the first swarm gets the address of one of the other, seconds."""
    rule: str = "gosgd"
    config: ProtocolConfig = _CONFIG
    ring: bool = False
    size: int = SIZE
    shards: int = 1
    host: bytes = b""
    """The machine on which they read one another's memory; empty where they cannot."""
    machines: int = 0
    """Number of machines that they run on, in turn; 0 where no rule asks."""
    dial_out: frozenset[PeerId] = frozenset()
    """Peers that listen nowhere."""
    ahead_s: Mapping[PeerId, float] = field(default_factory=dict)
    """How far the clocks of some machines are ahead, seconds; below 0 where they are behind."""
    tells: bool = False
    """True if a sender is notified that its peer is unreachable."""
    orderly: bool = False
    """True if messages stay in order on each link, as on one socket, while nothing is wrong."""
    faults: tuple[schedule.Fault, ...] = ()

    @property
    def ids(self) -> tuple[PeerId, ...]:
        """All peers that ever join, newcomers last."""
        return (*self.peers, *schedule.names_of_newcomers(schedule.joining(self.faults)))

    @property
    def faults_s(self) -> float:
        """When the faults are over, seconds."""
        back_s = [f.at_s + (f.for_s or 0.0) for f in self.faults if f.kind == "mass-restart"]
        return max([FAULTS_S, *(fault.at_s + 1.0 for fault in self.faults), *back_s])

    @property
    def waits(self) -> bool:
        """True if its peers wait for one another, and halt where one of them is lost."""
        return self.rule in _SYNCHRONOUS

    @property
    def neighbors(self) -> Neighbors:
        """The push targets of each peer."""
        if self.rule == "relaysgd":
            return chain
        return ring if self.ring else complete

    @property
    def averages(self) -> bool:
        """True if its models only ever become averages of models of its peers."""
        return self.rule not in _BEYOND

    def host_of(self, peer: PeerId) -> bytes:
        """Return the machine of a peer."""
        place = self.ids.index(peer) % self.machines if self.machines else 0
        return self.host if not self.machines else (place + 1).to_bytes(16, "big")

    def make_rule(self) -> Rule:
        """Make a rule for one peer."""
        if self.rule == "picky":
            return _PickyGoSGD(0.6)
        return make_rule(_RULES.get(self.rule, self.rule))

    def changed(self, config: Mapping[str, Any] | None = None, **more: Any) -> "Scenario":
        """Return a copy with these fields, and these fields of its config, replaced."""
        return replace(self, config=replace(self.config, **(config or {})), **more)

    def with_faults(self, faults: tuple[schedule.Fault, ...]) -> "Scenario":
        """Return the same swarm with other faults.

        Raises:
            ConfigError: A fault concerns an unknown peer, or comes too late.
        """
        faults = schedule.resolve(faults, self.peers, _KINDS)
        for position, fault in enumerate(faults, 1):
            if fault.at_s > _LAST_FAULT_S:
                raise ConfigError(
                    f"fault {fault.row or position}: at_s is {fault.at_s:g}: here it must be at "
                    f"most {_LAST_FAULT_S:g}"
                )
        return replace(self, faults=faults)


# Specs of rules that have parameters here; other rules go by their names.
_RULES: Mapping[str, str] = {
    "gosgd": "gosgd:p=0.6",
    "layers": "gosgd:p=0.6,layers=3",
    "clipped": "gosgd:p=0.6,robust=clip:tau=2",
    "gosgd-per-second": "gosgd:p=2,emission=per-second",
    "local-sgd": "local-sgd:h=2",
    "diloco": "diloco:h=2",
    "gasloc": "gasloc:h=2",
    "noloco": "noloco:h=2",
    "sparseloco": "sparseloco:h=2",
    "sparta": f"sparta:fraction={1 / 3}",
    "divshare": f"divshare:fraction={1 / 3}",
    "seasgd-fastest": "seasgd:progress=fastest",
    "hybrid": "hybrid:between=0.5",
}
# Rules whose peers wait for one another, and halt where one of them is lost.
_SYNCHRONOUS = ("dpsgd", "allreduce", "gradient-tracking", "choco", "sparseloco", "relaysgd")

OUTER = ("local-sgd", "diloco", "gasloc", "noloco")
"""Rules whose peers wait for the peers that are there, on any machine."""

CUTTING = ("sparta", "divshare")
"""Rules that cut the vector themselves."""

# Rules that do more than average: models leave the hull of the initial models.
_BEYOND = frozenset({"adpsgd", "diloco", "gasloc", "noloco", "choco", "sparseloco", "hybrid"})
