"""Carries out what a protocol decides: values on the vector, messages on a thread of its own.

The training thread takes turns, the network thread receives and keeps time; a lock makes the
protocol see one event after another. It is held while the protocol decides and the ledger is
written, never while values are copied, so that training and network do not wait for one another.

Where a journal is kept, each event stands in it before the protocol sees it, in the order in
which the protocol does.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from ...gossip import TrainingError, TransportError
from ...gossip.effects.effects import (
    Attach,
    Combine,
    Dismiss,
    Drop,
    Effect,
    EndTraining,
    Exchange,
    Greet,
    Halt,
    Inspect,
    Measure,
    Meet,
    Mix,
    Part,
    Reclaim,
    Record,
    Release,
    Send,
    Snapshot,
    Stage,
    TakeSketch,
    Wait,
)
from ...gossip.effects.events import Event, PeerDied, PeerLeft, PeerMet, PeerRefused
from ...gossip.errors import RemoteProtocolError
from ...gossip.protocol.leave import STOPPED
from ...gossip.protocol.protocol import Protocol
from ...gossip.transport.zmq_transport import Received, Transport
from ...gossip.types import Incarnation, PeerId, ShareId, SnapshotId
from ...gossip.wire.codec import Buffer, encode
from ...gossip.wire.messages import (
    Chunk,
    Describe,
    Envelope,
    Grant,
    Hello,
    Leave,
    Offer,
    Pending,
    Phase,
    Query,
)
from ..storage.environment import uptime_s
from ..storage.inputs import Call
from ..storage.journal import Journal
from ..storage.ledger_file import LedgerFile
from ..tensors.staging import Staged
from ..tensors.store import TensorStore
from .reception import Reception
from .send_queue import BULK, SendQueue
from .telling.counters import Counters
from .telling.deaths import DeathNotices
from .telling.status import QUESTIONS, StatusDesk

__all__ = ["NETWORK_THREAD", "PeerRuntime"]

NETWORK_THREAD: Final = "rumor-network"
"""What its thread is called."""

_log = logging.getLogger("rumor")

# Upper bound on a sleep, so that shutdown is noticed in time.
_NAP_S: Final = 0.5
# How often a snapshot is looked for that is on its way from a device.
_DEVICE_POLL_S: Final = 0.001
# Between two looks at memory that nobody uses.
_SWEEP_S: Final = 1.0
# Between two log lines of who is waited for.
_SAY_S: Final = 5.0
# Below this, a snapshot takes no longer than two threads take to hand over to one another.
_EARLY_BYTES_MIN: Final = 16 << 20

_AHEAD: Final = (
    "the clock of this machine is far ahead of that peer's clock: set both by the same time"
)

_IN_BETWEEN: Final = (Offer, Chunk, Grant, Query, Pending)

_Change = Snapshot | Reclaim | Stage | Mix | Combine | Exchange | Drop
_T = TypeVar("_T")


class PeerRuntime:
    """Runs one protocol over real sockets and a real vector.

    Args:
        transport: Sends and receives; it belongs to the network thread once `start` was called.
        ledger: Where changes of weight are written, None for nowhere.
        on_event: Called with every event, on either thread.
        journal: Where events are written, None for nowhere.
        desk: Answers observers; None not to.
        obeys_stops: Whether it stops where somebody asks for that over the network.
        deaths: Who has ended without a word, as a launcher has seen.
    """

    def __init__(
        self,
        protocol: Protocol,
        transport: Transport,
        store: TensorStore,
        ledger: LedgerFile | None,
        counters: Counters,
        on_event: Callable[[Event], None],
        journal: Journal | None = None,
        desk: StatusDesk | None = None,
        *,
        obeys_stops: bool = True,
        deaths: DeathNotices | None = None,
    ) -> None:
        self.protocol = protocol
        self.counters = counters
        self.ended_by = ""
        """Who has ended this peer's training, where its rule lets others do so; else empty."""
        self._transport = transport
        self._store = store
        self._ledger = ledger
        self._on_event = on_event
        self._journal = journal
        self._desk = desk
        self._deaths = deaths or DeathNotices(None)
        self._lock = threading.Lock()
        # Held by the network thread from an event until all is carried out that it led to.
        self._carrying = threading.Lock()
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._queue = SendQueue(transport, store, counters)
        self._reception = Reception(transport, store, obeys=obeys_stops)
        self._failure: BaseException | None = None
        self._has_ended = False
        self._is_full: bool | None = None
        self._awaited: tuple[str, ...] = ()
        self._later: list[Call] = []
        self._is_waiting = False
        self._thread = threading.Thread(target=self._run, name=NETWORK_THREAD, daemon=True)

    @property
    def greeted(self) -> Mapping[str, bool]:
        """Addresses that were greeted, and whether a connection was there at the last try."""
        return self._queue.greeted

    def unresolved(self, address: str) -> str:
        """Why the name in an address that was greeted does not resolve; empty where it does."""
        return self._transport.unresolved(address)

    def refusal(self, address: str) -> str:
        """Why the last handshake with whoever listens at an address failed; empty without one."""
        return self._transport.refusal(address)

    def start(self) -> None:
        """Start the network thread."""
        self._thread.start()

    @property
    def is_sound(self) -> bool:
        """Whether nothing has failed that ends this session, as a crash would."""
        return not self._has_ended

    def require_sound(self) -> None:
        """Make sure that this session can go on.

        Raises:
            TrainingError: Ledger or journal cannot be written; it says which.
            TransportError: The network thread failed.
        """
        if self._has_ended:
            self._raise_failure()

    def _fail(self, failure: BaseException, *, ends: bool) -> None:
        """Note a failure, on whichever thread; `_raise_failure` tells the training thread of it,
        and of none that follows from it.

        Args:
            ends: Whether this session ends with it, as by a crash. Otherwise it is said once, and
                the peer may still leave in good order.
        """
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

    def stop(self) -> None:
        """Stop the network thread; sockets and ledger are closed when this returns."""
        self._stopping.set()
        self._transport.wake()
        self._thread.join()
        if self._failure is not None:
            # Its traceback has the frames of whoever called, and these keep all that the peer has.
            self._failure = _without_frames(self._failure)
        self._store.close()

    def look(self, glance: Callable[[Protocol], _T]) -> _T:
        """Read something of the protocol, while no event changes it."""
        with self._lock:
            return glance(self.protocol)

    def call(self, call: Call) -> bool:
        """Call the protocol now, and carry out what it asks for; returns whether a synchronous rule
        has to wait.

        Raises:
            TrainingError: A value that was to be sent is not finite, or the rule cannot go on, or
                the ledger cannot be written, on whichever thread: see `require_sound`.
            TransportError: The network thread failed.
        """
        waits = self._carry_out(self._decide(call))
        if self._queue:
            self._transport.wake()
        self._raise_failure()
        return waits

    def later(self, call: Call) -> None:
        """Let the network thread make a call; on any thread."""
        self._later.append(call)
        self._transport.wake()

    def step(
        self,
        *,
        trained: bool,
        stop: threading.Event | None = None,
        samples: int | None = None,
        lr: float | None = None,
    ) -> None:
        """Take a turn; returns at once under an asynchronous rule.

        Args:
            trained: Whether an optimizer step was taken since the last turn.
            samples: How many samples that took, for rules that weigh steps by them.
            lr: Its learning rate, for rules that look at it.
            stop: When set, a synchronous rule's wait is given up.

        Raises:
            TrainingError, TransportError: As for `call`.
        """
        self._store.follow()
        self._is_waiting = self.call(
            # numpy's and torch's numbers become Python's.
            Call(
                "step",
                {
                    "trained": trained,
                    "samples": None if samples is None else int(samples),
                    "lr": None if lr is None else float(lr),
                },
            )
        )
        spoke_s = time.monotonic()
        stop = stop or threading.Event()
        while self._is_waiting and not stop.is_set() and self.ended_by != STOPPED:
            self.wait_for_share(_NAP_S)
            self._is_waiting = self.call(Call("step", {"trained": False}))
            if time.monotonic() - spoke_s > _SAY_S:
                spoke_s = time.monotonic()
                _log.warning("waiting for %s", ", ".join(self._awaited) or "all founders")

    def settle_network(self) -> None:
        """Return when the network thread has carried out what it decided before this was called.

        Where it was the one to found a swarm, the values that the rule starts from are among it.
        """
        with self._carrying:
            pass

    def take_staged(self, share: ShareId) -> Staged | None:
        """Take out a share that is shown, to read it; None where it was dropped. Give it back."""
        return self._store.staging.pop(share)

    def give_back(self, staged: Staged) -> None:
        """Let the memory of what was taken out be used again."""
        self._store.staging.give_back(staged)

    def wait_for_share(self, timeout_s: float) -> None:
        """Sleep until something has come since this was last called, or for so many seconds."""
        self._ready.wait(timeout_s)
        self._ready.clear()

    def _decide(self, call: Call) -> list[Effect | Event]:
        """Make one call, and its entries in journal and ledger, in the order in which calls happen.

        Raises:
            TrainingError, TransportError: As for `require_sound`.
            RemoteProtocolError: A message breaks the protocol.
        """
        with self._lock:
            self.require_sound()
            try:
                if _may_fill_memory(call):
                    self._note_memory()
                return self._decide_on_record(call, uptime_s())
            except TrainingError as failure:
                # The protocol has taken it in, and the disk has not. Whatever left from now on
                # could say something else than the ledger does.
                self._fail(failure, ends=True)
                raise

    def _note_memory(self) -> None:
        """Tell the protocol whether there is memory for another share, where that has changed."""
        if not self._store.is_bounded:
            return
        is_full = self._store.lacks_room(*self.protocol.in_memory())
        if is_full is not self._is_full:
            self._is_full = is_full
            self._decide_on_record(Call("filled", {"is_full": is_full}), uptime_s())

    def _decide_on_record(self, call: Call, now: float) -> list[Effect | Event]:
        if self._journal is not None:
            self._journal.called(call, now)
        effects = call.make(self.protocol, now)
        if self._journal is not None:
            self._journal.decided(effects, self.protocol.weight)
        for effect in effects:
            self.counters.count(effect)
            if isinstance(effect, Record) and self._ledger is not None:
                self._ledger.write(effect.entry)
        return effects

    def _carry_out(self, effects: Sequence[Effect | Event], frame: Buffer = b"") -> bool:
        early = self._begin_sending(effects)
        try:
            return self._carry_out_in_order(effects, frame, early)
        finally:
            for snapshot in early:
                self._store.cancel(snapshot)

    def _carry_out_in_order(
        self, effects: Sequence[Effect | Event], frame: Buffer, early: set[SnapshotId]
    ) -> bool:
        waits = False
        for effect in effects:
            match effect:
                case Send() if effect.snapshot in early:
                    pass
                case Greet() | Dismiss() | Meet() | Part() | Send() | Release():
                    # A snapshot may still be on its way from a device: training does not wait
                    # for it, and what is cut from it goes out before it is let go.
                    self._queue.add((effect,))
                case Inspect():
                    self._inspect(effect.share)
                case Attach():
                    usable = self._store.staging.attach(effect)
                    answer = Call("attached", {"share": effect.share, "usable": usable})
                    self._carry_out(self._decide(answer))
                case Measure():
                    # The rule's answer to what was measured stands for that of the whole turn.
                    answer = Call("measured", {"distances": dict(self._store.measured(effect))})
                    waits = self._carry_out(self._decide(answer))
                case TakeSketch():
                    answer = Call("sketched", {"sketch": self._store.sketch()})
                    waits = self._carry_out(self._decide(answer))
                case Wait(_, missing):
                    waits, self._awaited = True, missing
                case EndTraining(by):
                    self.ended_by = by
                # Whoever waits for others that were told to stop, too, is not held up by their end.
                case Halt(reason) if self.ended_by != STOPPED:
                    self._fail(TrainingError(reason), ends=False)
                case Record() | Halt():
                    pass  # what is recorded was written when it was decided
                case _:
                    self._change_or_tell(effect, frame)
        return waits

    def _change_or_tell(self, effect: _Change | Event, frame: Buffer) -> None:
        """Carry out what may fail by itself: what follows it must happen, others wait for it."""
        try:
            if isinstance(effect, _Change):
                self._store.carry_out(effect, frame)
                return
            if isinstance(effect, PeerDied | PeerLeft):
                self._store.forget_gone()
            elif isinstance(effect, PeerMet):
                self._store.met()
            self._on_event(effect)
        except TrainingError as error:
            if threading.current_thread() is self._thread:
                # The network goes on whatever the values are.
                _log.warning("%s", error)
            else:
                self._fail(error, ends=False)

    def _begin_sending(self, effects: Sequence[Effect | Event]) -> set[SnapshotId]:
        """Queue what is cut from large snapshots before they are taken.

        Then the network thread sends the first frames while the last ones are still being copied.
        One that a neighbor reads where it lies is whole before its offer leaves.
        """
        large = {
            effect.snapshot
            for effect in effects
            if type(effect) is Send
            and not effect.shown
            and type(effect.envelope.body) is Offer
            and effect.envelope.body.size_bytes >= _EARLY_BYTES_MIN
        }
        snapshots = [e for e in effects if type(e) is Snapshot and e.id in large] if large else []
        for snapshot in snapshots:
            self._store.expect(snapshot)
        early = {snapshot.id for snapshot in snapshots}
        if early:
            self._queue.add(e for e in effects if type(e) is Send and e.snapshot in early)
            self._transport.wake()
        return early

    def _inspect(self, share: ShareId) -> None:
        finite = self._store.is_sound(share, self.protocol.swarm)
        if finite:
            self._store.staging.bring(share)
        self._carry_out(self._decide(Call("inspected", {"share": share, "finite": finite})))
        self._ready.set()

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as failure:
            self._end(failure)
        self._ready.set()
        try:
            self._close_all()
        except BaseException as failure:
            self._end(failure)

    def _serve(self) -> None:
        swept_s = uptime_s()
        while self.is_sound and not self._stopping.is_set():
            due_s = self.look(lambda protocol: protocol.deadline())
            self._queue.flush(self._take_back)
            rest_s = max(0.0, due_s - uptime_s())
            nap_s = _DEVICE_POLL_S if self._queue else _NAP_S
            for received in self._transport.poll(min(rest_s, nap_s)):
                with self._carrying:
                    self._take_in(received)
                self._queue.flush(self._take_back)
            for peer in self._transport.take_expelled():
                _log.warning("%s is let in no more: its key was revoked", peer)
                with self._carrying:
                    self._take_leave_of(peer)
            if self.look(lambda protocol: protocol.phase) >= Phase.TRAINING:
                for peer, incarnation in self._deaths.take():
                    _log.warning("%s has died: its process has ended", peer)
                    with self._carrying:
                        self._take_leave_of(peer, incarnation)
            if uptime_s() >= due_s:
                with self._carrying:
                    self._carry_out(self._decide(Call("wake")))
            while self._later:
                with self._carrying:
                    self._carry_out(self._decide(self._later.pop(0)))
            if uptime_s() >= swept_s + _SWEEP_S:
                swept_s = uptime_s()
                self._store.free_idle()
        if self.is_sound:
            self._queue.flush(self._take_back, wait=True)

    def _take_leave_of(self, peer: PeerId, last: Incarnation | None = None) -> None:
        """Treat a peer that died, or whose key was revoked, as if it had left: it is no push target
        any more, and shares that it had not accepted are settled as for any peer that has left. If
        its *last* incarnation is given, a later one is left alone."""
        farewell = self.look(lambda protocol: self._farewell_of(protocol, peer))
        if farewell is None or (last and farewell.source_incarnation > last):
            return
        header = encode(farewell)[0]
        self._carry_out(self._decide(Call("receive", {"envelope": farewell}, header)))

    def _farewell_of(self, protocol: Protocol, peer: PeerId) -> Envelope | None:
        """The last word of a peer that may not say it itself any more: a LEAVE in its name, so that
        a journal has it like any message; None where the peer is not known."""
        member = next((each for each in protocol.known() if each.id == peer), None)
        if member is None:
            return None
        return Envelope(
            swarm=protocol.swarm,
            schema=self._store.schema.hash,
            source=peer,
            source_incarnation=member.incarnation,
            destination=protocol.account.id,
            destination_incarnation=protocol.account.incarnation,
            body=Leave(gone=True),
        )

    def _take_back(self, envelope: Envelope) -> None:
        """Hear of a message that the network has refused."""
        # Only what it says is of use: there is no frame in a journal.
        header = encode(replace(envelope, frame_bytes=0))[0]
        self._carry_out(self._decide(Call("unsent", {"envelope": envelope}, header)))

    def _end(self, failure: BaseException) -> None:
        """Let the training thread hear of it, or it would train on alone without a word."""
        self._fail(failure, ends=True)
        if not isinstance(failure, TrainingError):
            _log.error("the network thread failed", exc_info=failure)

    def _close_all(self) -> None:
        try:
            self._transport.close()
        finally:
            if self._ledger is not None:
                self._ledger.close()

    def _take_in(self, received: Received) -> None:
        self.counters.bytes_received += len(received.header)
        try:
            envelope, check = self._reception.read(received, self.look)
            if isinstance(envelope.body, QUESTIONS):
                self._answer(envelope, received)
                return
            body = envelope.body
            if isinstance(body, Describe) and body.schema.hash == self._store.schema.hash:
                self._on_event(PeerRefused(envelope.source, _AHEAD))
                return
            stage = self.look(lambda protocol: protocol.place_of(envelope))
            frame = self._store.staging.receive(stage, envelope, check, received)
            effects = self._decide(Call("receive", {"envelope": envelope}, received.header))
        except RemoteProtocolError as error:
            self.counters.errors += 1
            _log.debug("dropped a message of %s: %s", error.sender or "a stranger", error)
            return
        self.counters.bytes_received += envelope.frame_bytes
        self._note_heard(envelope, len(received.header) + envelope.frame_bytes)
        is_alike = envelope.schema == self._store.schema.hash
        if is_alike and isinstance(envelope.body, Hello):
            if any(isinstance(effect, PeerRefused) for effect in effects):
                self._describe(envelope, received)
        bulk = isinstance(envelope.body, BULK)
        self._transport.learn(envelope.source, received.route, bulk=bulk, place=received.place)
        self._carry_out(effects, frame)
        # Who waits has no use for a share before it is whole; `_inspect` says when it is.
        if not isinstance(envelope.body, _IN_BETWEEN):
            self._ready.set()

    def _describe(self, envelope: Envelope, received: Received) -> None:
        """Answer a peer whose incarnation cannot be yet, for its clock is ahead, with what it has
        itself, this peer's schema: by that it knows. No input of the protocol, and no trace."""
        source, incarnation = self.protocol.account.life
        answer = Envelope(
            swarm=self.look(lambda protocol: protocol.swarm),
            schema=self._store.schema.hash,
            source=source,
            source_incarnation=incarnation,
            destination=envelope.source,
            destination_incarnation=envelope.source_incarnation,
            body=Describe(self._store.schema),
        )
        if self._transport.answer(received, parts := encode(answer)):
            self._queue.count_sent(answer, parts)

    def _note_heard(self, envelope: Envelope, size_bytes: int) -> None:
        link, body = self.counters.link(envelope.source), envelope.body
        link.heard_s = time.monotonic()
        link.bytes_received += size_bytes
        link.frames_received += envelope.frame_bytes > 0
        if isinstance(body, Hello) and not body.reply:
            link.answered()

    def _answer(self, envelope: Envelope, received: Received) -> None:
        """Tell somebody who asks how this peer is doing: no input of the protocol, and no trace."""
        if self._desk is None:
            return
        awaits = self._awaited if self._is_waiting else ()
        answer = self._desk.answer(envelope, self.look, awaits)
        if answer is not None and self._transport.answer(received, parts := encode(answer)):
            self._queue.count_sent(answer, parts)


def _may_fill_memory(call: Call) -> bool:
    # A frame belongs to a share that counts since it was let in.
    if call.method == "receive":
        return type(call.arguments["envelope"].body) is not Chunk
    return call.method in ("step", "trained_shard", "wake")


def _without_frames(failure: BaseException) -> BaseException:
    kind = TrainingError if isinstance(failure, TrainingError) else TransportError
    return kind(str(failure))
