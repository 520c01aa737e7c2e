"""A network under virtual time that loses, repeats, delays and misdelivers, all from one seed.

It is no kinder than ZeroMQ: messages vanish without a word, arrive at the next life of a peer, or
stop in the middle of a transfer. Every link draws its n-th number of each purpose from a stream of
its own, so that taking one fault away shifts no other.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, repeat

import numpy as np

from rumor.gossip import Envelope, PeerId, Protocol, ProtocolConfig, Rule, stream
from rumor.gossip.messages import Chunk, End, Incarnation, Offer, Push, Query
from rumor.gossip.state import Neighbors

from .host import Host
from .vector import SIZE, Values, Vector, schema_of
from .watch import Watch

__all__ = ["CALM", "Network", "Peers", "Weather", "complete", "ring", "spread"]


def complete(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """Everybody may push to everybody."""
    return tuple(other for other in live if other != peer)


def ring(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    """Everybody may push to the one before and the one after."""
    if peer not in live or len(live) < 2:
        return ()
    at = live.index(peer)
    return tuple(sorted({live[at - 1], live[(at + 1) % len(live)]}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What the network does to messages; rates are probabilities."""

    loss: float = 0.0
    duplicates: float = 0.0
    replays: float = 0.0
    """Of a second copy that arrives after up to 10 s, perhaps at another life."""
    delay_s: float = 0.01
    """Scale of a heavy-tailed delay, so that messages overtake one another."""
    tells: bool = False
    """Whether a sender hears that there is no way to its peer."""
    orderly: bool = False
    """Whether messages about shares stay in order on each link, as on one socket."""


CALM = Weather()

_OF_SHARES = (Push, Offer, Chunk, End, Query)


@dataclass(slots=True, kw_only=True)
class Peers:
    """What all peers of a network are made of."""

    rule: Callable[[PeerId], Rule]
    config: ProtocolConfig = field(default_factory=ProtocolConfig)
    neighbors: Neighbors = complete
    train: Callable[[Host], None] = lambda host: None
    step_s: Callable[[PeerId], float] = lambda peer: 0.1
    anchor: bytes = b"the-first-anchor"
    size: int = SIZE
    """Numbers of their vector."""
    shards: int = 1
    host: bytes = b""
    """Where they can read one another's memory; empty where they cannot."""


