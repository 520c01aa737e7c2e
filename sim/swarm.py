"""`Swarm`: real peers in one process, under virtual time and with faults, for tests."""

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from itertools import product

from torch import Tensor, nn

from ..gossip import Audit, ConfigError, PeerId, Phase, Protocol, ProtocolConfig, Rule, stream
from ..gossip.effects import Event, Halt
from ..gossip.messages import is_name
from ..gossip.rule import demands_of
from ..gossip.rules import make_rule
from ..gossip.weight import founders
from ..topology import TopologyError, View, over
from ..train.tally import Tally
from ..train.task import Evaluation, Task
from ..train.tasks import load_task
from ..train.vector import Vector
from .network import NetworkConfig, read_network
from .pace import make_pace
from .swarm_clock import Clock, Priority
from .swarm_events import (
    Fault,
    Happening,
    LinkCut,
    LinkHealed,
    PeerCrashed,
    PeerPaused,
    PeerSlowed,
)
from .swarm_learner import Course, own_chance
from .swarm_models import Weighed, consensus_distance, load, merge
from .swarm_peer import SwarmPeer
from .swarm_post import Link, Post, address_of
from .swarm_watch import Watch

__all__ = ["Swarm"]

Peers = PeerId | Sequence[PeerId]
"""One peer, or several."""


