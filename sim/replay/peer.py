"""One peer's run, repeated from its journal."""

import logging
import struct
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from numpy.random import Generator as Random
from torch import Tensor, nn

from ...gossip import LocalProtocolError, RemoteProtocolError, Rule, stream
from ...gossip.effects.effects import (
    Combine,
    Effect,
    Exchange,
    Mix,
    Reclaim,
    Record,
    Send,
    Snapshot,
    Stage,
)
from ...gossip.effects.events import Event, ShareMixed
from ...gossip.errors import ConfigError, TrainingError
from ...gossip.protocol.rule import requirements_of
from ...gossip.types import Incarnation, PeerId, ShareId, SharePart
from ...gossip.weight import in_units
from ...gossip.wire.codec import checksum, decode_header
from ...gossip.wire.formats import Form
from ...gossip.wire.messages import Offer
from ...train.config import RunConfig
from ...train.loop.learner import Learner
from ...train.model import fingerprint, named_state, travelling_tensors
from ...train.storage.inputs import Call
from ...train.storage.journal import Entry, Head, JournalFile
from ...train.storage.journal_records import (
    Began,
    Closed,
    Dealt,
    Decided,
    Exchanged,
    Fingerprint,
    Trained,
    batch_checksum,
    in_words,
)
from ...train.tasks.live_partition import Deal
from ...train.tensors.vector import Term, Vector
from ..immediate import ImmediateValues
from .result import Difference, Differs, first_difference
from .segments import ExchangeKey, SegmentReplays, exchange_records

__all__ = [
    *("MODEL", "EffectReplayer", "Key", "Life", "PeerReplay", "RecomputedShare", "ShareKey"),
    "ShareStore",
]


class Life(NamedTuple):
    """One life of a peer."""

    id: PeerId
    incarnation: Incarnation


class ShareKey(NamedTuple):
    """Names a share among all peers."""

    sender: Life
    receiver: Life
    seq: int
    shard: int = 0

    @property
    def way(self) -> tuple[Life, Life, int]:
        """From whom, to whom, and which shard: on each, one share follows another."""
        return self.sender, self.receiver, self.shard

    def __str__(self) -> str:
        shard = f" (shard {self.shard})" if self.shard else ""
        return f"share {self.seq}{shard} of {self.sender.id} for {self.receiver.id}"


Key = ShareKey | ExchangeKey
"""What one replay may have to wait for until another has made it."""


class RecomputedShare(NamedTuple):
    """A share, made again."""

    payload: Tensor
    """Its bytes: uint8, axes ``(n_bytes,)``; nobody changes them."""
    form: Form
    """What they are."""
    record: int
    """After which record of its sender's journal it was made."""
    step: int
    """After how many optimizer steps of its sender."""


class ShareStore:
    """Keeps what was made until it is mixed, or can be mixed no more.

    Args:
        lives: Who is replayed; what is for anybody else is dropped.
    """

    def __init__(self, lives: Collection[Life]) -> None:
        self.lives = frozenset(lives)
        self._made: dict[tuple[Life, Life, int], dict[int, RecomputedShare]] = {}
        self._arrivals: list[ShareKey] = []
        self.segments = SegmentReplays()
        """What peers share of memory."""

    def put(self, key: ShareKey, made: RecomputedShare) -> None:
        """Hand over a share for another replay to take."""
        if key.receiver in self.lives:
            self._made.setdefault(key.way, {})[key.seq] = made
            self._arrivals.append(key)

    def find(self, key: ShareKey) -> RecomputedShare | None:
        """A share, where it was made and not done with."""
        return self._made.get(key.way, {}).get(key.seq)

    def done(self, key: ShareKey) -> None:
        """Forget a share that its receiver has decided on, and those before it."""
        # At most one share of a shard is outstanding between two lives: those before are settled.
        waiting = self._made.get(key.way, {})
        for seq in [seq for seq in waiting if seq <= key.seq]:
            del waiting[seq]

    def take_arrivals(self) -> Sequence[Key]:
        """What was put, or exchanged, since this was last asked."""
        arrivals, self._arrivals = self._arrivals, []
        return [*arrivals, *self.segments.take_arrivals()]


