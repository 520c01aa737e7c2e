"""Execute a protocol's decisions: values on the vector, messages on a thread of its own.

The training thread takes turns, and the network thread receives messages and keeps time; a lock
makes the protocol see one event after another. It is held while the protocol decides and the ledger
is written, but never while values are copied, so training and network do not wait for each other.

With a journal, each call of the protocol is recorded before it is made.

A push, from ``peer.step()`` on:

1. `PeerRuntime.step` calls `Protocol.step` under the lock, and that calls the rule (`GoSGD.step`):
   `RuleContext.push_half` draws a push target, halves the weight and calls `send_share`.
2. `send_share` requests a `Snapshot`, and `Outbox.push` moves the weight into escrow and requests a
   `Send`: of the whole share in a PUSH if it is small, else of an OFFER. From here on, the table
   `exchange.outgoing.TRANSITIONS` says what each answer does.
3. `_carry_out` executes these effects: `TensorStore.take` copies the parameters, on the training
   thread, and the message is queued, before a large copy begins (`_send_early`).
4. The network thread sends it (`SendQueue.flush`), with its frame cut from the snapshot.
5. A GRANT lets `Outbox` send further frames as CHUNKs. After the last one the snapshot is released,
   and its memory goes back to the pool (`TensorStore.release`).
6. An ACK settles the share (`Outbox._close`): the ledger gets a SETTLED entry, and the weight that
   was not accepted comes back out of escrow.

A message, on the network thread:

1. `_take_in` decodes the header. If the protocol expects the frame (`Protocol.place_of`),
   `TensorStore.receive` puts it in its place, and checks it in the same pass.
2. `Protocol.receive` drops what is not for this incarnation, model and swarm (`MessageFilter`),
   notes a sign of life (`Membership.hears`), and dispatches by the kind of message. A new share is
   accepted or refused in `Inbox._open`: too many are here, or a reason of `State.why_refused`. One
   that has begun may still be refused, by a call of `Inbox.decide` with a reason.
3. Once a share is complete, `Inspect` has the store check that its numbers are finite.
4. At the next step the rule mixes it (`RuleContext.mix`): `TensorStore.mix` changes the parameters
   and lets go of the share, whose memory goes back to the pool with the last reference to it
   (`buffers.py`). `Inbox.decide` records how much was accepted and sends the ACK.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from ...gossip import TrainingError, TransportError
from ...gossip.effects.effects import (
    Attach,
    Combine,
    Drop,
    Effect,
    EndTraining,
    Exchange,
    Halt,
    Inspect,
    Measure,
    Mix,
    Send,
    Snapshot,
    Stage,
    TakeSketch,
    Wait,
)
from ...gossip.effects.events import (
    Event,
    Founded,
    Joined,
    PeerMet,
    PeerRefused,
    StaleIncarnation,
)
from ...gossip.effects.ledger import Entry
from ...gossip.errors import IncompatiblePeer, RemoteProtocolError
from ...gossip.protocol.leave import STOPPED
from ...gossip.protocol.protocol import Protocol
from ...gossip.transport.keys.key import is_stop_signed
from ...gossip.transport.zmq_transport import Received, Transport
from ...gossip.types import Incarnation, PeerId, SnapshotId
from ...gossip.wire.codec import (
    Buffer,
    decode_header,
    encode,
    is_version_notice,
    version_notice,
)
from ...gossip.wire.messages import (
    Body,
    Chunk,
    Describe,
    Envelope,
    Excerpt,
    Fetch,
    Grant,
    Hello,
    Inquire,
    Leave,
    Member,
    Offer,
    Pending,
    Phase,
    Query,
    Status,
    Stop,
    Stopping,
)
from ..storage.environment import uptime_s
from ..storage.journal import Call, Journal
from ..storage.ledger_file import LedgerFile
from ..tensors.buffers import give_pages_back
from ..tensors.store import TensorStore
from ..tensors.vector import Vector
from .send_queue import BULK, Job, SendQueue
from .telling.events import Events, is_told
from .telling.model_copy import ModelCopy
from .telling.stats import Counters
from .telling.status import StatusDesk

__all__ = ["NETWORK_THREAD", "PeerRuntime"]

NETWORK_THREAD: Final = "rumor-network"
"""Name of the network thread."""

_log = logging.getLogger("rumor")

# Upper bound on a sleep, so that shutdown is noticed in time.
_NAP_S: Final = 0.5
# Seconds between two checks for a snapshot that is being copied from a device.
_DEVICE_POLL_S: Final = 0.001
# Seconds between two releases of unused memory.
_SWEEP_S: Final = 1.0
# Seconds between two log lines that name the awaited peers.
_SAY_S: Final = 5.0
# Longest wait for a `rumor stop` to read the last answer, and the interval between two looks.
_LAST_WORD_S: Final = 5.0
_LAST_WORD_POLL_S: Final = 0.02

_AHEAD: Final = (
    "the clock of this machine is far ahead of that peer's clock: set both by the same time"
)
_NAMESAKE: Final = "another process has this peer's name, and each needs one of its own"

_IN_BETWEEN: Final = (Offer, Chunk, Grant, Query, Pending)

_T = TypeVar("_T")


@dataclass(eq=False, repr=False, kw_only=True)
class PeerRuntime:
    """Runs the protocol of one incarnation of a peer over real sockets and a real vector."""

    protocol: Protocol
    lock: threading.Lock
    """Held while the protocol is called or read."""
    transport: Transport
    """Belongs to the network thread once that has started."""
    store: TensorStore
    vector: Vector
    addresses: tuple[str, ...]
    """Addresses where others reach it; empty for a peer that only dials out."""
    counters: Counters
    events: Events
    ledger: LedgerFile | None
    journal: Journal | None
    desk: StatusDesk | None
    obeys_stops: bool
    """True if the peer obeys `rumor stop`."""
    ended_by: str = ""
    """Id of the peer that has ended this peer's training, under a rule that allows it."""
    refusal: PeerRefused | None = None
    """The last refusal by a peer of another swarm or model."""
    outlived: Incarnation | None = None
    """A later incarnation of this peer that others know."""
    reads: PeerId = ""
    """The member whose model is being read; empty without one."""

    def __post_init__(self) -> None:
        self.excerpts: SimpleQueue[tuple[Envelope, Excerpt, Buffer]] = SimpleQueue()
        """Answers of the member that is being read, with their frames."""
        self._met: set[tuple[PeerId, Incarnation]] = set()
        self._model_copy = ModelCopy(self.store)
        # Held by the network thread from an event until all its effects are executed.
        self._carrying = threading.Lock()
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self.queue = SendQueue(self.transport, self.store, self.counters)
        self._failure: BaseException | None = None
        self._has_ended = False
        self._is_full: bool | None = None
        self._awaited: tuple[str, ...] = ()
        self._is_waiting = False
        self.thread = threading.Thread(target=self._run, name=NETWORK_THREAD, daemon=True)
        """The network thread, to be started once."""

    @property
    def met(self) -> frozenset[tuple[PeerId, Incarnation]]:
        """Incarnations that were in its swarm at the same time, its own included."""
        return frozenset(self._met | {self.protocol.account.life})

    @property
    def is_sound(self) -> bool:
        """True unless a failure has ended this incarnation like a crash."""
        return not self._has_ended

    def require_sound(self) -> None:
        """Raise the `TrainingError` or `TransportError` that has ended this incarnation, if any."""
        if self._has_ended:
            self._raise_failure()

    def _fail(self, failure: BaseException, *, ends: bool) -> None:
        """Store a failure for the training thread."""
        # A failure that does not end this incarnation is raised once: the peer may leave properly.
        if self._failure is None or (ends and not self._has_ended):
            self._failure = failure
        self._has_ended |= ends

    def _raise_failure(self) -> None:
        failure = self._failure
        if failure is None:
            return
        if not self._has_ended:
            self._failure = None
        if isinstance(failure, TrainingError):
            raise TrainingError(str(failure)) from failure
        raise TransportError(f"the network thread failed: {failure}") from failure

    def close(self) -> None:
        """Stop without sending anything more, and close everything."""
        with ExitStack() as closing:
            # Last, as buffers of shares in flight are returned until then.
            closing.callback(self.vector.memory.free_idle, 0.0)
            closing.callback(self.events.close)
            if (journal := self.journal) is not None:
                # The journal is known to be whole only after the network thread has ended.
                closing.callback(lambda: journal.close(whole=self.is_sound))
            closing.callback(self._stop)
            give_up_s = time.monotonic() + _LAST_WORD_S
            # An answer still unread when its connection closes is lost, and with it the fact that
            # this peer has ended in good order.
            while self._is_awaited() and time.monotonic() < give_up_s:
                time.sleep(_LAST_WORD_POLL_S)

    def _is_awaited(self) -> bool:
        """True while `rumor stop` has not read that this peer is done."""
        return self.is_sound and self.look(lambda protocol: protocol.done and protocol.has_askers)

    def _stop(self) -> None:
        """Stop the network thread; sockets and ledger are closed when this returns."""
        self._stopping.set()
        self.transport.wake()
        self.thread.join()
        if (failure := self._failure) is not None:
            # Frames in its traceback would keep everything of the peer alive.
            kind = TrainingError if isinstance(failure, TrainingError) else TransportError
            self._failure = kind(str(failure))
        self.desk = None  # it refers to the peer, which refers to this runtime
        self.store.close()

    def look(self, glance: Callable[[Protocol], _T]) -> _T:
        """Return *glance* of the protocol, called under its lock."""
        with self.lock:
            return glance(self.protocol)

    def call(self, method: str, **arguments: Any) -> bool:
        """Call a method of the protocol now, and execute its effects.

        Returns True if a synchronous rule must wait.

        Raises:
            TrainingError: A value to send is not finite, the rule cannot continue, or the ledger
                cannot be written, on either thread.
            TransportError: The network thread failed.
        """
        waits = self._carry_out(self._decide(method, **arguments))
        if self.queue.jobs:
            self.transport.wake()
        self._raise_failure()
        return waits

    def step(
        self,
        *,
        trained: bool,
        stop: threading.Event | None = None,
        samples: int | None = None,
        lr: float | None = None,
    ) -> None:
        """Take a turn, see `call`; under a synchronous rule, wait until the round is complete.

        Args:
            trained: True if an optimizer step was taken since the last turn.
            stop: When set, a synchronous rule stops waiting.
        """
        self.vector.follow()
        # Convert numbers of numpy and torch to Python's.
        samples, lr = None if samples is None else int(samples), None if lr is None else float(lr)
        self._is_waiting = self._turn(trained=trained, samples=samples, lr=lr)
        spoke_s = time.monotonic()
        stop = stop or threading.Event()
        while self._is_waiting and not stop.is_set() and self.ended_by != STOPPED:
            self.wait_for_share(_NAP_S)
            self._is_waiting = self._turn(trained=False)
            if time.monotonic() - spoke_s > _SAY_S:
                spoke_s = time.monotonic()
                _log.warning("waiting for %s", ", ".join(self._awaited) or "all founders")

    def _turn(self, **arguments: Any) -> bool:
        """Call the protocol between two steps, and copy the model if a reader waits for it."""
        waits = self.call("step", **arguments)
        self.copy_for_reader()
        return waits

    def copy_for_reader(self) -> None:
        """Copy the model, between two steps, if a reader waits for it."""
        if self._model_copy.is_wanted:
            held, step, has_room = self.look(
                lambda protocol: (
                    [account.weight for account in protocol.accounts],
                    protocol.table.step,
                    not self.store.lacks_room(*protocol.in_memory()),
                )
            )
            # Without weight, a shard counts nothing yet.
            if all(held) and has_room:
                self._model_copy.take(held, step)

    def ask(self, member: Member, fetch: Fetch, shard: int) -> None:
        """Ask a member for its model; answers come as `excerpts`."""
        self.reads, life = member.id, (member.id, member.incarnation)
        question = replace(self._envelope(self.protocol.account.life, life, fetch), shard=shard)
        self.queue.jobs.append(Send(question, None))
        self.transport.wake()

    def settle_network(self) -> None:
        """Wait until the network thread has executed all decisions before this call."""
        with self._carrying:
            pass

    def wait_for_share(self, timeout_s: float) -> None:
        """Wait for *timeout_s* at most until something has arrived since the last call."""
        self._ready.wait(timeout_s)
        self._ready.clear()

    def _decide(self, method: str, header: Buffer = b"", **arguments: Any) -> list[Effect | Event]:
        """Call the protocol, with *header* as received with an ``envelope``."""
        # Calls, and entries in journal and ledger, have one order.
        with self.lock:
            self.require_sound()
            try:
                # A frame belongs to a share that was counted when it was accepted.
                fills = method in ("step", "trained_shard", "wake") or (
                    method == "receive" and type(arguments["envelope"].body) is not Chunk
                )
                if fills and self.store.is_bounded:
                    # Tell the protocol whether there is memory for another share.
                    is_full = self.store.lacks_room(*self.protocol.in_memory())
                    if is_full is not self._is_full:
                        self._is_full = is_full
                        self._decide_on_record("filled", {"is_full": is_full})
                return self._decide_on_record(method, arguments, header)
            except TrainingError as failure:
                # The protocol has changed and the disk has not: any message sent from now on could
                # contradict the ledger.
                self._fail(failure, ends=True)
                raise

    def _decide_on_record(
        self, method: str, arguments: dict[str, Any], header: Buffer = b""
    ) -> list[Effect | Event]:
        now = uptime_s()
        if self.journal is not None:
            self.journal.called(Call(method, now, arguments, header))
        effects: list[Effect | Event] = getattr(self.protocol, method)(now=now, **arguments)
        if self.journal is not None and effects:
            self.journal.flush()
        for effect in effects:
            self.counters.count(effect)
            if isinstance(effect, Entry) and self.ledger is not None:
                self.ledger.write(effect)
        return effects

    def _carry_out(self, effects: Sequence[Effect | Event], frame: Buffer = b"") -> bool:
        """Execute effects; return True if a synchronous rule must wait.

        *frame* is that of the message that caused them; empty if the store has it already.
        """
        waits, store, early = False, self.store, set[SnapshotId | None]()
        for effect in effects:
            try:
                match effect:
                    case Send() if effect.snapshot in early:
                        pass
                    # A snapshot may still be in transfer from a device: training does not wait for
                    # it, and messages cut from it are sent before it is released.
                    case _ if isinstance(effect, Job):
                        self.queue.jobs.append(effect)
                    case Snapshot(id=id):
                        store.take(effect, partial(self._send_early, id, effects, early))
                    case Stage() if len(frame):
                        store.stage(effect, frame)
                    case Attach(share=share):
                        usable = store.attach(effect)
                        self._carry_out(self._decide("attached", share=share, usable=usable))
                    case Inspect(share):
                        finite = store.is_sound(share, self.protocol.swarm)
                        self._carry_out(self._decide("inspected", share=share, finite=finite))
                        self._ready.set()
                    case Measure():
                        # The rule's answer to the measurement decides for the whole turn.
                        found = store.measured(effect)
                        waits = self._carry_out(self._decide("measured", distances=found))
                    case TakeSketch():
                        self._carry_out(self._decide("sketched", sketch=store.sketch()))
                    case Mix():
                        store.mix(effect)
                    case Combine():
                        store.combine(effect)
                    case Exchange():
                        store.exchange(effect)
                    case Drop(share):
                        store.pop(share)
                    case Wait(_, missing):
                        waits, self._awaited = True, missing
                    case EndTraining(by):
                        self.ended_by = by
                    # When `rumor stop` has stopped this peer, the others that it waits for stop
                    # too: their end is not a failure.
                    case Halt(reason) if self.ended_by != STOPPED:
                        self._fail(TrainingError(reason), ends=False)
                    # All others were counted, and written to ledger and journal, when decided.
                    case _ if is_told(effect):
                        self._hear(effect)
            except TrainingError as error:
                if self._has_ended:
                    raise
                # The next effects must follow, as other peers wait for them.
                if threading.current_thread() is self.thread:
                    # The network continues whatever the values are.
                    _log.warning("%s", error)
                else:
                    self._fail(error, ends=False)
        return waits

    def _send_early(
        self, snapshot: SnapshotId, effects: Sequence[Effect | Event], early: set[SnapshotId | None]
    ) -> None:
        """Queue what is cut from a snapshot that is only now being taken."""
        early.add(snapshot)
        self.queue.jobs += [e for e in effects if isinstance(e, Send) and e.snapshot == snapshot]
        self.transport.wake()

    def _hear(self, event: Event) -> None:
        self.events.tell(event)
        match event:
            case PeerRefused():
                self.refusal = event
            case StaleIncarnation(incarnation):
                self.outlived = incarnation
            case PeerMet():
                self._note_met()
            case Joined() | Founded():
                self._met.clear()  # they are of a swarm that it has given up
                if isinstance(event, Joined):
                    # An anchor sent in shards can only be checked once all have arrived.
                    anchored, swarm = self.look(lambda p: (p.state.is_anchored, p.swarm))
                    is_in_shards = anchored and self.vector.schema.shards > 1
                    if is_in_shards and self.vector.kept_anchor() != swarm:
                        raise TrainingError(
                            "the anchor that came is not the one of this swarm: join again"
                        )
                    give_pages_back()
                self._note_met()

    def _note_met(self) -> None:
        known = self.look(lambda protocol: protocol.known())
        self._met |= {(member.id, member.incarnation) for member in known}

    def _run(self) -> None:
        ledger = self.ledger
        # A ledger is closed whatever becomes of the sockets.
        closing = (lambda: ledger.close(),) if ledger is not None else ()
        for act in (self._serve, self._ready.set, self.transport.close, *closing):
            try:
                act()
            except BaseException as failure:
                self._end(failure)

    def _serve(self) -> None:
        swept_s = uptime_s()
        while self.is_sound and not self._stopping.is_set():
            due_s = self.look(lambda protocol: protocol.deadline())
            self.queue.flush(self._take_back)
            rest_s = max(0.0, due_s - uptime_s())
            nap_s = _DEVICE_POLL_S if self.queue.jobs else _NAP_S
            for received in self.transport.poll(min(rest_s, nap_s)):
                with self._carrying:
                    self._take_in(received)
                self.queue.flush(self._take_back)
            for peer, last in self._gone():
                with self._carrying:
                    self._take_leave_of(peer, last)
            if uptime_s() >= due_s:
                with self._carrying:
                    self._carry_out(self._decide("wake"))
            if uptime_s() >= swept_s + _SWEEP_S:
                swept_s = uptime_s()
                self.store.free_idle()
                self._model_copy.expire()
        if self.is_sound:
            self.queue.flush(self._take_back, wait=True)

    def _gone(self) -> Iterator[tuple[PeerId, Incarnation | None]]:
        """Yield peers whose key was revoked, and incarnations whose process has ended."""
        for peer in self.transport.take_expelled():
            _log.warning("%s is no longer admitted: its key was revoked", peer)
            yield peer, None
        if self.look(lambda protocol: protocol.phase) >= Phase.TRAINING:
            for peer, incarnation in self.events.take_deaths():
                _log.warning("%s has died: its process has ended", peer)
                yield peer, incarnation

    def _take_leave_of(self, peer: PeerId, last: Incarnation | None) -> None:
        """Treat a peer that cannot send a LEAVE itself as having left, up to incarnation *last*."""
        known = self.look(lambda protocol: protocol.known())
        member = next((each for each in known if each.id == peer), None)
        if member is None or (last and member.incarnation > last):
            return
        if last is not None:
            self.events.mark_dead(peer)
        # A LEAVE in the peer's name is in the journal like any message, so that it is replayed.
        life = peer, member.incarnation
        farewell = self._envelope(life, self.protocol.account.life, Leave(gone=True))
        header = encode(farewell)[0]
        self._carry_out(self._decide("receive", header, envelope=farewell))

    def _take_back(self, envelope: Envelope) -> None:
        """Handle a message that the network has refused, or whose values are not finite."""
        if (failure := self.store.failure) is not None:
            self.store.failure = None
            self._fail(failure, ends=False)
        # Encode it without the frame, which a journal does not record.
        header = encode(replace(envelope, frame_bytes=0))[0]
        self._carry_out(self._decide("unsent", header, envelope=envelope))

    def _end(self, failure: BaseException) -> None:
        """Report a failure to the training thread, which would otherwise silently train alone."""
        self._fail(failure, ends=True)
        if not isinstance(failure, TrainingError):
            _log.error("the network thread failed", exc_info=failure)

    def _take_in(self, received: Received) -> None:
        self.counters.bytes_received += len(received.header)
        try:
            envelope, check = self._read(received)
            body = envelope.body
            own, life = self.protocol.account.life, (envelope.source, envelope.source_incarnation)
            if life[0] == own[0] and isinstance(body, Hello):
                self._meet_namesake(envelope, body, received)
            if isinstance(body, Inquire | Status | Fetch | Excerpt):
                if isinstance(body, Inquire) and self.desk is not None:
                    awaits = self._awaited if self._is_waiting else ()
                    self._reply(envelope, received, self.desk.answer(body, self.look, awaits))
                elif isinstance(body, Fetch) and envelope.shard < self.store.schema.shards:
                    self._show_model(envelope, body, received)
                elif isinstance(body, Excerpt) and self.reads == envelope.source:
                    frame = self.store.receive(None, envelope, check, received)
                    self.excerpts.put((envelope, body, frame))
                return
            if isinstance(body, Describe) and body.schema.hash == self.store.schema.hash:
                self._hear(PeerRefused(envelope.source, _AHEAD))
                return
            stage = self.look(lambda protocol: protocol.place_of(envelope))
            frame = self.store.receive(stage, envelope, check, received)
            effects = self._decide("receive", received.header, envelope=envelope)
        except RemoteProtocolError as error:
            self.counters.errors += 1
            _log.debug("dropped a message of %s: %s", error.sender or "a stranger", error)
            return
        self.counters.bytes_received += envelope.frame_bytes
        self.counters.note_received(envelope, len(received.header) + envelope.frame_bytes)
        if isinstance(body, Hello) and envelope.schema == self.store.schema.hash:
            # The clock of a refused peer with the same model is ahead: its own schema says so.
            if any(isinstance(effect, PeerRefused) for effect in effects):
                self._reply(envelope, received, Describe(self.store.schema))
        bulk = isinstance(body, BULK)
        self.transport.learn(envelope.source, received.route, bulk=bulk, place=received.place)
        self._carry_out(effects, frame)
        # A share wakes the training thread when it is complete and was inspected.
        if not isinstance(body, _IN_BETWEEN):
            self._ready.set()

    def _meet_namesake(self, envelope: Envelope, hello: Hello, received: Received) -> None:
        """Tell the process that started later that another one has its name."""
        life = envelope.source, envelope.source_incarnation
        refused = PeerRefused(envelope.source, _NAMESAKE)
        if life < self.protocol.account.life:
            if self.look(lambda protocol: protocol.phase) <= Phase.JOINING:
                self._hear(refused)
        elif life > self.protocol.account.life:
            self.events.tell(refused)
            if hello.reply:
                me = self.look(lambda protocol: protocol.table.me)
                self._reply(envelope, received, Hello(members=(me,), rooted=False, reply=False))

    def _read(self, received: Received) -> tuple[Envelope, int]:
        """Parse a message; return it with the checksum that its frame must have.

        The sender of a refused message is sent the reason if possible.
        """
        try:
            envelope, check = decode_header(received.header)
        except IncompatiblePeer as error:
            notice = [] if is_version_notice(received.header) else version_notice()
            self.transport.reject(received, str(error), notice)
            raise
        source = envelope.source
        if received.key and not self.transport.may_speak_as(received.key, source):
            raise RemoteProtocolError("it speaks in another's name", source)
        if isinstance(envelope.body, Stop) and (why := self._why_not(envelope, envelope.body)):
            body = self.look(
                lambda p: Stopping(why, p.state.weight, p.phase, p.table.step, p.done),
            )
            self._reply(envelope, received, body)
            raise RemoteProtocolError(f"a request to stop: {why}", source)
        return envelope, check

    def _why_not(self, envelope: Envelope, stop: Stop) -> str:
        """Return the reason to refuse a request to stop; empty if it is obeyed."""
        if not self.obeys_stops:
            return "it takes no requests to stop (remote_stop=False)"
        keyring = self.transport.keyring
        if keyring is None or is_stop_signed(keyring.roster.signs, envelope.swarm, stop):
            return ""
        return "its swarm has keys: only the roster's owner can stop it, who signs that"

    def _show_model(self, question: Envelope, fetch: Fetch, received: Received) -> None:
        phase = self.look(lambda protocol: protocol.phase)
        why = "" if phase.takes_shares else f"it is {phase.name.lower()}"
        body, frame = self._model_copy.answer(question, fetch, why)
        self._reply(question, received, body, frame)
        if self._model_copy.is_wanted:
            self._ready.set()  # wakes a training thread that waits for others

    def _reply(
        self, question: Envelope, received: Received, body: Body, frame: Buffer = b""
    ) -> None:
        """Answer outside the protocol, which stays unchanged and keeps no record."""
        asker = question.source, question.source_incarnation
        answer = self._envelope(self.protocol.account.life, asker, body)
        answer = replace(answer, shard=question.shard, frame_bytes=len(frame))
        parts = encode(answer, frame)
        if self.transport.answer(received, parts) or self.transport.send(
            question.source, parts, bulk=False
        ):
            self.counters.note_sent(answer, parts)

    def _envelope(
        self, source: tuple[PeerId, Incarnation], to: tuple[PeerId, Incarnation], body: Body
    ) -> Envelope:
        return Envelope(
            swarm=self.look(lambda protocol: protocol.swarm),
            schema=self.store.schema.hash,
            source=source[0],
            source_incarnation=source[1],
            destination=to[0],
            destination_incarnation=to[1],
            body=body,
        )
