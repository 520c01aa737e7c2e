"""One process of the simulated network: a protocol, its values, its ledger, its training loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol as Structural

from ...gossip import Account, Envelope, Kind, PeerId, Phase, Protocol
from ...gossip.effects.effects import (
    Attach,
    Combine,
    Drop,
    Effect,
    Greet,
    Halt,
    Inspect,
    Mix,
    Reclaim,
    Record,
    Release,
    Send,
    Snapshot,
    Stage,
    Wait,
)
from ...gossip.effects.events import Event, StaleIncarnation
from ...gossip.types import Incarnation, ShareId
from ...gossip.wire.messages import Describe, Offer
from .invariants import Invariants
from .vector import Values, Vector
from .violation import Violation

__all__ = ["FuzzPeer", "PeerCheckpoint", "Surroundings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCheckpoint:
    """A checkpoint. Weight is no part of it: that is never restored."""

    incarnation: Incarnation
    """Of the life that wrote it."""
    swarm: bytes = b""
    """Hash of the anchor; empty before the peer belonged to a swarm, when it has nothing else."""
    values: Values | None = None
    """The model, float64, shape ``(size,)``."""
    clock: Mapping[PeerId, int] = field(default_factory=dict)
    """Steps by peer."""
    addresses: tuple[str, ...] = ()
    """Of the peers it knew."""


SAVED_EVERY = 8
"""Turns from one checkpoint to the next."""


class Surroundings(Structural):
    """What a process needs of the world around it."""

    invariants: Invariants
    now: float
    linger_s: float

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something after a while."""

    def random(self, purpose: str, link: str) -> float:
        """The next number in [0, 1) of a stream of its own."""

    def send(self, host: "FuzzPeer", envelope: Envelope, frame: bytes) -> None:
        """Carry a message, or lose it."""

    def greet(self, host: "FuzzPeer", address: str, envelope: Envelope) -> None:
        """Carry a message to whoever listens there."""

    def show(self, host: "FuzzPeer", memory: bytearray) -> str:
        """Name memory, so that others can read it while its owner runs."""

    def memory(self, name: str) -> bytearray | None:
        """Open what was shown, if its owner still runs."""

    def save(self, host: "FuzzPeer", checkpoint: PeerCheckpoint) -> None:
        """Keep a checkpoint."""

    def outlive(self, host: "FuzzPeer", incarnation: Incarnation) -> None:
        """Start a peer over, because a later life of its name is known."""


