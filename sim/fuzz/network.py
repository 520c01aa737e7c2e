"""A network under virtual time that loses, repeats, delays and misdelivers, all from one seed.

Like ZeroMQ, it gives no guarantees: messages vanish silently, arrive at the next life of a peer, or
stop in the middle of a transfer. Every link draws its n-th number of each purpose from a stream of
its own, so that taking one fault away shifts no other.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from types import MappingProxyType

import numpy as np

from ...gossip import Envelope, PeerId, Protocol, ProtocolConfig, Rule, stream
from ...gossip.protocol.state import Neighbors
from ...gossip.types import Incarnation
from ...gossip.wire.messages import Chunk, End, Offer, Push, Query, later_life
from ..kernel.faults import Fault
from .invariants import Invariants, Life
from .peer import FuzzPeer, PeerCheckpoint
from .vector import SIZE, Values, Vector, schema_of

__all__ = [
    "CALM",
    "NETWORK_KINDS",
    "Network",
    "NetworkFaults",
    "NetworkRandom",
    "NetworkState",
    "Peers",
    "complete",
    "ring",
    "spread",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFaults:
    """What the network does to messages; rates are probabilities."""

    loss: float = 0.0
    duplicates: float = 0.0
    replays: float = 0.0
    """Of a further copy that arrives when it is old, perhaps at another life."""
    replay_s_max: float = 10.0
    """How old, at most; most of them are far younger."""
    delay_s: float = 0.01
    """Scale of a heavy-tailed delay, so that messages overtake one another."""
    tells: bool = False
    """Whether a sender hears that there is no way to its peer."""
    orderly: bool = False
    """Whether messages about shares stay in order on each link, as on one socket."""


CALM = NetworkFaults()

_RATES: Mapping[str, str] = MappingProxyType(
    {"loss": "loss", "duplicate": "duplicates", "replay": "replays"}
)
_CUTS = ("cut", "partition")

NETWORK_KINDS = (*_RATES, "delay", *_CUTS)
"""Kinds of fault that the network has: they begin, and may end."""


class NetworkState:
    """What is wrong on every link: the base rate of faults, and active faults on top of it.

    Args:
        base: Always in force.
    """

    def __init__(self, base: NetworkFaults) -> None:
        self._base = base
        self._active: list[Fault] = []
        self._over: dict[tuple[PeerId, PeerId], NetworkFaults | None] = {}

    @property
    def base(self) -> NetworkFaults:
        """Faults that are always in force; setting them ends all others."""
        return self._base

    @base.setter
    def base(self, faults: NetworkFaults) -> None:
        self._base = faults
        self._active.clear()
        self._over.clear()

    def begin(self, fault: Fault) -> None:
        """Add a fault, one of `NETWORK_KINDS` with names for peers."""
        self._active.append(fault)
        self._over.clear()

    def end(self, fault: Fault) -> None:
        """End a fault, if it has not ended yet."""
        self._active = [other for other in self._active if other is not fault]
        self._over.clear()

    def heal(self) -> None:
        """End all cuts and partitions."""
        self._active = [fault for fault in self._active if fault.kind not in _CUTS]
        self._over.clear()

    def over(self, source: PeerId, to: PeerId) -> NetworkFaults | None:
        """The faults of one link, None where it is cut."""
        link = source, to
        if link not in self._over:
            self._over[link] = self._found(source, to)
        return self._over[link]

    def _found(self, source: PeerId, to: PeerId) -> NetworkFaults | None:
        faults = self._base
        for fault in self._active:
            if fault.kind in _CUTS:
                if _cuts(fault, source, to):
                    return None
            elif fault.peer is None or fault.peer in (source, to):
                faults = _worse(faults, fault)
        return faults


def _worse(faults: NetworkFaults, fault: Fault) -> NetworkFaults:
    if fault.kind == "delay":
        return replace(faults, delay_s=max(faults.delay_s, fault.by_s or 0.0))
    name = _RATES[fault.kind]
    return replace(faults, **{name: max(getattr(faults, name), fault.rate or 0.0)})


def _cuts(fault: Fault, source: PeerId, to: PeerId) -> bool:
    if fault.kind == "partition":
        return _side(fault, source) != _side(fault, to)
    there = fault.peer == source and fault.to in (None, to)
    back = fault.peer == to and fault.to in (None, source)
    return there or (back and not fault.one_way)


def _side(partition: Fault, peer: PeerId) -> int:
    groups = partition.groups or ()
    return next((at for at, group in enumerate(groups) if peer in group), -1)


_BLOCK = 32
"""Numbers drawn at a time."""

_PER_MESSAGE = 6


class NetworkRandom:
    """The streams of one seed.

    Args:
        seed: Of everything random.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[tuple[str, str], np.random.Generator] = {}
        self._numbers: dict[tuple[str, str], list[float]] = {}
        self._fates: dict[str, list[list[float]]] = {}

    def next(self, purpose: str, link: str) -> float:
        """The next number in [0, 1) of one purpose on one link."""
        numbers = self._numbers.get((purpose, link))
        if not numbers:
            drawn = self._stream(purpose, link).random(_BLOCK)
            numbers = self._numbers[purpose, link] = drawn.tolist()
        return numbers.pop()

    def of_message(self, link: str) -> list[float]:
        """The six numbers in [0, 1) that the next message on one link may need."""
        fates = self._fates.get(link)
        if not fates:
            drawn = self._stream("message", link).random((_BLOCK, _PER_MESSAGE))
            fates = self._fates[link] = drawn.tolist()
        return fates.pop()

    def _stream(self, purpose: str, link: str) -> np.random.Generator:
        if (purpose, link) not in self._streams:
            self._streams[purpose, link] = stream(self._seed, link, purpose)
        return self._streams[purpose, link]


