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
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from ...gossip import Envelope, Protocol, RemoteProtocolError, TrainingError, TransportError
from ...gossip.effects.effects import (
    Attach,
    Combine,
    Dismiss,
    Drop,
    Effect,
    Exchange,
    Greet,
    Halt,
    Inspect,
    Meet,
    Mix,
    Part,
    Reclaim,
    Record,
    Release,
    Send,
    Snapshot,
    Stage,
    Wait,
)
from ...gossip.effects.events import Event, PeerDied, PeerLeft, PeerMet
from ...gossip.errors import DecodeError
from ...gossip.transport.zmq_transport import Received, Transport
from ...gossip.types import ShareId, SnapshotId
from ...gossip.wire.codec import Buffer, checksum, decode_header, encode
from ...gossip.wire.messages import Chunk, End, Grant, Hello, Leave, Offer, Pending, Query
from ..clock import uptime_s
from ..storage.inputs import Attached, Input, Inspected, Receive, Step, Unsent, Wake
from ..storage.journal import Journal
from ..storage.ledger_file import LedgerFile
from ..tensors.staging import Staged
from ..tensors.store import TensorStore
from .counters import Counters

__all__ = ["PeerRuntime"]

_log = logging.getLogger("rumor")

# So long at most a thread sleeps: a bound on how late it sees that it shall stop.
_NAP_S: Final = 0.5

# Who waits for another peer says so as often.
_SAY_S: Final = 5.0

# An offer goes where its frames will go, and a question where the share went, so that neither
# overtakes the other.
_BULK: Final = (Offer, Chunk, End, Query)

# Below this, a snapshot takes no longer than two threads take to hand over to one another.
_EARLY_BYTES_MIN: Final = 16 << 20

_MEMBERSHIP: Final = (Hello, Leave)

_IN_BETWEEN: Final = (Offer, Chunk, End, Grant, Query, Pending)

_Job = Greet | Dismiss | Meet | Part | Send | Release
_Change = Snapshot | Reclaim | Stage | Mix | Combine | Exchange | Drop
_T = TypeVar("_T")


