"""What one seed stands for: a swarm with its options, and a list of all that goes wrong with it.

Each option draws from a stream of its own, and so does the list of faults: turning one option off,
or taking a fault away, shifts nothing else.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ...gossip import SGP, ConfigError, GoSGD, PeerId, ProtocolConfig, Rule, RuleContext, stream
from ...gossip.effects.effects import Wait
from ...gossip.protocol.rule import Requirements
from ...gossip.weight import coarse
from ..kernel.faults import Fault, check_faults, resolve
from .network import NetworkFaults
from .vector import SIZE

__all__ = [
    "FAIR",
    "FAULTS_S",
    "OPTIONS",
    "WORKERS_MIN",
    "ClippingGoSGD",
    "Scenario",
    "draw",
    "draw_faults",
    "workers_of",
]


_Draw = Callable[[np.random.Generator, Sequence[PeerId], float], list[Fault]]


def _crash(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    """One dies at once, in the middle of what it does next, or on accepting; it may come back."""
    peer, how = _one(rng, peers), rng.random()
    crash = Fault(
        at_s=at_s,
        kind="crash",
        peer=peer,
        after=int(rng.integers(7)) if how < 0.4 else None,
        accepting=True if how > 0.6 else None,
    )
    back_s, returns, kept = rng.exponential(2.0), rng.random() < 0.7, rng.random() < 0.6
    if not returns:
        return [crash]
    state = "kept" if kept else "lost"
    later_s = _rounded(at_s + 0.3 + back_s)
    return [crash, Fault(at_s=later_s, kind="restart", peer=peer, state=state)]


def _mass_restart(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    some = tuple(peer for peer in peers if rng.random() < 0.6)
    return [
        Fault(
            at_s=at_s,
            kind="mass-restart",
            for_s=_lasting(rng, 2.0),
            peers=some if some and rng.random() < 0.4 else None,
            state="kept" if rng.random() < 0.7 else "lost",
        )
    ]


def _pause(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    peer, for_s = _one(rng, peers), _lasting(rng, 3.0)
    if rng.random() < 0.7:
        return [Fault(at_s=at_s, kind="pause", peer=peer, for_s=for_s)]
    pause = Fault(at_s=at_s, kind="pause", peer=peer)
    return [pause, Fault(at_s=_rounded(at_s + for_s), kind="continue", peer=peer)]


def _slow(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    factor = float(rng.choice([2.0, 5.0, 20.0]))
    return [
        Fault(
            at_s=at_s, kind="slow", peer=_one(rng, peers), factor=factor, for_s=_lasting(rng, 5.0)
        )
    ]


def _clock_jump(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    by_s = float(rng.choice([0.5, 5.0, 60.0, 3600.0]))
    return [Fault(at_s=at_s, kind="clock-jump", peer=_one(rng, peers), by_s=by_s)]


def _cut(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    peer, to = _one(rng, peers), _one(rng, peers)
    some = to != peer and rng.random() < 0.4
    return [
        Fault(
            at_s=at_s,
            kind="cut",
            peer=peer,
            to=to if some else None,
            one_way=True if rng.random() < 0.5 else None,
            for_s=_lasting(rng, 3.0),
        )
    ]


def _partition(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    some = tuple(peer for peer in peers if rng.random() < 0.5) or (peers[0],)
    partition = Fault(at_s=at_s, kind="partition", groups=(some,), for_s=_lasting(rng, 5.0))
    heals = rng.random() < 0.2
    later_s = _rounded(at_s + rng.exponential(3.0))
    return [partition, Fault(at_s=later_s, kind="heal")] if heals else [partition]


def _reset(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    peer = _one(rng, peers) if rng.random() < 0.5 else None
    if rng.random() < 0.5:
        return [Fault(at_s=at_s, kind="reset", peer=peer)]
    return [Fault(at_s=at_s, kind="reset", peer=peer, every_s=0.2, for_s=_lasting(rng, 3.0))]


def _join(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
    return [Fault(at_s=at_s, kind="join", count=int(rng.choice([1, 1, 2, 5])))]


def _of_one(kind: str) -> _Draw:
    return lambda rng, peers, at_s: [Fault(at_s=at_s, kind=kind, peer=_one(rng, peers))]


def _burst(kind: str, rates: Sequence[float]) -> _Draw:
    """Messages of one peer or of all, for a while or from the first to the last."""

    def draw(rng: np.random.Generator, peers: Sequence[PeerId], at_s: float) -> list[Fault]:
        peer = _one(rng, peers) if rng.random() < 0.2 else None
        always, for_s, rate = rng.random() < 0.6, _lasting(rng, 4.0), float(rng.choice(rates))
        return [
            Fault(
                at_s=0.0 if always else at_s,
                kind=kind,
                peer=peer,
                for_s=None if always else for_s,
                by_s=rate if kind == "delay" else None,
                rate=None if kind == "delay" else rate,
            )
        ]

    return draw


_DRAWS: Mapping[str, _Draw] = MappingProxyType(
    {
        "crash": _crash,
        "mass-restart": _mass_restart,
        "pause": _pause,
        "slow": _slow,
        "clock-jump": _clock_jump,
        "cut": _cut,
        "partition": _partition,
        "reset": _reset,
        "join": _join,
        "leave": _of_one("leave"),
        "finish": _of_one("finish"),
        "diverge": _of_one("diverge"),
    }
)

_WEATHER: Mapping[str, _Draw] = MappingProxyType(
    {
        "loss": _burst("loss", [0.02, 0.1, 0.4]),
        "duplicate": _burst("duplicate", [0.05, 0.3]),
        "replay": _burst("replay", [0.03]),
        "delay": _burst("delay", [0.02, 0.2]),
    }
)

_FREQUENT = ("crash", "crash", "cut", "partition", "join")
"""Drawn more often: most of what is rare needs one of them."""


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
    faults: list[Fault] = []
    for draw in _WEATHER.values():
        if rng.random() < 0.5:
            faults += draw(rng, peers, _rounded(rng.uniform(0.0, until_s)))
    kinds = [kind for kind in _DRAWS if rng.random() < 0.45 and (diverge or kind != "diverge")]
    kinds += [kind for kind in _FREQUENT if kind in kinds]
    for _ in range(int(rng.integers(0, 13)) if kinds else 0):
        kind = kinds[int(rng.integers(len(kinds)))]
        faults += _DRAWS[kind](rng, peers, _rounded(rng.uniform(0.0, until_s)))
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def _one(rng: np.random.Generator, peers: Sequence[PeerId]) -> PeerId:
    return peers[int(rng.random() * len(peers))]


def _lasting(rng: np.random.Generator, mean_s: float) -> float:
    return _rounded(0.1 + rng.exponential(mean_s))


def _rounded(time_s: float) -> float:
    # Three digits read well in a file, and say the same there.
    return round(float(time_s), 3)


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
    merge_rounds=20,
    inline_bytes_max=256,
)
"""A tenth of the defaults, so that a minute is long enough for everything to settle."""

FAIR = NetworkFaults(replay_s_max=120.0)
"""Nothing is wrong; but what comes again may be minutes old."""

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
    network_faults: NetworkFaults = FAIR
    """What the network does when nothing is wrong."""
    faults: tuple[Fault, ...] = ()

    @property
    def faults_s(self) -> float:
        """When the faults are over, seconds."""
        return max([FAULTS_S, *(fault.at_s + 1.0 for fault in self.faults)])

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
    return replace(
        scenario, network_faults=replace(scenario.network_faults, tells=bool(rng.random() < 0.5))
    )


def _orderly(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    return replace(
        scenario, network_faults=replace(scenario.network_faults, orderly=bool(rng.random() < 0.5))
    )


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
