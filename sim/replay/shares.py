"""Exchange between the replays of a run: shares, and segments of memory that peers share."""

from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from ...gossip.effects.effects import Exchange
from ...gossip.errors import TrainingError
from ...gossip.types import Incarnation, PeerId
from ...gossip.wire.formats import Form
from ...train.storage.journal import Exchanged, JournalFile
from ...train.tensors.blocks import widened
from ...train.tensors.vector import Flats, Vector
from .result import Differs

__all__ = [
    *("ExchangeKey", "Key", "Life", "RecomputedShare", "ShareKey", "ShareStore"),
    "exchange_records",
]


class Life(NamedTuple):
    """One incarnation of a peer."""

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
        """Sender, receiver and shard: on each way, shares follow one another."""
        return self.sender, self.receiver, self.shard

    def __str__(self) -> str:
        shard = f" (shard {self.shard})" if self.shard else ""
        return f"share {self.seq}{shard} of {self.sender.id} for {self.receiver.id}"


# A journal records the position of each exchange with a segment among those of all peers. So a
# segment's values need not be written down: they follow from the replays of all its peers.
class ExchangeKey(NamedTuple):
    """Names an exchange with a segment among those of all peers."""

    token: bytes
    """Token of the segment."""
    number: int
    """Number of the exchange, from 1."""

    def __str__(self) -> str:
        return f"exchange {self.number} of all peers with segment {self.token.hex()[:8]}"


Key = ShareKey | ExchangeKey
"""A share or an exchange that a replay may have to wait for."""


class RecomputedShare(NamedTuple):
    """A share, made again."""

    payload: bytes
    form: Form
    record: int
    """Number of the record of its sender's journal after which it was made."""
    step: int
    """Optimizer steps of its sender by then."""


class ShareStore:
    """Keeps shares for the incarnations that are replayed until they are decided on, and segments
    to the end."""

    def __init__(self, lives: Collection[Life]) -> None:
        self._lives = frozenset(lives)
        self._made: dict[tuple[Life, Life, int], dict[int, RecomputedShare]] = {}
        self._segments: dict[bytes, tuple[int, Flats]] = {}
        self._arrivals: list[Key] = []

    def put(self, key: ShareKey, made: RecomputedShare) -> None:
        """Store a share for another replay."""
        if key.receiver in self._lives:
            self._made.setdefault(key.way, {})[key.seq] = made
            self._arrivals.append(key)

    def find(self, key: ShareKey) -> RecomputedShare | None:
        """Return a share, unless it is not made yet or done with."""
        return self._made.get(key.way, {}).get(key.seq)

    def done(self, key: ShareKey) -> None:
        """Forget a share that its receiver has decided on, and those before it: at most one share
        of a shard is outstanding between two incarnations."""
        waiting = self._made.get(key.way, {})
        for seq in [seq for seq in waiting if seq <= key.seq]:
            del waiting[seq]

    def missing(self, record: Exchanged) -> ExchangeKey | None:
        """Return the exchange right before one, unless all before it were made."""
        made = self._segments.get(record.token, (0, ()))[0]
        return None if made == record.number - 1 else ExchangeKey(record.token, record.number - 1)

    def exchange(self, record: Exchanged, effect: Exchange, vector: Vector) -> None:
        """Exchange a register with a segment, whose turn it is.

        Raises:
            Differs: The segment's live content is not known to the last bit.
        """
        if not record.whole:
            raise Differs(
                f"a peer was killed within {ExchangeKey(record.token, record.number - 1)}: what it "
                "had exchanged by then is not known"
            )
        flats = self._segments.get(record.token, (0, ()))[1]
        if not flats:
            numbers = vector.flats_of(effect.register)
            flats = tuple(part.to("cpu", widened(part), copy=True) for part in numbers)
        self._segments[record.token] = record.number, flats
        self._arrivals.append(ExchangeKey(record.token, record.number))
        try:
            vector.exchange(effect.register, flats, taken=effect.taken, given=effect.given)
        except TrainingError:
            pass  # a number was not finite in the live run either

    def take_arrivals(self) -> list[Key]:
        """Return what was stored or exchanged since the last call."""
        arrivals, self._arrivals = self._arrivals, []
        return arrivals


def exchange_records(journal: Path) -> Iterator[Exchanged]:
    """Iterate over the exchanges in a journal, ahead of its replay.

    Raises:
        TrainingError: It is damaged.
    """
    with closing(JournalFile(journal)) as file:
        for record, _ in file:
            if isinstance(record, Exchanged):
                yield record
