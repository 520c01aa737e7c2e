"""A fleet of protocols with a few numbers each: its values are real, and every event is checked."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from ...gossip.effects import effects as fx
from ...gossip.effects.events import Event, StaleIncarnation
from ...gossip.effects.ledger import Account, Life
from ...gossip.protocol.protocol import Protocol
from ...gossip.protocol.rule import requirements_of, shards_of
from ...gossip.types import Incarnation, PeerId, ShareId, stream
from ...gossip.wire.formats import parse_wire
from ...gossip.wire.messages import Body, Describe, Envelope, Offer, Phase, later_life
from ...topology.hashing import key, uniform
from ...train.faults.schedule import Fault
from ..kernel.clock import DELIVERY
from ..kernel.execution import SegmentHolders
from ..kernel.fleet import Fleet
from ..kernel.plan import Checkpoint, FaultPlan, FleetPlan
from ..kernel.worker import Handler, Worker
from ..models.links import Links, address_of
from ..models.network import NetworkConfig
from .invariants import Invariants
from .peers import FuzzPeer, Pace, Peers
from .vector import Payload, Values, Vector, schema_of
from .violation import Violation

__all__ = ["CALM", "FuzzSwarm"]

CALM: Final = NetworkConfig(latency_s=0.01, jitter=1.0)
"""A network on which nothing fails by itself."""


@dataclass(slots=True)
class _Frame:
    """A part of a share in transit."""

    data: bytes
    readers: int = 0


# Methods without a docstring are those of `Harness`.
class FuzzSwarm:
    """Runs and observes the values of a fleet, and makes its processes worse than a plan can say:
    the network guarantees no more than ZeroMQ does.

    Args:
        ids: All peers there will be: founders, then later ones, in order.
        latecomers_s: When the peers that follow the founders start, seconds.
        faults: The faults, with names in place of positions.
        calm_s: When the faults are over, seconds.
    """

    def __init__(
        self,
        seed: int,
        peers: Peers,
        ids: Sequence[PeerId],
        founders: int,
        network: NetworkConfig = CALM,
        *,
        latecomers_s: tuple[float, ...] = (),
        faults: tuple[Fault, ...] = (),
        calm_s: float = float("inf"),
    ) -> None:
        self.invariants = Invariants(peers)
        self.peers: dict[PeerId, FuzzPeer] = {}
        """The latest incarnation of each peer."""
        self.kept: dict[PeerId, tuple[Values, bytes]] = {}
        """Model and swarm of each peer at its last checkpoint."""
        self.steps = 0
        self.handlers: Mapping[type, Handler] = self._handlers()
        self._seed = seed
        self._made = peers
        rule = peers.rule(ids[0])
        requirements, shards = requirements_of(rule), shards_of(rule, peers.shards)
        self._schema = schema_of(peers.size, shards, scattered=requirements.scattered)
        # No clock shows a time before 0: a clock is behind only because the others are ahead.
        right_s = -min([0.0, *peers.ahead_s.values()])
        self._ahead_s = defaultdict(
            lambda: right_s, {peer: right_s + ahead_s for peer, ahead_s in peers.ahead_s.items()}
        )
        self._keeps_anchor = parse_wire(peers.config.wire).needs_anchor
        self._registers: dict[PeerId, Sequence[str]] = {}
        self._later: dict[PeerId, Incarnation] = {}
        """The next incarnation, of peers that have heard of a later one of their name."""
        self._returns: set[PeerId] = set()
        # The current event: its cause, the body of the message that caused it, and its peer.
        self._cause: object = None
        self._body: Body | None = None
        self._peer: FuzzPeer
        self._seen: dict[int, Envelope] = {}
        self.opened: dict[tuple[Life, Life], float] = {}
        """Connections of peers that dial out, as (listener, dialler), and their time of opening."""
        self._shown: list[tuple[FuzzPeer, Payload]] = []
        self.segments: dict[tuple[bytes, str], Values] = {}
        """Memory that all peers share."""
        self._holders = SegmentHolders()
        self._draws: Counter[tuple[str, PeerId]] = Counter()
        self._crashes: Counter[float] = Counter()
        """Number of incarnations that died at a time."""
        fault_plan = FaultPlan(
            faults=tuple(fault for fault in faults if fault.kind != "diverge"),
            founders=founders,
            rolls=peers.rolls,
            checkpoint_every_s=2.0,
            latecomers_s=latecomers_s,
            ends=False,
            linger_s=2.0,
            calm_s=calm_s,
        )
        plan = FleetPlan(
            ids=tuple(ids),
            schema=self._schema,
            anchor=b"",
            rule=lambda: peers.rule(ids[0]),
            neighbors=peers.neighbors,
            pace=Pace(ids, peers.step_s, seed),
            links=partial(Links, network, ids, seed),
            seed=seed,
            steps=None,
            protocol=peers.config,
            overlaps=requirements.overlaps,
            lr=peers.lr,
            fault_plan=fault_plan,
        )
        self.fleet = Fleet(plan, harness=self)
        assert self.fleet.faults is not None
        self.processes = self.fleet.faults
        for fault in faults:
            if fault.kind == "diverge":
                self.fleet.at(fault.at_s, partial(self._diverge, str(fault.peer)))

    @property
    def now(self) -> float:
        """Virtual time, seconds."""
        return self.fleet.now

    def running(self) -> list[FuzzPeer]:
        """Peers whose process runs, by id."""
        return [peer for _, peer in sorted(self.peers.items()) if peer.worker.running]

    def run(self, until_s: float, stop: Callable[[], bool] | None = None) -> None:
        """Process all events due by then, or until *stop* holds; raise a broken invariant as a
        `Violation`."""
        while self.fleet.clock.run(until_s, stop) and not (stop is not None and stop()):
            pass  # a process has ended: that stops a simulation
        self._count_resets()

    def run_until_closed(self, until_s: float) -> None:
        """Process all events due by then, or until no peer belongs to a swarm any more."""
        while any(peer.protocol.swarm for peer in self.running()) and self.fleet.clock.run(until_s):
            pass
        self._count_resets()

    def _count_resets(self) -> None:
        self.invariants.seen["lost in a reset"] = self.processes.network_faults.resets_hit

    def finish(self) -> None:
        """Let all peers stop training after their current step."""
        for peer in self.running():
            peer.worker.finishing = True

    def meet(self, peer: PeerId, other: PeerId) -> None:
        """Let a peer that belongs to a swarm dial one of another, as if a user had asked for it."""
        worker = self.peers[peer].worker
        if worker.awake and worker.protocol.phase is Phase.TRAINING:
            self.invariants.seen["two swarms"] += 1
            protocol = worker.protocol
            hello = protocol._joining.hello(reply=True)
            envelope = protocol.state.log.envelope("", 0, hello)
            greet = fx.Greet(address_of(other), envelope)
            self.fleet.mail.greet(worker, greet, self.now + worker.ahead_s)

    def protocol(self, id: PeerId, before: Worker | None, kept: Checkpoint | None) -> Protocol:
        made, rule = self._made, self._made.rule(id)
        self._registers[id] = rule.registers
        incarnation = self._incarnation(id, before, kept)
        if kept is not None and id in self.kept:
            self._returns.add(id)
        protocol = Protocol(
            id=id,
            incarnation=incarnation,
            schema=self._schema,
            anchor=self.kept[id][1] if id in self._returns else made.anchor(id),
            rule=rule,
            neighbors=made.neighbors,
            rng=partial(stream, self._seed, f"{id}/{incarnation}"),
            config=made.config,
            addresses=() if made.dials_out(id) else (address_of(id),),
            keeps_anchor=self._keeps_anchor,
            host=made.host(id),
            clock=dict(kept.clock) if kept is not None else {},
        )
        made.mutate(protocol)
        return protocol

    def _incarnation(
        self, id: PeerId, before: Worker | None, kept: Checkpoint | None
    ) -> Incarnation:
        """Name an incarnation by the millisecond of its start, by the clock of its machine."""
        later = self._later.pop(id, 0)
        if later:
            return later
        if before is not None and kept is None:
            # On another machine, whose clock is right.
            self._ahead_s.pop(id, None)
        now = 0.0 if before is None else self.now
        born = 1 + int((now + self._ahead_s[id]) * 1000)
        if before is not None and kept is not None:
            born = max(born, before.protocol.account.incarnation + 1)
        while (id, born) in self.invariants.ledgers:
            born += 1
        return born

    def listens(self, id: PeerId) -> bool:
        return not self._made.dials_out(id)

    def reaches(self, source: Worker, to: Worker) -> bool:
        if self.listens(to.id):
            return True
        # A process that listens nowhere is reached on a connection that it opened.
        ends = source.protocol.account.life, to.protocol.account.life
        given = self.opened.get(ends, math.inf), self.now, source.index, to.index
        return ends in self.opened and not self.processes.network_faults.was_reset(*given)

    def unsent(self, worker: Worker, envelope: Envelope) -> None:
        if self._made.tells:
            self.invariants.seen["unsent"] += 1
            self._answer(worker, 0.0, "unsent", partial(worker.protocol.unsent, envelope))

    def started(self, worker: Worker) -> None:
        id, life = worker.id, worker.protocol.account.life
        worker.ahead_s = self._ahead_s[id]
        if id in self._returns:
            self._returns.discard(id)
            self.invariants.seen["restart with state"] += 1
            values = self.kept[id][0]
        elif self._made.values is not None:
            values = self._made.values(id)
        else:
            draws = stream(self._seed, f"{id}/{life[1]}", "values")
            values = draws.normal(size=self._made.size)
        accounts = worker.protocol.accounts
        ledgers = tuple(Account(*life, shard) for shard in range(len(accounts)))
        vector = Vector(values, self._registers[id], self._schema)
        peer = self.peers[id] = FuzzPeer(worker, vector, ledgers)
        self.invariants.opened(peer)

    def ended(self, worker: Worker, *, died: bool, gave_up: bool) -> None:
        self._ahead_s[worker.id] = worker.ahead_s
        if died:
            self.invariants.died(self.peers[worker.id])
            self._crashes[self.now] += 1
            together = self._crashes[self.now] > 1 and not self.running()
            self.invariants.seen["mass restart"] += together
        else:
            self.invariants.ended(self.peers[worker.id])
        self.fleet.clock.stop()

    def decided(self, worker: Worker, cause: object) -> None:
        peer = self._peer = self.peers[worker.id]
        self._cause, self._body = cause, None
        if type(cause) is not Envelope:
            self.invariants.happened(self.fleet.clock.now, peer.life, str(cause), None)
            return
        seen, mine = self.invariants.seen, peer.protocol.account.incarnation
        seen["stale incarnation"] += 0 < cause.destination_incarnation < mine
        seen["duplicate"] += id(cause) in self._seen
        # Keeping the payload alive prevents another message from getting its id.
        self._seen[id(cause)] = cause
        if self.listens(peer.id) and not self.listens(cause.source):
            self.opened[peer.life, (cause.source, cause.source_incarnation)] = self.now
        self._body = cause.body
        detail = "a schema" if type(cause.body) is Describe else cause
        self.invariants.happened(self.fleet.clock.now, peer.life, "receive", detail)

    def carried(self, worker: Worker, effect: fx.Effect | Event) -> None:
        self.invariants.effect(self._peer, effect, self._body)

    def done(self, worker: Worker) -> None:
        self.invariants.all_done(self._peer)
        if self._cause == "wake" and worker.protocol.deadline() <= self.now + worker.ahead_s:
            raise Violation("order", "it would be woken for ever", (worker.id,))

    def refused(self, worker: Worker) -> None:
        raise Violation("error", "a message was refused that a peer has sent", (worker.id,))

    def step(self, worker: int, step: int, rate: float | None) -> None:
        peer = self.peers[self.fleet.workers[worker].id]
        self.steps += 1
        self._made.train(peer)
        self.invariants.steps[peer.id] += 1

    def keep(self, worker: int) -> None:
        peer = self.peers[self.fleet.workers[worker].id]
        if not peer.poisoned:
            self.kept[peer.id] = peer.vector.x.copy(), peer.protocol.swarm

    def start(self, worker: int, *, kept: bool) -> None:
        """Do nothing: `started` handles it."""

    def let_go(self, slot: _Frame) -> None:
        """Do nothing: memory does not matter here."""

    def _handlers(self) -> Mapping[type, Handler]:
        of_values = (fx.Snapshot, fx.Release, fx.Mix, fx.Combine, fx.Drop)
        return {
            **dict.fromkeys(of_values, lambda w, effect, _: self.peers[w.id].vector.apply(effect)),
            fx.Exchange: self._exchange,
            fx.Send: self._send,
            fx.Greet: lambda worker, greet, now: self.fleet.mail.greet(worker, greet, now),
            fx.Inspect: self._inspect,
            fx.TakeSketch: self._take_sketch,
            fx.Attach: self._attach,
            StaleIncarnation: self._note_outlived,
            fx.Halt: self._halt,
        }

    def stage(self, worker: Worker, effect: fx.Stage, payload: _Frame | None) -> None:
        self.peers[worker.id].vector.apply(effect, b"" if payload is None else payload.data)

    def _exchange(self, worker: Worker, effect: fx.Exchange, now: float) -> None:
        vector, key = self.peers[worker.id].vector, (effect.swarm, effect.segment)
        values = vector.registers[effect.register]
        if np.isfinite(values).all():
            if self._holders.enter(worker, effect):
                self.segments[key] = values.copy()
            vector.exchange(effect, self.segments[key])

    def _send(self, worker: Worker, send: fx.Send, now: float) -> None:
        peer, envelope, body = self.peers[worker.id], send.envelope, send.envelope.body
        if send.shown and send.snapshot is not None and isinstance(body, Offer):
            self._shown.append((peer, peer.vector.snapshots[send.snapshot].payload))
            segment = str(len(self._shown) - 1)
            envelope = replace(envelope, body=replace(body, segment=segment))
        frame = peer.vector.frame_of(send)
        self.fleet.mail.send(worker, envelope, _Frame(frame) if frame else None)

    def measure(self, worker: Worker, effect: fx.Measure) -> Mapping[ShareId, float]:
        return self.peers[worker.id].vector.measured(effect)

    def _take_sketch(self, worker: Worker, effect: fx.TakeSketch, now: float) -> None:
        sketch = tuple(self.peers[worker.id].vector.x.tolist())
        finite = all(map(math.isfinite, sketch))
        effects = worker.protocol.sketched(sketch if finite else (), now)
        self.fleet.executor.apply(worker, effects, now, "sketched")

    def _inspect(self, worker: Worker, effect: fx.Inspect, now: float) -> None:
        vector, protocol = self.peers[worker.id].vector, worker.protocol

        def inspected(now: float) -> Sequence[fx.Effect | Event]:
            # Values are checked a little later, when the share may already be decided.
            finite = effect.share not in vector.staged or vector.is_finite(effect)
            return protocol.inspected(effect.share, now, finite=finite)

        self._answer(worker, self._late_s("inspect", worker), "inspected", inspected)

    def _attach(self, worker: Worker, effect: fx.Attach, now: float) -> None:
        owner, shown = self._shown[int(effect.segment)]
        usable = self._random("readable", worker) < 0.8 and owner.worker.running
        if usable:
            self.invariants.seen["read from memory"] += 1
            self.peers[worker.id].vector.attach(effect, shown)
        attached = partial(worker.protocol.attached, effect.share, usable=usable)
        self._answer(worker, self._late_s("attach", worker), "attached", attached)

    def _answer(
        self,
        worker: Worker,
        late_s: float,
        what: str,
        act: Callable[[float], Sequence[fx.Effect | Event]],
    ) -> None:
        """Call a method of a protocol a little later, at a time on its clock."""

        def answer() -> None:
            self._take_in(worker, act(self.now + worker.ahead_s), what)

        self._soon(worker, late_s, answer)

    def _take_in(self, worker: Worker, effects: Sequence[fx.Effect | Event], what: str) -> None:
        self.fleet.executor.apply(worker, effects, self.now + worker.ahead_s, what)
        if worker.waiting_since_s is not None:
            self.fleet.step(worker, trained=False)
        else:
            self.processes.followed(worker)

    def _note_outlived(self, worker: Worker, effect: StaleIncarnation, now: float) -> None:
        peer = self.peers[worker.id]
        peer.outlived = max(peer.outlived, effect.incarnation)
        if worker.protocol.phase <= Phase.JOINING:
            self._soon(worker, 0.0, partial(self._start_over, peer))

    def _halt(self, worker: Worker, effect: fx.Halt, now: float) -> None:
        peer = self.peers[worker.id]
        if peer.outlived:
            self._soon(worker, 0.0, partial(self._start_over, peer))
        elif self._cause == "step":
            self.invariants.seen["halted"] += 1
            self.fleet.executor.halted = effect.reason

    def _start_over(self, peer: FuzzPeer) -> None:
        """Restart a peer as a still later incarnation of its name."""
        worker = peer.worker
        self.invariants.seen["started over"] += 1
        self._later[peer.id] = later_life(peer.outlived, peer.ledger.incarnation)
        self.processes.crash(worker)
        self.processes.start([worker], kept=True)
        self.fleet.workers[worker.index].finishing = worker.finishing

    def _diverge(self, id: PeerId) -> None:
        """Let the values of a peer diverge; a push may go out before that is noticed."""
        peer = self.peers.get(id)
        if peer is not None and peer.worker.running and peer.protocol.phase is Phase.TRAINING:
            peer.poisoned = True
            peer.vector.x[0] = float("nan")
            worker, delay_s = peer.worker, 2 * self._made.step_s(id)

            def burn() -> None:
                if worker.protocol.phase < Phase.LEAVING:
                    self.fleet.leave(worker, burn=True)

            self._soon(worker, delay_s, burn)

    def _late_s(self, purpose: str, worker: Worker) -> float:
        """Return the delay of an answer, mostly 0."""
        late = max(0.0, self._random(purpose, worker) - 0.8)
        return self._made.step_s(worker.id) * late

    def _random(self, purpose: str, worker: Worker) -> float:
        """Return the next number in [0, 1) of one purpose at one peer."""
        self._draws[purpose, worker.id] += 1
        return uniform(key(self._seed, purpose, worker.id), self._draws[purpose, worker.id])

    def _soon(self, worker: Worker, delay_s: float, action: Callable[[], None]) -> None:
        """Call *action* at a process after a delay, if it still runs, and once it is awake."""

        def act() -> None:
            if worker.awake:
                action()
            elif worker.running:
                self._soon(worker, 0.1, action)

        self.fleet.clock.at(self.now + delay_s, DELIVERY, act)
