"""One peer's run, repeated from its journal."""

import struct
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from math import isnan
from typing import NamedTuple

from numpy.random import Generator as Random
from torch import nn

from ...gossip import Rule
from ...gossip.effects import effects as fx
from ...gossip.effects.events import Event, ShareMixed
from ...gossip.errors import ConfigError, LocalProtocolError, RemoteProtocolError, TrainingError
from ...gossip.protocol.rule import requirements_of
from ...gossip.rules.registry import make_rule
from ...gossip.types import ShareId, SharePart, SnapshotId, stream
from ...gossip.weight import in_units
from ...gossip.wire.codec import checksum, decode_header
from ...gossip.wire.messages import Offer
from ...train.config import RunConfig
from ...train.loop.learner import Learner
from ...train.model import fingerprint, named_state, travelling_tensors
from ...train.storage import journal
from ...train.tensors.store import TensorStore
from ...train.tensors.vector import Vector
from .result import Difference, Differs, PeerVerdict, Verdict, first_difference
from .shares import Key, Life, RecomputedShare, ShareKey, ShareStore, exchange_records

__all__ = ["PeerReplay"]


class _Frame(NamedTuple):
    """A part of a share, as recorded in the receiver's journal."""

    offset_bytes: int
    size_bytes: int
    checksum: int


class _Effects:
    """Applies a peer's effects to its model again, with shares from the senders' replays."""

    def __init__(
        self,
        vector: Vector,
        life: Life,
        store: ShareStore,
        rounding: Callable[[SnapshotId], Random],
        exchanges: Iterator[journal.Exchanged],
    ) -> None:
        self._vector = vector
        self._tensors = TensorStore(vector, rounding)
        self._life = life
        self._store = store
        self._exchanges = exchanges
        self._frames: dict[ShareId, list[_Frame]] = {}

    def replay(
        self, effect: fx.Effect | Event, event: journal.Call, record: int, step: int
    ) -> Generator[Key, None, None]:
        """Apply an effect of an event, and store the share that is offered with it. Yield a share,
        or an exchange, that is not made yet: resume once it is.

        Args:
            record: Number of the event in the journal.
            step: Optimizer steps taken by then.

        Raises:
            Differs: A share differs from what was received over the wire.
        """
        match effect:
            case fx.Snapshot():
                with suppress(TrainingError):  # the live run could not send it either
                    self._tensors.take(effect)
            case fx.Release():
                self._tensors.release(effect)
            case fx.Reclaim():
                self._tensors.reclaim(effect)
            case fx.Send():
                self._hand_over(effect, record, step)
            case fx.Stage(share, offset_bytes) if event.method == "receive":
                size_bytes = event.arguments["envelope"].frame_bytes
                frame = _Frame(offset_bytes, size_bytes, decode_header(event.header)[1])
                self._frames.setdefault(share, []).append(frame)
            case fx.Exchange():
                yield from self._exchange(effect)
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

    def _hand_over(self, send: fx.Send, record: int, step: int) -> None:
        envelope, offer = send.envelope, send.envelope.body
        if not isinstance(offer, Offer):
            return
        whole = replace(
            send, start_bytes=0, envelope=replace(envelope, frame_bytes=offer.size_bytes)
        )
        payload = self._tensors.frame_of(whole)
        if payload:
            receiver = Life(envelope.destination, envelope.destination_incarnation)
            key = ShareKey(self._life, receiver, offer.seq, envelope.shard)
            self._store.put(key, RecomputedShare(bytes(payload), offer.form, record, step))

    def _exchange(self, effect: fx.Exchange) -> Generator[Key, None, None]:
        record = next(self._exchanges, None)
        # If the journal was cut short before it, the exchange was not begun.
        if record is not None:
            while (missing := self._store.missing(record)) is not None:
                yield missing
            self._store.exchange(record, effect, self._vector)

    def _stage(self, share: ShareId) -> Generator[Key, None, None]:
        """Stage a share, once it is made and known to equal what was received over the wire."""
        key = self._key(share)
        while (made := self._store.find(key)) is None:
            yield key
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
        self._store.done(self._key(share))

    def _key(self, share: ShareId) -> ShareKey:
        return ShareKey(Life(share.sender, share.incarnation), self._life, share.seq, share.shard)


