"""`Swarm`: real peers in one process, under virtual time and with faults, for tests."""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ...gossip import Audit, ConfigError, PeerId, Phase, ProtocolConfig, Rule
from ...gossip.protocol.rule import requirements_of, shards_of
from ...gossip.rules.registry import make_rule
from ...gossip.weight import founders
from ...gossip.wire.messages import is_name
from ...train.faults.schedule import ATTACKS, KINDS, Fault, check_faults, faults_of, resolve
from ...train.runtime.telling.counters import Counters
from ...train.tasks.partition import Partition
from ...train.tasks.random_state import kept_random_state
from ...train.tasks.registry import load_task
from ...train.tasks.task import Evaluation, Task, require_optimizer
from ..kernel.clock import Priority
from ..kernel.plan import worker_names
from ..models.links import address_of
from ..models.network import NetworkConfig, read_network
from ..models.step_time import StepTime, make_step_time
from .learner import Course, consensus_distance, merge
from .observers import Happening, LinkCut, LinkHealed, PeerPaused, PeerSlowed
from .values import Made
from .world import Peers, World

__all__ = ["Swarm"]


class Swarm:
    """Peers that train a task together in this process, under virtual time.

    Each is a live peer but for its sockets and its clock: it has a protocol, a view of the swarm,
    a module and an optimizer of its own, and every message crosses the network as bytes. Nothing
    waits: ten seconds of five peers and a small task take a fraction of one. The same arguments
    and the same calls give the same run, to the last bit.

    After every event the weight of all peers, alive and dead, is held against what was founded;
    an `AssertionError` says where it does not add up.

    Times are virtual and in seconds. Faults are given between two runs, or ahead with `at`.
    Wherever a peer is named, a `ConfigError` says that there is none of that name, or that it
    does not run and would have to.

    >>> swarm = Swarm("quadratic", peers=3, network="wan", p=0.5)
    >>> swarm.run(5.0)
    >>> swarm.crash("peer-1")
    >>> swarm.run_until(lambda: "peer-1" not in swarm.live("peer-0"))
    >>> swarm.finish(), swarm.audit().balanced
    (True, True)

    Args:
        task: What is trained: a `Task`, a built-in name, ``module:function`` or a function
            that returns a `Task`. Its learning rate and batch size hold; its number of steps does
            not, peers train until `finish`.
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
        partition: How the data is split among the founders: a spec, index lists or a function,
            see `rumor.train.tasks.partition.split`. Those who join later share their parts, in
            turn.
        protocol: Sizes and times of the exchange, such as how soon silence is taken for death, and
            the format in which shares travel.
        shards: Pieces into which the vector is cut, each with weights of its own.
        faults: What goes wrong when, as ``rumor simulate --faults`` takes it: a file, or a list.
            It may have all kinds but those by which peers lie; further faults may be given by
            calls.
        checkpoint_every_s: Virtual seconds between two checkpoints of a peer that a fault starts
            again with its state kept.

    Raises:
        ConfigError: An argument is out of range.
        TrainingError: The task's model has nothing to share.
    """

    def __init__(
        self,
        task: Task | str | Callable[..., Task],
        *,
        peers: int | Sequence[PeerId] = 4,
        seed: int = 0,
        topology: str = "exponential",
        rule: str | Callable[[], Rule] = "gosgd",
        p: float | None = None,
        network: str | NetworkConfig = "lan",
        step_s: float = 0.1,
        pace: str = "constant",
        partition: Partition = "shared",
        protocol: ProtocolConfig | None = None,
        shards: int = 1,
        faults: str | Path | Sequence[Fault | Mapping[str, Any]] = (),
        checkpoint_every_s: float = 60.0,
    ) -> None:
        ids = _names(peers)
        _check_time("checkpoint_every_s", checkpoint_every_s, least=1e-6)
        planned = faults_of(faults)
        check_faults(planned, ids, [kind for kind in KINDS if kind not in ATTACKS])
        task = task if isinstance(task, Task) else load_task(task, seed=seed)
        make = _rules(rule, p)
        require_optimizer(make(), task)
        self._step_s = step_s
        self._slowed: dict[PeerId, int] = {}
        """By what number the kernel knows how slow each was made."""
        self._is_synchronous = requirements_of(make()).fixed_members

        def pace_of(id: PeerId) -> StepTime:
            return make_step_time(pace, ids=[id], step_s=step_s, seed=seed)

        self._world = World(
            ids,
            Made(
                course=Course(task, len(ids), partition, seed),
                topology=topology,
                rule=make,
                config=protocol or ProtocolConfig(),
                shards=shards_of(make(), shards),
                seed=seed,
            ),
            pace_of,
            read_network(network) if isinstance(network, str) else network,
            resolve(planned, ids),
            checkpoint_every_s,
        )

    @property
    def now(self) -> float:
        """Virtual time since the start, seconds."""
        return self._world.clock.now

    @property
    def peers(self) -> tuple[PeerId, ...]:
        """All that were ever started, sorted."""
        return tuple(sorted(self._world.peers))

    @property
    def running(self) -> tuple[PeerId, ...]:
        """Those whose process runs, paused or not, sorted."""
        return self._world.running()

    @property
    def events(self) -> list[Happening]:
        """What has happened, in order: each has ``time_s``, ``peer`` and ``event``; print it.

        An event is what a protocol tells (`rumor.gossip.effects.events`: ``Founded``,
        ``ShareMixed``, ``PeerDied``, ...) or what was done to a peer (`rumor.sim.swarm.observers`).
        """
        return self._world.observer.events

    @property
    def digest(self) -> str:
        """Names this run so far, with every message and parameter: 32 hexadecimal digits."""
        peers = self._world.peers
        return self._world.observer.digest(
            flat for id in self.peers for flat in peers[id].vector.flats
        )

    def run(self, duration_s: float) -> None:
        """Let time pass.

        Args:
            duration_s: Virtual seconds.

        Raises:
            ConfigError: It is not a finite number of at least 0; or time is passing already, and
                this is called by what was given to `at`.
            AssertionError: Weight was lost or created.
        """
        _check_time("duration_s", duration_s)
        self._world.move(self.now + duration_s)

    def run_until(
        self,
        condition: Callable[[], bool],
        timeout_s: float = 100.0,
        *,
        every_s: float | None = None,
    ) -> None:
        """Let time pass until something holds.

        Args:
            condition: Looked at now and again, and at the end of the time.
            timeout_s: Virtual seconds after which to give up.
            every_s: Virtual seconds between two looks; a step's mean duration unless given.

        Raises:
            TimeoutError: It does not hold by then.
            ConfigError: A time is not valid, see `run`.
            AssertionError: Weight was lost or created.
        """
        _check_time("timeout_s", timeout_s)
        every_s = self._step_s if every_s is None else every_s
        _check_time("every_s", every_s, least=1e-6)
        give_up_s = self.now + timeout_s
        while not condition():
            if self.now >= give_up_s:
                raise TimeoutError(
                    f"the condition does not hold after {timeout_s:g} virtual seconds; "
                    f"at {self.now:g} s there are {self._world.in_words()}"
                )
            self._world.move(min(self.now + every_s, give_up_s))

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
        peers = [self._world.find(id) for id in self.running]
        most = max((peer.learner.steps for peer in peers), default=0)
        for peer in peers:
            self._world.finish(peer.id, most if self._is_synchronous else 0)
        return self._world.move(self.now + timeout_s, lambda: all(peer.done for peer in peers))

    def at(self, time_s: float, action: Callable[[], object]) -> None:
        """Do something at a given time: ``swarm.at(3.0, lambda: swarm.crash("peer-1"))``.

        Args:
            time_s: Virtual time since the start, seconds. What else is due then comes after it.
            action: Any calls of this swarm but those that let time pass.

        Raises:
            ConfigError: The time is past.
        """
        _check_time("time_s", time_s, least=self.now)
        self._world.clock.at(time_s, Priority.FAULT, action)

    def crash(self, peer: PeerId) -> None:
        """Kill a process: its weight is lost, and what it has sent is still on its way.

        Its host tells whoever writes to it that nobody listens there. For a machine that falls
        silent, cut its links, too.
        """
        self._world.processes.crash(self._world.find_running(peer).worker)

    def restart(self, peer: PeerId) -> None:
        """Start a process again that has ended, with the addresses of all others: it joins.

        Raises:
            ConfigError: It still runs.
        """
        if self._world.find(peer).running:
            raise ConfigError(f"peer {peer!r} still runs: crash it, or let it leave, first")
        self._world.start(peer, self._world.addresses_but(peer))

    def join(self, peer: PeerId, *, via: PeerId | None = None) -> None:
        """Start a newcomer: it asks a member for a copy of its model, and trains along.

        Args:
            peer: Its name, a new one.
            via: The only one whose address it is told; all unless given.

        Raises:
            ConfigError: The name is taken or malformed.
        """
        if peer in self._world.peers:
            raise ConfigError(f"there is a peer {peer!r} already: restart it, or take another name")
        _check_name(peer)
        if via is None:
            self._world.start(peer, self._world.addresses_but(peer))
        else:
            self._world.start(peer, [address_of(self._world.find(via).id)])

    def leave(self, peer: PeerId) -> None:
        """Let a peer leave in good order: it hands its weight on, and ends some seconds later."""
        self._world.when_awake(peer, self._world.leave)

    def pause(self, peer: PeerId, duration_s: float) -> None:
        """Let a process stand still, as one that was sent SIGSTOP; what comes is kept for it.

        Args:
            peer: Its name.
            duration_s: Virtual seconds from now.

        Raises:
            ConfigError: The time is not valid.
        """
        _check_time("duration_s", duration_s)
        world = self._world
        world.fleet.at(self.now, partial(world.pause, world.find_running(peer), duration_s))
        world.observer.note(peer, PeerPaused(duration_s))

    def slow(self, peer: PeerId, factor: float) -> None:
        """Let each step of a peer take so many times as long, from its next one on.

        Args:
            peer: Its name.
            factor: Above 0 and finite; 1 ends it.

        Raises:
            ConfigError: *factor* is out of range.
        """
        if not 0 < factor < math.inf:
            raise ConfigError(f"factor is {factor}: it must be a finite number above 0")
        world, worker = self._world, self._world.find_running(peer).worker
        slowness = world.processes.slowness
        # What a list of faults does to it at that time holds beside this.
        slowness.end(worker.index, self._slowed.pop(peer, -1))
        self._slowed[peer] = slowness.begin(worker.index, factor)
        worker.slowness = slowness.of(worker.index)
        world.observer.note(peer, PeerSlowed(factor))

    def cut(self, peer: Peers, other: Peers | None = None, *, one_way: bool = False) -> None:
        """Cut links: what is on its way there is lost, and so is what follows, in silence.

        ``cut(["ann", "bob"], ["cyd", "dan"])`` is a partition.

        Args:
            peer: One end, a name or several.
            other: The other end, likewise; everybody else unless given.
            one_way: Whether only what *peer* sends is lost.
        """
        for link in self._world.links(peer, other, one_way=one_way):
            self._world.processes.mail.cut(self._world.way(link))
            self._world.observer.note(link[0], LinkCut(link[1]))

    def heal(self, peer: Peers | None = None, other: Peers | None = None) -> None:
        """Let links that were cut carry again, in both directions.

        Args:
            peer: One end, a name or several; all that are cut unless given.
            other: The other end, likewise; everybody else unless given.
        """
        world = self._world
        names, mail = [worker.id for worker in world.fleet.workers], world.processes.mail
        cuts = {(names[here], names[there]) for here, there in mail.cuts}
        if peer is not None:
            cuts &= {*world.links(peer, other, one_way=False)}
        for link in sorted(cuts):
            mail.heal(world.way(link))
            world.observer.note(link[0], LinkHealed(link[1]))

    def live(self, peer: PeerId) -> tuple[PeerId, ...]:
        """Whom a peer believes to run, itself included, sorted."""
        return tuple(member.id for member in self._world.find(peer).protocol.live())

    def phase(self, peer: PeerId) -> Phase:
        """Where a peer stands in its life: ``Phase.TRAINING``, most of the time."""
        return self._world.find(peer).protocol.phase

    def steps(self, peer: PeerId) -> int:
        """Optimizer steps that a peer has taken since it was last started, and those before the
        checkpoint that it started from."""
        return self._world.find(peer).learner.steps

    def tally(self, peer: PeerId) -> Counters:
        """What a peer has sent, mixed, skipped and refused since it was last started."""
        return self._world.find(peer).tally

    def model(self, peer: PeerId) -> nn.Module:
        """A peer's own module, as it is now or was last: read it, do not change it."""
        return self._world.find(peer).learner.model

    def weights(self) -> dict[PeerId, float]:
        """What each member holds, in founders; what is on its way is in nobody's hand.

        Members belong to the swarm: they have founded or joined, and have neither left nor
        crashed.
        """
        members = self._world.members()
        return {
            id: founders(peer.protocol.weight) / len(peer.protocol.accounts)
            for id, peer in members.items()
        }

    def audit(self) -> Audit:
        """Where all weight is that was ever founded, by the ledgers of all lives."""
        return self._world.observer.audit()

    def merged(self) -> dict[str, Tensor]:
        """Average the members' models by weight, in float64.

        While there is no member yet, that is the model that all start from.

        Returns:
            A state_dict; what is not shared, such as integer tensors, is the heaviest member's.

        Raises:
            ConfigError: Nobody is there: all have left or crashed.
        """
        return merge(
            [
                (peer.vector, [account.weight for account in peer.protocol.accounts])
                for peer in self._world.with_models()
            ]
        )

    def accuracy(self, peer: PeerId | None = None) -> float:
        """The fraction of the held-out data that a model gets right.

        Args:
            peer: Whose; the merged one unless given.

        Raises:
            ConfigError: The task measures none, or nobody is there.
        """
        accuracy = self._evaluate(peer).accuracy
        if accuracy is None:
            name = self._world.course.task.name
            raise ConfigError(f"task {name!r} measures no accuracy: look at loss()")
        return accuracy

    def loss(self, peer: PeerId | None = None) -> float:
        """The mean loss of a model on the held-out data.

        Args:
            peer: Whose; the merged one unless given.

        Raises:
            ConfigError: Nobody is there: all have left or crashed.
        """
        return self._evaluate(peer).loss

    def consensus_distance(self) -> float:
        """How far the members' models are from one another, 0 where they are equal.

        Returns:
            ``sqrt(mean_i |x_i - mean|^2) / |mean|``, dimensionless.

        Raises:
            ConfigError: Nobody is there: all have left or crashed.
        """
        return consensus_distance([peer.vector for peer in self._world.with_models()])

    def _evaluate(self, peer: PeerId | None) -> Evaluation:
        course = self._world.course
        with kept_random_state():
            if peer is not None:
                return course.task.evaluate(deepcopy(self.model(peer)))
            model = course.build("merged")
            model.load_state_dict(self.merged(), strict=False)
            return course.task.evaluate(model)


def _names(peers: int | Sequence[PeerId]) -> list[PeerId]:
    if isinstance(peers, str):
        raise ConfigError(f"peers is {peers!r}: it must be a number, or a list of names")
    names = list(worker_names(peers) if isinstance(peers, int) else peers)
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
        return partial(make_rule, rule, p)
    if not callable(rule):
        raise ConfigError(
            f"rule is {rule!r}: each peer needs one of its own, so give what makes one, "
            "such as lambda: GoSGD(p=0.5)"
        )
    if p is not None:
        raise ConfigError(f"p is {p}: it goes with a rule's name only")
    return rule
