"""The values of an in-process swarm: trained, copied and mixed at once, as by live peers.

What a live peer does in two threads comes one after another here, and where it sleeps, its next
turn is due later. All else is the same: the protocol, the vector, the bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from torch import nn

from ...gossip import Envelope, PeerId, Phase, Protocol, ProtocolConfig, Rule, TrainingError, stream
from ...gossip.effects.effects import (
    Attach,
    Combine,
    Drop,
    Effect,
    EndTraining,
    Exchange,
    Greet,
    Halt,
    Inspect,
    Measure,
    Mix,
    Reclaim,
    Release,
    Send,
    Snapshot,
    Stage,
    TakeSketch,
)
from ...gossip.effects.events import Event, PeerRefused
from ...gossip.protocol.rule import requirements_of
from ...gossip.types import ShareId
from ...gossip.wire.codec import decode, encode
from ...topology import LiveTopology
from ...train.tasks.random_state import kept_random_state
from ...train.tensors.blocks import widened
from ...train.tensors.store import TensorStore
from ...train.tensors.vector import Flats, Vector
from ..batched.shares import always_there
from ..kernel.fleet import Fleet
from ..kernel.plan import Checkpoint
from ..kernel.processes import LEAVE_S, Processes
from ..kernel.worker import Handler, Worker
from ..models.links import address_of
from .learner import Course, Learner
from .observers import PeerClosed, PeerCrashed, PeerFailed, PeerStarted, SwarmObserver
from .peer import SwarmPeer

__all__ = ["Made", "SwarmValues"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What the peers of a swarm are made of."""

    course: Course
    """What they learn."""
    topology: str
    """Spec of the graph that says who may push to whom."""
    rule: Callable[[], Rule]
    """Makes one for each peer."""
    config: ProtocolConfig
    """Of their protocols."""
    shards: int
    """How many their vectors are cut into."""
    seed: int
    """The run's seed."""
    machines: Mapping[PeerId, bytes] = field(default_factory=dict)
    """Names of their machines; empty where all share one."""


class _Kept(NamedTuple):
    """A checkpoint of a peer."""

    learner: Mapping[str, Any]
    registers: dict[str, Flats]
    """What its rule keeps beside the model."""


class _Model(NamedTuple):
    """What a life begins with, beside its protocol."""

    learner: Learner
    vector: Vector
    rule: Rule


@dataclass(slots=True)
class _Message:
    """A message as bytes, until it has come."""

    size_bytes: int
    frame: bytes
    readers: int = 0


@dataclass(slots=True)
class _Segment:
    flats: Flats
    holders: list[Callable[[], bool]] = field(default_factory=list)
    """Say whether the process of a life that has exchanged with it runs still."""


class _HeldSegments:
    """Segments of the one machine on which all peers run, held by a process while it runs."""

    def __init__(
        self, segments: dict[tuple[bytes, str], _Segment], is_running: Callable[[], bool]
    ) -> None:
        self._segments = segments
        self._is_running = is_running

    def exchange(self, effect: Exchange, vector: Vector) -> None:
        """Exchange a register with a segment, which is made where nobody holds it any more.

        Raises:
            TrainingError: A number is not finite; nothing was changed.
        """
        key = effect.swarm, effect.segment
        segment = self._segments.get(key)
        if segment is None or not any(runs() for runs in segment.holders):
            numbers = vector.flats_of(effect.register)
            flats = tuple(part.to(widened(part), copy=True) for part in numbers)
            segment = self._segments[key] = _Segment(flats)
        if self._is_running not in segment.holders:
            segment.holders.append(self._is_running)
        taken, given = effect.taken, effect.given
        vector.exchange(effect.register, segment.flats, taken=taken, given=given)

    def met(self) -> None:
        """Do nothing: all peers of one swarm are of one machine."""

    def close(self) -> None:
        """Do nothing: whether the process runs is asked."""


