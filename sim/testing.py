"""`Swarm`: whole peers in one process, under virtual time and with faults, for tests of a task.

A `Fleet` runs one protocol for each peer, as live; the loop engine takes their steps. Scheduled
operations are executed at each step and whenever a test reads a model.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..gossip import Audit, ConfigError, ProtocolConfig, Rule
from ..gossip.effects.effects import Effect, Halt, Snapshot, TakeSketch
from ..gossip.effects.events import Event
from ..gossip.protocol.rule import require_topology, requirements_of, shards_of
from ..gossip.rules.registry import make_rule
from ..gossip.types import PeerId, frozen
from ..gossip.weight import founders
from ..gossip.wire.formats import parse_wire
from ..gossip.wire.messages import Phase, is_name
from ..topology import over
from ..topology.live import LiveTopology
from ..train.faults import schedule
from ..train.runtime.shutdown import nap_s
from ..train.tasks.random_state import kept_random_state
from ..train.tasks.registry import load_task
from ..train.tasks.task import Evaluation, Task, require_optimizer
from ..train.tensors.blocks import sketch_of
from .batched.batches import Batches
from .batched.models import Models
from .batched.parameters import ParameterMatrix
from .batched.schedule import as_units
from .batched.steppers.loop import LoopStepper
from .batched.steppers.stepper import Failure
from .kernel.clock import Clock
from .kernel.fleet import Fleet
from .kernel.plan import FaultPlan, FleetPlan, worker_names
from .kernel.processes import LEAVE_S, STRIKES
from .kernel.worker import Worker
from .models.links import Links
from .models.network import NetworkConfig, read_network
from .models.step_time import make_step_time
from .models.topology import VIEWS_KEPT, machines_of, require_machines

__all__ = ["Happening", "Incident", "Swarm"]


@frozen
class Incident:
    """An event of a process."""

    what: str
    """``started``, ``crashed``, ``closed`` or ``failed``."""
    detail: str = ""


class Happening(NamedTuple):
    """One entry of `Swarm.events`."""

    time_s: float
    """Virtual time, seconds."""
    peer: PeerId
    event: Event | Incident

    def __str__(self) -> str:
        return f"{self.time_s:10.3f} s  {self.peer}  {self.event}"


class Swarm:
    """Peers that train a task together in this process, under virtual time.

    Each has the protocol, model and optimizer of a live peer, and shares are encoded as on the
    wire. Times are virtual, in seconds. The same arguments and calls give the same run, to the last
    bit. Whenever time has passed, the weight of all peers, alive and dead, is compared with what
    was founded; an `AssertionError` reports any mismatch. Impossible requests raise a
    `ConfigError`.

    >>> swarm = Swarm("quadratic", peers=3, network="wan", p=0.5)
    >>> swarm.run(5.0)
    >>> swarm.crash("peer-1")
    >>> swarm.run_until(lambda: "peer-1" not in swarm.live("peer-0"))
    >>> swarm.finish(), swarm.audit().balanced
    (True, True)

    Args:
        task: A `Task`, a built-in name, ``module:function`` or a function that returns a `Task`.
            Peers train until `finish`, whatever its number of steps.
        peers: Number of founders, then called ``peer-0`` and so on; or their names.
        seed: Seeds everything random: a fault of one peer shifts no draw of another.
        rule: Spec of the algorithm, or a factory that is called for each peer, such as
            ``lambda: GoSGD(p=1.0, outstanding_max=4)`` or your own class.
        p: The named rule's ``p``.
        network: A preset (``ideal``, ``datacenter``, ``lan``, ``wan``, ``lossy``), a JSON file, or
            a network itself.
        step_s: Mean duration of an optimizer step, seconds.
        partition: How the data is split among the founders; newcomers share their parts in turn.
        protocol: Sizes and times of the exchange, and the wire format of shares.
        faults: As for ``rumor simulate --faults``, without those of Byzantine peers; such as
            ``[{"at_s": 3, "kind": "cut", "peer": "peer-1", "for_s": 2}]``.
        checkpoint_every_s: Virtual seconds between two checkpoints of a peer that a fault restarts
            from one.
        newcomers: Maximum number of `join` calls; each reserves the memory of a model at the start.

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
        partition: str = "shared",
        protocol: ProtocolConfig | None = None,
        shards: int = 1,
        faults: str | Path | Sequence[schedule.Fault | Mapping[str, Any]] = (),
        checkpoint_every_s: float = 60.0,
        newcomers: int = 8,
    ) -> None:
        ids = _names(peers)
        _check_time("checkpoint_every_s", checkpoint_every_s, least=1e-6)
        kinds = [kind for kind in schedule.KINDS if kind not in schedule.ATTACKS]
        planned = schedule.resolve(schedule.read_faults(faults), ids, kinds)
        task = task if isinstance(task, Task) else load_task(task, seed=seed)
        make = _rules(rule, p)
        first, config = make(), protocol or ProtocolConfig()
        require_optimizer(first, task)
        requirements = requirements_of(first)
        graph = over(topology, seed, sorted(ids))
        require_machines(first, graph)
        require_topology(first, topology, lambda: graph.is_tree)
        rows = (*ids, *schedule.names_of_newcomers(schedule.joining(planned) + newcomers))
        self._task, self._step_s, self._is_moving = task, step_s, False
        self._is_synchronous = requirements.fixed_members
        self._pace = make_step_time(pace, ids=ids, step_s=step_s, seed=seed)
        with kept_random_state():
            torch.manual_seed(seed)
            batches = Batches(task, rows, partition, task.batch_size, seed, len(ids))
            matrix = ParameterMatrix(
                task.build(),
                len(rows),
                first.registers,
                shards=shards_of(first, shards),
                scattered=requirements.scattered,
                ids=rows,
                seed=seed,
            )
            self._stepper = LoopStepper(matrix, task, batches, task.lr, rows, seed)
            models = Models(matrix, self._stepper, task)
            models.live_again()
        machines = dict(machines_of(first, graph, seed, ids))
        # All later peers run on the first machine.
        if machines:
            machines |= {id: machines[ids[0]] for id in rows[len(ids) :]}
        samples = batches.sizes(np.arange(len(rows))).tolist()
        network = read_network(network) if isinstance(network, str) else network
        plan = FleetPlan(
            ids=rows,
            schema=matrix.schema,
            anchor=matrix.anchor,
            rule=make,
            neighbors=LiveTopology(topology, seed, VIEWS_KEPT),
            pace=self._pace,
            links=partial(Links, network, rows, seed),
            seed=seed,
            steps=None,
            protocol=config,
            machines=machines,
            samples=samples if requirements.by_samples else (),
            overlaps=requirements.overlaps,
            lr=(lambda step: task.lr) if requirements.lr else None,
            measure=models.measure,
            fault_plan=FaultPlan(
                faults=planned,
                founders=len(ids),
                checkpoint_every_s=checkpoint_every_s,
                ends=False,
                begins_within_s=0.0,
            ),
            turn_s=self._turn_s,
            stuck_s=math.inf,
        )
        self._clock = Clock()
        self._log = _Log(self._clock, models, is_lossy=not parse_wire(config.wire).is_native)
        self._fleet = self._log.fleet = Fleet(
            plan, clock=self._clock, observer=self._log, compute=self._log.compute
        )
        assert self._fleet.faults is not None
        self._processes = self._fleet.faults

    @property
    def now(self) -> float:
        """Virtual time since the start, seconds."""
        return self._clock.now

    @property
    def peers(self) -> tuple[PeerId, ...]:
        """All peers that were ever started, sorted."""
        return tuple(self._started())

    @property
    def running(self) -> tuple[PeerId, ...]:
        """Peers whose process runs, paused or not, sorted."""
        return tuple(id for id, worker in self._started().items() if worker.running)

    @property
    def events(self) -> list[Happening]:
        """Events so far, in order: those of protocols (`rumor.gossip.effects.events`), and
        incidents."""
        return self._log.events

    @property
    def digest(self) -> str:
        """Digest of this run so far, with every event and parameter: 32 hexadecimal digits."""
        digest = blake2b(repr((self.now, self.audit())).encode(), digest_size=16)
        for happening in self.events:
            digest.update(f"{happening}\n".encode())
        for worker in self._started().values():
            for part in self._models.rows.row(worker.index):
                digest.update(part.view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def run(self, duration_s: float) -> None:
        """Run for *duration_s* virtual seconds.

        Raises:
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
        """Run, see `run`, until a condition holds.

        Args:
            condition: Checked every *every_s* virtual seconds (default: a step's mean duration).
            timeout_s: Virtual seconds after which to give up.

        Raises:
            TimeoutError: It does not hold by then.
        """
        _check_time("timeout_s", timeout_s)
        every_s = self._step_s if every_s is None else every_s
        _check_time("every_s", every_s, least=1e-6)
        give_up_s = self.now + timeout_s
        while not condition():
            if self.now >= give_up_s:
                raise TimeoutError(
                    f"the condition does not hold after {timeout_s:g} virtual seconds; "
                    f"at {self.now:g} s there are {self._all_in_words()}"
                )
            self._move(min(self.now + every_s, give_up_s))

    def finish(self, timeout_s: float = 100.0) -> bool:
        """Let all peers end with their current step, and merge until none needs another.

        Returns:
            True if all have ended within *timeout_s* virtual seconds, see `run`.
        """
        _check_time("timeout_s", timeout_s)
        workers = [self._find(id) for id in self.running]
        last_step = 0
        if self._is_synchronous:
            # Those that are behind catch up with the peer that has taken the most steps.
            last_step = 1 + max((worker.steps for worker in workers), default=0)
        for worker in workers:
            worker.finishing, worker.last_step = True, last_step
        return self._move(
            self.now + timeout_s,
            lambda: all(not worker.running or worker.protocol.done for worker in workers),
        )

    def at(self, time_s: float, action: Callable[[], object]) -> None:
        """Run an action at a given time: ``swarm.at(3.0, lambda: swarm.crash("peer-1"))``."""
        _check_time("time_s", time_s, least=self.now)
        self._fleet.at(time_s, action)

    def crash(self, peer: PeerId) -> None:
        """Kill a process: its weight is lost."""
        self._strike("crash", self._find_running(peer))

    def restart(self, peer: PeerId) -> None:
        """Restart a process that has ended, with the addresses of those that run: it joins."""
        worker = self._find(peer)
        if worker.running:
            raise ConfigError(f"peer {peer!r} still runs: crash it, or let it leave, first")
        self._strike("restart", worker, state="lost")

    def join(self) -> PeerId:
        """Start a newcomer: it asks a member for a copy of its model, and trains.

        Returns:
            Its name: ``join-1`` and so on.
        """
        row = self._processes.next_newcomer
        if row == len(self._fleet.workers):
            raise ConfigError("one newcomer too many: give Swarm a larger `newcomers`")
        newcomer = self._fleet.workers[row]
        self._strike("join", newcomer)
        return newcomer.id

    def leave(self, peer: PeerId) -> None:
        """Let a peer leave gracefully: it hands on its weight, and ends some seconds later."""
        self._strike("leave", self._find_running(peer))

    def live(self, peer: PeerId) -> tuple[PeerId, ...]:
        """Return the peers that a peer considers alive, itself included, sorted."""
        return tuple(member.id for member in self._find(peer).protocol.table.live())

    def steps(self, peer: PeerId) -> int:
        """Return the number of a peer's optimizer steps, those before its checkpoint included."""
        return self._find(peer).steps

    def model(self, peer: PeerId) -> nn.Module:
        """Return a copy of a peer's module, as it is now or was last."""
        index = self._find(peer).index
        self._log.execute()
        return deepcopy(self._stepper.trainer(index).module)

    def weights(self) -> dict[PeerId, float]:
        """Return each member's weight, in founders; weight in flight belongs to none."""
        return {
            id: founders(worker.protocol.state.weight) / len(worker.protocol.accounts)
            for id, worker in self._started().items()
            if _is_member(worker)
        }

    def audit(self) -> Audit:
        """Account for all weight that was ever founded, by the ledgers of all incarnations."""
        return self._fleet.audit()

    def merged(self) -> dict[str, Tensor]:
        """Return the average of the members' models by weight, in float64, as a state_dict.

        Values that are not shared, such as integer tensors, are the heaviest member's.
        """
        members = {worker.index for worker in self._members()}
        weights = [
            [account.weight * (w.index in members) for account in w.protocol.accounts]
            for w in self._fleet.workers
        ]
        return self._models.merged(as_units(weights))

    def accuracy(self, peer: PeerId | None = None) -> float:
        """Return a model's accuracy on the held-out data (default: that of the merged model)."""
        accuracy = self._evaluate(peer).accuracy
        if accuracy is None:
            raise ConfigError(f"task {self._task.name!r} measures no accuracy: look at loss()")
        return accuracy

    def loss(self, peer: PeerId | None = None) -> float:
        """Return a model's mean loss on the held-out data (default: that of the merged model)."""
        return self._evaluate(peer).loss

    def consensus_distance(self) -> float:
        """Return the members' distance: ``sqrt(mean_i |x_i - mean|^2) / |mean|``, 0 if equal."""
        rows = np.array([worker.index for worker in self._members()])
        return self._models.consensus_distance(rows)

    @property
    def _models(self) -> Models:
        self._log.execute()
        return self._log.models

    def _evaluate(self, peer: PeerId | None) -> Evaluation:
        state = self.merged() if peer is None else self.model(peer).state_dict()
        with kept_random_state():
            return self._models.evaluate(state)

    def _move(self, until_s: float, stop: Callable[[], bool] | None = None) -> bool:
        """Advance time to *until_s*, inclusive, or until *stop* holds."""
        if self._is_moving:
            raise ConfigError("time is passing already: what was given to `at` cannot let it pass")
        self._is_moving = True
        try:
            with kept_random_state():
                # The clock also stops once no process trains any more.
                while self._clock.run(until_s, stop) and not (stop is not None and stop()):
                    pass
                self._log.execute()
        finally:
            self._is_moving = False
        if not self.audit().balanced:
            raise AssertionError(
                f"at {self.now:g} s weight is not conserved (invariant I1): {self.audit()}"
            )
        return stop is not None and stop()

    def _turn_s(self, index: int) -> float:
        worker = self._fleet.workers[index]
        step_s = worker.slowness * self._pace.step_s(index, worker.steps)
        return nap_s(step_s, merging=worker.protocol.merging)

    def _strike(self, kind: str, worker: Worker, **fields: Any) -> None:
        fault = schedule.Fault(at_s=self.now, kind=kind, peer=worker.id, **fields)
        STRIKES[kind](self._processes, fault)

    def _started(self) -> dict[PeerId, Worker]:
        workers = [w for w in self._fleet.workers if self._processes.has_come(w)]
        return {worker.id: worker for worker in sorted(workers, key=lambda w: w.id)}

    def _find(self, id: PeerId) -> Worker:
        started = self._started()
        if id not in started:
            known = ", ".join(started)
            raise ConfigError(f"there is no peer {id!r}: it must be one of {known}")
        return started[id]

    def _find_running(self, id: PeerId) -> Worker:
        worker = self._find(id)
        if not worker.running:
            running = ", ".join(self.running) or "none"
            raise ConfigError(
                f"peer {id!r} does not run, it {self._in_words(worker)}; running: {running}"
            )
        return worker

    def _members(self) -> list[Worker]:
        """Return the members or, before the swarm is founded, the founders."""
        workers = self._started().values()
        found = [w for w in workers if _is_member(w)] or [w for w in workers if w.running]
        if not found:
            raise ConfigError(f"the swarm has no members at {self.now:g} s: {self._all_in_words()}")
        return found

    def _all_in_words(self) -> str:
        started = self._started().items()
        return ", ".join(f"{id} ({self._in_words(worker)})" for id, worker in started)

    def _in_words(self, worker: Worker) -> str:
        if worker.running:
            return worker.protocol.phase.name.lower()
        return self._log.ends[worker.id]


class _Log:
    """Log of a fleet's events; executes what its protocols decide."""

    def __init__(self, clock: Clock, models: Models, *, is_lossy: bool) -> None:
        self.fleet: Fleet
        self.models = models
        self.events: list[Happening] = []
        self.ends: dict[PeerId, str] = {}
        """How the last incarnation of each peer ended."""
        self._clock = clock
        self._is_lossy = is_lossy

    def note(self, peer: PeerId, event: Event | Incident) -> None:
        self.events.append(Happening(self._clock.now, peer, event))

    def execute(self) -> bool:
        """Execute everything scheduled so far; True if values are finite and fit their wire."""
        try:
            self.models.execute(self.fleet.program.take())
        except Failure:
            return False
        return True

    def compute(self, worker: Worker) -> bool:
        # At once: a worker whose values are not finite shares nothing.
        is_finite = self.execute()
        if not is_finite:
            step = worker.steps + 1
            reason = f"loss or parameters are not finite after step {step}: lower the lr"
            self.note(worker.id, Incident("failed", reason))
        return is_finite

    def started(self, worker: Worker) -> None:
        incarnation = worker.protocol.account.incarnation
        self.note(worker.id, Incident("started", f"incarnation {incarnation}"))

    def ended(self, worker: Worker, *, died: bool, gave_up: bool) -> None:
        end = Incident("crashed" if died else "closed")
        if gave_up:
            end = Incident("failed", f"no peer has taken its weight within {LEAVE_S:g} s")
        self.note(worker.id, end)
        self.ends[worker.id] = f"{end.what} at {self._clock.now:g} s"

    def carried(self, worker: Worker, effect: Effect | Event) -> None:
        if isinstance(effect, Event):
            self.note(worker.id, effect)
        if isinstance(effect, Halt):
            self.note(worker.id, Incident("failed", effect.reason))
        elif isinstance(effect, TakeSketch):
            self.execute()
            sketch = sketch_of(self.models.rows.row(worker.index))
            now = self._clock.now + worker.ahead_s
            self.fleet.executor.apply(
                worker, worker.protocol.sketched(sketch, now), now, "sketched"
            )
        elif isinstance(effect, Snapshot) and self._is_lossy and not self.execute():
            # Receivers refuse it, as live.
            worker.snapshots[effect.id].is_finite = False
            self.fleet.at(self._clock.now, partial(self._fail, worker))

    def _fail(self, worker: Worker) -> None:
        if worker.running and worker.protocol.phase < Phase.LEAVING:
            reason = "a parameter does not fit the format of shares"
            self.note(worker.id, Incident("failed", reason))
            self.fleet.leave(worker, burn=True)


def _is_member(worker: Worker) -> bool:
    ended_well = worker.running or worker.protocol.done
    return ended_well and Phase.TRAINING <= worker.protocol.phase <= Phase.QUIET


def _names(peers: int | Sequence[PeerId]) -> list[PeerId]:
    names = list(worker_names(peers) if isinstance(peers, int) else peers)
    is_unique = 0 < len(set(names)) == len(names)
    if isinstance(peers, str) or not (is_unique and all(map(is_name, names))):
        raise ConfigError(
            f"peers is {peers!r}: it must be a number of at least 1, or a list of different names, "
            "of 1 to 64 letters, digits, '.', '_' or '-' each"
        )
    return names


def _check_time(field: str, value: float, least: float = 0.0) -> None:
    if not least <= value < math.inf:
        raise ConfigError(f"{field} is {value}: it must be {least:g} or more and finite, seconds")


def _rules(rule: str | Callable[[], Rule], p: float | None) -> Callable[[], Rule]:
    if isinstance(rule, str):
        return partial(make_rule, rule, p)
    if not callable(rule) or p is not None:
        raise ConfigError(
            f"rule is {rule!r} and p is {p}: each peer needs a rule of its own, so give a name, or "
            "a function that makes one, such as lambda: GoSGD(p=0.5)"
        )
    return rule