class PeerRuntime:
    """Runs one protocol over real sockets and a real vector.

    Args:
        protocol: Decides.
        transport: Sends and receives; it belongs to the network thread once `start` was called.
        store: Holds the values.
        ledger: Where changes of weight are written, None for nowhere.
        counters: Counts what happens.
        on_event: Called with every event, on either thread.
        journal: Where events are written, None for nowhere.
        mix_budget_s: How long a step may go on with mixing that was put off, seconds.
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
        mix_budget_s: float = 0.0,
    ) -> None:
        self.protocol = protocol
        self.counters = counters
        self.greeted: dict[str, bool] = {}
        """Addresses that were greeted, and whether a connection was there at the last try."""
        self._transport = transport
        self._store = store
        self._ledger = ledger
        self._on_event = on_event
        self._journal = journal
        self._mix_budget_s = mix_budget_s
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._jobs: deque[_Job] = deque()
        self._failure: BaseException | None = None
        self._has_ended = False
        self._awaited: tuple[str, ...] = ()
        self._thread = threading.Thread(target=self._run, name="rumor-network", daemon=True)

    def unresolved(self, address: str) -> str:
        """Why the name in an address that was greeted does not resolve; empty where it does."""
        return self._transport.unresolved(address)

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
        """Note a failure, on whichever thread; `_raise_failure` tells the training thread.

        Args:
            failure: What happened. The first one stays: what follows it is its consequence.
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
        self._store.close()

    def look(self, glance: Callable[[Protocol], _T]) -> _T:
        """Read something of the protocol, while no event changes it."""
        with self._lock:
            return glance(self.protocol)

    def call(self, event: Input) -> bool:
        """Let the protocol take in an event now, and carry out what it asks for.

        Args:
            event: What happens.

        Returns:
            Whether a synchronous rule has to wait.

        Raises:
            TrainingError: A value that was to be sent is not finite, or the rule cannot go on, or
                the ledger cannot be written, on whichever thread: see `require_sound`.
            TransportError: The network thread failed.
        """
        waits = self._carry_out(self._decide(event))
        if self._jobs:
            self._transport.wake()
        self._raise_failure()
        return waits

    def step(
        self, *, trained: bool, stop: threading.Event | None = None, samples: int | None = None
    ) -> None:
        """Take a turn; returns at once under an asynchronous rule.

        Args:
            trained: Whether an optimizer step was taken since the last turn.
            samples: How many samples that took, for rules that weigh steps by them.
            stop: When set, a synchronous rule's wait is given up.

        Raises:
            TrainingError: As for `call`.
            TransportError: Likewise.
        """
        waits = self.call(Step(trained, samples))
        self._store.advance(self._mix_budget_s)
        spoke_s = time.monotonic()
        while waits and not (stop is not None and stop.is_set()):
            self.wait_for_share(_NAP_S)
            waits = self.call(Step(trained=False))
            if time.monotonic() - spoke_s > _SAY_S:
                spoke_s = time.monotonic()
                _log.warning("waiting for %s", ", ".join(self._awaited) or "all founders")

    def settle(self) -> None:
        """Finish mixing what was put off."""
        self._store.settle()

    def measure_mixing(self) -> None:
        """Measure from now on how far from the model the shares are that are mixed into it."""
        self._store.measure_mixing()

    @property
    def mixing_distance(self) -> float | None:
        """How far the last share that was measured was from the model, relative to its norm."""
        return self._store.mixing_distance

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

    def _decide(self, event: Input) -> list[Effect | Event]:
        """One event, and its entries into journal and ledger, in the order in which events happen.

        Raises:
            TrainingError: As for `require_sound`.
            TransportError: Likewise.
            RemoteProtocolError: The event is a message that breaks the protocol.
        """
        with self._lock:
            self.require_sound()
            try:
                return self._decide_on_record(event, uptime_s())
            except TrainingError as failure:
                # The protocol has taken it in, and the disk has not. Whatever left from now on
                # could say something else than the ledger does.
                self._fail(failure, ends=True)
                raise

    def _decide_on_record(self, event: Input, now: float) -> list[Effect | Event]:
        if self._journal is not None:
            self._journal.take(event, now)
        effects = event.feed(self.protocol, now)
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
                    self._jobs.append(effect)
                case Inspect():
                    self._inspect(effect.share)
                case Attach():
                    usable = self._store.staging.attach(effect)
                    self._carry_out(self._decide(Attached(effect.share, usable)))
                case Wait(_, missing):
                    waits, self._awaited = True, missing
                case Halt(reason):
                    self._fail(TrainingError(reason), ends=False)
                case Record():
                    pass  # written when it was decided
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
        """
        large = {
            effect.snapshot
            for effect in effects
            if type(effect) is Send
            and type(effect.envelope.body) is Offer
            and effect.envelope.body.size_bytes >= _EARLY_BYTES_MIN
        }
        snapshots = [e for e in effects if type(e) is Snapshot and e.id in large] if large else []
        for snapshot in snapshots:
            self._store.expect(snapshot)
        early = {snapshot.id for snapshot in snapshots}
        if early:
            self._jobs.extend(e for e in effects if type(e) is Send and e.snapshot in early)
            self._transport.wake()
        return early

    def _inspect(self, share: ShareId) -> None:
        finite = self._store.is_sound(share, self.protocol.swarm)
        self._carry_out(self._decide(Inspected(share, finite)))
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
        while self.is_sound and not self._stopping.is_set():
            due_s = self.look(lambda protocol: protocol.deadline())
            self._flush()
            rest_s = max(0.0, due_s - uptime_s())
            for received in self._transport.poll(min(rest_s, _NAP_S)):
                self._take_in(received)
                self._flush()
            if uptime_s() >= due_s:
                self._carry_out(self._decide(Wake()))
        if self.is_sound:
            self._flush()

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
            envelope, check = decode_header(received.header)
            frame = self._receive_frame(envelope, check, received)
            effects = self._decide(Receive(envelope, received.header))
        except RemoteProtocolError as error:
            self.counters.errors += 1
            _log.debug("dropped a message of %s: %s", error.sender or "a stranger", error)
            return
        self.counters.bytes_received += envelope.frame_bytes
        bulk = isinstance(envelope.body, _BULK)
        self._transport.learn(envelope.source, received.route, bulk=bulk)
        self._carry_out(effects, frame)
        # Who waits has no use for a share before it is whole; `_inspect` says when it is.
        if not isinstance(envelope.body, _IN_BETWEEN):
            self._ready.set()

    def _receive_frame(self, envelope: Envelope, check: int, received: Received) -> Buffer:
        """Take in the frame beside a message: where it belongs, if that is known by now.

        Returns:
            The frame, or nothing where it lies in its place.

        Raises:
            DecodeError: It is damaged, or not what the header says.
        """
        stage = self.look(lambda protocol: protocol.place_of(envelope))
        if stage is None:
            frame = received.frame()
            _require_whole(envelope, len(frame), checksum(frame) == check, received)
            return frame
        try:
            with self._store.staging.landing(stage, envelope.frame_bytes) as room:
                size = received.frame_into(room) if received.more else 0
                _require_whole(envelope, size, checksum(room) == check, received)
        except TrainingError as error:
            raise DecodeError(f"a share that cannot be read here: {error}") from error
        return b""

    def _flush(self) -> None:
        """Hand what is queued to the sockets; what they refuse goes back to the protocol."""
        while self._jobs:
            match self._jobs.popleft():
                case Greet(address, envelope):
                    self.greeted[address] = self._greet(address, envelope)
                case Dismiss(address):
                    self._transport.dismiss(address)
                case Meet(peer, addresses):
                    self._transport.meet(peer, addresses)
                case Part(peer):
                    self._transport.part(peer)
                case Send() as effect:
                    self._send(effect)
                case effect:
                    self._store.carry_out(effect)

    def _greet(self, address: str, envelope: Envelope) -> bool:
        parts = encode(envelope)
        self._count_sent(envelope, parts)
        return self._transport.greet(address, parts)

    def _send(self, effect: Send) -> None:
        frame, envelope = self._store.frame_of(effect), effect.envelope
        if frame is not None:
            if effect.shown and effect.snapshot is not None and isinstance(envelope.body, Offer):
                # Where the snapshot lies, only the store knows. Unnamed, it will be sent.
                segment = self._store.segment_of(effect.snapshot)
                envelope = replace(envelope, body=replace(envelope.body, segment=segment))
            parts = encode(envelope, frame)
            bulk = isinstance(envelope.body, _BULK)
            if self._transport.send(envelope.destination, parts, bulk=bulk):
                self._count_sent(envelope, parts)
                return
        self._carry_out(self._decide(Unsent(effect.envelope)))

    def _count_sent(self, envelope: Envelope, parts: Sequence[Buffer]) -> None:
        size = sum(len(part) for part in parts)
        self.counters.messages += 1
        self.counters.frames += len(parts) > 1
        self.counters.bytes_sent += size
        if isinstance(envelope.body, _MEMBERSHIP):
            self.counters.membership_bytes += size


def _require_whole(envelope: Envelope, size: int, undamaged: bool, received: Received) -> None:
    if size != envelope.frame_bytes or received.more:
        raise DecodeError("the frame is not as long as the header says", envelope.source)
    if not undamaged:
        raise DecodeError("the frame was damaged", envelope.source)
