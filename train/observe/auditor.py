"""The books of receipts of a swarm that runs, asked for from outside."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

from ...gossip import TransportError
from ...gossip.receipts.book import Proof
from ...gossip.receipts.statement import Statement
from ...gossip.transport.keys.keyring import Keyring
from ...gossip.types import Incarnation, PeerId
from ...gossip.wire.messages import Consult, Envelope, Extract, Member, Phase
from .probe import Probe

__all__ = ["Auditor", "ToldBook"]

_ROUND_S: Final = 0.3
"""Between two questions to the same peer: one may be lost, and each answers some a second."""

_NAP_S: Final = 0.02

_BOOK_MAX: Final = 1 << 18
"""Statements that are taken of one peer."""


@dataclass(slots=True)
class ToldBook:
    """What one peer has told of its book so far."""

    member: Member
    places: tuple[str, ...]
    incarnation: Incarnation = 0
    """Whose book it is; 0 before it has answered."""
    shards: int = 0
    revision: int = 0
    """Up to which it was told."""
    is_whole: bool = False
    """Whether that is all of it."""
    asked_s: float = float("-inf")
    statements: list[Statement] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)

    def take(self, incarnation: Incarnation, told: Extract) -> None:
        """Take in a part of the book; a later life of the peer has begun another one."""
        if incarnation != self.incarnation:
            is_first = self.incarnation == 0
            self.incarnation, self.shards, self.revision = incarnation, told.shards, 0
            self.statements, self.proofs = [], []
            if not is_first:
                self.asked_s = float("-inf")
                return
        if told.revision >= self.revision and len(self.statements) < _BOOK_MAX:
            self.statements.extend(told.statements)
            self.proofs.extend(Proof(each) for each in told.proofs if each)
            self.revision, self.is_whole = told.revision, not told.more
            if told.more:
                self.asked_s = float("-inf")


class Auditor:
    """Asks all members of a swarm for their books, without being a member.

    Args:
        address: Of any member.
        keyring: Who asks; a swarm that has receipts has keys.
        timeout_s: How long to wait for the first answer, seconds.
        clock: Seconds that only go forward.

    Raises:
        TransportError: Nobody answers at *address*, or whoever does belongs to no swarm.
    """

    def __init__(
        self,
        address: str,
        *,
        keyring: Keyring,
        timeout_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probe = Probe(timeout_s=timeout_s, keyring=keyring)
        self._clock = clock
        try:
            self._view = self._probe.view(address)
            if not self._view.swarm:
                raise TransportError(f"{address} belongs to no swarm yet: ask again later")
        except BaseException:
            self._probe.__exit__()
            raise
        self.books: dict[PeerId, ToldBook] = {}
        """Of those who can be asked, by name."""
        for member in self._view.members:
            places = member.addresses
            if member.id == self._view.id:
                places = (self._view.place,)
            if places and member.phase is not Phase.LEFT:
                self.books[member.id] = ToldBook(member, tuple(places))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._probe.__exit__()

    @property
    def swarm(self) -> bytes:
        """Hash of the swarm's anchor."""
        return self._view.swarm

    @property
    def answered(self) -> list[ToldBook]:
        """Books of those that have told all of them, and that have any."""
        return [book for book in self.books.values() if book.is_whole and book.shards]

    @property
    def silent(self) -> list[PeerId]:
        """Whose book could not be had."""
        return [id for id, book in self.books.items() if not (book.is_whole and book.shards)]

    def ask(self, timeout_s: float) -> None:
        """Get what is new in all books.

        Args:
            timeout_s: After so many seconds, those that have not told all are let be.

        Raises:
            TransportError: Nobody has answered, or nobody has a book.
        """
        for book in self.books.values():
            book.is_whole, book.asked_s = False, float("-inf")
        give_up_s = self._clock() + timeout_s
        while not all(book.is_whole for book in self.books.values()):
            now = self._clock()
            if now >= give_up_s:
                break
            for book in self.books.values():
                if not book.is_whole and now >= book.asked_s + _ROUND_S:
                    self._consult(book, now)
            for envelope in self._probe.heard(_NAP_S):
                self._take(envelope)
        if not any(book.is_whole for book in self.books.values()):
            raise TransportError("no member has answered: ask again, or another one")
        if not self.answered:
            raise TransportError("the swarm has no receipts: its peers were started without them")

    def _consult(self, book: ToldBook, now: float) -> None:
        question = Consult(book.revision)
        sent = [self._probe.post(p, self._view, book.member, question) for p in book.places]
        if any(sent):
            book.asked_s = now

    def _take(self, envelope: Envelope) -> None:
        book = self.books.get(envelope.source)
        if book is None or not isinstance(envelope.body, Extract):
            return
        if envelope.swarm == self._view.swarm:
            book.take(envelope.source_incarnation, envelope.body)
