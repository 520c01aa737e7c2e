"""What a seed decides: each option draws from a stream of its own, and so does the list of faults.

To turn one option off, or to take a fault away, shifts nothing else.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ....gossip import ConfigError, stream
from ....gossip.wire.formats import NATIVE, parse_wire
from ....train.faults.schedule import Fault
from ..vector import SIZE
from .byzantine import LIARS_MAX
from .faults import AIMS, draw_faults
from .scenario import CUTTING, FAULTS_S, OUTER, WIDE, WORKERS_MAX, WORKERS_MIN, Scenario

__all__ = ["OPTIONS", "draw", "workers_of"]

_FAR_S = 200_000.0
"""How far a clock is ahead that nobody believes: more than two days."""

_WHOLE = ("adpsgd", "dpsgd", "gradient-tracking")
"""Rules that need every number."""

# Half of all seeds are picky: of all rules it is the one that asks most of the protocol.
_OFTEN = ("picky", "picky", "picky", "picky", "gosgd", "gosgd-per-second", "sgp")


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
    return replace(scenario, rule=_OFTEN[int(rng.integers(len(_OFTEN)))])


def _ring(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    return replace(scenario, ring=bool(rng.random() < 0.3))


def _wide(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    return replace(scenario, size=WIDE if rng.random() < 0.5 else SIZE)


def _frame_sizes(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    wires = _WIDE_WIRES if scenario.size == WIDE else _NARROW_WIRES
    kind = int(rng.integers(3))
    if kind == len(wires):
        return scenario
    return replace(scenario, config=replace(scenario.config, **wires[kind]))


def _shards(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    shards = int(rng.integers(1, 4)) if scenario.size == WIDE else 1
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


def _far_clocks(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    """Clocks that are behind, and some that are wrong by more than a day."""
    wrong, far = rng.random() < 0.3, rng.random() < 0.25
    peers = [peer for peer in scenario.peers if rng.random() < 0.4]
    behind_s = {peer: -round(float(rng.exponential(30.0)), 3) for peer in peers}
    ahead_s = dict(scenario.ahead_s)
    if wrong:
        ahead_s.update(behind_s)
    if wrong and far:
        # Not of all that found: somebody has to be right.
        ahead_s[scenario.peers[-1]] = _FAR_S
    return replace(scenario, ahead_s=ahead_s)


def _more_rules(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    """Rules that wait, or answer: they work on whole vectors, and have no weights."""
    chosen = ("adpsgd", "adpsgd", "dpsgd", "allreduce")[int(rng.integers(4))]
    if rng.random() >= 0.15:
        return scenario
    found = replace(scenario, rule=chosen, shards=1, config=replace(scenario.config, exact=False))
    # Those who did not found would only be turned away.
    return replace(found, founders=len(scenario.peers)) if found.waits else found


def _several_registers(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    """The rule of those that wait for neighbors whose shares carry two registers."""
    is_chosen = rng.random() < 0.5 and scenario.rule == "dpsgd"
    return replace(scenario, rule="gradient-tracking") if is_chosen else scenario


def _formats(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    wire = ("bfloat16", "float16", "int8", "topk:0.3")[int(rng.integers(4))]
    rule = scenario.rule
    is_left = rng.random() >= 0.25 or scenario.config.exact or rule == "allreduce"
    if is_left or (wire.startswith("topk") and rule in _WHOLE):
        return scenario
    return replace(scenario, config=replace(scenario.config, wire=wire))


def _damage(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    damage = (0.01, 0.1)[int(rng.integers(2))]
    return replace(scenario, damage=damage if rng.random() < 0.15 else 0.0)


def _two_swarms(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    n = len(scenario.peers)
    first, meet_s = 1 + int(rng.random() * (n - 1)), round(float(rng.uniform(2.0, 10.0)), 3)
    if rng.random() >= 0.12:
        return scenario
    return replace(scenario, founders=n, rolls=(first, n - first), meet_s=meet_s)


def _brief_tombstones(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    """The dead are known as such sooner, and those who left are forgotten within 12 s."""
    config = replace(scenario.config, gossip_s=0.3, suspect_s=0.8, dead_s=1.2)
    return replace(scenario, config=config) if rng.random() < 0.15 else scenario


def _outer_rules(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    """Rules whose peers wait for whoever is there; they work on whole vectors, without weights."""
    chosen = OUTER[int(rng.integers(len(OUTER)))]
    if rng.random() >= 0.15:
        return scenario
    is_dense = parse_wire(scenario.config.wire).is_dense
    wire = scenario.config.wire if is_dense else NATIVE
    bytes_s = scenario.config.bandwidth_bytes_s
    # A share for everybody in each round: at 300 bytes a second it would take a minute.
    limit = max(bytes_s, 2000.0) if bytes_s else None
    config = replace(scenario.config, exact=False, wire=wire, bandwidth_bytes_s=limit)
    return replace(scenario, rule=chosen, shards=1, config=config)


def _cutting_rules(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    """Rules that cut the vector themselves, here into three."""
    chosen = CUTTING[int(rng.integers(len(CUTTING)))]
    is_chosen = rng.random() < 0.3 and scenario.size == WIDE and scenario.rule in _OFTEN
    return replace(scenario, rule=chosen, shards=3) if is_chosen else scenario


def _kept_shares(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    """Rules that keep what they send, so that everybody counts the same, in place of some that
    wait: CHOCO-SGD and SparseLoCo in any format, RelaySGD on a chain."""
    rule = ("choco", "relaysgd", "sparseloco")[int(rng.integers(3))]
    wire = (NATIVE, "float16", "int8", "topk:0.3", "topk2bit:0.3")[int(rng.integers(5))]
    if rng.random() >= 0.5 or scenario.rule not in ("dpsgd", "allreduce"):
        return scenario
    if rule == "relaysgd":
        return replace(scenario, rule=rule)
    return replace(scenario, rule=rule, config=replace(scenario.config, wire=wire))


def _segments(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    """The rule whose peers share a segment; it works on whole vectors."""
    if rng.random() >= 0.04:
        return scenario
    return replace(_of_whole_vectors(scenario), rule="seasgd")


def _of_whole_vectors(scenario: Scenario) -> Scenario:
    is_dense = parse_wire(scenario.config.wire).is_dense
    wire = scenario.config.wire if is_dense else NATIVE
    return replace(scenario, shards=1, config=replace(scenario.config, exact=False, wire=wire))


def _machines(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    """The rule that tells its own machine from others; it works on whole vectors."""
    machines = int(rng.integers(1, 4))
    if rng.random() >= 0.04:
        return scenario
    found = _of_whole_vectors(scenario)
    bytes_s = found.config.bandwidth_bytes_s
    config = replace(found.config, bandwidth_bytes_s=max(bytes_s, 2000.0) if bytes_s else None)
    return replace(found, rule="hybrid", machines=machines, config=config)


def _clipped(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    """The rule that measures how far shares are from the model; it needs every number."""
    is_chosen = rng.random() < 0.035 and scenario.rule in _OFTEN
    is_dense = parse_wire(scenario.config.wire).is_dense
    config = scenario.config if is_dense else replace(scenario.config, wire=NATIVE)
    return replace(scenario, rule="clipped", config=config) if is_chosen else scenario


def _progress(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    """Training ends for all with that of the first who has finished."""
    is_chosen = rng.random() < 0.5 and scenario.rule == "seasgd"
    return replace(scenario, rule="seasgd-fastest") if is_chosen else scenario


def _layers(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    """The rule that pushes while a step goes on, in place of one that cuts the vector, too."""
    is_chosen = rng.random() < 0.17 and scenario.rule in CUTTING
    return replace(scenario, rule="layers") if is_chosen else scenario


def _reading(scenario: Scenario, rng: np.random.Generator) -> Scenario:
    return replace(scenario, reads=bool(rng.random() < 0.15))


_Option = Callable[[Scenario, np.random.Generator], Scenario]

_SWARM: Mapping[str, _Option] = MappingProxyType(
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
        "far-clocks": _far_clocks,
        "more-rules": _more_rules,
        "several-registers": _several_registers,
        "formats": _formats,
        "damage": _damage,
        "two-swarms": _two_swarms,
        "tombstones": _brief_tombstones,
        "outer-rules": _outer_rules,
        "cutting-rules": _cutting_rules,
        "kept-shares": _kept_shares,
        "segments": _segments,
        "machines": _machines,
        "reading": _reading,
        "clipped": _clipped,
        "progress": _progress,
        "pieces": _layers,
    }
)

OPTIONS = (*_SWARM, *AIMS)
"""What a seed decides about its swarm, and about faults; each of them can be left out."""


def workers_of(seed: int, most: int) -> int:
    """How many peers the swarm of a seed begins with, where there are so many at most."""
    return WORKERS_MIN + int(stream(seed, "torture", "workers").random() * (most - WORKERS_MIN + 1))


def _with_liars(scenario: Scenario, share: float) -> Scenario:
    """The same swarm, of which at most a share lies, under a rule that needs nobody in particular.

    Nobody can say where a model may lie that liars have mixed into, and who reads one reads theirs.
    """
    rng = stream(scenario.seed, "torture", "liars")
    most = int(share * len(scenario.peers))
    if not most:
        return scenario
    order = [scenario.peers[int(place)] for place in rng.permutation(len(scenario.peers))]
    liars = frozenset(order[: 1 + int(rng.integers(most))])
    rule = scenario.rule if scenario.rule in _OFTEN else _OFTEN[int(rng.integers(len(_OFTEN)))]
    config = replace(scenario.config, exact=False)
    return replace(
        scenario, liars=liars, rule=rule, config=config, rolls=(), reads=False, damage=0.0, host=b""
    )


def draw(
    seed: int,
    workers: int,
    without: Collection[str] = (),
    faults: tuple[Fault, ...] | None = None,
    liars: float = 0.0,
) -> Scenario:
    """Draw a scenario.

    Args:
        seed: Of everything.
        workers: How many peers it begins with.
        without: Some of `OPTIONS` that are left as they are in a plain swarm.
        faults: What goes wrong; drawn from the seed, too, unless given.
        liars: Which share of them lies, at most.

    Raises:
        ConfigError: Too few or too many workers, an unknown option, a fault of no such peer, or too
            many liars.
    """
    if not 0 <= liars <= LIARS_MAX:
        raise ConfigError(f"liars is {liars}: it must be from 0 to {LIARS_MAX}")
    if not WORKERS_MIN <= workers <= WORKERS_MAX:
        raise ConfigError(f"workers is {workers}: it must be from {WORKERS_MIN} to {WORKERS_MAX}")
    for name in without:
        if name not in OPTIONS:
            raise ConfigError(f"unknown option {name!r}: options are {', '.join(OPTIONS)}")
    scenario = Scenario(seed=seed, peers=tuple(f"p{index}" for index in range(workers)))
    for name, option in _SWARM.items():
        if name not in without:
            scenario = option(scenario, stream(seed, "torture", name))
    scenario = _with_liars(scenario, liars)
    if faults is None:
        rng = stream(seed, "torture", "faults")
        faults = draw_faults(rng, scenario.peers, FAULTS_S, diverge=not scenario.config.exact)
        for name, aim in AIMS.items():
            if name not in without:
                faults = aim(stream(seed, "torture", name), scenario, faults)
    return scenario.with_faults(faults)
