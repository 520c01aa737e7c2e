"""One seed: a phase with faults, then a calm one in which everything must settle."""

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import networkx as nx

from ...gossip.protocol.protocol import Protocol
from ...gossip.types import PeerId, stream
from ...gossip.wire.formats import parse_wire
from ...gossip.wire.messages import Phase
from ...train.faults.schedule import Fault
from ..models.links import address_of
from ..models.network import NetworkConfig
from .invariants import ROUNDED
from .peers import FuzzPeer, Peers, spread
from .scenario.scenario import OUTER, Scenario
from .swarm import FuzzSwarm
from .violation import LIVENESS, Violation

__all__ = ["Failure", "Mutant", "Trial", "attempt", "run", "swarm_of"]

# Within this time after the faults all peers must belong to one swarm and agree; on a ring also
# within that time by the squared number of peers, since news spreads there as heat does.
_AGREE_S, _RING_S = 60.0, 1.5

# Once all peers have finished, they must close within this time, or within this multiple of the
# time allowed for agreeing: each round of merging waits for the slowest of all its shares.
_END_S, _MERGE_TIMES = 60.0, 4

# How far apart models may be in one coordinate; they begin some units apart.
_SPREAD_MAX = 5e-2

# Messages stay in order on each link, as on one socket; or overtake one another, and one of fifty
# comes later than the first question about a share.
_ORDERLY = NetworkConfig(latency_s=0.02, jitter=1.5)
_UNRULY = replace(_ORDERLY, reorder=0.3)
_LATE = Fault(at_s=0.0, kind="delay", by_s=0.03)

Mutant = Callable[[Protocol], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A violation in a seed."""

    invariant: str
    what: str
    at_s: float
    """Time of the violation, seconds."""
    trace: tuple[str, ...]
    """The last events of the peers concerned."""

    def __str__(self) -> str:
        return f"{self.invariant} at {self.at_s:.3f} s: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of one seed."""

    seed: int
    events: int
    seen: Counter[str]
    """Number of times each event happened."""
    failure: Failure | None = None


def attempt(scenario: Scenario, mutant: Mutant | None = None) -> Trial:
    """Run a scenario and return its result; *mutant* plants a known bug in every protocol."""
    swarm, failure = swarm_of(scenario, mutant), None
    try:
        _go_through(swarm, scenario)
    except Exception as error:  # an error of the core is a violation, too
        if isinstance(error, Violation):
            violation = error
        else:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(frame.filename).name}:{frame.lineno}"
            what = f"{type(error).__name__}: {error} ({place})"
            violation = Violation("error", what, swarm.invariants.lately)
        failure = Failure(
            invariant=violation.invariant,
            what=violation.what,
            at_s=swarm.now,
            trace=tuple(swarm.invariants.trace(violation.peers, 40)),
        )
    return Trial(
        seed=scenario.seed,
        events=swarm.invariants.events,
        seen=Counter({what: n for what, n in sorted(swarm.invariants.seen.items()) if n}),
        failure=failure,
    )


def run(scenario: Scenario, mutant: Mutant | None = None) -> FuzzSwarm:
    """Run a scenario, and return the swarm at the end, digest included; raise a `Violation`."""
    swarm = swarm_of(scenario, mutant, digests=True)
    _go_through(swarm, scenario)
    return swarm


def swarm_of(scenario: Scenario, mutant: Mutant | None, *, digests: bool = False) -> FuzzSwarm:
    """Make the swarm of a scenario, before any event."""

    @cache
    def step_s(peer: PeerId) -> float:
        return 0.1 + 0.4 * float(stream(scenario.seed, peer, "speed").random())

    first = scenario.rolls[0] if scenario.rolls else len(scenario.ids)
    others = scenario.ids[first:]
    peers = Peers(
        rule=lambda peer: scenario.make_rule(),
        config=scenario.config,
        neighbors=scenario.neighbors,
        step_s=step_s,
        size=scenario.size,
        shards=scenario.shards,
        host=scenario.host_of,
        dials_out=scenario.dial_out.__contains__,
        ahead_s=scenario.ahead_s,
        mutate=mutant or (lambda protocol: None),
        tells=scenario.tells,
        hulls=scenario.averages,
        anchor=lambda peer: b"the-other-anchor" if peer in others else b"the-first-anchor",
        rolls=scenario.rolls,
        digests=digests,
    )
    late = scenario.peers[scenario.founders :]
    swarm = FuzzSwarm(
        scenario.seed,
        peers,
        scenario.ids,
        scenario.founders,
        _ORDERLY if scenario.orderly else _UNRULY,
        latecomers_s=tuple(
            5.0 * float(stream(scenario.seed, peer, "start").random()) for peer in late
        ),
        faults=scenario.faults if scenario.orderly else (*scenario.faults, _LATE),
        calm_s=scenario.faults_s,
    )
    if scenario.rolls:
        one, other = scenario.peers[0], scenario.peers[first]
        swarm.fleet.at(scenario.meet_s, partial(swarm.meet, one, other))
        swarm.fleet.at(scenario.faults_s, partial(swarm.meet, other, one))
    for fault in scenario.faults:
        swarm.invariants.seen[f"fault: {fault.kind}"] += 1
    seen = swarm.invariants.seen
    seen["other format"] += not parse_wire(scenario.config.wire).is_native
    seen["clock behind"] += min(scenario.ahead_s.values(), default=0.0) < 0
    return swarm


