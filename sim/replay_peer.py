"""One peer's run, repeated from its journal."""

import logging
import struct
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from torch import nn

from ..gossip import LocalProtocolError, RemoteProtocolError, Rule, stream
from ..gossip.effects import Combine, Mix, Reclaim, Record, Snapshot, SnapshotId
from ..gossip.errors import ConfigError, TrainingError
from ..gossip.events import ShareMixed
from ..gossip.weight import in_units
from ..gossip.wire import parse_wire
from ..train.config import RunConfig
from ..train.fingerprint import fingerprint, travelling_tensors
from ..train.inputs import Finish, Input, Leave, Step
from ..train.journal import Entry, JournalFile
from ..train.journal_head import Head
from ..train.learner import Learner
from ..train.records import Began, Closed, Decided, Fingerprint, Trained, batch_checksum, in_words
from ..train.vector import Vector
from .replay_bench import Bench
from .replay_difference import Difference, Differs
from .replay_model import first_difference
from .replay_post import Life, Post, ShareKey

__all__ = ["MODEL", "PeerReplay"]

_log = logging.getLogger("rumor")

# What a journal has a mark for.
_DECIDED: Final = (Record, Snapshot, Mix, Reclaim, Combine)

MODEL: Final = "model.safetensors"
"""What the model is called in a peer's folder."""


class PeerReplay:
    """Trains, decides and mixes again what one life of a peer did.

    Args:
        file: Its journal, not read yet.
        head: The head of it.
        device: Where to train.
        post: Takes the shares it makes, and gives those of others.

    Raises:
        ConfigError: Its task, rule or topology is not to be had here.
    """

    def __init__(self, file: JournalFile, head: Head, device: str, post: Post) -> None:
        self._file = file
        self.head = head
        self.post = post
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
        self._tensors = travelling_tensors(self._learner.model, self._vector.schema)
        self._protocol = head.make_protocol(self._vector.schema, rule)
        self._bench = Bench(self._vector, self.life, post, partial(_rounding, head))
        self._decided: Decided | None = None
        self._loss = 0.0
        self._raised: Exception | None = None
        self._unmeasured = False

    @property
    def steps(self) -> int:
        """Optimizer steps taken so far."""
        return self._learner.taken

    @property
    def closed(self) -> bool:
        """Whether the live run ended in good order, as far as the journal was read."""
        return self._file.closed

    @property
    def folder(self) -> Path:
        """Where the journal lies."""
        return self._file.path.parent

    @property
    def read_bytes(self) -> int:
        """How far the journal was read."""
        return self._file.position_bytes

    @property
    def size_bytes(self) -> int:
        """How long the journal is."""
        return self._file.size_bytes

    def run(self) -> Generator[ShareKey | None, None, None]:
        """Repeat the run, as far as the journal goes and nothing differs.

        Yields:
            None after each record; a share that is not made yet, where one is needed: go on when
            it is.
        """
        try:
            self._check_start()
            for entry in self._file:
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

    def _take(self, entry: Entry) -> Iterator[ShareKey]:
        match entry.record:
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

    def _feed(self, event: Input, now: float) -> Iterator[ShareKey]:
        if isinstance(event, Step | Finish | Leave):
            self._measure()
        try:
            effects = event.feed(self._protocol, now)
        except (RemoteProtocolError, LocalProtocolError):
            return  # so it was in the live run, too
        if any(isinstance(effect, _DECIDED) for effect in effects):
            self._decided = Decided(self._protocol.weight, in_words(effects))
        for effect in effects:
            yield from self._bench.carry_out(effect, event, self.records, self.steps)
            self.mixed += isinstance(effect, ShareMixed)
        self._unmeasured = self._unmeasured or (isinstance(event, Step) and event.trained)

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
        model = self._file.path.with_name(MODEL)
        if not model.exists():
            return
        if not self.closed:
            raise TrainingError(
                f"{self._file.path} ends after record {self.records}, before the live run did: "
                "the rest of it is missing"
            )
        with _indulgence():
            self._learner.task.evaluate(self._learner.model)
        state = self._learner.model.state_dict()
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
    return Vector(
        model,
        rule.registers,
        shards=head.shards,
        keeps_anchor=head.keeps_anchor,
        sends_topk=not parse_wire(head.protocol.wire).is_dense,
    )


def _rounding(head: Head, snapshot: SnapshotId) -> np.random.Generator:
    """The random numbers that a snapshot was rounded by."""
    return stream(head.seed, head.id, f"rounding:{snapshot}")


def _run_config(head: Head, device: str) -> RunConfig:
    try:
        return RunConfig(**dict(head.training) | {"device": device})
    except TypeError as error:
        raise ConfigError(
            f"the journal of {head.id} was written by another version of rumor: {error}"
        ) from None