@dataclass(frozen=True, slots=True)
class _Frame:
    """A part of a share, as the receiver's journal knows it."""

    offset_bytes: int
    size_bytes: int
    checksum: int


class EffectReplayer(ImmediateValues[Tensor, Call]):
    """Applies a peer's effects to its model once more.

    What a live peer takes from the wire, or from another's memory, it takes from the sender's
    replay.

    Args:
        exchange_records: What its journal says of exchanges with segments.
    """

    def __init__(
        self,
        vector: Vector,
        life: Life,
        store: ShareStore,
        rng: Callable[[str], Random],
        exchange_records: Iterator[Exchanged],
    ) -> None:
        super().__init__()
        self._exchange_records = exchange_records
        self._vector = vector
        self._life = life
        self._store = store
        self._rng = rng
        self._frames: dict[ShareId, list[_Frame]] = {}

    def replay(
        self, effect: Effect | Event, event: Call, record: int, step: int
    ) -> Generator[Key, None, None]:
        """Apply an effect, and hand over the share that is offered with it.

        Args:
            event: What led to it.
            record: Of the journal, that this was.
            step: Optimizer steps taken by then.

        Yields:
            A share, or an exchange, that is not made yet: go on when it is.

        Raises:
            Differs: A share is not what came over the wire.
        """
        match effect:
            case Send():
                self._hand_over(effect, record, step)
            case Exchange():
                yield from self._exchange(effect)
            case Mix(share):
                yield from self._await(share)
            case Combine(_, terms):
                for _, term in terms:
                    if not isinstance(term, str | int):
                        yield from self._await(SharePart.of(term)[0])
            case _:
                pass
        self.apply(effect, event)

    def _hand_over(self, effect: Send, record: int, step: int) -> None:
        envelope, body = effect.envelope, effect.envelope.body
        taken = self.snapshots.get(effect.snapshot or 0)
        if isinstance(body, Offer) and taken is not None:
            receiver = Life(envelope.destination, envelope.destination_incarnation)
            key = ShareKey(self._life, receiver, body.seq, envelope.shard)
            self._store.put(key, RecomputedShare(taken.payload, taken.form, record, step))

    def _exchange(self, effect: Exchange) -> Generator[ExchangeKey, None, None]:
        record = next(self._exchange_records, None)
        # Where the journal was cut short before it, the exchange was not begun.
        if record is not None:
            while (missing := self._store.segments.missing(record)) is not None:
                yield missing
            self._store.segments.exchange(record, effect, self._vector)

    def _await(self, share: ShareId) -> Generator[ShareKey, None, None]:
        key = self._key(share)
        while self._store.find(key) is None:
            yield key

    def _take(self, effect: Snapshot) -> Tensor | None:
        rng = self._rng(f"rounding:{effect.id}")
        try:
            return self._vector.snapshot(effect.register, effect.form, effect.shard, rng)
        except TrainingError:
            return None  # what was to be sent of it is unsent in the journal, too

    def _stage(self, effect: Stage, message: Call) -> None:
        if message.method == "receive":
            frame = _Frame(
                effect.offset_bytes,
                message.arguments["envelope"].frame_bytes,
                decode_header(message.header)[1],
            )
            self._frames.setdefault(effect.share, []).append(frame)

    def _received(self, share: ShareId) -> tuple[Tensor, Form]:
        """A share that is made, once it is seen to be what came over the wire."""
        key = self._key(share)
        made = self._store.find(key)
        assert made is not None
        for frame in self._frames.get(share, ()):
            stop = frame.offset_bytes + frame.size_bytes
            part = made.payload.numpy()[frame.offset_bytes : stop]
            if len(part) != frame.size_bytes or checksum(part.data) != frame.checksum:
                raise Differs(
                    f"{key}, made after its record {made.record} and step {made.step}, has other "
                    f"bytes than came over the wire (from byte {frame.offset_bytes} on)"
                )
        return made.payload, made.form

    def _drop(self, share: ShareId) -> None:
        self._frames.pop(share, None)
        self._store.done(self._key(share))

    def _mix(self, payload: Tensor, fraction: float, form: Form, shard: int) -> None:
        self._vector.mix(payload, fraction, form, shard)

    def _combine(self, register: str, terms: Sequence[tuple[float, Term]]) -> None:
        self._vector.combine(register, terms)

    def _key(self, share: ShareId) -> ShareKey:
        return ShareKey(Life(share.sender, share.incarnation), self._life, share.seq, share.shard)


