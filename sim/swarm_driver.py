"""Carries out what one protocol of an in-process swarm decides; as `rumor.train`'s driver, live."""

from collections.abc import Sequence

from ..gossip import PeerId, Protocol, RemoteProtocolError, TrainingError
from ..gossip.codec import Buffer, decode, encode
from ..gossip.effects import (
    Attach,
    Combine,
    Dismiss,
    Drop,
    Effect,
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
from ..gossip.events import Event, PeerRefused
from ..train.inputs import Attached, Input, Inspected, Receive, Unsent
from ..train.tally import Tally
from ..train.workbench import Workbench
from .swarm_clock import Clock
from .swarm_post import Post
from .swarm_watch import Watch

__all__ = ["SwarmDriver"]


class SwarmDriver:
    """Feeds one protocol, with values from a vector and messages from the post.

    Args:
        protocol: Decides.
        workbench: Holds the values.
        clock: Virtual time.
        post: Carries messages.
        watch: Looks on.
    """

    def __init__(
        self, protocol: Protocol, workbench: Workbench, clock: Clock, post: Post, watch: Watch
    ) -> None:
        self.protocol = protocol
        self.tally = Tally()
        self.refusal: PeerRefused | None = None
        """The last word of a member that this peer cannot be one of them."""
        self._workbench = workbench
        self._clock = clock
        self._post = post
        self._watch = watch
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
        self._watch.decided(self.protocol, type(event).__name__, effects)
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
                    finite = self._workbench.is_finite(share)
                    self._carry_out(self._decide(Inspected(share, finite)))
                case Attach(share):
                    # No memory is shared here: each peer stands for a host of its own.
                    self._carry_out(self._decide(Attached(share, usable=False)))
                case Snapshot() | Release() | Reclaim() | Stage() | Mix() | Combine() | Drop():
                    try:
                        self._workbench.carry_out(effect, frame)
                    except TrainingError as error:
                        # What follows still has to happen: other peers wait for their answers.
                        unusable = error
                case Wait():
                    waits = True
                case Record() | Meet() | Part() | Dismiss():
                    pass
                case Halt(reason):
                    self._watch.note(self.id, effect)
                    self._halted = reason
                case _:
                    self._watch.note(self.id, effect)
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
        self._watch.sent(parts[0])
        self.tally.messages += 1
        self.tally.bytes_sent += sum(len(part) for part in parts)
        return parts