class FuzzPeer:
    """One life of one peer.

    Args:
        protocol: Decides.
        vector: Holds the values.
        around: The network it lives in.
        train: The optimizer step.
        step_s: Mean time of a step, seconds.
        skew_s: How far its clock is ahead.
        key: Names its random numbers.
    """

    def __init__(
        self,
        protocol: Protocol,
        vector: Vector,
        around: Surroundings,
        *,
        train: Callable[["FuzzPeer"], None],
        step_s: float,
        skew_s: float = 0.0,
        key: str = "",
    ) -> None:
        self.protocol = protocol
        self.vector = vector
        life = protocol.account.life
        self.id: PeerId = life[0]
        self.ledgers = tuple(Account(*life, shard) for shard in range(len(protocol.accounts)))
        """What was written down, of each shard."""
        self.running = True
        self.paused_until_s = 0.0
        """Until when the process stands still, by the network's clock."""
        self.slowness = 1.0
        """How many times as long as usual its steps take."""
        self.skew_s = skew_s
        self.crash_after: int | None = None
        """Effects that are still carried out before the process dies."""
        self.crash_accepting = False
        """Whether the process dies when it has next accepted something, before it can say so."""
        self.poisoned = False
        """Whether its values are not finite any more."""
        self.seeds: tuple[str, ...] = ()
        """Addresses that it was told."""
        self.waits = False
        """Whether its rule cannot go on."""
        self.finishes = False
        """Whether it shall take no more optimizer steps."""
        self.steps = 0
        """Optimizer steps taken in this life."""
        self._key = key or self.id
        self._around = around
        self._train = train
        self._step_s = step_s
        self._alarm_s = float("inf")
        self._alarms = 0
        self._put_off: list[Callable[[], None]] = []
        self._outlived: Incarnation = 0
        around.invariants.opened(self)

    @property
    def ledger(self) -> Account:
        """That of the first shard."""
        return self.ledgers[0]

    @property
    def now(self) -> float:
        """What its own clock says, seconds."""
        return self._around.now + self.skew_s

    def start(self, seeds: tuple[str, ...], founders: int, *, returning: bool = False) -> None:
        """Join, and begin to train."""
        self.seeds = seeds
        self._call(
            "join",
            (seeds, returning),
            lambda now: self.protocol.join(now, seeds, founders, returning=returning),
        )
        self._soon(0.0, self._take_turn)

    def arrive(self, envelope: Envelope, frame: bytes) -> None:
        """Take in a message, once this process is not paused."""
        self._soon(0.0, lambda: self._receive(envelope, frame))

    def unsent(self, envelope: Envelope) -> None:
        """Hear that a message can never arrive."""
        self._soon(0.0, lambda: self._was_unsent(envelope))

    def finish(self) -> None:
        """Take no more optimizer steps."""
        self._call("finish", None, self.protocol.finish)

    def leave(self, *, burn: bool = False) -> None:
        """Leave the swarm."""
        self._call("leave", burn, lambda now: self.protocol.leave(now, burn=burn))

    def poison(self) -> None:
        """Let the values diverge; a push may go out before that is noticed."""
        self.poisoned = True
        self.vector.x[0] = float("nan")
        self._soon(2 * self._step_s, lambda: self.leave(burn=True))

    def pause(self, until_s: float) -> None:
        """Stand still until then; never sooner than an earlier pause says."""
        self.paused_until_s = max(self.paused_until_s, until_s)

    def resume(self) -> None:
        """Go on, with everything that came meanwhile."""
        self.paused_until_s = self._around.now
        put_off, self._put_off = self._put_off, []
        for action in put_off:
            self._soon(0.0, action)

    def jump(self, by_s: float) -> None:
        """Let its clock jump ahead."""
        self.skew_s += by_s
        self._alarm_s = float("inf")
        self._set_alarm()

    def crash(self) -> None:
        """End without a word."""
        self.running = False
        self._around.invariants.died(self)

    def _call(
        self,
        what: str,
        detail: object,
        event: Callable[[float], list[Effect | Event]],
        *,
        frame: bytes = b"",
        cause: object = None,
    ) -> None:
        invariants = self._around.invariants
        invariants.happened(self._around.now, self.ledger.life, what, detail)
        for effect in event(self.now):
            if self.crash_after == 0:
                self.crash()
                return
            if self.crash_after is not None:
                self.crash_after -= 1
            self._carry_out(effect, frame)
            invariants.effect(self, effect, cause)
            if self.crash_accepting and _accepts(effect):
                self.crash()
                return
        invariants.all_done(self)
        self._set_alarm()

    def _carry_out(self, effect: Effect | Event, frame: bytes) -> None:
        match effect:
            case Send():
                self._send(effect)
            case Record():
                pass  # `Invariants` writes the ledger
            case Greet(address, envelope):
                self._around.greet(self, address, envelope)
            case Inspect():
                # Values are looked at a little later, when the share may be decided already.
                self._soon(self._late_s("inspect"), lambda: self._inspect(effect))
            case Attach(share):
                usable = self._attach(effect)
                self._soon(self._late_s("attach"), lambda: self._attached(share, usable))
            case Wait():
                self.waits = True
            case StaleIncarnation(incarnation):
                self._outlived = max(self._outlived, incarnation)
                if self.protocol.phase <= Phase.JOINING:
                    self._start_over()
            case Halt():
                if self._outlived:
                    self._start_over()
            case Snapshot() | Release() | Reclaim() | Stage() | Drop() | Mix() | Combine():
                self.vector.carry_out(effect, frame)
            case _:
                pass  # ways to peers are always open here, and `Invariants` sees events

    def _send(self, send: Send) -> None:
        envelope, body = send.envelope, send.envelope.body
        if send.shown and send.snapshot is not None and isinstance(body, Offer):
            segment = self._around.show(self, self.vector.snapshots[send.snapshot])
            envelope = replace(envelope, body=replace(body, segment=segment))
        self._around.send(self, envelope, self.vector.frame_of(send))

    def _late_s(self, purpose: str) -> float:
        """How much later something is answered, mostly at once."""
        return self._step_s * max(0.0, self._around.random(purpose, self._key) - 0.8)

    def _attach(self, attach: Attach) -> bool:
        readable = self._around.random("readable", self._key) < 0.8
        return self.vector.attach(attach, self._around.memory(attach.segment) if readable else None)

    def _attached(self, share: ShareId, usable: bool) -> None:
        self._call(
            "attached",
            (share, usable),
            lambda now: self.protocol.attached(share, now, usable=usable),
        )

    def _receive(self, envelope: Envelope, frame: bytes) -> None:
        self._around.invariants.delivered(self, envelope)
        self._call(
            "receive",
            "a schema" if isinstance(envelope.body, Describe) else envelope,
            lambda now: self.protocol.receive(envelope, now),
            frame=frame,
            cause=envelope.body,
        )

    def _was_unsent(self, envelope: Envelope) -> None:
        self._call("unsent", envelope, lambda now: self.protocol.unsent(envelope, now))

    def _inspect(self, inspect: Inspect) -> None:
        share = inspect.share
        finite = share not in self.vector.staged or self.vector.is_finite(inspect)
        self._call(
            "inspected", share, lambda now: self.protocol.inspected(share, now, finite=finite)
        )

    def _take_turn(self) -> None:
        if self.finishes and self.protocol.phase is Phase.TRAINING:
            self.finish()
        trained = self.protocol.phase is Phase.TRAINING and not self.waits
        if trained:
            self._train(self)
            self.steps += 1
            self._around.invariants.trained(self)
        self.waits = False
        self._call("step", trained, lambda now: self.protocol.step(now, trained=trained))
        if self.steps % SAVED_EVERY == 0 and trained and self.running and not self.poisoned:
            self._save()
        if self.protocol.done:
            self._soon(self._around.linger_s, self._close)
        else:
            pace = 0.5 + self._around.random("pace", self._key)
            self._soon(self.slowness * self._step_s * pace, self._take_turn)

    def _save(self) -> None:
        protocol = self.protocol
        checkpoint = PeerCheckpoint(
            incarnation=self.ledger.incarnation,
            swarm=protocol.swarm,
            values=self.vector.x.copy(),
            clock=protocol.clock.rows(),
            addresses=tuple(a for member in protocol.known() for a in member.addresses),
        )
        self._around.save(self, checkpoint)

    def _start_over(self) -> None:
        incarnation = self._outlived
        self._soon(0.0, lambda: self._around.outlive(self, incarnation))

    def _close(self) -> None:
        self._around.invariants.ended(self)
        self.running = False

    def _set_alarm(self) -> None:
        due_s = self.protocol.deadline()
        if due_s < self._alarm_s:
            self._alarm_s = due_s
            self._alarms += 1
            token = self._alarms
            self._soon(due_s - self.now, lambda: self._wake(token))

    def _wake(self, token: int) -> None:
        if token != self._alarms:
            return  # an earlier alarm was set since
        self._alarm_s = float("inf")
        self._call("wake", None, self.protocol.wake)
        if self.running and self.protocol.deadline() <= self.now:
            raise Violation("order", "it would be woken for ever", (self.id,))

    def _soon(self, delay_s: float, action: Callable[[], None]) -> None:
        self._around.later(delay_s, lambda: self._when_awake(action))

    def _when_awake(self, action: Callable[[], None]) -> None:
        if not self.running:
            return
        if self.paused_until_s > self._around.now:
            self._put_off.append(action)
        else:
            action()


def _accepts(effect: Effect | Event) -> bool:
    match effect:
        case Record(entry):
            return entry.kind is Kind.ACCEPTED and entry.weight > 0
        case _:
            return False
