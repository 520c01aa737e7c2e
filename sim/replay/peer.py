"""One peer's run, repeated from its journal."""

from collections.abc import Collection, Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from torch import nn

from ...gossip import Rule
from ...gossip.effects import effects as fx
from ...gossip.effects.events import Event, ShareMixed
from ...gossip.effects.ledger import Life
from ...gossip.errors import ConfigError, LocalProtocolError, RemoteProtocolError, TrainingError
from ...gossip.protocol.rule import requirements_of
from ...gossip.rules.registry import make_rule
from ...gossip.types import ShareId, SharePart, stream
from ...gossip.wire.codec import checksum, decode_header
from ...gossip.wire.formats import Form
from ...gossip.wire.messages import Offer
from ...train.config import RunConfig
from ...train.loop.learner import Learner
from ...train.model import named_state
from ...train.storage import journal
from ...train.tensors.store import TensorStore
from ...train.tensors.vector import Vector
from .result import Difference, Differs, PeerVerdict, first_difference

__all__ = ["PeerReplay", "RecomputedShare", "ShareKey", "Shares"]


class ShareKey(NamedTuple):
    """Names a share among all peers."""

    sender: Life
    receiver: Life
    seq: int
    shard: int

    def __str__(self) -> str:
        shard = f" (shard {self.shard})" if self.shard else ""
        return f"share {self.seq}{shard} of {self.sender[0]} for {self.receiver[0]}"


class RecomputedShare(NamedTuple):
    """A share, made again."""

    payload: bytes
    form: Form
    record: int
    """Number of the record of its sender's journal after which it was made."""
    step: int
    """Optimizer steps of its sender by then."""


class Shares:
    """Keeps shares for the incarnations that are replayed until they are decided on."""

    def __init__(self, lives: Collection[Life]) -> None:
        self._lives = frozenset(lives)
        self._made: dict[ShareKey, RecomputedShare] = {}

    def __contains__(self, key: ShareKey) -> bool:
        return key in self._made

    def __getitem__(self, key: ShareKey) -> RecomputedShare:
        return self._made[key]

    def put(self, key: ShareKey, made: RecomputedShare) -> None:
        """Store a share for another replay."""
        if key.receiver in self._lives:
            self._made[key] = made

    def done(self, key: ShareKey) -> None:
        """Forget a share that its receiver has decided on, and those before it: at most one share
        of a shard is outstanding between two incarnations."""
        for made in [m for m in self._made if m._replace(seq=0) == key._replace(seq=0)]:
            if made.seq <= key.seq:
                del self._made[made]


class _Frame(NamedTuple):
    """A part of a share, as recorded in the receiver's journal."""

    offset_bytes: int
    size_bytes: int
    checksum: int


