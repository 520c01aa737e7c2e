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
from typing import Final, TypeVar

from ..gossip import Envelope, Protocol, RemoteProtocolError, TrainingError, TransportError
from ..gossip.codec import Buffer, decode, encode
from ..gossip.effects import Effect, Greet, Halt, Inspect, Meet, Part, Record, Send, ShareId, Wait
from ..gossip.messages import Chunk, End, Push, Query
from ..gossip.transport import Received, Transport
from .inputs import Input, Inspected, Receive, Step, Unsent, Wake
from .journal import Journal
from .ledger_file import LedgerFile
from .tally import Tally
from .workbench import Workbench

__all__ = ["Driver"]

_log = logging.getLogger("rumor")

# So long at most a thread sleeps: a bound on how late it sees that it shall stop.
_NAP_S: Final = 0.5

# Who waits for another peer says so as often.
_SAY_S: Final = 5.0

# A question goes where the share went, so that it cannot overtake it.
_BULK: Final = (Push, Chunk, End, Query)

_Job = Greet | Meet | Part | tuple[Envelope, Buffer]
_T = TypeVar("_T")


class Driver:
    """Runs one protocol over real sockets and a real vector.

    Args:
        protocol: Decides.
        transport: Sends and receives; it belongs to the network thread once `start` was called.
        workbench: Holds the values.
        ledger: Where changes of weight are written, None for nowhere.
        tally: Counts what happens.
        on_event: Called with every effect that says what happened, on either thread.
        journal: Where events are written, None for nowhere.
    """

    def __init__(
        self,
        protocol: Protocol,
        transport: Transport,
        workbench: Workbench,
        ledger: LedgerFile | None,
        tally: Tally,
        on_event: Callable[[Effect], None],
        journal: Journal | None = None,
    ) -> None:
        self.protocol = protocol
        self.tally = tally
        self.greeted: dict[str, bool] = {}
        """Addresses that were greeted, and whether a connection was there at the last try."""
        self._transport = transport
        self._workbench = workbench
        self._ledger = ledger
        self._on_event = on_event
        self._journal = journal
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._jobs: deque[_Job] = deque()
        self._failure: BaseException | None = None
        self._halted = ""
        self._awaited: tuple[str, ...] = ()
        self._thread = threading.Thread(target=self._run, name="rumor-network", daemon=True)

    def start(self) -> None:
        """Start the network thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the network thread; sockets and ledger are closed when this returns."""
        self._stopping.set()
        self._transport.wake()
        self._thread.join()

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
            TrainingError: A value that was to be sent is not finite, or the rule cannot go on.
        """
        if self._failure is not None:
            raise TransportError(f"the network thread failed: {self._failure}") from self._failure
        waits = self._carry_out(self._decide(event))
        if self._jobs:
            self._transport.wake()
        if self._halted:
            # Said once: after it, the peer may still leave in good order.
            reason, self._halted = self._halted, ""
            raise TrainingError(reason)
        return waits

    def step(self, *, trained: bool, stop: threading.Event | None = None) -> None:
        """Take a turn; returns at once under an asynchronous rule.

        Args:
            trained: Whether an optimizer step was taken since the last turn.
            stop: When set, a synchronous rule's wait is given up.

        Raises:
            TrainingError: A value that was to be sent is not finite, or the rule cannot go on.
        """
        waits = self.call(Step(trained))
        spoke_s = time.monotonic()
        while waits and not (stop is not None and stop.is_set()):
            self.wait_for_share(_NAP_S)
            waits = self.call(Step(trained=False))
            if time.monotonic() - spoke_s > _SAY_S:
                spoke_s = time.monotonic()
                _log.warning("waiting for %s", ", ".join(self._awaited) or "all founders")

    def wait_for_share(self, timeout_s: float) -> None:
        """Sleep until something has come since this was last called, or for so many seconds."""
        self._ready.wait(timeout_s)
        self._ready.clear()

    def _decide(self, event: Input) -> list[Effect]:
        """One event, and its entries into the ledger, in the order in which events happen."""
        with self._lock:
            now = time.monotonic()
            if self._journal is None:
                effects = event.feed(self.protocol, now)
            else:
                effects = self._decide_on_record(event, now, self._journal)
            for effect in effects:
                self.tally.count(effect)
                if isinstance(effect, Record) and self._ledger is not None:
                    self._ledger.write(effect.entry)
        return effects

    def _decide_on_record(self, event: Input, now: float, journal: Journal) -> list[Effect]:
        journal.take(event, now)
        effects = event.feed(self.protocol, now)
        journal.decided(effects, self.protocol.account.weight)
        return effects

    def _carry_out(self, effects: Sequence[Effect], frame: Buffer = b"") -> bool:
        waits, unusable = False, None
        for effect in effects:
            match effect:
                case Greet() | Meet() | Part():
                    self._jobs.append(effect)
                case Send():
                    self._queue(effect)
                case Inspect():
                    self._inspect(effect.share)
                case Wait(_, missing):
                    waits, self._awaited = True, missing
                case Halt(reason):
                    self._halted = reason
                case Record():
                    pass
                case _:
                    try:
                        if not self._workbench.carry_out(effect, frame):
                            self._on_event(effect)
                    except TrainingError as error:
                        # What follows still has to happen: other peers wait for their answers.
                        unusable = error
        if unusable is not None:
            raise unusable
        return waits

    def _inspect(self, share: ShareId) -> None:
        finite = self._workbench.is_finite(share)
        self._carry_out(self._decide(Inspected(share, finite)))
        self._ready.set()

    def _queue(self, effect: Send) -> None:
        frame = self._workbench.frame_of(effect)
        if frame is None:
            self._carry_out(self._decide(Unsent(effect.envelope)))
        else:
            self._jobs.append((effect.envelope, frame))

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                with self._lock:
                    due_s = self.protocol.deadline() - time.monotonic()
                self._flush()
                for received in self._transport.poll(min(max(due_s, 0.0), _NAP_S)):
                    self._take_in(received)
                    self._flush()
                self._carry_out(self._decide(Wake()))
            self._flush()
        except BaseException as failure:
            # The training thread must hear of it, or it would train on alone without a word.
            self._failure = failure
            _log.exception("the network thread failed")
        finally:
            self._transport.close()
            if self._ledger is not None:
                self._ledger.close()

    def _take_in(self, received: Received) -> None:
        self.tally.bytes_received += sum(len(part) for part in received.parts)
        try:
            envelope = decode(received.parts)
            effects = self._decide(Receive(envelope, received.parts[0]))
        except RemoteProtocolError as error:
            self.tally.errors += 1
            _log.debug("dropped a message of %s: %s", error.sender or "a stranger", error)
            return
        bulk = isinstance(envelope.body, _BULK)
        self._transport.learn(envelope.source, received.route, bulk=bulk)
        self._carry_out(effects, received.parts[1] if envelope.frame_bytes else b"")
        self._ready.set()

    def _flush(self) -> None:
        """Hand what is queued to the sockets; what they refuse goes back to the protocol."""
        while self._jobs:
            match self._jobs.popleft():
                case Greet(address, envelope):
                    self.greeted[address] = self._greet(address, envelope)
                case Meet(peer, addresses):
                    self._transport.meet(peer, addresses)
                case Part(peer):
                    self._transport.part(peer)
                case (envelope, frame):
                    self._send(envelope, frame)

    def _greet(self, address: str, envelope: Envelope) -> bool:
        parts = encode(envelope)
        self._count_sent(parts)
        return self._transport.greet(address, parts)

    def _send(self, envelope: Envelope, frame: Buffer) -> None:
        parts = encode(envelope, frame)
        bulk = isinstance(envelope.body, _BULK)
        if self._transport.send(envelope.destination, parts, bulk=bulk):
            self._count_sent(parts)
        else:
            self._carry_out(self._decide(Unsent(envelope)))

    def _count_sent(self, parts: Sequence[Buffer]) -> None:
        self.tally.messages += 1
        self.tally.bytes_sent += sum(len(part) for part in parts)