class Swarm:
    """Peers that train a task together in this process, under virtual time.

    Each is a live peer but for its sockets and its clock: it has a protocol and a view of the
    swarm of its own, a module and an optimizer of its own, and every message crosses the network
    as bytes. Nothing waits: a minute of a small task takes a fraction of a second. The same
    arguments and the same calls give the same run, to the last bit.

    After every event, the weight of all peers, alive and dead, is held against what was founded;
    an `AssertionError` says where it does not add up.

    Times are virtual and in seconds. Faults may be given between two runs, or ahead with `at`.

    >>> swarm = Swarm("quadratic", peers=3, network="lossy", p=0.5)
    >>> swarm.run(10.0)
    >>> swarm.crash("peer-1")
    >>> swarm.run_until(lambda: "peer-1" not in swarm.live("peer-0"))
    >>> swarm.finish(), swarm.audit().balanced
    (True, True)

    Args:
        task: What is trained: a `Task`, a built-in name or ``module:function``. Its learning
            rate and batch size hold; its number of steps does not, peers train until `finish`.
        peers: How many found the swarm, or their names; by number they are ``peer-0`` and so on.
        seed: Of everything random. Chance belongs to names and purposes: what is done to one
            peer shifts no draw of another.
        topology: Spec of the graph that says who may push to whom.
        rule: Name of the algorithm, or what makes one for each peer, such as
            ``lambda: GoSGD(p=1.0, outstanding_max=4)`` or a class of one's own.
        p: What the named rule makes of it: for gosgd the probability of a push after a step,
            0.1 unless given.
        network: A preset (``ideal``, ``datacenter``, ``lan``, ``wan``, ``lossy``), a JSON file,
            or a network itself.
        step_s: Mean duration of an optimizer step, seconds.
        pace: How durations vary: ``constant``, ``lognormal:cv=0.3`` or ``pareto:shape=2.5``.
        partition: How the data is split among the founders: ``shared``, ``iid``,
            ``dirichlet:ALPHA`` or ``shards:K``. Those who join later share their parts, in turn.
        protocol: Sizes and times of the exchange.

    Raises:
        ConfigError: An argument is out of range.
        TrainingError: The task's model has nothing to share.
    """

    def __init__(
        self,
        task: Task | str,
        *,
        peers: int | Sequence[PeerId] = 4,
        seed: int = 0,
        topology: str = "exponential",
        rule: str | Callable[[], Rule] = "gosgd",
        p: float | None = None,
        network: str | NetworkConfig = "lan",
        step_s: float = 0.1,
        pace: str = "constant",
        partition: str = "shared",
        protocol: ProtocolConfig | None = None,
    ) -> None:
        ids = _names(peers)
        self._seed = seed
        self._topology = topology
        self._check_topology(ids)
        self._make_rule = _rules(rule, p)
        self._pace = partial(make_pace, pace, step_s=step_s, seed=seed)
        self._step_s = step_s
        self._config = protocol or ProtocolConfig()
        task = load_task(task, seed=seed) if isinstance(task, str) else task
        self._course = Course(task, len(ids), partition, seed)
        self._clock = Clock()
        self._watch = Watch(self._clock)
        network = read_network(network) if isinstance(network, str) else network
        self._post = Post(self._clock, network, ids, seed)
        self._peers: dict[PeerId, SwarmPeer] = {}
        self._is_moving = False
        for id in ids:
            self._make(id, 1)
        for id, peer in self._peers.items():
            peer.start(self._others(id), len(ids))

    @property
    def now(self) -> float:
        """Virtual time since the start, seconds."""
        return self._clock.now

    @property
    def peers(self) -> tuple[PeerId, ...]:
        """All that were ever started, sorted."""
        return tuple(sorted(self._peers))

    @property
    def running(self) -> tuple[PeerId, ...]:
        """Those whose process runs, paused or not, sorted."""
        return tuple(id for id in self.peers if self._peers[id].running)

    @property
    def events(self) -> list[Happening]:
        """What has happened, in order: ``time_s``, ``peer`` and ``event``, made to be printed.

        Events are what protocols tell (`rumor.gossip.effects`: `Founded`, `ShareMixed`,
        `PeerDied` and their like) and what was done to peers (`rumor.sim.swarm_events`).
        """
        return self._watch.events

    @property
    def digest(self) -> str:
        """Names this run so far: every event, message and parameter. 32 hexadecimal digits."""
        flats = (flat for id in self.peers for flat in self._peers[id].vector.flats)
        return self._watch.digest(flats)

    def run(self, duration_s: float) -> None:
        """Let time pass.

        Args:
            duration_s: Virtual seconds.

        Raises:
            ConfigError: It is not a finite number of at least 0; or this is called while time
                passes, by an action given to `at`.
            AssertionError: Weight was lost or created.
        """
        _check_time("duration_s", duration_s)
        self._move(self.now + duration_s)

    def run_until(
        self,
        condition: Callable[[], bool],
        timeout_s: float = 100.0,
        *,
        every_s: float | None = None,
    ) -> None:
        """Let time pass until something holds.

        Args:
            condition: Looked at now and again, and at the end of the time; it changes nothing.
            timeout_s: Virtual seconds after which to give up.
            every_s: Virtual seconds between two looks, a step's mean duration unless given.

        Raises:
            TimeoutError: It does not hold by then.
            ConfigError: A time is not valid, see `run`.
            AssertionError: Weight was lost or created.
        """
        _check_time("timeout_s", timeout_s)
        every_s = self._step_s if every_s is None else every_s
        _check_time("every_s", every_s, least=1e-9)
        give_up_s = self.now + timeout_s
        while not condition():
            if self.now >= give_up_s:
                raise TimeoutError(
                    f"the condition does not hold after {timeout_s:g} virtual seconds; "
                    f"at {self.now:g} s there are {self._in_words()}"
                )
            self._move(min(self.now + every_s, give_up_s))

    def finish(self, timeout_s: float = 100.0) -> bool:
        """Let all take no more steps, and merge as live peers do, until nobody needs another.

        Under a synchronous rule, those that are behind first catch up with the one that has
        taken the most steps.

        Args:
            timeout_s: Virtual seconds after which to return in any case.

        Returns:
            Whether all have come to an end.

        Raises:
            ConfigError: The time is not valid, see `run`.
            AssertionError: Weight was lost or created.
        """
        _check_time("timeout_s", timeout_s)
        peers = [self._peers[id] for id in self.running]
        together = demands_of(self._make_rule()).fixed_members
        last_step = max((peer.learner.steps for peer in peers), default=0) if together else 0
        for peer in peers:
            peer.finish(last_step)
        return self._move(self.now + timeout_s, self._is_done)

    def at(self, time_s: float, action: Callable[[], object]) -> None:
        """Do something at a given time: ``swarm.at(3.0, lambda: swarm.crash("peer-1"))``.

        Args:
            time_s: Virtual time since the start, seconds. What else is due then comes after it.
            action: Any calls of this swarm but those that let time pass.

        Raises:
            ConfigError: The time is past.
        """
        _check_time("time_s", time_s, least=self.now)
        self._clock.at(time_s, action, Priority.FAULT)

    def crash(self, peer: PeerId) -> None:
        """Kill a process: its weight is lost, and what it has sent is still on its way.

        Its host tells whoever writes to it that nobody listens there. For a machine that falls
        silent, cut its links first.

        Args:
            peer: Its name.

        Raises:
            ConfigError: There is no such peer, or it does not run.
        """
        self._running(peer).crash()
        self._note(peer, PeerCrashed())

    def restart(self, peer: PeerId) -> None:
        """Start a process again, with nothing but the addresses of all others: it joins.

        Args:
            peer: Its name.

        Raises:
            ConfigError: There is no such peer, or it still runs.
        """
        before = self._find(peer)
        if before.running:
            raise ConfigError(f"peer {peer!r} still runs: crash it, or let it leave, first")
        self._start(peer, before.protocol.account.incarnation + 1, via=None)

    def join(self, peer: PeerId, *, via: PeerId | None = None) -> None:
        """Start a newcomer: it asks a member for a copy of its model, and trains along.

        Args:
            peer: Its name, a new one.
            via: The only one whose address it is told; all unless given.

        Raises:
            ConfigError: The name is taken or malformed, or there is no peer *via*.
        """
        if peer in self._peers:
            raise ConfigError(f"there is a peer {peer!r} already: restart it, or take another name")
        _check_name(peer)
        if via is not None:
            self._find(via)
        self._post.add(peer)
        self._start(peer, 1, via)

    def leave(self, peer: PeerId) -> None:
        """Let a peer leave in good order: it hands its weight on, which takes a little while.

        Args:
            peer: Its name.

        Raises:
            ConfigError: There is no such peer, or it does not run.
        """
        self._running(peer).leave()

    def pause(self, peer: PeerId, duration_s: float) -> None:
        """Let a process stand still, as one that was sent SIGSTOP; what comes is kept for it.

        Args:
            peer: Its name.
            duration_s: Virtual seconds from now.

        Raises:
            ConfigError: There is no such peer, it does not run, or the time is not valid.
        """
        _check_time("duration_s", duration_s)
        self._running(peer).paused_until_s = self.now + duration_s
        self._note(peer, PeerPaused(duration_s))

    def slow(self, peer: PeerId, factor: float) -> None:
        """Let each step of a peer take so many times as long, from its next one on.

        Args:
            peer: Its name.
            factor: Above 0 and finite; 1 ends it.

        Raises:
            ConfigError: There is no such peer, it does not run, or *factor* is out of range.
        """
        if not 0 < factor < math.inf:
            raise ConfigError(f"factor is {factor}: it must be a finite number above 0")
        self._running(peer).slowness = factor
        self._note(peer, PeerSlowed(factor))

    def cut(self, peer: Peers, other: Peers | None = None, *, one_way: bool = False) -> None:
        """Cut links: what is on its way there is lost, and so is what follows, in silence.

        Args:
            peer: One end, a name or several.
            other: The other end, likewise; everybody else unless given.
            one_way: Whether only what *peer* sends is lost.

        Raises:
            ConfigError: There is no such peer.
        """
        for link in self._links(peer, other, one_way):
            self._post.cut(link)
            self._note(link[0], LinkCut(link[1]))

    def heal(self, peer: Peers | None = None, other: Peers | None = None) -> None:
        """Let links carry again that were cut, in both directions.

        Args:
            peer: One end, a name or several; all links that are cut unless given.
            other: The other end, likewise; everybody else unless given.

        Raises:
            ConfigError: There is no such peer.
        """
        cuts = self._post.cuts
        healed = cuts if peer is None else self._links(peer, other, one_way=False)
        for link in sorted(set(cuts) & set(healed)):
            self._post.heal(link)
            self._note(link[0], LinkHealed(link[1]))

    def live(self, peer: PeerId) -> tuple[PeerId, ...]:
        """Whom a peer believes to run, itself included, sorted.

        Args:
            peer: Its name; of one that has ended, what it believed last.

        Raises:
            ConfigError: There is no such peer.
        """
        return tuple(member.id for member in self._find(peer).protocol.live())

    def phase(self, peer: PeerId) -> Phase:
        """Where a peer stands in its life: `Phase.TRAINING`, for most of it.

        Args:
            peer: Its name.

        Raises:
            ConfigError: There is no such peer.
        """
        return self._find(peer).protocol.phase

    def steps(self, peer: PeerId) -> int:
        """Optimizer steps that a peer has taken since it was started last.

        Args:
            peer: Its name.

        Raises:
            ConfigError: There is no such peer.
        """
        return self._find(peer).learner.steps

    def tally(self, peer: PeerId) -> Tally:
        """What a peer has sent, mixed, skipped and refused since it was started last.

        Args:
            peer: Its name.

        Raises:
            ConfigError: There is no such peer.
        """
        return self._find(peer).tally

    def model(self, peer: PeerId) -> nn.Module:
        """A peer's own module: read it, do not change it.

        Args:
            peer: Its name; of one that has ended, what it had last.

        Raises:
            ConfigError: There is no such peer.
        """
        return self._find(peer).model

    def weights(self) -> dict[PeerId, float]:
        """What each member holds, in founders, by name; what is on its way is not counted.

        Members are the peers that belong to the swarm: they have joined, and have neither left
        nor crashed.
        """
        return {id: founders(peer.protocol.account.weight) for id, peer in self._members().items()}

    def audit(self) -> Audit:
        """Where every unit of weight is that was ever founded, by the ledgers of all lives."""
        return self._watch.audit()

    def merged(self) -> dict[str, Tensor]:
        """Average the members' models by weight, in float64.

        Returns:
            A state_dict; integer tensors are those of the heaviest member.

        Raises:
            ConfigError: There is no member.
        """
        members = self._members()
        if not members:
            raise ConfigError(f"the swarm has no member at {self.now:g} s: {self._in_words()}")
        weighed = [Weighed(peer.model, peer.protocol.account.weight) for peer in members.values()]
        if not any(units for _, units in weighed):
            weighed = [Weighed(model, 1) for model, _ in weighed]
        return merge(weighed)

    def accuracy(self, peer: PeerId | None = None) -> float:
        """The fraction of the held-out data that is right.

        Args:
            peer: Whose model; the merged one unless given.

        Raises:
            ConfigError: The task measures none; there is no such peer, or no member.
        """
        accuracy = self._evaluate(peer).accuracy
        if accuracy is None:
            raise ConfigError(f"task {self._course.task.name!r} has no accuracy: look at loss()")
        return accuracy

    def loss(self, peer: PeerId | None = None) -> float:
        """The mean loss on the held-out data.

        Args:
            peer: Whose model; the merged one unless given.

        Raises:
            ConfigError: There is no such peer, or no member.
        """
        return self._evaluate(peer).loss

    def consensus_distance(self) -> float:
        """How far the members' models are from one another: 0 where they are equal.

        Returns:
            ``sqrt(mean_i |x_i - mean|^2) / |mean|``, dimensionless.

        Raises:
            ConfigError: There is no member.
        """
        members = self._members()
        if not members:
            raise ConfigError(f"the swarm has no member at {self.now:g} s: {self._in_words()}")
        return consensus_distance([peer.vector for peer in members.values()])

    def _move(self, until_s: float, stop: Callable[[], bool] = lambda: False) -> bool:
        if self._is_moving:
            raise ConfigError("time is passing already: an action given to `at` cannot run it")
        self._is_moving = True
        try:
            with own_chance():
                return self._clock.run(until_s, stop)
        finally:
            self._is_moving = False

    def _make(self, id: PeerId, incarnation: int) -> SwarmPeer:
        rule = self._make_rule()
        with own_chance():
            place = list(self._peers).index(id) if id in self._peers else len(self._peers)
            learner = self._course.learner(id, place)
        vector = Vector(learner.model, rule.registers)
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
        )
        pace = self._pace(ids=[id])
        peer = SwarmPeer(protocol, learner, vector, pace, self._clock, self._post, self._watch)
        self._peers[id] = self._post.listeners[id] = peer
        return peer

    def _start(self, id: PeerId, incarnation: int, via: PeerId | None) -> None:
        peer = self._make(id, incarnation)
        peer.start(self._others(id) if via is None else [address_of(via)], founders=1)

    def _others(self, id: PeerId) -> list[str]:
        return [address_of(other) for other in self._peers if other != id]

    def _members(self) -> dict[PeerId, SwarmPeer]:
        return {id: self._peers[id] for id in self.peers if self._peers[id].is_member}

    def _is_done(self) -> bool:
        return all(peer.done for peer in self._peers.values())

    def _evaluate(self, peer: PeerId | None) -> Evaluation:
        with own_chance():
            if peer is not None:
                return self._course.task.evaluate(deepcopy(self._find(peer).model))
            return self._course.task.evaluate(load(self._course.build(), self.merged()))

    def _find(self, peer: PeerId) -> SwarmPeer:
        if peer not in self._peers:
            raise ConfigError(f"there is no peer {peer!r}: it must be one of {_listed(self.peers)}")
        return self._peers[peer]

    def _running(self, peer: PeerId) -> SwarmPeer:
        found = self._find(peer)
        if not found.running:
            running = _listed(self.running) or "none"
            raise ConfigError(f"peer {peer!r} does not run, it {found.end}: running are {running}")
        return found

    def _links(self, peer: Peers, other: Peers | None, one_way: bool) -> list[Link]:
        here = self._several(peer)
        there = self._several(other) if other is not None else set(self._peers) - here
        links = {(a, b) for a, b in product(here, there) if a != b}
        return sorted(links if one_way else links | {(b, a) for a, b in links})

    def _several(self, peers: Peers) -> set[PeerId]:
        names = {peers} if isinstance(peers, str) else set(peers)
        return {self._find(name).id for name in sorted(names)}

    def _note(self, peer: PeerId, event: Event | Halt | Fault) -> None:
        self._watch.note(peer, event)

    def _in_words(self) -> str:
        """Every peer and where it stands, for messages."""
        return ", ".join(
            f"{id} ({peer.protocol.phase.name.lower() if peer.running else peer.end})"
            for id, peer in sorted(self._peers.items())
        )

    def _check_topology(self, ids: Sequence[PeerId]) -> None:
        try:
            over(self._topology, self._seed, sorted(ids))
        except TopologyError as error:
            raise ConfigError(str(error)) from None