class PeerReplay:
    """Repeats the training, decisions and mixes of one incarnation of a peer.

    Raises:
        ConfigError: Its task, rule or topology is not available here.
    """

    def __init__(self, file: journal.JournalFile, device: str, shares: Shares) -> None:
        self.file = file
        self.head = head = file.head
        self.life = head.id, head.incarnation
        self.result = PeerVerdict(id=head.id, incarnation=head.incarnation, folder=file.path.parent)
        self.unix_s = head.unix_s
        """Time that the live run had reached, by the calendar of its machine, seconds."""
        try:
            config = RunConfig(**dict(head.training) | {"device": device})
        except TypeError as error:
            raise ConfigError(
                f"the journal of {head.id} was written by another version of rumor: {error}"
            ) from None
        self.shares = shares
        self._learner = Learner(config, head.id)
        rule = make_rule(head.rule)
        self._vector = _vector(self._learner.model, rule, head)
        self._tensors = TensorStore(
            self._vector, lambda snapshot: stream(head.seed, head.id, f"rounding:{snapshot}")
        )
        if requirements_of(rule).overlaps:
            self._learner.overlap(self._vector.schema, lambda shard: None)
        self._protocol = head.make_protocol(self._vector.schema, rule)
        self._frames: dict[ShareId, list[_Frame]] = {}
        self._loss = 0.0
        self._raised: Exception | None = None
        self._unmeasured = False

    def run(self) -> Generator[ShareKey | None, None, None]:
        """Repeat the run, to the end of the journal or the first difference. Yield None after each
        record; or a share that is not made yet: resume once it is."""
        result = self.result
        try:
            if self._vector.schema.hash != self.head.schema:
                raise Differs("the task builds a model of other tensors")
            if self._vector.anchor() != self.head.anchor:
                raise Differs("the task's model starts from other values")
            for record in self.file:
                result.records += 1
                yield from self._take(record)
                yield None
            self._check_end()
            result.is_done = True
        except Differs as differs:
            result.difference = Difference(
                peer=self.head.id,
                record=result.records,
                step=self._learner.taken,
                what=str(differs),
            )
        except TrainingError as error:
            result.why = str(error)
        finally:
            result.steps, result.closed = self._learner.taken, self.file.closed

    def _take(self, record: journal.Record) -> Iterator[ShareKey]:
        match record:
            case journal.Began(batch):
                self._train(batch)
            case journal.Trained(loss):
                self._check_loss(loss)
            case journal.Closed():
                self._measure()
            case call:
                self.unix_s = self.head.unix_s + (call.now - self.head.clock_s)
                yield from self._feed(call)

    def _train(self, batch: int) -> None:
        self._measure()
        samples = self._learner.loader.sampler.batch(self._learner.taken)
        if journal.batch_checksum(samples) != batch:
            raise Differs(f"the batch of step {self._learner.taken + 1} has other samples")
        self._raised = None
        try:
            swarm_steps = self._protocol.state.swarm_steps
            self._loss = float(self._learner.step(swarm_steps=swarm_steps))
        except Exception as error:  # a user's task may raise anything, and perhaps also did so live
            self._raised = error

    def _check_loss(self, loss: float) -> None:
        if self._raised is not None:
            raise Differs(f"the training raises {self._raised!r}") from self._raised
        # As text, so that -0.0 is not 0.0, and a NaN equals itself.
        if repr(self._loss) != repr(loss):
            raise Differs(f"the loss on the batch is {self._loss!r} here, and was {loss!r}")

    def _feed(self, call: journal.Call) -> Iterator[ShareKey]:
        if call.method in ("step", "finish", "leave"):
            self._measure()
        try:
            effects = call.make(self._protocol)
        except (RemoteProtocolError, LocalProtocolError):
            return  # as in the live run
        for effect in effects:
            yield from self._apply(effect, call)
            self.result.mixed += isinstance(effect, ShareMixed)
        self._unmeasured |= call.method == "step" and call.arguments["trained"]

    def _apply(self, effect: fx.Effect | Event, call: journal.Call) -> Iterator[ShareKey]:
        """Apply an effect to the model again, with shares from the senders' replays."""
        match effect:
            case fx.Snapshot():
                with suppress(TrainingError):  # the live run could not send it either
                    self._tensors.take(effect)
            case fx.Release():
                self._tensors.release(effect)
            case fx.Send():
                self._hand_over(effect)
            case fx.Stage(share, offset_bytes) if call.method == "receive":
                size_bytes = call.arguments["envelope"].frame_bytes
                frame = _Frame(offset_bytes, size_bytes, decode_header(call.header)[1])
                self._frames.setdefault(share, []).append(frame)
            case fx.Combine():
                for _, term in effect.terms:
                    if not isinstance(term, str | int):
                        yield from self._stage(SharePart.of(term)[0])
                self._tensors.combine(effect)
            case fx.Mix(share):
                yield from self._stage(share)
                self._tensors.mix(effect)
                self._done(share)
            case fx.Drop(share):
                self._tensors.pop(share)
                self._done(share)

    def _hand_over(self, send: fx.Send) -> None:
        """Store a share that is offered with a message."""
        envelope, offer = send.envelope, send.envelope.body
        if not isinstance(offer, Offer):
            return
        whole = replace(
            send, start_bytes=0, envelope=replace(envelope, frame_bytes=offer.size_bytes)
        )
        payload = self._tensors.frame_of(whole)
        if payload:
            receiver = envelope.destination, envelope.destination_incarnation
            key = ShareKey(self.life, receiver, offer.seq, envelope.shard)
            at = self.result.records, self._learner.taken
            self.shares.put(key, RecomputedShare(bytes(payload), offer.form, *at))

    def _stage(self, share: ShareId) -> Iterator[ShareKey]:
        """Stage a share, once it is made and known to equal what was received over the wire."""
        key = self._key(share)
        if key not in self.shares:
            yield key
        made = self.shares[key]
        if self._tensors.holds(share):
            return
        for frame in self._frames.get(share, ()):
            part = made.payload[frame.offset_bytes : frame.offset_bytes + frame.size_bytes]
            if len(part) != frame.size_bytes or checksum(part) != frame.checksum:
                raise Differs(
                    f"{key}, made after its record {made.record} and step {made.step}, has other "
                    f"bytes than came over the wire (from byte {frame.offset_bytes} on)"
                )
        self._tensors.stage(fx.Stage(share, 0, len(made.payload), made.form), made.payload)

    def _done(self, share: ShareId) -> None:
        self._frames.pop(share, None)
        self.shares.done(self._key(share))

    def _key(self, share: ShareId) -> ShareKey:
        return ShareKey((share.sender, share.incarnation), self.life, share.seq, share.shard)

    def _measure(self) -> None:
        """Evaluate held-out data where the live run did; a model might count its calls."""
        if self._unmeasured:
            self._unmeasured = False
            with suppress(Exception):  # it also failed in the live run, or nothing depends on it
                self._learner.evaluation()

    def _check_end(self) -> None:
        model = self.file.path.with_name("model.safetensors")
        if not model.exists():
            return
        if not self.file.closed:
            raise TrainingError(
                f"{self.file.path} ends after record {self.result.records}, before the live run "
                "did: the rest of it is missing"
            )
        with suppress(Exception):
            self._learner.task.evaluate(self._learner.model)
        state = named_state(self._learner.model)
        what = first_difference(model, state, self._protocol.state.weight)
        if what is not None:
            raise Differs(what)
        self.result.compared = True


def _vector(model: nn.Module, rule: Rule, head: journal.Head) -> Vector:
    vector = Vector(
        model,
        rule.registers,
        shards=head.shards,
        scattered=requirements_of(rule).scattered,
        carries_extra_state=True,
        keeps_anchor=head.keeps_anchor,
        sends_topk=requirements_of(rule).notes_sent(head.protocol.wire),
    )
    if vector.schema.hash != head.schema:
        # The live run compared them then.
        vector.compare_frozen()
    return vector
