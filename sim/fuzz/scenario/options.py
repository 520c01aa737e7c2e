"""The draws of a seed: each option has a random stream of its own, and so has the list of faults.

Turning an option off, or removing a fault, shifts nothing else.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from numpy.random import Generator as Random

from ....gossip import ConfigError
from ....gossip.types import stream
from ....gossip.wire.formats import NATIVE, parse_wire
from ....train.faults.schedule import Fault
from ..vector import SIZE
from .faults import AIMS, draw_faults
from .scenario import CUTTING, OUTER, WIDE, WORKERS_MAX, WORKERS_MIN, Scenario

__all__ = ["OPTIONS", "draw", "workers_of"]

_T = TypeVar("_T")

# Arguments of `Scenario.changed`.
_Changes = dict[str, Any]

# Rules that need every number.
_WHOLE = ("adpsgd", "dpsgd", "gradient-tracking")

# Half of all seeds use picky: of all rules it asks most of the protocol.
_OFTEN = ("picky", "picky", "picky", "picky", "gosgd", "gosgd-per-second", "sgp")


def _frames_of(size: int) -> _Changes:
    return {"frame_bytes": size, "frame_bytes_min": size, "frame_bytes_max": size}


_NARROW_FRAMES: tuple[_Changes, ...] = (
    # Shares have 64 bytes and copies 128: a limit lets only shares, or nothing, go in one message.
    {"inline_bytes_max": 64, **_frames_of(24), "window_bytes": 24},
    {"inline_bytes_max": 1, **_frames_of(16), "window_bytes": 48},
    {},
)

_WIDE_FRAMES: tuple[_Changes, ...] = (
    {"inline_bytes_max": 1, **_frames_of(48), "window_bytes": 96},
    {"inline_bytes_max": 1, "frame_bytes": 32, "frame_bytes_min": 16, "frame_bytes_max": 64,
     "window_bytes": 64},
    {},
)  # fmt: skip


def _pick(rng: Random, among: Sequence[_T]) -> _T:
    return among[int(rng.integers(len(among)))]


def _shards(scenario: Scenario, rng: Random) -> _Changes:
    return {
        "shards": int(rng.integers(1, 4)) if scenario.size == WIDE else 1,
        "config": {
            "shards_per_push": int(rng.integers(1, 4)),
        },
    }


def _dial_out(scenario: Scenario, rng: Random) -> _Changes:
    many = rng.random() < 0.25
    # Some peer must listen, and the first is as good as any.
    chosen = [peer for peer in scenario.peers[1:] if rng.random() < 0.5]
    return {"dial_out": frozenset(chosen if many else ())}


def _clocks(scenario: Scenario, rng: Random) -> _Changes:
    wrong = rng.random() < 0.4
    ahead_s = {peer: round(float(rng.exponential(30.0)), 3) for peer in scenario.peers}
    return {"ahead_s": ahead_s if wrong else {}}


def _far_clocks(scenario: Scenario, rng: Random) -> _Changes:
    """Draw clocks that are behind."""
    wrong, _ = rng.random() < 0.3, rng.random()  # two numbers, so that seeds keep their scenarios
    if not wrong:
        return {}
    peers = [peer for peer in scenario.peers if rng.random() < 0.4]
    behind_s = {peer: -round(float(rng.exponential(30.0)), 3) for peer in peers}
    return {"ahead_s": {**scenario.ahead_s, **behind_s}}


def _more_rules(scenario: Scenario, rng: Random) -> _Changes:
    """Draw rules that wait, or answer: they work on whole vectors, and have no weights."""
    rule = _pick(rng, ("adpsgd", "adpsgd", "dpsgd", "allreduce"))
    if rng.random() >= 0.15:
        return {}
    # Rules that wait would only refuse peers that are not founders.
    founders = scenario.founders if rule == "adpsgd" else len(scenario.peers)
    return {"rule": rule, "shards": 1, "founders": founders}


def _formats(scenario: Scenario, rng: Random) -> _Changes:
    wire, rule = _pick(rng, ("bfloat16", "float16", "int8", "topk:0.3")), scenario.rule
    is_left = rng.random() >= 0.25 or rule == "allreduce"
    if is_left or (wire.startswith("topk") and rule in _WHOLE):
        return {}
    return {"config": {"wire": wire}}


def _two_swarms(scenario: Scenario, rng: Random) -> _Changes:
    n = len(scenario.peers)
    first, meet_s = 1 + int(rng.random() * (n - 1)), round(float(rng.uniform(2.0, 10.0)), 3)
    if rng.random() >= 0.12:
        return {}
    return {"founders": n, "rolls": (first, n - first), "meet_s": meet_s}


def _outer_rules(scenario: Scenario, rng: Random) -> _Changes:
    """Draw rules whose peers wait for the peers that are there."""
    rule = _pick(rng, OUTER)
    if rng.random() >= 0.15:
        return {}
    return {"rule": rule, "shards": 1, "config": _dense(scenario)}


def _dense(scenario: Scenario) -> _Changes:
    return {} if parse_wire(scenario.config.wire).is_dense else {"wire": NATIVE}


def _cutting_rules(scenario: Scenario, rng: Random) -> _Changes:
    """Draw rules that cut the vector themselves, here into three."""
    rule = _pick(rng, CUTTING)
    is_chosen = rng.random() < 0.3 and scenario.size == WIDE and scenario.rule in _OFTEN
    return {"rule": rule, "shards": 3} if is_chosen else {}


def _kept_shares(scenario: Scenario, rng: Random) -> _Changes:
    """Replace some waiting rules by rules that keep what they send."""
    rule = _pick(rng, ("choco", "relaysgd", "sparseloco"))
    wire = _pick(rng, (NATIVE, "float16", "int8", "topk:0.3", "topk2bit:0.3"))
    if rng.random() >= 0.5 or scenario.rule not in ("dpsgd", "allreduce"):
        return {}
    return {"rule": rule, "config": {} if rule == "relaysgd" else {"wire": wire}}


def _segments(scenario: Scenario, rng: Random) -> _Changes:
    """Draw the rule whose peers share a segment of memory."""
    if rng.random() >= 0.04:
        return {}
    return {"rule": "seasgd", "shards": 1, "config": _dense(scenario)}


def _machines(scenario: Scenario, rng: Random) -> _Changes:
    """Draw the rule that distinguishes its own machine from others."""
    machines = int(rng.integers(1, 4))
    if rng.random() >= 0.04:
        return {}
    config = _dense(scenario)
    return {"rule": "hybrid", "machines": machines, "shards": 1, "config": config}


def _clipped(scenario: Scenario, rng: Random) -> _Changes:
    """Draw the rule that measures how far shares are from the model; it needs every number."""
    is_chosen = rng.random() < 0.035 and scenario.rule in _OFTEN
    return {"rule": "clipped", "config": _dense(scenario)} if is_chosen else {}


_Option = Callable[[Scenario, Random], _Changes]


def _sometimes(chance: float, of: Collection[str] = (), **changes: Any) -> _Option:
    """Make an option that changes a part of all scenarios, or of those under some rules."""

    def option(scenario: Scenario, rng: Random) -> _Changes:
        return changes if rng.random() < chance and (not of or scenario.rule in of) else {}

    return option


_SWARM: Mapping[str, _Option] = {
    "founders": lambda scenario, rng: {"founders": 1 + int(rng.random() * len(scenario.peers))},
    "rules": lambda scenario, rng: {"rule": _pick(rng, _OFTEN)},
    "ring": lambda scenario, rng: {"ring": rng.random() < 0.3},
    "wide": lambda scenario, rng: {"size": WIDE if rng.random() < 0.5 else SIZE},
    "frames": lambda scenario, rng: {
        "config": _pick(rng, _WIDE_FRAMES if scenario.size == WIDE else _NARROW_FRAMES)
    },
    "shards": _shards,
    "memory": lambda scenario, rng: {"host": b"the-same-machine" if rng.random() < 0.25 else b""},
    "dial-out": _dial_out,
    "clocks": _clocks,
    "tells": lambda scenario, rng: {"tells": rng.random() < 0.5},
    "orderly": lambda scenario, rng: {"orderly": rng.random() < 0.5},
    "far-clocks": _far_clocks,
    "more-rules": _more_rules,
    # Shares that carry two registers.
    "several-registers": _sometimes(0.5, ("dpsgd",), rule="gradient-tracking"),
    "formats": _formats,
    "two-swarms": _two_swarms,
    # Dead peers are detected sooner, and peers that left are forgotten within 12 s.
    "tombstones": _sometimes(0.15, config={"gossip_s": 0.3, "suspect_s": 0.8, "dead_s": 1.2}),
    "outer-rules": _outer_rules,
    "cutting-rules": _cutting_rules,
    "kept-shares": _kept_shares,
    "segments": _segments,
    "machines": _machines,
    "clipped": _clipped,
    # The first peer to finish ends training for all.
    "progress": _sometimes(0.5, ("seasgd",), rule="seasgd-fastest"),
    # Pushes during a step, also in place of a rule that cuts the vector.
    "pieces": _sometimes(0.17, CUTTING, rule="layers"),
}

OPTIONS = (*_SWARM, *AIMS)
"""Draws of a seed about its swarm and its faults; each can be left out."""


def workers_of(seed: int, most: int) -> int:
    """Draw the number of peers that a swarm begins with, *most* at most."""
    return WORKERS_MIN + int(stream(seed, "torture", "workers").random() * (most - WORKERS_MIN + 1))


def draw(
    seed: int,
    workers: int,
    without: Collection[str] = (),
    faults: tuple[Fault, ...] | None = None,
) -> Scenario:
    """Draw a scenario, *without* some `OPTIONS`; faults of None are drawn, too.

    Raises:
        ConfigError: Too few or too many workers, an unknown option, or a fault of an unknown peer.
    """
    if not WORKERS_MIN <= workers <= WORKERS_MAX:
        raise ConfigError(f"workers is {workers}: it must be from {WORKERS_MIN} to {WORKERS_MAX}")
    for name in without:
        if name not in OPTIONS:
            raise ConfigError(f"unknown option {name!r}: options are {', '.join(OPTIONS)}")
    scenario = Scenario(seed=seed, peers=tuple(f"p{index}" for index in range(workers)))
    for name, option in _SWARM.items():
        if name not in without:
            scenario = scenario.changed(**option(scenario, stream(seed, "torture", name)))
    if faults is None:
        rng = stream(seed, "torture", "faults")
        faults = draw_faults(rng, scenario.peers)
        for name, aim in AIMS.items():
            if name not in without:
                faults = aim(stream(seed, "torture", name), scenario.peers, faults)
    return scenario.with_faults(faults)