def _go_through(swarm: FuzzSwarm, scenario: Scenario) -> None:
    """Run the phases: faults, calm, the end."""
    swarm.run(scenario.faults_s)
    swarm.processes.calm()
    patience_s = _patience_s(swarm, scenario)
    while reason := _disagreement(swarm, scenario):
        if swarm.now >= scenario.faults_s + patience_s:
            raise Violation(LIVENESS, f"no agreement within {patience_s:.0f} s: {reason}")
        swarm.run(swarm.now + 0.5)
    swarm.finish()
    swarm.run_until_closed(swarm.now + max(_END_S, _MERGE_TIMES * patience_s))
    swarm.invariants.audit()
    for host in swarm.peers.values():
        swarm.invariants.check_clock(host)
        if host.worker.running and host.protocol.swarm:
            what = f"{host.id} is still {host.protocol.phase.name} long after the end"
            raise Violation(LIVENESS, what, (host.id,))


def _patience_s(swarm: FuzzSwarm, scenario: Scenario) -> float:
    n, shards = len(swarm.running()), scenario.shards
    wire = parse_wire(scenario.config.wire)
    patience_s = max(_AGREE_S, _RING_S * n * n) if scenario.ring else _AGREE_S
    # A round takes as long as the slowest of all its shares, lost ones included.
    patience_s *= 5 if scenario.rule in (*OUTER, "hybrid") else 1
    # Each shard of a vector is pushed only once in several pushes.
    patience_s *= shards / min(shards, scenario.config.shards_per_push)
    return patience_s / wire.fraction


def _disagreement(swarm: FuzzSwarm, scenario: Scenario) -> str:
    """Say what keeps live peers from being one swarm with one model; empty if nothing does."""
    if scenario.waits:
        return ""  # they agree while they wait for one another, and halt where one is lost
    # A peer that a cut isolated may have finished alone, and waits for the others to finish.
    hosts = [
        host
        for host in swarm.running()
        if not host.protocol.done and host.protocol.phase is not Phase.QUIET
    ]
    groups = _reachable_groups(hosts, scenario)
    reasons = (_disagreement_within(group, hosts, scenario) for group in groups)
    return next(filter(None, reasons), "")


def _reachable_groups(hosts: list[FuzzPeer], scenario: Scenario) -> list[list[FuzzPeer]]:
    """Group peers that can hear of one another."""
    # Once all listening peers are gone, a newcomer that was given their addresses alone never meets
    # peers that only dial out.
    graph = nx.Graph()
    graph.add_nodes_from(host.id for host in hosts)
    for host in hosts:
        ways = {*host.worker.seeds, *(address_of(m.id) for m in host.protocol.known())}
        met = (o for o in hosts if address_of(o.id) in ways and o.id not in scenario.dial_out)
        graph.add_edges_from((host.id, o.id) for o in met if not _are_strangers(host, o))
    groups = nx.connected_components(graph)
    return [[host for host in hosts if host.id in group] for group in groups]


def _are_strangers(one: FuzzPeer, other: FuzzPeer) -> bool:
    """True if two peers belong to separate swarms."""
    return len({one.protocol.swarm, other.protocol.swarm} - {b""}) > 1


def _disagreement_within(group: list[FuzzPeer], hosts: list[FuzzPeer], scenario: Scenario) -> str:
    if len(group) == 1:
        return ""  # a lone peer looks for others until it is stopped
    ids = [host.id for host in group]
    for host in group:
        live = host.protocol.table.live()
        unknown = {o.id for o in hosts if _are_strangers(host, o)}
        if host.id in scenario.dial_out:
            # It may remember a later incarnation, whose clock was ahead then, of another that only
            # dials out, and no message leads the one to the other.
            lives = {member.id: member.incarnation for member in host.protocol.known()}
            silent = (other for other in hosts if other.id in scenario.dial_out)
            unknown |= {other.id for other in silent if lives.get(other.id, 0) > other.life[1]}
        unknown |= {member.id for member in live if member.phase is Phase.QUIET}
        if not host.protocol.phase.takes_shares:
            return f"{host.id} is {host.protocol.phase.name}"
        known = [id for id in ids if id not in unknown]
        if (view := [member.id for member in live if member.id not in unknown]) != known:
            return f"{host.id} sees {view} of {known}"
    training = {host.id for host in group if host.protocol.phase is Phase.TRAINING}
    is_split = len(training) < len(group) and training <= scenario.dial_out
    if scenario.rule in OUTER and is_split:
        # The peers that still train only dial out, so that no two of them exchange; under outer
        # rounds a peer that has finished waits until all have.
        return ""
    apart = spread(group)
    near = _SPREAD_MAX if parse_wire(scenario.config.wire).is_native else ROUNDED
    return "" if apart < near else f"models are {apart:.3g} apart"