_log = logging.getLogger("rumor")

# What a journal has a record of.
_DECIDED: Final = (Record, Snapshot, Mix, Reclaim, Combine, Exchange)

MODEL: Final = "model.safetensors"
"""What the model is called in a peer's folder."""


class PeerReplay:
    """Trains, decides and mixes again what one life of a peer did.

    Raises:
        ConfigError: Its task, rule or topology is not to be had here.
    """

    def __init__(self, file: JournalFile, head: Head, device: str, store: ShareStore) -> None:
        self.file = file
        self.head = head
        self.store = store
        self.life = Life(head.id, head.incarnation)
        self.records = 0
        """Records taken in so far."""
        self.mixed = 0
        """Shares mixed so far."""
        self.unix_s = head.unix_s
        """When the live run was here, by the calendar of its machine, seconds."""
        self.difference: Difference | None = None
        """The first one, where there is one."""
        self.stopped = ""
        """Why the replay cannot go on, in words, where it cannot."""
        self.ended = False
        """Whether the journal was read to its end, and nothing differed."""
        self.compared = False
        """Whether the model was held against the one that the live run left."""
        self._learner = Learner(_run_config(head, device), head.id)
        rule = head.make_rule()
        self._vector = _vector(self._learner.model, rule, head)
        tensors = travelling_tensors(self._learner.model, self._vector.schema)
        self._tensors = list(tensors.values())
        if requirements_of(rule).overlaps:
            self._learner.overlap(self._vector.schema, lambda shard: None)
        self._protocol = head.make_protocol(self._vector.schema, rule)
        rng = partial(stream, head.seed, head.id)
        records = exchange_records(file.path)
        self._effects = EffectReplayer(self._vector, self.life, store, rng, records)
        self._decided: Decided | None = None
        self._loss = 0.0
        self._raised: Exception | None = None
        self._unmeasured = False

    @property
    def steps(self) -> int:
        """Optimizer steps taken so far."""
        return self._learner.taken

    def run(self) -> Generator[Key | None, None, None]:
        """Repeat the run, as far as the journal goes and nothing differs.

        Yields:
            None after each record; a share or an exchange that is not made yet, where one is
            needed: go on when it is.
        """
        try:
            self._check_start()
            for entry in self.file:
                self.records = entry.number
                yield from self._take(entry)
                yield None
            self._check_end()
            self.ended = True
        except Differs as differs:
            self.difference = Difference(
                peer=self.life.id, record=self.records, step=self.steps, what=str(differs)
            )
        except TrainingError as error:
            self.stopped = str(error)

    def _take(self, entry: Entry) -> Iterator[Key]:
        match entry.record:
            case Dealt(epoch, members):
                if (live := self._learner.live) is not None:
                    live.deal(Deal(epoch, members, self.steps))
            case Began(batch):
                self._train(batch)
            case Trained(loss):
                self._check_loss(loss)
            case Decided():
                self._check_decided(entry.record)
            case Fingerprint(tensors):
                self._check_model(tensors)
            case Closed():
                self._check_decided(None)
            case Exchanged():
                pass  # `exchange_records` has read it ahead
            case event:
                assert entry.now is not None
                self._check_decided(None)
                self.unix_s = self.head.unix_s + (entry.now - self.head.clock_s)
                yield from self._feed(event, entry.now)

    def _train(self, batch: int) -> None:
        self._measure()
        samples = self._learner.batch()
        if batch_checksum(samples) != batch:
            raise Differs(f"the batch of step {self.steps + 1} has other samples")
        self._raised = None
        try:
            swarm_steps = self._protocol.swarm_steps
            self._loss = float(self._learner.step(samples, swarm_steps=swarm_steps))
        except Exception as error:  # a user's task may raise anything, and did so live, perhaps
            self._raised = error

    def _check_loss(self, loss: float) -> None:
        if self._raised is not None:
            raise Differs(f"the training raises {self._raised!r}") from self._raised
        if struct.pack("<d", self._loss) != struct.pack("<d", loss):
            raise Differs(f"the loss on the batch is {self._loss!r} here, and was {loss!r}")

    def _feed(self, event: Call, now: float) -> Iterator[Key]:
        if event.method in ("step", "finish", "leave"):
            self._measure()
        try:
            effects = event.make(self._protocol, now)
        except (RemoteProtocolError, LocalProtocolError):
            return  # so it was in the live run, too
        if any(isinstance(effect, _DECIDED) for effect in effects):
            self._decided = Decided(self._protocol.weight, in_words(effects))
        for effect in effects:
            yield from self._effects.replay(effect, event, self.records, self.steps)
            self.mixed += isinstance(effect, ShareMixed)
        self._unmeasured |= event.method == "step" and event.arguments["trained"]

    def _measure(self) -> None:
        """Look at held-out data where the live run did; a model might count how often it is run."""
        if self._unmeasured:
            self._unmeasured = False
            with _indulgence():
                self._learner.evaluation()

    def _check_start(self) -> None:
        if self._vector.schema.hash != self.head.schema:
            raise Differs("the task builds a model of other tensors")
        if self._vector.anchor() != self.head.anchor:
            raise Differs("the task's model starts from other values")

    def _check_decided(self, journaled: Decided | None) -> None:
        here, self._decided = self._decided, None
        if here == journaled:
            return
        if here is None or journaled is None:
            decided, where = (here, "here") if here else (journaled, "in the journal")
            assert decided is not None
            words = f"{decided.words!r}, with {in_units(decided.weight)} units"
            raise Differs(f"something was decided {where} only: {words}")
        if here.words != journaled.words:
            raise Differs(f"it decides {here.words!r} here, and decided {journaled.words!r}")
        mine, theirs = in_units(here.weight), in_units(journaled.weight)
        raise Differs(f"its weight is {mine} units here, and was {theirs}")

    def _check_model(self, tensors: tuple[int, ...]) -> None:
        here = fingerprint(self._tensors)
        if here != tensors:
            pairs = zip(self._vector.schema.tensors, here, tensors, strict=False)
            name = next((spec.name for spec, ours, theirs in pairs if ours != theirs), "a tensor")
            raise Differs(f"{name} has other bits than in the live run")

    def _check_end(self) -> None:
        model = self.file.path.with_name(MODEL)
        if not model.exists():
            return
        if not self.file.closed:
            raise TrainingError(
                f"{self.file.path} ends after record {self.records}, before the live run did: "
                "the rest of it is missing"
            )
        with _indulgence():
            self._learner.task.evaluate(self._learner.model)
        state = named_state(self._learner.model)
        what = first_difference(model, state, self._protocol.weight)
        if what is not None:
            raise Differs(what)
        self.compared = True


@contextmanager
def _indulgence() -> Iterator[None]:
    """Let a measurement fail: it did so in the live run, or nothing depends on it."""
    try:
        yield
    except Exception as error:
        _log.debug("a measurement raised %r", error)


def _vector(model: nn.Module, rule: Rule, head: Head) -> Vector:
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
        # Then the live run has compared them.
        vector.compare_frozen()
    return vector


def _run_config(head: Head, device: str) -> RunConfig:
    try:
        return RunConfig(**dict(head.training) | {"device": device})
    except TypeError as error:
        raise ConfigError(
            f"the journal of {head.id} was written by another version of rumor: {error}"
        ) from None
