"""What one seed stands for: a swarm with its options, and a list of all that goes wrong with it.

Each option draws from a stream of its own, and so does the list of faults: turning one option off,
or taking a fault away, shifts nothing else.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ...gossip import SGP, ConfigError, GoSGD, PeerId, ProtocolConfig, Rule, RuleContext, stream
from ...gossip.effects.effects import Wait
from ...gossip.protocol.rule import Requirements
from ...gossip.weight import coarse
from ..kernel.fault_kinds import KINDS, rounded_s
from ..kernel.faults import Fault, check_faults, resolve
from ..kernel.network_faults import RANDOM_KINDS
from .vector import SIZE

__all__ = [
    "FAULTS_S",
    "OPTIONS",
    "WORKERS_MIN",
    "ClippingGoSGD",
    "Scenario",
    "draw",
    "draw_faults",
    "workers_of",
]


_FREQUENT = ("crash", "crash", "cut", "partition", "join")
"""Drawn more often: most of what is rare needs one of them."""

_NEWCOMERS_MAX = 6


def draw_faults(
    rng: np.random.Generator, peers: Sequence[PeerId], until_s: float, *, diverge: bool
) -> tuple[Fault, ...]:
    """Draw everything that goes wrong, in order of time.

    Args:
        rng: Where from.
        peers: Who is there at the start.
        until_s: Faults begin before this time, seconds.
        diverge: Whether parameters may stop being finite.
    """
    draws = {name: kind.draw for name, kind in KINDS.items() if kind.draw is not None}
    faults: list[Fault] = []
    for kind in RANDOM_KINDS:
        draw = draws.pop(kind)
        if rng.random() < 0.5:
            faults += draw(rng, peers, rounded_s(rng.uniform(0.0, until_s)))
    kinds = [kind for kind in draws if rng.random() < 0.45 and (diverge or kind != "diverge")]
    kinds += [kind for kind in _FREQUENT if kind in kinds]
    for _ in range(int(rng.integers(0, 13)) if kinds else 0):
        kind = kinds[int(rng.integers(len(kinds)))]
        faults += draws[kind](rng, peers, rounded_s(rng.uniform(0.0, until_s)))
    return tuple(sorted(_without_crowds(faults), key=lambda fault: fault.at_s))


def _without_crowds(faults: Iterable[Fault]) -> Iterator[Fault]:
    """Leave out newcomers beyond so many: a crowd costs as much as ten swarms that are as rare."""
    joined = 0
    for fault in faults:
        if fault.kind == "join":
            joined += fault.count or 1
            if joined > _NEWCOMERS_MAX:
                continue
        yield fault


class ClippingGoSGD:
    """Pushes as `GoSGD` does, now and then twice in a turn, and mixes with moods.

    Args:
        p: Probability of a push at each step.
        outstanding_max: Shares that may be outstanding at once.
    """

    name = "picky"
    registers: tuple[str, ...] = ()
    requirements = Requirements(whole=False)

    def __init__(self, p: float, outstanding_max: int = 2) -> None:
        self.outstanding_max = outstanding_max
        self._gosgd = GoSGD(p, outstanding_max=outstanding_max)

    def step(self, turn: RuleContext) -> Wait | None:
        """Decide some of what has come, and let GoSGD do the rest."""
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

LAST_FAULT_S = 3600.0
"""Faults that are given may happen until then: each second takes some thousand events."""

WORKERS_MIN = 2
WORKERS_MAX = 64

CONFIG = ProtocolConfig(
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
"""A tenth of the defaults, so that a minute is long enough for everything to settle."""

_WIDE = 20
"""Numbers of a vector that is large enough to be cut: 192 bytes in one shard, 64 each in three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A swarm, and what is done to it."""

    seed: int
    peers: tuple[PeerId, ...]
    founders: int = 1
    """How many call the roll together; the others join."""
    rule: str = "gosgd"
    config: ProtocolConfig = CONFIG
    ring: bool = False
    size: int = SIZE
    """Numbers of the vector."""
    shards: int = 1
    host: bytes = b""
    """Where they can read one another's memory; empty where they cannot."""
    dial_out: frozenset[PeerId] = frozenset()
    """Who listens nowhere."""
    ahead_s: Mapping[PeerId, float] = field(default_factory=dict)
    """How far the clocks of some machines are ahead."""
    tells: bool = False
    """Whether a sender hears that there is no way to its peer."""
    orderly: bool = False
    """Whether messages stay in order on each link, as on one socket, while nothing is wrong."""
    faults: tuple[Fault, ...] = ()

    @property
    def ids(self) -> tuple[PeerId, ...]:
        """Everybody who ever comes, newcomers last."""
        joined = sum([fault.count or 1 for fault in self.faults if fault.kind == "join"])
        return (*self.peers, *(f"join-{number}" for number in range(1, joined + 1)))

    @property
    def faults_s(self) -> float:
        """When the faults are over, seconds."""
        back_s = [f.at_s + (f.for_s or 0.0) for f in self.faults if f.kind == "mass-restart"]
        return max([FAULTS_S, *(fault.at_s + 1.0 for fault in self.faults), *back_s])

    def make_rule(self) -> Rule:
        """A rule for one peer."""
        return _RULES[self.rule]()

    def with_faults(self, faults: tuple[Fault, ...]) -> "Scenario":
        """The same swarm, and other faults.

        Raises:
            ConfigError: One of them is of no peer of this swarm, or comes too late.
        """
        check_faults(faults, self.peers)
        for position, fault in enumerate(faults, 1):
            if fault.at_s > LAST_FAULT_S:
                raise ConfigError(
                    f"fault {fault.row or position}: at_s is {fault.at_s:g}: here it must be at "
                    f"most {LAST_FAULT_S:g}"
                )
        return replace(self, faults=resolve(faults, self.peers))


