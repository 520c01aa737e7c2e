"""What the books of many peers say together: who had how much, who lied, and whether all is there.

An audit needs public keys only, so that anybody can make one.
"""

from collections.abc import Callable, Iterable

from ..types import PeerId, frozen_keywords
from ..weight import shown
from .book import Book, Proof, Taken
from .statement import Keys, Life, Promise, Statement

__all__ = ["Row", "Verdict", "audit"]

_AUDITOR = Life("", 0)


@frozen_keywords
class Row:
    """One peer, over all its incarnations; weights in grains, of all shards together."""

    peer: PeerId
    granted: int
    """What the roster lets it found."""
    got: int
    """What it accepted from others, by both signatures."""
    given: int
    """What others accepted from it, likewise."""
    cut: int
    """Of what it got, how much its senders did not have."""
    worth: int
    """What it can have; whatever it holds beyond that is made up."""
    lacking: int
    """How much more it gave, or has promised and not got back, than it had: of all that others have
    promised to it and not got back."""
    convicted: str
    """What it signed that cannot be true; empty where nothing is known."""

    def __repr__(self) -> str:
        weights = ("granted", "got", "given", "cut", "worth", "lacking")
        return shown(self, **{name: name for name in weights})


@frozen_keywords
class Verdict:
    """What an audit found."""

    rows: tuple[Row, ...]
    statements: int
    """Statements with a good signature that say the latest of their link."""
    forged: int
    """Statements that nobody of that name has signed; whoever told them made them up."""

    @property
    def is_sound(self) -> bool:
        """Whether nobody was convicted, nobody gave what it did not have, and nothing is forged."""
        return not self.forged and not any(row.convicted or row.lacking for row in self.rows)

    @property
    def endowment(self) -> int:
        """What the peers of the rows may have founded, together."""
        return sum(row.granted for row in self.rows)


def audit(
    told: Iterable[tuple[Iterable[Statement], Iterable[Proof]]],
    swarm: bytes,
    keys: Keys,
    grant: Callable[[PeerId], int],
) -> Verdict:
    """Check what peers have kept of one swarm.

    Args:
        told: The statements and proofs of each book.
        swarm: Hash of the swarm's anchor.
        keys: Verifies; it need not sign.
        grant: What the roster lets a peer found, in grains, of all shards together.
    """
    book, forged = Book(_AUDITOR, swarm, keys, grant), 0
    for statements, proofs in told:
        forged += sum([book.take(each) is Taken.FORGED for each in statements])
        forged += sum([book.take_proof(each) is Taken.FORGED for each in proofs])
    lacking = _lacking(book, grant)
    # Of a peer that has died, some receipts may be missing: then nothing was made up.
    cuts = book.cuts() if lacking else {}
    names = {life.peer for link in book.promises for life in link} | book.convicted.keys()
    rows = []
    for peer in sorted(names):
        proof = book.convicted.get(peer)
        links = book.receipts.items()
        got = sum(each.accepted for link, each in links if link.receiver.peer == peer)
        given = sum(each.accepted for link, each in links if link.sender.peer == peer)
        rows.append(
            Row(
                peer=peer,
                granted=grant(peer),
                got=got,
                given=given,
                cut=sum(cut for link, cut in cuts.items() if link.receiver.peer == peer),
                worth=book.worth(peer) if lacking else grant(peer) + got - given,
                lacking=lacking.get(peer, 0),
                convicted="" if proof is None else proof.reason,
            )
        )
    latest = [each for each in book.since(0)[0] if isinstance(each, Promise)]
    return Verdict(rows=tuple(rows), statements=len(book.receipts) + len(latest), forged=forged)


def _lacking(book: Book, grant: Callable[[PeerId], int]) -> dict[PeerId, int]:
    """Who has signed away more than it can have had, and how much more.

    A promise counts for its receiver, too, which may have died before it signed what it took; and
    against its sender, even where the receiver keeps it to itself.
    """
    balance: dict[PeerId, int] = {}
    for link, promise in book.promises.items():
        receipt = book.receipts.get(link)
        moved = promise.offered - (0 if receipt is None else receipt.returned)
        for peer, sign in ((link.sender.peer, -1), (link.receiver.peer, 1)):
            balance[peer] = balance.get(peer, 0) + sign * moved
    owed = {peer: -(grant(peer) + change) for peer, change in balance.items()}
    return {peer: missing for peer, missing in owed.items() if missing > 0}
