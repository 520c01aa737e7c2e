"""Segments that peers shared in a live run, shared once more by their replays, in the same order.

A journal says of each exchange which one of all peers it was. So a segment's values need not be
written down: they follow from the replays of all who exchanged with it.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from ...gossip.effects.effects import Exchange
from ...gossip.errors import TrainingError
from ...train.storage.journal import JournalFile
from ...train.storage.journal_records import Exchanged
from ...train.tensors.blocks import widened
from ...train.tensors.vector import Flats, Vector
from .result import Differs

__all__ = ["ExchangeKey", "SegmentReplays", "exchange_records"]


class ExchangeKey(NamedTuple):
    """Names an exchange with a segment among those of all peers."""

    token: bytes
    """Of the segment."""
    number: int
    """From 1 on."""

    def __str__(self) -> str:
        return f"exchange {self.number} of all peers with segment {self.token.hex()[:8]}"


class SegmentReplays:
    """All segments of a run, each from its first exchange on."""

    def __init__(self) -> None:
        self._segments: dict[bytes, tuple[int, Flats]] = {}
        self._arrivals: list[ExchangeKey] = []

    def missing(self, record: Exchanged) -> ExchangeKey | None:
        """The exchange right before one, unless all before it were made."""
        made = self._segments.get(record.token, (0, ()))[0]
        return None if made == record.number - 1 else ExchangeKey(record.token, record.number - 1)

    def exchange(self, record: Exchanged, effect: Exchange, vector: Vector) -> None:
        """Exchange a register with a segment, whose turn it is.

        Raises:
            Differs: What the segment held live is not known to the last bit.
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
            pass  # a number was not finite in the live run, too

    def take_arrivals(self) -> list[ExchangeKey]:
        """The exchanges that were made since this was last asked."""
        arrivals, self._arrivals = self._arrivals, []
        return arrivals


def exchange_records(journal: Path) -> Iterator[Exchanged]:
    """What a journal says of exchanges, in order; it is read ahead of who replays it.

    Raises:
        TrainingError: It is damaged.
    """
    with closing(JournalFile(journal)) as file:
        for entry in file:
            if isinstance(entry.record, Exchanged):
                yield entry.record