_RULES: Mapping[str, Callable[[], Rule]] = MappingProxyType(
    {
        "picky": lambda: ClippingGoSGD(0.6),
        "gosgd": lambda: GoSGD(0.6),
        "gosgd-per-second": lambda: GoSGD(2.0, emission="per-second"),
        "sgp": SGP,
    }
)
"""Picky refuses shares now and then, or accepts a part, which no rule that people use does yet."""


def _frames(size: int) -> dict[str, Any]:
    """Settings under which frames are of one size."""
    return {"frame_bytes": size, "frame_bytes_min": size, "frame_bytes_max": size}


_NARROW_WIRES: tuple[dict[str, Any], ...] = (
    # Shares measure 64 bytes and copies 128: only shares go in one message, or nothing does.
    {"inline_bytes_max": 64, **_frames(24), "window_bytes": 24},
    {"inline_bytes_max": 1, **_frames(16), "window_bytes": 48},
)

_WIDE_WIRES: tuple[dict[str, Any], ...] = (
    {"inline_bytes_max": 1, **_frames(48), "window_bytes": 96},
    {"inline_bytes_max": 1, "frame_bytes": 32, "frame_bytes_min": 16, "frame_bytes_max": 64,
     "window_bytes": 64},
)  # fmt: skip


def _founders(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    return replace(scenario, founders=1 + int(rng.random() * len(scenario.peers)))


def _rules(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    # Half of all seeds are picky: of all rules it is the one that asks most of the protocol.
    names = ("picky", "picky", "picky", *_RULES)
    return replace(scenario, rule=names[int(rng.integers(len(names)))])


def _ring(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    return replace(scenario, ring=bool(rng.random() < 0.3))


def _wide(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    return replace(scenario, size=_WIDE if rng.random() < 0.5 else SIZE)


def _frame_sizes(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    wires = _WIDE_WIRES if scenario.size == _WIDE else _NARROW_WIRES
    kind = int(rng.integers(3))
    if kind == len(wires):
        return scenario
    return replace(scenario, config=replace(scenario.config, **wires[kind]))


def _shards(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    shards = int(rng.integers(1, 4)) if scenario.size == _WIDE else 1
    config = replace(
        scenario.config,
        shards_per_push=int(rng.integers(1, 4)),
        shard_order="random" if rng.random() < 0.5 else "round-robin",
    )
    return replace(scenario, shards=shards, config=config)


def _exact(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    return replace(scenario, config=replace(scenario.config, exact=bool(rng.random() < 0.25)))


def _bandwidth(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    bytes_s = (None, None, None, 300.0, 2000.0)[int(rng.integers(5))]
    return replace(scenario, config=replace(scenario.config, bandwidth_bytes_s=bytes_s))


def _memory(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    return replace(scenario, host=b"the-same-machine" if rng.random() < 0.25 else b"")


def _dial_out(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    # Somebody has to listen, and the first is as good as any.
    many = rng.random() < 0.25
    chosen = [peer for peer in scenario.peers[1:] if rng.random() < 0.5]
    return replace(scenario, dial_out=frozenset(chosen if many else ()))


def _clocks(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    wrong = rng.random() < 0.4
    ahead_s = {peer: round(float(rng.exponential(30.0)), 3) for peer in scenario.peers}
    return replace(scenario, ahead_s=ahead_s if wrong else {})


def _tells(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    return replace(scenario, tells=bool(rng.random() < 0.5))


def _orderly(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    return replace(scenario, orderly=bool(rng.random() < 0.5))


_Option = Callable[[Scenario, np.random.Generator], Scenario]

_OPTIONS: Mapping[str, _Option] = MappingProxyType(
    {
        "founders": _founders,
        "rules": _rules,
        "ring": _ring,
        "wide": _wide,
        "frames": _frame_sizes,
        "shards": _shards,
        "exact": _exact,
        "bandwidth": _bandwidth,
        "memory": _memory,
        "dial-out": _dial_out,
        "clocks": _clocks,
        "tells": _tells,
        "orderly": _orderly,
    }
)

OPTIONS = tuple(_OPTIONS)
"""What a seed decides about its swarm; each of them can be left out."""


def workers_of(seed: int, most: int) -> int:
    """How many peers the swarm of a seed begins with, where there are so many at most."""
    return WORKERS_MIN + int(stream(seed, "torture", "workers").random() * (most - WORKERS_MIN + 1))


def draw(
    seed: int,
    workers: int,
    without: Collection[str] = (),
    faults: tuple[Fault, ...] | None = None,
) -> Scenario:
    """Draw a scenario.

    Args:
        seed: Of everything.
        workers: How many peers it begins with.
        without: Some of `OPTIONS` that are left as they are in a plain swarm.
        faults: What goes wrong; drawn from the seed, too, unless given.

    Raises:
        ConfigError: Too few or too many workers, an unknown option, or a fault of no such peer.
    """
    if not WORKERS_MIN <= workers <= WORKERS_MAX:
        raise ConfigError(f"workers is {workers}: it must be from {WORKERS_MIN} to {WORKERS_MAX}")
    for name in without:
        if name not in _OPTIONS:
            raise ConfigError(f"unknown option {name!r}: options are {', '.join(OPTIONS)}")
    scenario = Scenario(seed=seed, peers=tuple(f"p{index}" for index in range(workers)))
    for name, option in _OPTIONS.items():
        if name not in without:
            scenario = option(scenario, stream(seed, "torture", name))
    if faults is None:
        rng = stream(seed, "torture", "faults")
        faults = draw_faults(rng, scenario.peers, FAULTS_S, diverge=not scenario.config.exact)
    return scenario.with_faults(faults)