class PeerReplay:
    """Repeats the training, decisions and mixes of one incarnation of a peer.

    Raises:
        ConfigError: Its task, rule or topology is not available here.
    """

    def __init__(
        self, file: journal.JournalFile, head: journal.Head, device: str, store: ShareStore
    ) -> None:
        self.file = file
        self.head = head
        self.store = store
        self.life = Life(head.id, head.incarnation)
        self.result = PeerVerdict(id=head.id, incarnation=head.incarnation, folder=file.path.parent)
        self.unix_s = head.unix_s
        """Time that the live run had reached, by the calendar of its machine, seconds."""
        try:
            config = RunConfig(**dict(head.training) | {"device": device})
        except TypeError as error:
            raise ConfigError(
                f"the journal of {head.id} was written by another version of rumor: {error}"
            ) from None
        self._learner = Learner(config, head.id)
        rule = make_rule(head.rule)
        self._vector = _vector(self._learner.model, rule, head)
        tensors = travelling_tensors(self._learner.model, self._vector.schema)
        self._tensors = list(tensors.values())
        if requirements_of(rule).overlaps:
            self._learner.overlap(self._vector.schema, lambda shard: None)
        self._protocol = head.make_protocol(self._vector.schema, rule)
        exchanges = exchange_records(file.path)
        self._effects = _Effects(
            self._vector,
            self.life,
            store,
            lambda snapshot: stream(head.seed, head.id, f"rounding:{snapshot}"),
            exchanges,
        )
        self._decided: journal.Decided | None = None
        self._loss = 0.0
        self._raised: Exception | None = None
        self._unmeasured = False

    def run(self) -> Generator[Key | None, None, None]:
        """Repeat the run, to the end of the journal or the first difference. Yield None after each
        record; or a share or an exchange that is not made yet: resume once it is."""
        result = self.result
        try:
            if self._vector.schema.hash != self.head.schema:
                raise Differs("the task builds a model of other tensors")
            if self._vector.anchor() != self.head.anchor:
                raise Differs("the task's model starts from other values")
            for number, (record, now) in enumerate(self.file, 1):
                result.records = number
                yield from self._take(record, now)
                yield None
            self._check_end()
            result.verdict = Verdict.IDENTICAL
        except Differs as differs:
            result.verdict = Verdict.DIFFERS
            result.difference = Difference(
                peer=self.life.id,
                record=result.records,
                step=self._learner.taken,
                what=str(differs),
            )
        except TrainingError as error:
            result.why = str(error)
        finally:
            result.steps, result.closed = self._learner.taken, self.file.closed

    def _take(self, record: journal.Call | journal.Mark, now: float | None) -> Iterator[Key]:
        match record:
            case journal.Began(batch):
                self._train(batch)
            case journal.Trained(loss):
                self._check_loss(loss)
            case journal.Decided():
                self._check_decided(record)
            case journal.Fingerprint(tensors):
                # The live run measures within a step's exchange, before it checks the model.
                self._measure()
                here, specs = fingerprint(self._tensors), self._vector.schema.tensors
                if here != tensors:
                    pairs = zip(specs, here, tensors, strict=False)
                    name = next((s.name for s, ours, live in pairs if ours != live), "a tensor")
                    raise Differs(f"{name} has other bits than in the live run")
            case journal.Closed():
                self._check_decided(None)
            case journal.Exchanged():
                pass  # `exchange_records` has read it ahead
            case event:
                assert now is not None
                self._check_decided(None)
                self.unix_s = self.head.unix_s + (now - self.head.clock_s)
                yield from self._feed(event, now)

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
        both = self._loss, loss
        if struct.pack("<d", self._loss) != struct.pack("<d", loss) and not all(map(isnan, both)):
            raise Differs(f"the loss on the batch is {self._loss!r} here, and was {loss!r}")

    def _feed(self, event: journal.Call, now: float) -> Iterator[Key]:
        if event.method in ("step", "finish", "leave"):
            self._measure()
        try:
            effects = event.make(self._protocol, now)
        except (RemoteProtocolError, LocalProtocolError):
            return  # as in the live run
        if any(isinstance(effect, journal.DECIDED) for effect in effects):
            self._decided = journal.Decided(self._protocol.state.weight, journal.in_words(effects))
        for effect in effects:
            yield from self._effects.replay(effect, event, self.result.records, self._learner.taken)
            self.result.mixed += isinstance(effect, ShareMixed)
        self._unmeasured |= event.method == "step" and event.arguments["trained"]

    def _measure(self) -> None:
        """Evaluate held-out data where the live run did; a model might count its calls."""
        if self._unmeasured:
            self._unmeasured = False
            with suppress(Exception):  # it also failed in the live run, or nothing depends on it
                self._learner.evaluation()

    def _check_decided(self, journaled: journal.Decided | None) -> None:
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