def complete(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """Everybody may push to everybody."""
    return tuple(other for other in live if other != peer)


def ring(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """Everybody may push to the one before and the one after."""
    if peer not in live or len(live) < 2:
        return ()
    at = live.index(peer)
    return tuple(sorted({live[at - 1], live[(at + 1) % len(live)]}))


@dataclass(slots=True, kw_only=True)
class Peers:
    """What all peers of a network are made of."""

    rule: Callable[[PeerId], Rule]
    config: ProtocolConfig = field(default_factory=ProtocolConfig)
    neighbors: Neighbors = complete
    train: Callable[[FuzzPeer], None] = lambda host: None
    step_s: Callable[[PeerId], float] = lambda peer: 0.1
    anchor: bytes = b"the-first-anchor"
    size: int = SIZE
    """Numbers of their vector."""
    shards: int = 1
    host: bytes = b""
    """Where they can read one another's memory; empty where they cannot."""
    dials_out: Callable[[PeerId], bool] = lambda peer: False
    """Whether a peer listens nowhere, so that it is reached on connections of its own only."""
    mutate: Callable[[Protocol], None] = lambda protocol: None
    """Plants a known bug, so that one can see whether it is found."""
    digests: bool = True
    """Whether to keep a digest of everything."""


def spread(hosts: list[FuzzPeer]) -> float:
    """Largest difference of two models in one coordinate."""
    return float(np.ptp(np.array([host.vector.x for host in hosts]), axis=0).max())


_OF_SHARES = (Push, Offer, Chunk, End, Query)


class Network:
    """Hosts, the links between them, and a heap of what happens when.

    Args:
        seed: Of everything random.
        peers: What hosts are made of.
        faults: How bad the network is; may be replaced at any time.
        hulls: Whether values change by mixing alone.
        linger_s: How long a host still hears others when it is done; a live peer ends at once.
    """

    def __init__(
        self,
        seed: int,
        peers: Peers,
        faults: NetworkFaults = CALM,
        *,
        hulls: bool = True,
        linger_s: float = 0.0,
    ) -> None:
        self.now = 0.0
        self.linger_s = linger_s
        self.invariants = Invariants(hulls=hulls, exact=peers.config.exact, digests=peers.digests)
        self.state = NetworkState(faults)
        self.hosts: dict[PeerId, FuzzPeer] = {}
        """The latest life of each peer."""
        self.checkpoints: dict[PeerId, PeerCheckpoint] = {}
        """The last checkpoint of each peer."""
        self.cut: set[tuple[PeerId, PeerId]] = set()
        """Links that carry nothing, as (from, to), beside those that faults cut."""
        self.keys: dict[PeerId, str] = {}
        """What names a peer's random numbers, where that is not its name."""
        self.reseeds: Callable[[PeerId], tuple[str, ...]] = lambda peer: ()
        """Addresses that a peer is told when it has to start over."""
        self._seed = seed
        self._peers = peers
        self._last_s: dict[tuple[PeerId, PeerId], float] = {}
        """When the last message about a share arrives that keeps its place."""
        self._links: dict[tuple[PeerId, PeerId], str] = {}
        self._resets: Counter[PeerId] = Counter()
        self._opened: set[tuple[Life, Life]] = set()
        """Connections of peers that dial out, as (who listens, who dialled)."""
        self._schema = schema_of(peers.size, peers.shards)
        self._shown: list[tuple[FuzzPeer, bytearray]] = []
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._arrivals = count()
        self._random = NetworkRandom(seed)

    @property
    def faults(self) -> NetworkFaults:
        """How bad the network is everywhere; setting it ends everything that made it worse."""
        return self.state.base

    @faults.setter
    def faults(self, faults: NetworkFaults) -> None:
        self.state.base = faults

    def start(
        self,
        peer: PeerId,
        *,
        seeds: tuple[PeerId, ...] = (),
        founders: int = 1,
        values: Values | None = None,
        anchor: bytes = b"",
        incarnation: Incarnation = 0,
        checkpoint: PeerCheckpoint | None = None,
        skew_s: float = 0.0,
    ) -> FuzzPeer:
        """Start a peer, or the next life of one.

        Args:
            peer: Its id, which is its address too.
            seeds: Addresses it is told.
            founders: How many found together.
            values: Its model; drawn from the seed unless given.
            anchor: What it would found with; that of all peers unless given.
            incarnation: Which life; 0 for the one after the last.
            checkpoint: The checkpoint that it returns with.
            skew_s: How far its clock is ahead.
        """
        made, key = self._peers, self.keys.get(peer, peer)
        rule = made.rule(peer)
        incarnation = incarnation or self._next_incarnation(peer)
        if values is None:
            values = stream(self._seed, f"{key}/{incarnation}", "values").normal(size=made.size)
        if checkpoint is not None and checkpoint.values is not None:
            values, anchor = checkpoint.values, checkpoint.swarm
        protocol = Protocol(
            id=peer,
            incarnation=incarnation,
            schema=self._schema,
            anchor=anchor or made.anchor,
            rule=rule,
            neighbors=made.neighbors,
            rng=lambda purpose: stream(self._seed, f"{key}/{incarnation}", purpose),
            config=made.config,
            addresses=() if made.dials_out(peer) else (peer,),
            host=made.host,
            clock=checkpoint.clock if checkpoint else {},
        )
        made.mutate(protocol)
        vector = Vector(values, rule.registers, self._schema)
        step_s = made.step_s(peer)
        host = FuzzPeer(
            protocol, vector, self, train=made.train, step_s=step_s, skew_s=skew_s, key=key
        )
        self.hosts[peer] = host
        host.start(
            seeds, founders, returning=checkpoint is not None and checkpoint.values is not None
        )
        return host

    def save(self, host: FuzzPeer, checkpoint: PeerCheckpoint) -> None:
        """Keep a checkpoint of the peer's."""
        self.checkpoints[host.id] = checkpoint

    def outlive(self, host: FuzzPeer, incarnation: Incarnation) -> None:
        """Start a peer over as a still later life of its name."""
        if host.running and self.hosts[host.id] is host:
            self.invariants.seen["started over"] += 1
            host.crash()
            checkpoint = self.checkpoints.get(host.id)
            later = later_life(incarnation, host.ledger.incarnation)
            self.checkpoints[host.id] = replace(
                checkpoint or PeerCheckpoint(incarnation=0), incarnation=later
            )
            again = self.start(
                host.id,
                seeds=self.reseeds(host.id),
                incarnation=later,
                checkpoint=checkpoint,
                skew_s=host.skew_s,
            )
            again.finishes, again.slowness = host.finishes, host.slowness

    def reset(self, peer: PeerId | None = None) -> None:
        """Reset the connections of a peer, or all: what is on its way there is lost."""
        for one in [peer] if peer is not None else self.hosts:
            self._resets[one] += 1
        self._opened = {
            ends
            for ends in self._opened
            if peer is not None and peer not in (ends[0][0], ends[1][0])
        }

    def running(self) -> list[FuzzPeer]:
        """Hosts whose process runs, by id."""
        return [self.hosts[peer] for peer in sorted(self.hosts) if self.hosts[peer].running]

    def run(self, until_s: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Let everything happen that happens before *until_s*, or until *stop* holds."""
        while self._queue and self._queue[0][0] <= until_s and not stop():
            self.now, _, action = heappop(self._queue)
            action()
        if not stop():
            self.now = max(self.now, until_s)

    def later(self, delay_s: float, action: Callable[[], object]) -> None:
        """Do something after a while."""
        # Ties break by arrival number: actions cannot be compared.
        heappush(self._queue, (self.now + max(delay_s, 0.0), next(self._arrivals), action))

    def random(self, purpose: str, link: str) -> float:
        """The next number in [0, 1) of one purpose on one link."""
        return self._random.next(purpose, link)

    def greet(self, host: FuzzPeer, address: str, envelope: Envelope) -> None:
        """Carry a message to whoever listens at an address."""
        if not self._peers.dials_out(address):
            self._carry(host, address, envelope, b"")

    def send(self, host: FuzzPeer, envelope: Envelope, frame: bytes) -> None:
        """Carry a message to whichever life of a peer runs when it arrives, or lose it."""
        if self._carry(host, envelope.destination, envelope, frame) or not self.faults.tells:
            return
        self.invariants.seen["unsent"] += 1
        host.unsent(envelope)

    def show(self, host: FuzzPeer, memory: bytearray) -> str:
        """Name memory of a host."""
        self._shown.append((host, memory))
        return str(len(self._shown) - 1)

    def memory(self, name: str) -> bytearray | None:
        """Open memory of a host that runs."""
        host, memory = self._shown[int(name)]
        self.invariants.seen["read from memory"] += host.running
        return memory if host.running else None

    def _carry(self, host: FuzzPeer, to: PeerId, envelope: Envelope, frame: bytes) -> bool:
        """Whether there is a way; what is under way may still be lost."""
        source = host.id
        link = self._link(source, to)
        faults = self.state.over(source, to)
        # Every number is drawn whatever the faults, so that changing them shifts no number.
        numbers = self._random.of_message(link)
        if faults is None or (source, to) in self.cut or not self._is_open(host, to):
            return False
        loss, duplicate, delay, second_delay, replay, age = numbers
        lost, doubled = loss < faults.loss, duplicate < faults.duplicates
        delays_s = [_delay_s(number, faults.delay_s) for number in (delay, second_delay)]
        if faults.orderly and isinstance(envelope.body, _OF_SHARES):
            before_s = self._last_s.get((source, to), 0.0)
            delays_s = [max(delay_s, before_s - self.now) for delay_s in delays_s]
            if not lost:
                self._last_s[source, to] = self.now + delays_s[0]
        stamp = self._resets[source], self._resets[to]
        copies = 0 if lost else 1 + doubled
        for delay_s in delays_s[:copies]:
            self.later(delay_s, lambda: self._deliver(host, to, envelope, frame, stamp))
        if replay < faults.replays:
            copies += 1
            old_s = faults.replay_s_max * age**3
            self.later(old_s, lambda: self._deliver(host, to, envelope, frame, None))
        self.invariants.seen["duplicate"] += max(0, copies - 1)
        return True

    def _is_open(self, host: FuzzPeer, to: PeerId) -> bool:
        """Whether a process listens there, or dialled this one before."""
        there = self.hosts.get(to)
        if there is None or not there.running:
            return False
        if not self._peers.dials_out(to):
            return True
        return (host.ledger.life, there.ledger.life) in self._opened

    def _deliver(
        self,
        sender: FuzzPeer,
        to: PeerId,
        envelope: Envelope,
        frame: bytes,
        stamp: tuple[int, int] | None,
    ) -> None:
        host, source = self.hosts[to], sender.id
        if stamp is not None and stamp != (self._resets[source], self._resets[to]):
            self.invariants.seen["lost in a reset"] += 1
            return
        if not host.running or (source, to) in self.cut or self.state.over(source, to) is None:
            return
        if stamp is not None and self._peers.dials_out(source):
            self._opened.add((host.ledger.life, sender.ledger.life))
        host.arrive(envelope, frame)

    def _link(self, source: PeerId, to: PeerId) -> str:
        if (source, to) not in self._links:
            ends = [self.keys.get(peer, peer) for peer in (source, to)]
            self._links[source, to] = ">".join(ends)
        return self._links[source, to]

    def _next_incarnation(self, peer: PeerId) -> Incarnation:
        before = self.hosts.get(peer)
        return before.ledger.incarnation + 1 if before else 1


def _delay_s(number: float, scale_s: float) -> float:
    return scale_s * min(float((1.0 - number) ** -0.8), 50.0)
