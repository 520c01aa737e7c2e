"""A campaign's scenarios: all that goes wrong, drawn from a seed before anything happens."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rumor.gossip import PeerId, Phase, ProtocolConfig, stream
from rumor.sim.torture.host import Host
from rumor.sim.torture.network import CALM, Network, Peers, Weather, complete, ring, spread
from rumor.sim.torture.picky import Picky
from rumor.sim.torture.vector import SIZE

__all__ = ["FAULTS_S", "Fault", "Scenario", "draw", "draw_wide", "run"]

FAULTS_S = 15.0
"""Faults happen before this time, seconds."""

CALM_S = 60.0
"""Within this time escrow has to settle and the models to agree, once the faults are over."""

_CONFIG = ProtocolConfig(
    query_s_min=0.2,
    query_s_max=1.5,
    stall_s=1.5,
    gossip_s=0.5,
    dead_s=3.0,
    found_s=1.5,
    roll_s=3.0,
    retry_s=0.5,
    staged_max=3,
    merge_rounds=20,
)


def frames(size: int) -> dict[str, Any]:
    """Settings under which frames are of one size."""
    return {"frame_bytes": size, "frame_bytes_min": size, "frame_bytes_max": size}


# Shares measure 64 bytes and copies 128: all in one message, only shares, or none.
_WIRES: tuple[dict[str, Any], ...] = (
    {"inline_bytes_max": 128},
    {"inline_bytes_max": 64, **frames(24), "window_bytes": 24},
    {"inline_bytes_max": 1, **frames(16), "window_bytes": 48},
)


# Of 20 numbers, which are 192 bytes in one shard, 64 and 128 in two, and 64 each in three.
_WIDE_WIRES: tuple[dict[str, Any], ...] = (
    {"inline_bytes_max": 256},
    {"inline_bytes_max": 1, **frames(48), "window_bytes": 96},
    {"inline_bytes_max": 1, "frame_bytes": 32, "frame_bytes_min": 8, "frame_bytes_max": 64,
     "window_bytes": 64},
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing that goes wrong."""

    time_s: float
    kind: str
    peer: PeerId
    argument: float
    """How long it lasts in seconds, or a number in [0, 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that one seed stands for."""

    seed: int
    peers: tuple[PeerId, ...]
    founders: int
    weather: Weather
    config: ProtocolConfig
    ring: bool
    faults: tuple[Fault, ...]
    size: int = SIZE
    """Numbers of the vector."""
    shards: int = 1
    host: bytes = b""
    """Where they can read one another's memory; empty where they cannot."""
    calm: Weather = CALM
    """After the faults."""


_KINDS = ("crash", "crash", "cut", "cut one way", "pause", "leave", "arrive", "poison", "finish")


def draw(seed: int) -> Scenario:
    """Draw a scenario; which kinds of fault there are at all is drawn first."""
    rng = stream(seed, "campaign", "scenario")
    peers = tuple(f"p{index}" for index in range(int(rng.integers(2, 7))))
    kinds = [kind for kind in _KINDS if rng.random() < 0.6] or ["crash"]
    faults = [_draw_fault(rng, kinds, peers) for _ in range(int(rng.integers(0, 12)))]
    return Scenario(
        seed=seed,
        peers=peers,
        founders=int(rng.integers(1, len(peers) + 1)),
        weather=Weather(
            loss=float(rng.choice([0.0, 0.02, 0.1, 0.4])),
            duplicates=float(rng.choice([0.0, 0.05, 0.3])),
            replays=float(rng.choice([0.0, 0.03])),
            delay_s=float(rng.choice([0.001, 0.02, 0.2])),
            tells=bool(rng.random() < 0.5),
        ),
        config=replace(_CONFIG, **_WIRES[int(rng.integers(len(_WIRES)))]),
        ring=bool(rng.random() < 0.3),
        faults=tuple(sorted(faults)),
    )


def draw_wide(seed: int) -> Scenario:
    """Draw a scenario in which shares are cut, held back, shown or mixed back, too.

    Nothing diverges where the sum of the models is held against what was founded.
    """
    plain, rng = draw(seed), stream(seed, "campaign", "wide")
    exact, shown = bool(rng.random() < 0.4), bool(rng.random() < 0.4)
    config = replace(
        plain.config,
        **_WIDE_WIRES[int(rng.integers(len(_WIDE_WIRES)))],
        exact=exact,
        bandwidth_bytes_s=(None, None, 300.0, 2000.0)[int(rng.integers(4))],
        shards_per_push=int(rng.integers(1, 4)),
        shard_order="random" if rng.random() < 0.5 else "round-robin",
    )
    return replace(
        plain,
        config=config,
        weather=replace(plain.weather, orderly=bool(rng.random() < 0.5)),
        faults=tuple(f for f in plain.faults if not (exact and f.kind == "poison")),
        calm=replace(CALM, orderly=True),
        size=20,
        shards=int(rng.integers(1, 4)),
        host=b"the-same-machine" if shown else b"",
    )