def _names(peers: int | Sequence[PeerId]) -> list[PeerId]:
    if isinstance(peers, str):
        raise ConfigError(f"peers is {peers!r}: it must be a number, or a list of names")
    if isinstance(peers, int):
        width = len(str(peers - 1))
        names = [f"peer-{index:0{width}d}" for index in range(peers)]
    else:
        names = list(peers)
    if not names:
        raise ConfigError(f"peers is {peers}: there must be at least 1")
    for name in names:
        _check_name(name)
    if len(set(names)) < len(names):
        raise ConfigError(f"peers is {names}: no name may be there twice")
    return names


def _check_name(name: PeerId) -> None:
    if not is_name(name):
        raise ConfigError(
            f"a peer is called {name!r}: it must be 1 to 64 letters, digits, '.', '_' or '-'"
        )


def _check_time(field: str, value: float, least: float = 0.0) -> None:
    if not least <= value < math.inf:
        raise ConfigError(f"{field} is {value}: it must be {least:g} or more and finite, seconds")


def _rules(rule: str | Callable[[], Rule], p: float | None) -> Callable[[], Rule]:
    if isinstance(rule, str):
        make_rule(rule, p)
        return partial(make_rule, rule, p)
    if not callable(rule):
        raise ConfigError(
            f"rule is {rule!r}: each peer needs one of its own, so give what makes one, "
            "such as lambda: GoSGD(p=0.5)"
        )
    if p is not None:
        raise ConfigError(f"p is {p}: it goes with a rule's name only")
    return rule


def _listed(names: Iterable[PeerId]) -> str:
    return ", ".join(names)