class Network:
    """Hosts, the links between them, and a heap of what happens when.

    Args:
        seed: Of everything random.
        peers: What hosts are made of.
        weather: How bad the network is; may be replaced at any time.
        hulls: Whether values change by mixing alone.
    """

    def __init__(
        self, seed: int, peers: Peers, weather: Weather = CALM, *, hulls: bool = True
    ) -> None:
        self.now = 0.0
        self.watch = Watch(hulls=hulls, exact=peers.config.exact)
        self.weather = weather
        self.hosts: dict[PeerId, Host] = {}
        """The latest life of each peer."""
        self.cut: set[tuple[PeerId, PeerId]] = set()
        """Links that carry nothing, as (from, to)."""
        self._seed = seed
        self._peers = peers
        self._last_s: dict[tuple[PeerId, PeerId], float] = {}
        """When the last message about a share arrives that keeps its place."""
        self._schema = schema_of(peers.size, peers.shards)
        self._shown: list[tuple[Host, bytearray]] = []
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._arrivals = count()
        self._chances: dict[tuple[str, str], Iterator[float]] = {}

    def start(
        self,
        peer: PeerId,
        *,
        seeds: tuple[PeerId, ...] = (),
        founders: int = 1,
        values: Values | None = None,
        anchor: bytes = b"",
    ) -> Host:
        """Start a peer, or the next life of one.

        Args:
            peer: Its id, which is its address too.
            seeds: Addresses it is told.
            founders: How many found together.
            values: Its model; drawn from the seed unless given.
            anchor: What it would found with; that of all peers unless given.
        """
        made = self._peers
        rule = made.rule(peer)
        incarnation = self._next_incarnation(peer)
        if values is None:
            values = stream(self._seed, f"{peer}/{incarnation}", "values").normal(size=made.size)
        protocol = Protocol(
            id=peer,
            incarnation=incarnation,
            schema=self._schema,
            anchor=anchor or made.anchor,
            rule=rule,
            neighbors=made.neighbors,
            rng=lambda purpose: stream(self._seed, f"{peer}/{incarnation}", purpose),
            config=made.config,
            addresses=(peer,),
            host=made.host,
        )
        vector = Vector(values, rule.registers, self._schema)
        host = Host(protocol, vector, self, train=made.train, step_s=made.step_s(peer))
        self.hosts[peer] = host
        host.start(seeds, founders)
        return host

    def running(self) -> list[Host]:
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

    def chance(self, purpose: str, link: str) -> float:
        """The next number in [0, 1) of one purpose on one link."""
        if (purpose, link) not in self._chances:
            generator = stream(self._seed, link, purpose)
            blocks = (generator.random(32).tolist() for _ in repeat(None))
            self._chances[purpose, link] = (number for block in blocks for number in block)
        return next(self._chances[purpose, link])

    def greet(self, host: Host, address: str, envelope: Envelope) -> None:
        """Carry a message to whoever has an address."""
        self._carry(host.id, address, envelope, b"")

    def send(self, host: Host, envelope: Envelope, frame: bytes) -> None:
        """Carry a message to whichever life of a peer runs when it arrives, or lose it."""
        source, destination = host.id, envelope.destination
        if self._carry(source, destination, envelope, frame) or not self.weather.tells:
            return
        self.watch.seen["unsent"] += 1
        host.unsent(envelope)

    def show(self, host: Host, memory: bytearray) -> str:
        """Name memory of a host."""
        self._shown.append((host, memory))
        return str(len(self._shown) - 1)

    def memory(self, name: str) -> bytearray | None:
        """Open memory of a host that runs."""
        host, memory = self._shown[int(name)]
        self.watch.seen["read from memory"] += host.running
        return memory if host.running else None

    def _carry(self, source: PeerId, to: PeerId, envelope: Envelope, frame: bytes) -> bool:
        """Whether there is a way; what is under way may still be lost."""
        weather, link = self.weather, f"{source}>{to}"
        lost = self.chance("loss", link) < weather.loss
        doubled = self.chance("duplicate", link) < weather.duplicates
        replayed = self.chance("replay", link) < weather.replays
        delays_s = [self._delay_s(purpose, link) for purpose in ("delay", "second delay")]
        replay_s = 10.0 * self.chance("replay delay", link)
        if (source, to) in self.cut or to not in self.hosts or not self.hosts[to].running:
            return False
        if weather.orderly and isinstance(envelope.body, _OF_SHARES):
            before_s = self._last_s.get((source, to), 0.0)
            delays_s = [max(delay_s, before_s - self.now) for delay_s in delays_s]
            if not lost:
                self._last_s[source, to] = self.now + delays_s[0]
        times_s = [] if lost else delays_s[: 1 + doubled]
        for delay_s in [*times_s, *([replay_s] if replayed else [])]:
            self.later(delay_s, lambda: self._deliver(source, to, envelope, frame))
        self.watch.seen["duplicate"] += max(0, len(times_s) + replayed - 1)
        return True

    def _delay_s(self, purpose: str, link: str) -> float:
        left = 1.0 - self.chance(purpose, link)
        return self.weather.delay_s * min(float(left**-0.8), 50.0)

    def _deliver(self, source: PeerId, to: PeerId, envelope: Envelope, frame: bytes) -> None:
        host = self.hosts[to]
        if host.running and (source, to) not in self.cut:
            host.arrive(envelope, frame)

    def _next_incarnation(self, peer: PeerId) -> Incarnation:
        before = self.hosts.get(peer)
        return before.ledger.incarnation + 1 if before else 1


def spread(hosts: list[Host]) -> float:
    """Largest difference of two models in one coordinate."""
    return float(np.ptp(np.array([host.vector.x for host in hosts]), axis=0).max())
