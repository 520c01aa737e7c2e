"""The world of an in-process swarm: its peers by name, what they share, and how time passes."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

from numpy.random import Generator
from torch import nn

from ...gossip import ConfigError, PeerId, Protocol, ProtocolConfig, Rule, stream
from ...gossip.protocol.rule import require_topology, requirements_of
from ...gossip.types import Incarnation, SnapshotId
from ...gossip.wire.messages import is_name
from ...topology import TopologyError, View, over
from ...train.tasks.random_state import kept_random_state
from ...train.tensors.vector import Vector
from ..kernel.clock import Clock
from ..models.links import address_of
from ..models.network import NetworkConfig
from ..models.step_time import StepTime
from ..models.topology import machines_of, require_machines
from .learner import Course
from .observers import Fault, SwarmObserver
from .peer import MachineSegments, SwarmPeer
from .post import Link, Post

__all__ = ["Peers", "World", "check_name"]

Peers = PeerId | Sequence[PeerId]
"""One peer, or several."""


class World:
    """Where peers live.

    Args:
        ids: Those who found together.
        course: What they learn.
        topology: Spec of the graph that says who may push to whom.
        rule: Makes one for each peer.
        pace: Makes one for a peer.
        network: What carries their messages.
        config: Of their protocols.
        shards: How many their vectors are cut into.
        seed: The run's seed.

    Raises:
        ConfigError: The topology is not valid for so many, or the network names a peer that there
            is not.
        TrainingError: The model has nothing to share.
    """

    def __init__(
        self,
        ids: Sequence[PeerId],
        *,
        course: Course,
        topology: str,
        rule: Callable[[], Rule],
        pace: Callable[[PeerId], StepTime],
        network: NetworkConfig,
        config: ProtocolConfig,
        shards: int,
        seed: int,
    ) -> None:
        try:
            built = over(topology, seed, sorted(ids))
            require_machines(rule(), built)
        except TopologyError as error:
            raise ConfigError(str(error)) from None
        require_topology(rule(), topology, lambda: built.is_tree)
        self.course = course
        self.clock = Clock()
        self.observer = SwarmObserver(self.clock)
        self.post = Post(self.clock, network, ids, seed)
        self.peers: dict[PeerId, SwarmPeer] = {}
        """The latest life of each peer, in order of coming."""
        self._topology = topology
        self._rule = rule
        self._pace = pace
        self._config = config
        self._shards = shards
        self._seed = seed
        self._places: dict[PeerId, int] = {}
        self._is_moving = False
        self._segments = MachineSegments()
        self._machines = machines_of(rule(), built, seed, ids)
        for id in ids:
            self._make(id, 1)
        for id, peer in self.peers.items():
            peer.start(self.addresses_but(id), len(ids))

    def start(self, id: PeerId, seeds: Sequence[str]) -> None:
        """Start a newcomer, or the next life of a peer.

        Args:
            id: Its name.
            seeds: Addresses it is told.
        """
        before = self.peers.get(id)
        if before is None:
            self.post.add(id)
        incarnation = before.protocol.account.incarnation + 1 if before else 1
        self._make(id, incarnation).start(seeds, founders=1)

    def move(self, until_s: float, stop: Callable[[], bool] | None = None) -> bool:
        """Let time pass; see `Clock.run`.

        Raises:
            ConfigError: It passes already.
        """
        if self._is_moving:
            raise ConfigError("time is passing already: what was given to `at` cannot let it pass")
        self._is_moving = True
        try:
            with kept_random_state():
                return self.clock.run(until_s, stop)
        finally:
            self._is_moving = False

    def note(self, peer: PeerId, event: Fault) -> None:
        """Tell of something that is done to a peer."""
        self.observer.note(peer, event)

    def find(self, id: PeerId) -> SwarmPeer:
        """The latest life of a peer.

        Raises:
            ConfigError: There is no such peer.
        """
        if id not in self.peers:
            known = ", ".join(sorted(self.peers))
            raise ConfigError(f"there is no peer {id!r}: it must be one of {known}")
        return self.peers[id]

    def find_running(self, id: PeerId) -> SwarmPeer:
        """A peer whose process runs.

        Raises:
            ConfigError: There is no such peer, or it does not run.
        """
        found = self.find(id)
        if not found.running:
            running = ", ".join(self.running()) or "none"
            raise ConfigError(f"peer {id!r} does not run, it {found.end}; running: {running}")
        return found

    def links(self, here: Peers, there: Peers | None, *, one_way: bool) -> list[Link]:
        """The links from some peers to others, or to everybody else, and back unless *one_way*.

        Raises:
            ConfigError: There is no such peer.
        """
        sources = self._several(here)
        targets = set(self.peers) - sources if there is None else self._several(there)
        links = {(a, b) for a, b in product(sources, targets) if a != b}
        return sorted(links if one_way else links | {(b, a) for a, b in links})

    def running(self) -> tuple[PeerId, ...]:
        """Those whose process runs, sorted."""
        return tuple(id for id in sorted(self.peers) if self.peers[id].running)

    def members(self) -> dict[PeerId, SwarmPeer]:
        """Those who belong to the swarm, sorted: they joined, and have neither crashed nor left."""
        return {id: peer for id, peer in sorted(self.peers.items()) if peer.is_member}

    def with_models(self) -> list[SwarmPeer]:
        """The members or, while nobody has founded yet, those who are about to, sorted by id.

        Raises:
            ConfigError: There are none.
        """
        found = self.members() or {id: self.peers[id] for id in self.running()}
        if not found:
            raise ConfigError(f"nobody is there at {self.clock.now:g} s: {self.in_words()}")
        return list(found.values())

    def addresses_but(self, id: PeerId) -> list[str]:
        """Where all others would listen."""
        return [address_of(other) for other in self.peers if other != id]

    def in_words(self) -> str:
        """Every peer and where it stands."""
        return ", ".join(
            f"{id} ({peer.protocol.phase.name.lower() if peer.running else peer.end})"
            for id, peer in sorted(self.peers.items())
        )

    def _make(self, id: PeerId, incarnation: Incarnation) -> SwarmPeer:
        rule = self._rule()
        place = self._places.setdefault(id, len(self._places))
        with kept_random_state():
            learner = self.course.learner(id, place)
        vector = self._vector(learner.model, rule)
        protocol = Protocol(
            id=id,
            incarnation=incarnation,
            schema=vector.schema,
            anchor=vector.anchor(),
            rule=rule,
            neighbors=View(self._topology, self._seed),
            rng=partial(stream, self._seed, id),
            config=self._config,
            addresses=(address_of(id),),
            keeps_anchor=vector.anchor_flats is not None,
            # Who comes later comes to the first machine.
            host=self._machines.get(id, next(iter(self._machines.values()), b"")),
        )
        pace = self._pace(id)
        rounding = partial(_rounding, self._seed, id)
        given = self.clock, self.post, self.observer, rounding, self._segments
        peer = SwarmPeer(protocol, learner, vector, pace, *given)
        self.peers[id] = self.post.listeners[id] = peer
        return peer

    def _vector(self, model: nn.Module, rule: Rule) -> Vector:
        wire, requirements = self._config.wire, requirements_of(rule)
        vector = Vector(
            model,
            rule.registers,
            shards=self._shards,
            scattered=requirements.scattered,
            keeps_anchor=requirements.needs_anchor(wire),
            sends_topk=requirements.notes_sent(wire),
        )
        vector.compare_frozen()
        return vector

    def _several(self, peers: Peers) -> set[PeerId]:
        names = [peers] if isinstance(peers, str) else peers
        return {self.find(name).id for name in names}


def _rounding(seed: int, id: PeerId, snapshot: SnapshotId) -> Generator:
    """The random numbers that a snapshot is rounded by, as live."""
    return stream(seed, id, f"rounding:{snapshot}")


def check_name(name: PeerId) -> None:
    """Refuse what a peer cannot be called.

    Raises:
        ConfigError: It is not a name.
    """
    if not is_name(name):
        raise ConfigError(
            f"a peer is called {name!r}: it must be 1 to 64 letters, digits, '.', '_' or '-'"
        )
