"""One life of one peer of an in-process swarm: what driver and training loop do live.

Where a live peer sleeps, this one is due later; where a live peer's two threads take turns, its
events come one after another. All else is the same: the protocol, the vector, the bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from numpy.random import Generator

from ...gossip import PeerId, Phase, Protocol, RemoteProtocolError, TrainingError
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
    Wait,
)
from ...gossip.effects.events import Event, PeerRefused
from ...gossip.types import SnapshotId
from ...gossip.wire.codec import Buffer, decode, encode
from ...train.runtime.telling.counters import Counters
from ...train.storage.inputs import (
    Attached,
    Finish,
    Input,
    Inspected,
    Join,
    Leave,
    Measured,
    Receive,
    Step,
    Unsent,
    Wake,
)
from ...train.tensors.blocks import widened
from ...train.tensors.store import TensorStore
from ...train.tensors.vector import Flats, Vector, is_finite_tensor
from ..kernel.clock import Clock, Priority
from ..models.step_time import StepTime
from .learner import Learner
from .observers import PeerClosed, PeerFailed, PeerStarted, SwarmObserver
from .post import Post

__all__ = ["MachineSegments", "SwarmDriver", "SwarmPeer"]


class SwarmDriver:
    """Feeds one protocol, with values from a vector and messages from the post.

    Args:
        protocol: Decides.
        workbench: Holds the values.
        clock: Virtual time.
        post: Carries messages.
        observer: Notes what happens.
    """

    def __init__(
        self,
        protocol: Protocol,
        workbench: TensorStore,
        clock: Clock,
        post: Post,
        observer: SwarmObserver,
    ) -> None:
        self.protocol = protocol
        self.tally = Counters()
        self.refusal: PeerRefused | None = None
        """The last word of a member that this peer cannot be one of them."""
        self.is_over = False
        """Whether its rule has said that training is over."""
        self._workbench = workbench
        self._clock = clock
        self._post = post
        self._observer = observer
        self._halted = ""

    @property
    def id(self) -> PeerId:
        """The peer's name."""
        return self.protocol.account.id

    def call(self, event: Input) -> bool:
        """Let the protocol take in an event, and carry out what it asks for.

        Returns:
            Whether a synchronous rule has to wait.

        Raises:
            TrainingError: A value that was to be sent is not finite, or the rule cannot go on.
        """
        waits = self._carry_out(self._decide(event))
        if self._halted:
            # Said once: after it, the peer may still leave in good order.
            reason, self._halted = self._halted, ""
            raise TrainingError(reason)
        return waits

    def receive(self, parts: Sequence[Buffer]) -> None:
        """Take in a message as it came over the wire; one that breaks the protocol is counted.

        Raises:
            TrainingError: A value that was to be sent is not finite.
        """
        self.tally.bytes_received += sum(len(part) for part in parts)
        try:
            envelope = decode(parts)
            effects = self._decide(Receive(envelope, parts[0]))
        except RemoteProtocolError:
            self.tally.errors += 1
            return
        self._carry_out(effects, parts[1] if envelope.frame_bytes else b"")

    def _decide(self, event: Input) -> list[Effect | Event]:
        effects = event.feed(self.protocol, self._clock.now)
        self._observer.decided(self.protocol, type(event).__name__, effects)
        for effect in effects:
            self.tally.count(effect)
        return effects

    def _carry_out(self, effects: Sequence[Effect | Event], frame: Buffer = b"") -> bool:
        waits, unusable = False, None
        for effect in effects:
            match effect:
                case Send():
                    self._send(effect)
                case Greet(address, envelope):
                    self._post.greet(self.id, address, self._written(encode(envelope)))
                case Inspect(share):
                    finite = self._workbench.staging.is_finite(share)
                    self._carry_out(self._decide(Inspected(share, finite)))
                case Attach(share):
                    # No memory is shared here: each peer stands for a host of its own.
                    self._carry_out(self._decide(Attached(share, usable=False)))
                case Measure():
                    answer = Measured(*self._workbench.measured(effect))
                    waits = self._carry_out(self._decide(answer))
                case (
                    Snapshot() | Release() | Reclaim() | Stage() | Mix() | Combine() | Exchange()
                    | Drop()
                ):  # fmt: skip
                    try:
                        self._workbench.carry_out(effect, frame)
                    except TrainingError as error:
                        # What follows still has to happen: other peers wait for their answers.
                        unusable = error
                case Wait():
                    waits = True
                case Record() | Meet() | Part() | Dismiss():
                    pass
                case EndTraining():
                    self._observer.note(self.id, effect)
                    self.is_over = True
                case Halt(reason):
                    self._observer.note(self.id, effect)
                    self._halted = reason
                case _:
                    self._observer.note(self.id, effect)
                    if isinstance(effect, PeerRefused):
                        self.refusal = effect
        if unusable is not None:
            raise unusable
        return waits

    def _send(self, effect: Send) -> None:
        envelope, frame = effect.envelope, self._workbench.frame_of(effect)
        is_sent = False
        if frame is not None:
            # Copied, for a socket would not keep the snapshot for ever, either.
            parts = self._written(encode(envelope, bytes(frame)))
            is_sent = self._post.send(self.id, envelope.destination, parts)
        if not is_sent:
            self._carry_out(self._decide(Unsent(envelope)))

    def _written(self, parts: list[Buffer]) -> list[Buffer]:
        self._observer.sent(parts[0])
        self.tally.messages += 1
        self.tally.bytes_sent += sum(len(part) for part in parts)
        return parts


