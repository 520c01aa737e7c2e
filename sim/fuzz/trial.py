"""One seed: faults while they last, then calm in which everything has to settle."""

import traceback
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import networkx as nx

from ...gossip import PeerId, Protocol, stream
from .faults import FaultInjector
from .network import CALM, Network, Peers, complete, ring, spread
from .peer import FuzzPeer
from .scenario import Scenario
from .violation import LIVENESS, Violation

__all__ = ["Failure", "Trial", "attempt", "run"]

AGREE_S = 60.0
"""Within this time all must belong to one swarm and agree, once the faults are over."""

RING_S = 1.5
"""The same on a ring, times the square of the number of peers: news spreads there as heat does."""

END_S = 60.0
"""Within this time everybody must close, once all have finished."""

SPREAD_MAX = 1e-2
"""How far apart models may be in one coordinate; they begin some units apart."""

_LOOK_S = 1.0

_TRACE_LINES = 40

Mutant = Callable[[Protocol], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An invariant that a seed broke."""

    invariant: str
    what: str
    at_s: float
    """When, seconds."""
    trace: tuple[str, ...]
    """The last events of the peers concerned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of one seed."""

    seed: int
    events: int
    agree_s: float
    """How long after the faults everybody agreed; 0 where something was broken before."""
    seen: Counter[str]
    """What happened how often."""
    failure: Failure | None = None


def attempt(scenario: Scenario, mutant: Mutant | None = None) -> Trial:
    """Run a scenario and say what came of it.

    Args:
        scenario: What is to happen.
        mutant: Plants a known bug in every protocol, see `MUTANTS`.
    """
    network, agree_s, failure = _network(scenario, mutant, digests=False), 0.0, None
    try:
        agree_s = _go_through(network, scenario)
    except Violation as violation:
        failure = _failure(network, violation)
    except Exception as error:  # whatever the core raises is found, and told as the rest is
        what = f"{type(error).__name__}: {error} ({_place(error)})"
        failure = _failure(network, Violation("error", what, network.invariants.lately))
    return Trial(
        seed=scenario.seed,
        events=network.invariants.events,
        agree_s=agree_s,
        seen=Counter({what: n for what, n in sorted(network.invariants.seen.items()) if n}),
        failure=failure,
    )


def run(scenario: Scenario, mutant: Mutant | None = None) -> Network:
    """Run a scenario, and hand over the network as it is at the end, digest included.

    Raises:
        Violation: An invariant is broken, or something is not settled when it must be.
    """
    network = _network(scenario, mutant, digests=True)
    _go_through(network, scenario)
    return network


def _network(scenario: Scenario, mutant: Mutant | None, *, digests: bool) -> Network:
    def step_s(peer: PeerId) -> float:
        return 0.1 + 0.4 * float(stream(scenario.seed, peer, "speed").random())

    peers = Peers(
        rule=lambda peer: scenario.make_rule(),
        config=scenario.config,
        neighbors=ring if scenario.ring else complete,
        step_s=step_s,
        size=scenario.size,
        shards=scenario.shards,
        host=scenario.host,
        dials_out=scenario.dial_out.__contains__,
        mutate=mutant or (lambda protocol: None),
        digests=digests,
    )
    return Network(scenario.seed, peers, scenario.network_faults)


def _go_through(network: Network, scenario: Scenario) -> float:
    """Faults, calm, the end; how long agreeing took, seconds."""
    injector = FaultInjector(network, scenario)
    _found(network, scenario, injector)
    network.run(scenario.faults_s)
    injector.calm()
    network.faults = replace(CALM, orderly=True)
    patience_s = _patience_s(network, scenario)
    while reason := _disagreement(network, scenario):
        if network.now >= scenario.faults_s + patience_s:
            raise Violation(LIVENESS, f"no agreement within {patience_s:.0f} s: {reason}")
        network.run(network.now + _LOOK_S)
    agree_s = network.now - scenario.faults_s
    for host in network.running():
        host.finishes = True
    end_s = network.now + END_S
    network.run(end_s, lambda: not any(host.protocol.swarm for host in network.running()))
    _check_rest(network)
    return agree_s


def _found(network: Network, scenario: Scenario, injector: FaultInjector) -> None:
    """The first peers call the roll, or one founds alone; the others join."""
    roll = scenario.peers[: scenario.founders]
    for peer in roll:
        others = tuple(o for o in roll if o != peer and o not in scenario.dial_out)
        injector.start(peer, others, len(roll))
    for peer in scenario.peers[scenario.founders :]:
        network.later(network.random("start", peer) * 5.0, partial(_join, injector, network, peer))


def _join(injector: FaultInjector, network: Network, peer: PeerId) -> None:
    if peer not in network.hosts:
        injector.start(peer, injector.addresses_for(peer))


def _patience_s(network: Network, scenario: Scenario) -> float:
    n, shards = len(network.running()), scenario.shards
    patience_s = max(AGREE_S, RING_S * n * n) if scenario.ring else AGREE_S
    # Of a vector in shards, each is pushed only every so many times.
    return patience_s * shards / min(shards, scenario.config.shards_per_push)


def _disagreement(network: Network, scenario: Scenario) -> str:
    """What keeps live peers from belonging, knowing just one another, and having one model."""
    hosts = [host for host in network.running() if not host.protocol.done]
    reasons = (_quarrel(group) for group in _acquainted(hosts, scenario.dial_out))
    return next(filter(None, reasons), "")


def _acquainted(hosts: list[FuzzPeer], dial_out: Collection[PeerId]) -> list[list[FuzzPeer]]:
    """Who can hear of whom: nobody brings those together who know no way to one another.

    Where all that listened are gone, a newcomer that was told of them alone never meets those that
    only dial out.
    """
    graph = nx.Graph()
    graph.add_nodes_from(host.id for host in hosts)
    for host in hosts:
        ways = {*host.seeds, *(member.id for member in host.protocol.known())}
        met = (o.id for o in hosts if o.id in ways and o.id not in dial_out)
        graph.add_edges_from((host.id, other) for other in met)
    groups = list(nx.connected_components(graph))
    return [[host for host in hosts if host.id in group] for group in groups]


def _quarrel(hosts: list[FuzzPeer]) -> str:
    """What keeps those who know ways to one another apart."""
    if len(hosts) == 1:
        return ""  # who is alone looks for somebody until it is stopped
    ids = [host.id for host in hosts]
    for host in hosts:
        if not host.protocol.phase.takes_shares:
            return f"{host.id} is {host.protocol.phase.name}"
        if (view := [member.id for member in host.protocol.live()]) != ids:
            return f"{host.id} sees {view} of {ids}"
    if len({host.protocol.swarm for host in hosts}) > 1:
        return "there are two swarms"
    apart = spread(hosts)
    return "" if apart < SPREAD_MAX else f"models are {apart:.3g} apart"


def _check_rest(network: Network) -> None:
    """Everybody came to an end and closed, and kept nothing; see `Invariants.ended`."""
    for host in network.hosts.values():
        network.invariants.check_clock(host)
        if host.running and host.protocol.swarm:
            what = f"{host.id} is still {host.protocol.phase.name} {END_S:.0f} s after the end"
            raise Violation(LIVENESS, what, (host.id,))


def _failure(network: Network, violation: Violation) -> Failure:
    return Failure(
        invariant=violation.invariant,
        what=violation.what,
        at_s=network.now,
        trace=tuple(network.invariants.trace(violation.peers, _TRACE_LINES)),
    )


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"
