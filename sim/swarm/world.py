"""The world of an in-process swarm: its peers by name, what is done to them, how time passes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from ...gossip import ConfigError, PeerId, Phase
from ...gossip.protocol.rule import require_topology
from ...topology import LiveTopology, TopologyError, over
from ...train.faults.schedule import Fault, joining, names_of_newcomers
from ...train.runtime.shutdown import nap_s
from ...train.tasks.random_state import kept_random_state
from ..kernel.clock import Clock
from ..kernel.fleet import Fleet
from ..kernel.plan import FaultPlan, FleetPlan
from ..models.links import Links, address_of
from ..models.network import NetworkConfig
from ..models.step_time import StepTime
from ..models.topology import machines_of, require_machines
from .observers import SwarmObserver
from .peer import StepTimes, SwarmPeer
from .values import Made, SwarmValues

__all__ = ["Peers", "World"]

Peers = PeerId | Sequence[PeerId]
"""One peer, or several."""

Link = tuple[PeerId, PeerId]
"""From whom, to whom."""

# One that is done still answers for so long what became of shares: over lossy links, the answer
# may have to be asked for more than once.
_LINGER_S = 5.0


class World:
    """Where peers live.

    Args:
        pace: Makes the durations of a peer's steps.
        faults: What goes wrong, with names in place of positions.

    Raises:
        ConfigError: The topology is not valid for so many, or the network names a peer that there
            is not.
        TrainingError: The model has nothing to share.
    """

    def __init__(
        self,
        ids: Sequence[PeerId],
        made: Made,
        pace: Callable[[PeerId], StepTime],
        network: NetworkConfig,
        faults: tuple[Fault, ...] = (),
        checkpoint_every_s: float = math.inf,
    ) -> None:
        rule = made.rule()
        try:
            built = over(made.topology, made.seed, sorted(ids))
            require_machines(rule, built)
        except TopologyError as error:
            raise ConfigError(str(error)) from None
        require_topology(rule, made.topology, lambda: built.is_tree)
        made = replace(made, machines=machines_of(rule, built, made.seed, ids))
        self.course = made.course
        self.clock = Clock()
        self.observer = SwarmObserver(self.clock)
        self._is_moving = False
        self._paces = StepTimes(pace)
        self._values = SwarmValues(made, self.observer)
        self.peers = self._values.peers
        """The latest life of each peer, in order of coming."""
        everybody = (*ids, *names_of_newcomers(joining(faults)))
        for id in everybody:
            self._paces.add(id)
        vector, *_ = [self._values.prepare(id) for id in ids]
        plan = FleetPlan(
            ids=everybody,
            schema=vector.schema,
            anchor=vector.anchor(),
            rule=made.rule,
            neighbors=LiveTopology(made.topology, made.seed),
            pace=self._paces,
            links=partial(Links, network, everybody, made.seed),
            seed=made.seed,
            steps=None,
            protocol=made.config,
            samples=self._values.samples,
            fault_plan=FaultPlan(
                faults=faults,
                founders=len(ids),
                checkpoint_every_s=checkpoint_every_s,
                ends=False,
                linger_s=_LINGER_S,
                begins_within_s=0.0,
                seeds_max=len(ids),
            ),
            turn_s=self._turn_s,
            stuck_s=math.inf,
        )
        self.fleet = Fleet(plan, harness=self._values, clock=self.clock)
        assert self.fleet.faults is not None
        self.processes = self.fleet.faults
        self._values.run_in(self.fleet)

    def _turn_s(self, index: int) -> float:
        """How long one that has finished waits for its next turn, as live."""
        worker = self.fleet.workers[index]
        step_s = worker.slowness * self._paces.step_s(index, worker.steps)
        return nap_s(step_s, merging=worker.protocol.merging)

    def start(self, id: PeerId, seeds: Sequence[str]) -> None:
        """Start a newcomer, or the next life of a peer, which is told these addresses."""
        if id in self.fleet.index:
            worker = self.fleet.workers[self.fleet.index[id]]
        else:
            self._paces.add(id)
            worker = self.fleet.add(id)
        self.processes.start([worker], seeds=seeds)

    def move(self, until_s: float, stop: Callable[[], bool] | None = None) -> bool:
        """Let time pass, up to what is due at that very time.

        *stop* is looked at before each event: where it holds, time stands still there.

        Returns:
            Whether it does.

        Raises:
            ConfigError: Time passes already.
        """
        if self._is_moving:
            raise ConfigError("time is passing already: what was given to `at` cannot let it pass")
        self._is_moving = True
        try:
            with kept_random_state():
                while self.clock.run(until_s, stop):
                    if stop is not None and stop():
                        return True
                return stop is not None and stop()
        finally:
            self._is_moving = False

    def when_awake(self, id: PeerId, action: Callable[[SwarmPeer], None]) -> None:
        """Do something at a process as soon as time passes, and it does not stand still.

        Raises:
            ConfigError: There is no such peer, or it does not run.
        """
        peer = self.find_running(id)
        once = partial(self.processes.once_awake, peer.worker, partial(action, peer))
        self.fleet.at(self.clock.now, once)

    def leave(self, peer: SwarmPeer) -> None:
        """Let a peer leave, unless it does."""
        if peer.protocol.phase < Phase.LEAVING:
            self.fleet.leave(peer.worker, burn=not peer.is_finite)

    def finish(self, id: PeerId, last_step: int) -> None:
        """Let a peer take no more optimizer steps, once so many are taken, and merge."""
        worker = self.find_running(id).worker
        worker.finishing, worker.last_step = True, last_step
        # A step that has begun is not taken to its end, as live: the caller's loop is over.
        self.when_awake(id, self._finish)

    def _finish(self, peer: SwarmPeer) -> None:
        worker = peer.worker
        trains = not (worker.searching or worker.finished) and worker.waiting_since_s is None
        if trains and worker.steps >= worker.last_step:
            self.fleet.finish(worker)

    def pause(self, peer: SwarmPeer, duration_s: float) -> None:
        """Let a process stand still."""
        until_s = self.clock.now + duration_s
        number = self.processes.pause(peer.worker)
        if number is not None:
            self.fleet.at(until_s, partial(self.processes.end_pause, peer.worker, number))

    def way(self, link: Link) -> tuple[int, int]:
        """The same, as the kernel knows it."""
        return self.fleet.index[link[0]], self.fleet.index[link[1]]

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

    def _several(self, peers: Peers) -> set[PeerId]:
        names = [peers] if isinstance(peers, str) else peers
        return {self.find(name).id for name in names}