# What a live peer waits for in its loops, seconds.
_SEARCH_S: Final = 0.05
_NAP_S: Final = 0.5
_MERGING_S: Final = 0.005
_PACE_S_MAX: Final = 1.0
_LEAVING_S: Final = 0.05
_LEAVE_S: Final = 10.0

# One that is done still answers for so long what became of shares: over lossy links, the answer
# may have to be asked for more than once.
_LINGER_S: Final = 5.0


@dataclass(slots=True)
class _Segment:
    flats: Flats
    holders: list[Callable[[], bool]] = field(default_factory=list)
    """Say whether the process of a life that has exchanged with it runs still."""


class MachineSegments:
    """Segments of the one machine on which all peers of a swarm run."""

    def __init__(self) -> None:
        self._segments: dict[tuple[bytes, str], _Segment] = {}

    def held_while(self, is_running: Callable[[], bool]) -> "_HeldSegments":
        """The same, held by a process as long as it runs."""
        return _HeldSegments(self._segments, is_running)


class _HeldSegments:
    """What a live peer's `SharedSegments` are.

    Args:
        segments: Those of the machine.
        is_running: Whether the process that holds them runs.
    """

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


class SwarmPeer:
    """A process that trains, decides and mixes.

    Args:
        protocol: Decides.
        learner: Trains.
        vector: The learner's model, flat.
        pace: How long the steps of this one peer take.
        clock: Virtual time.
        post: Carries its messages.
        observer: Notes what happens.
        rounding: Makes the random numbers that a snapshot is rounded by.
        segments: Those of its machine.
    """

    def __init__(
        self,
        protocol: Protocol,
        learner: Learner,
        vector: Vector,
        pace: StepTime,
        clock: Clock,
        post: Post,
        observer: SwarmObserver,
        rounding: Callable[[SnapshotId], Generator],
        segments: MachineSegments,
    ) -> None:
        self.protocol = protocol
        self.learner = learner
        self.vector = vector
        self.running = True
        """Whether its process runs; paused, it still does."""
        self.end = ""
        """How its process ended, in words; empty while it runs."""
        self.slowness = 1.0
        """Times as long as its pace says that a step takes."""
        self.paused_until_s = 0.0
        shared = segments.held_while(lambda: self.running)
        store = TensorStore(vector, rounding, shared=shared)
        store.loss = learner.loss_on
        self._driver = SwarmDriver(protocol, store, clock, post, observer)
        self._pace = pace
        self._clock = clock
        self._observer = observer
        self._seeds: tuple[str, ...] = ()
        self._founders = 1
        self._last_step: int | None = None
        self._turn: Callable[[], None] = self._search
        self._turns = 0
        self._alert = False
        self._give_up_s = float("inf")
        self._alarm_s = float("inf")
        observer.opened(protocol.accounts)
        observer.note(self.id, PeerStarted(protocol.account.incarnation))

    @property
    def id(self) -> PeerId:
        """The peer's name."""
        return self.protocol.account.id

    @property
    def tally(self) -> Counters:
        """What it has done so far."""
        return self._driver.tally

    @property
    def is_member(self) -> bool:
        """Whether its model is one of the swarm's: it joined, and neither crashed nor left."""
        ended_well = self.running or self.protocol.done
        return ended_well and Phase.TRAINING <= self.protocol.phase <= Phase.QUIET

    @property
    def done(self) -> bool:
        """Whether nobody needs it any more, or its process has ended."""
        return not self.running or self.protocol.done

    def start(self, seeds: Sequence[str], founders: int) -> None:
        """Look for a swarm, or found one, and train from then on."""
        self._seeds, self._founders = tuple(seeds), founders
        self._due(0.0, self._search)

    def finish(self, last_step: int) -> None:
        """Take no more optimizer steps, once so many are taken, and merge with the others."""
        self._last_step = last_step
        # A step that has begun is not taken to its end, as live: the caller's loop is over.
        if self._turn == self._train and self.learner.steps >= last_step:
            self._due(0.0, self._go_on)

    def leave(self) -> None:
        """Leave the swarm: hand the weight on, and end."""
        if self.protocol.phase < Phase.LEAVING:
            self._due(0.0, self._leave)

    def crash(self) -> None:
        """End without a word."""
        self._end("crashed")
        self._observer.died(self.protocol.account)

    def arrive(self, parts: Sequence[Buffer]) -> None:
        """Take in a message, once this process is not paused."""
        self._when_awake(partial(self._take_in, parts), Priority.DELIVERY)

    def _search(self) -> None:
        """Look for a swarm until it belongs to one, as `rumor.train.Peer` does."""
        self._driver.call(Join(self._seeds, self._founders))
        self._driver.call(Step(trained=False))
        if self.protocol.phase >= Phase.TRAINING:
            self._go_on()
        elif (refusal := self._driver.refusal) is not None:
            reason = f"cannot join {refusal.peer}: {refusal.reason}"
            self._observer.note(self.id, PeerFailed(reason))
            self._end("failed")
        else:
            self._due(_SEARCH_S, self._search, alert=True)

    def _train(self) -> None:
        """Take an optimizer step, and then a turn."""
        self.learner.look(self.protocol)
        self.learner.step()
        if not self._is_finite():
            raise TrainingError(f"a parameter is not finite after step {self.learner.steps}")
        self._step(trained=True)

    def _retry(self) -> None:
        self._step(trained=False)

    def _step(self, *, trained: bool) -> None:
        """Take a turn; one that has to wait takes another as soon as something comes."""
        if self._driver.call(Step(trained, self.learner.samples if trained else None)):
            self._due(_NAP_S, self._retry, alert=True)
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Begin the next step, or finish, or go on merging."""
        if self.protocol.phase >= Phase.FINISHED:
            self._merge()
        elif self._driver.is_over or (
            self._last_step is not None and self.learner.steps >= self._last_step
        ):
            self._driver.call(Finish())
            self._merge()
        else:
            self._due(self._step_s(), self._train)

    def _merge(self) -> None:
        if self.protocol.done:
            self._due(_LINGER_S, self._close)
            return
        if self.protocol.merging:
            pace_s = _MERGING_S
        else:
            pace_s = min(max(self._step_s(), _MERGING_S), _PACE_S_MAX)
        self._due(pace_s, self._retry)

    def _step_s(self) -> float:
        return self._pace.step_s(0, self.learner.steps) * self.slowness

    def _leave(self) -> None:
        self._give_up_s = self._clock.now + _LEAVE_S
        self._due(_LEAVING_S, self._await_end)
        self._driver.call(Leave(burn=not self._is_finite()))

    def _await_end(self) -> None:
        if self.protocol.done:
            self._due(_LINGER_S, self._close)
        elif self._clock.now < self._give_up_s:
            self._due(_LEAVING_S, self._await_end)
        else:
            reason = f"nobody has taken its weight within {_LEAVE_S:g} s"
            self._observer.note(self.id, PeerFailed(reason))
            self._end("gave up leaving")
            self._observer.died(self.protocol.account)

    def _close(self) -> None:
        self._observer.note(self.id, PeerClosed())
        self._end("left" if self.protocol.phase is Phase.LEFT else "finished")

    def _end(self, how: str) -> None:
        self.running = False
        self.end = f"{how} at {self._clock.now:g} s"

    def _fail(self, error: TrainingError) -> None:
        """Leave, as a live peer does whose training loop ends with an error."""
        self._observer.note(self.id, PeerFailed(str(error)))
        if self.protocol.phase < Phase.LEAVING:
            self._due(0.0, self._leave)
        else:
            # What it would hand on turns out to be of no use.
            self._driver.call(Leave(burn=True))

    def _is_finite(self) -> bool:
        return all(is_finite_tensor(flat) for flat in self.vector.flats)

    def _due(self, delay_s: float, turn: Callable[[], None], *, alert: bool = False) -> None:
        """Say what the training loop does next.

        Args:
            delay_s: After how long, virtual seconds.
            turn: What. It replaces what was said before.
            alert: Whether it is done earlier where something comes.
        """
        self._turn, self._alert = turn, alert
        self._turns += 1
        # A turn that was replaced is ignored when its time comes, not searched for and removed.
        self._later(self._clock.now + delay_s, partial(self._take_turn, self._turns), Priority.TURN)

    def _take_turn(self, number: int) -> None:
        if number == self._turns:
            self._turn()

    def _later(self, time_s: float, action: Callable[[], None], priority: Priority) -> None:
        # What is overdue happens at once, when the clock next moves.
        due_s = max(time_s, self._clock.now)
        self._clock.at(due_s, priority, self._when_awake, action, priority)

    def _when_awake(self, action: Callable[[], None], priority: Priority) -> None:
        if not self.running:
            return
        if self._clock.now < self.paused_until_s:
            self._later(self.paused_until_s, action, priority)
            return
        try:
            action()
        except TrainingError as error:
            self._fail(error)
        self._set_alarm()

    def _set_alarm(self) -> None:
        due_s = self.protocol.deadline()
        if due_s < self._alarm_s:
            self._alarm_s = due_s
            self._later(due_s, self._wake, Priority.ALARM)

    def _wake(self) -> None:
        # The deadline may have moved on since; then the next alarm is for that.
        self._alarm_s = float("inf")
        if self.protocol.deadline() <= self._clock.now:
            self._driver.call(Wake())

    def _take_in(self, parts: Sequence[Buffer]) -> None:
        self._driver.receive(parts)
        if self._alert:
            self._due(0.0, self._turn)