class SwarmValues:
    """Runs the values of a fleet of whole peers, and looks on."""

    def __init__(self, made: Made, observer: SwarmObserver) -> None:
        self.observer = observer
        self.peers: dict[PeerId, SwarmPeer] = {}
        """The latest life of each peer, in order of coming."""
        self.samples: list[int] = []
        """How many each peer's last step took."""
        self.steps = 0
        self.handlers: Mapping[type, Handler] = self._handlers()
        self._made = made
        self._models: dict[PeerId, _Model] = {}
        self._kept: dict[PeerId, _Kept] = {}
        self._places: dict[PeerId, int] = {}
        self._segments: dict[tuple[bytes, str], _Segment] = {}
        self._registers = always_there(made.rule().registers)
        self._fleet: Fleet
        self._processes: Processes

    def run_in(self, fleet: Fleet) -> None:
        """Say whose values these are."""
        assert fleet.faults is not None
        self._fleet, self._processes = fleet, fleet.faults

    def prepare(self, id: PeerId) -> Vector:
        """Make the model of a peer's next life.

        Raises:
            TrainingError: It has nothing to share.
        """
        made, rule = self._made, self._made.rule()
        place = self._places.setdefault(id, len(self._places))
        with kept_random_state():
            learner = made.course.learner(id, place)
        vector = _vector(learner.model, rule, made.config.wire, made.shards)
        self._models[id] = _Model(learner, vector, rule)
        return vector

    def protocol(self, id: PeerId, before: Worker | None, kept: Checkpoint | None) -> Protocol:
        """Make the protocol of a first life, or of the one after another."""
        if id not in self._models:
            self.prepare(id)
        made, (_, vector, rule) = self._made, self._models[id]
        if before is None:
            self.samples.append(0)
        anchor = vector.anchor()
        if kept is not None and id in self._kept:
            self._restore(id)
        return Protocol(
            id=id,
            incarnation=1 if before is None else before.protocol.account.incarnation + 1,
            schema=vector.schema,
            anchor=anchor,
            rule=rule,
            neighbors=LiveTopology(made.topology, made.seed),
            rng=partial(stream, made.seed, id),
            config=made.config,
            addresses=(address_of(id),),
            keeps_anchor=vector.anchor_flats is not None,
            # Who comes later comes to the first machine.
            host=made.machines.get(id, next(iter(made.machines.values()), b"")),
            clock=dict(kept.clock) if kept is not None else {},
        )

    def _restore(self, id: PeerId) -> None:
        """Let a peer's next life begin with what was kept of an earlier one."""
        learner, vector, _ = self._models[id]
        kept = self._kept[id]
        learner.restore(kept.learner)
        for name, flats in kept.registers.items():
            for flat, values in zip(vector.flats_of(name), flats, strict=True):
                flat.copy_(values)

    def ahead_s(self, id: PeerId) -> float:
        """How far the clock of a peer's machine is ahead: not at all."""
        return 0.0

    def listens(self, id: PeerId) -> bool:
        """Whether a peer has an address: all have."""
        return True

    def reaches(self, source: Worker, to: Worker) -> bool:
        """Whether there is a way from one process to another: always."""
        return True

    def started(self, worker: Worker) -> None:
        """Take note that a life begins."""
        learner, vector, _ = self._models.pop(worker.id)
        shared = _HeldSegments(self._segments, lambda: worker.running)
        rng = partial(stream, self._made.seed, worker.id)
        store = TensorStore(vector, lambda id: rng(f"rounding:{id}"), shared=shared)
        # A peer that comes back keeps its place among them.
        self.peers[worker.id] = SwarmPeer(worker, learner, vector, store)
        self.observer.opened(worker.protocol.accounts)
        self.observer.note(worker.id, PeerStarted(worker.protocol.account.incarnation))

    def ended(self, worker: Worker, *, died: bool, gave_up: bool) -> None:
        """Take note that a life has ended."""
        peer = self.peers[worker.id]
        event: PeerClosed | PeerCrashed | PeerFailed = PeerCrashed()
        how = "crashed"
        if not died:
            event = PeerClosed()
            how = "left" if worker.protocol.phase is Phase.LEFT else "finished"
        elif gave_up:
            event = PeerFailed(f"nobody has taken its weight within {LEAVE_S:g} s")
            how = "gave up leaving"
        elif peer.refusal:
            event, how = PeerFailed(peer.refusal), "failed"
        if died:
            self.observer.died(worker.protocol.account.life)
        self.observer.note(worker.id, event)
        peer.end = f"{how} at {self._fleet.now:g} s"

    def decided(
        self,
        worker: Worker,
        cause: object,
        effects: Sequence[Effect | Event],
        now: float,
        payload: Any,
    ) -> None:
        """Take note of an event, before its effects are carried out.

        Raises:
            AssertionError: Weight was lost or created (invariant I1).
        """
        tally, what = self.peers[worker.id].tally, cause
        if type(cause) is Envelope:
            what = "receive"
            tally.bytes_received += payload.size_bytes
        self.observer.decided(worker.protocol, str(what), effects)
        for effect in effects:
            tally.count(effect)

    def carried(self, worker: Worker, effect: Effect | Event) -> None:
        """Take note of an effect that was just carried out."""
        if isinstance(effect, Event | EndTraining | Halt):
            self.observer.note(worker.id, effect)

    def done(self, worker: Worker) -> None:
        """Take note that all effects of the event were carried out."""
        peer = self.peers[worker.id]
        if peer.error is not None:
            # What follows still had to happen: other peers wait for their answers.
            error, peer.error = peer.error, None
            self._fleet.at(self._fleet.now, partial(self._fail, peer, error))

    def refused(self, worker: Worker, payload: Any) -> None:
        """Take note that a message breaks the protocol."""
        tally = self.peers[worker.id].tally
        tally.errors += 1
        tally.bytes_received += payload.size_bytes

    def step(self, worker: int, step: int) -> None:
        """A peer takes an optimizer step; one that fails leaves."""
        peer = self.peers[self._fleet.workers[worker].id]
        learner = peer.learner
        self.steps += 1
        learner.look(peer.protocol)
        try:
            learner.step()
            if not peer.is_finite:
                raise TrainingError(f"a parameter is not finite after step {learner.steps}")
        except TrainingError as error:
            self._fail(peer, error)
        self.samples[worker] = learner.samples

    def keep(self, worker: int) -> None:
        """Keep a peer's values, as a checkpoint does."""
        peer = self.peers[self._fleet.workers[worker].id]
        names, flats_of = self._registers, peer.vector.flats_of
        registers = {name: tuple(flat.clone() for flat in flats_of(name)) for name in names}
        self._kept[peer.id] = _Kept(peer.learner.keep(), registers)

    def start(self, worker: int, *, kept: bool) -> None:
        """Do nothing: `started` sees to it."""

    def let_go(self, slot: _Message) -> None:
        """Do nothing: memory is no concern here."""

    def measure(self, worker: Worker, effect: Measure) -> Mapping[ShareId, float]:
        """How far staged shares are from a peer's model."""
        return dict(self.peers[worker.id].store.measured(effect))

    def _take_sketch(self, worker: Worker, effect: TakeSketch, now: float) -> None:
        sketch = self.peers[worker.id].store.sketch()
        self._fleet.apply(worker, worker.protocol.sketched(sketch, now), now, "sketched")

    def unsent(self, worker: Worker, envelope: Envelope) -> None:
        """Tell a sender that nobody listens there."""
        now = self._fleet.now
        self._fleet.apply(worker, worker.protocol.unsent(envelope, now), now, "unsent")

    def _handlers(self) -> Mapping[type, Handler]:
        of_values = (Snapshot, Release, Reclaim, Mix, Combine, Exchange, Drop)
        return {
            **dict.fromkeys(of_values, self._apply),
            Send: self._send,
            Greet: self._greet,
            Inspect: self._inspect,
            TakeSketch: self._take_sketch,
            Attach: self._attach,
            Halt: self._halt,
            PeerRefused: self._turn_away,
        }

    def stage(self, worker: Worker, effect: Stage, payload: _Message | None) -> None:
        """Keep the part of a share that came beside the message that is being received."""
        self._apply(worker, effect, 0.0, b"" if payload is None else payload.frame)

    def _apply(self, worker: Worker, effect: Effect, now: float, frame: bytes = b"") -> None:
        peer = self.peers[worker.id]
        try:
            peer.store.carry_out(effect, frame)
        except TrainingError as error:
            peer.error = error

    def _send(self, worker: Worker, send: Send, now: float) -> None:
        frame = self.peers[worker.id].store.frame_of(send)
        if frame is None:
            self.unsent(worker, send.envelope)
            return
        # Copied, for a socket would not keep the snapshot for ever, either.
        envelope, message = self._as_bytes(worker, send.envelope, bytes(frame))
        self._processes.mail.send(worker, envelope, message)

    def _greet(self, worker: Worker, greet: Greet, now: float) -> None:
        envelope, message = self._as_bytes(worker, greet.envelope, b"")
        self._processes.mail.greet(worker, Greet(greet.address, envelope), now, message)

    def _as_bytes(
        self, worker: Worker, envelope: Envelope, frame: bytes
    ) -> tuple[Envelope, _Message]:
        """Write a message, and read it as whoever gets it will."""
        parts, tally = encode(envelope, frame), self.peers[worker.id].tally
        size_bytes = sum(len(part) for part in parts)
        self.observer.sent(parts[0])
        tally.messages += 1
        tally.bytes_sent += size_bytes
        return decode(parts), _Message(size_bytes, frame)

    def _inspect(self, worker: Worker, effect: Inspect, now: float) -> None:
        finite = self.peers[worker.id].store.staging.is_finite(effect.share)
        effects = worker.protocol.inspected(effect.share, now, finite=finite)
        self._fleet.apply(worker, effects, now, "inspected")

    def _attach(self, worker: Worker, effect: Attach, now: float) -> None:
        # No memory is shared here: each peer stands for a host of its own.
        effects = worker.protocol.attached(effect.share, now, usable=False)
        self._fleet.apply(worker, effects, now, "attached")

    def _halt(self, worker: Worker, effect: Halt, now: float) -> None:
        self.peers[worker.id].error = TrainingError(effect.reason)

    def _turn_away(self, worker: Worker, effect: PeerRefused, now: float) -> None:
        """End a peer that looks for a swarm whose members say that it cannot be one of them."""
        if worker.searching:
            reason = f"cannot join {effect.peer}: {effect.reason}"
            self.peers[worker.id].refusal = reason
            self._fleet.at(self._fleet.now, partial(self._give_up, worker))

    def _give_up(self, worker: Worker) -> None:
        if worker.running and worker.searching:
            self._processes.crash(worker)

    def _fail(self, peer: SwarmPeer, error: TrainingError) -> None:
        """Let a peer leave, as a live one does whose training loop ends with an error."""
        worker, now = peer.worker, self._fleet.now
        if not worker.running:
            return
        self.observer.note(peer.id, PeerFailed(str(error)))
        if peer.protocol.phase < Phase.LEAVING:
            self._fleet.leave(worker, burn=not peer.is_finite)
        else:
            # What it would hand on turns out to be of no use.
            self._fleet.apply(worker, peer.protocol.leave(now, burn=True), now, "leave")


def _vector(model: nn.Module, rule: Rule, wire: str, shards: int) -> Vector:
    requirements = requirements_of(rule)
    vector = Vector(
        model,
        rule.registers,
        shards=shards,
        scattered=requirements.scattered,
        keeps_anchor=requirements.needs_anchor(wire),
        sends_topk=requirements.notes_sent(wire),
    )
    vector.compare_frozen()
    return vector