def _draw_fault(rng: np.random.Generator, kinds: list[str], peers: tuple[PeerId, ...]) -> Fault:
    kind, peer = str(rng.choice(kinds)), str(rng.choice(peers))
    time_s = float(rng.uniform(0.0, FAULTS_S))
    return Fault(time_s, kind, peer, float(rng.exponential(3.0)))


def run(scenario: Scenario) -> Network:
    """Run a scenario: first faults, then calm, then everybody finishes.

    Raises:
        AssertionError: An invariant is broken, or something is not settled when it must be.
    """
    speeds = stream(scenario.seed, "campaign", "speeds")
    step_s = {peer: float(speeds.uniform(0.1, 0.5)) for peer in scenario.peers}
    peers = Peers(
        rule=lambda peer: Picky(0.6),
        config=scenario.config,
        neighbors=ring if scenario.ring else complete,
        step_s=lambda peer: step_s.get(peer, 0.2),
        size=scenario.size,
        shards=scenario.shards,
        host=scenario.host,
    )
    network = Network(scenario.seed, peers, scenario.weather)
    _found(network, scenario)
    for fault in scenario.faults:
        network.later(fault.time_s, _fault(network, fault))
    network.run(FAULTS_S)
    _calm(network, scenario.calm)
    while not _agree(network):
        assert network.now < FAULTS_S + CALM_S, "no agreement"
        network.run(network.now + 2.5)
    for host in network.running():
        host.finishes = True
    network.run(network.now + CALM_S)
    _check_rest(network)
    return network


def _found(network: Network, scenario: Scenario) -> None:
    """The first peers call the roll, or one founds alone; the others join."""
    roll = scenario.peers[: scenario.founders]
    for peer in roll:
        network.start(peer, seeds=tuple(o for o in roll if o != peer), founders=len(roll))
    for peer in scenario.peers[scenario.founders :]:
        seeds = tuple(other for other in scenario.peers if other != peer)
        network.later(network.chance("start", peer) * 5.0, _starter(network, peer, seeds))


def _starter(network: Network, peer: PeerId, seeds: tuple[PeerId, ...]) -> Callable[[], None]:
    def start() -> None:
        if peer not in network.hosts:
            network.start(peer, seeds=seeds)

    return start


def _fault(network: Network, fault: Fault) -> Callable[[], None]:
    return lambda: _strike(network, fault)


def _strike(network: Network, fault: Fault) -> None:
    host = network.hosts.get(fault.peer)
    if fault.kind == "arrive":
        name = f"q{fault.time_s:.3f}"
        network.start(name, seeds=tuple(sorted(network.hosts)))
    elif fault.kind.startswith("cut"):
        _cut(network, fault)
    elif host is not None and host.running:
        _strike_host(network, host, fault)


def _strike_host(network: Network, host: Host, fault: Fault) -> None:
    if fault.kind == "crash":
        # It dies in the middle of what it does next, and comes back with nothing.
        if fault.argument < 2.0:
            host.crash_accepting = True
        else:
            host.crash_after = int(fault.argument * 3) % 7
        if fault.argument < 5.0:
            back_s = min(fault.argument + 0.5, FAULTS_S - network.now)
            network.later(back_s, lambda: _restart(network, fault.peer))
    elif fault.kind == "pause":
        host.paused_until_s = network.now + fault.argument
    elif fault.kind == "finish":
        host.finish()
    elif fault.kind == "leave":
        host.leave()
    elif host.protocol.phase is Phase.TRAINING:
        host.poison()


def _cut(network: Network, fault: Fault) -> None:
    links = {(fault.peer, other) for other in network.hosts if other != fault.peer}
    if fault.kind == "cut":
        links |= {(other, peer) for peer, other in links}
    network.cut |= links
    network.later(fault.argument, lambda: network.cut.difference_update(links))


def _restart(network: Network, peer: PeerId) -> None:
    if not network.hosts[peer].running:
        network.start(peer, seeds=tuple(sorted(set(network.hosts) - {peer})))


def _calm(network: Network, weather: Weather) -> None:
    network.weather = weather
    network.cut.clear()
    for host in network.running():
        host.paused_until_s = network.now
        host.crash_after = None
        host.crash_accepting = False


def _agree(network: Network) -> bool:
    """Whether live peers all belong, hold just one another for alive, and have one model."""
    hosts = [host for host in network.running() if not host.protocol.done]
    if len(hosts) == 1 and not hosts[0].protocol.swarm:
        return True  # it never met anybody, and looks for somebody until it is stopped
    ids = [host.id for host in hosts]
    belong = all(host.protocol.phase.takes_shares for host in hosts)
    views = [[member.id for member in host.protocol.live()] for host in hosts]
    return belong and all(view == ids for view in views) and (not hosts or spread(hosts) < 1e-2)


def _check_rest(network: Network) -> None:
    """Everybody came to an end and closed, and kept nothing; see `Watch.ended`."""
    for host in network.running():
        assert not host.protocol.swarm, f"{host.id} is {host.protocol.phase.name}"
