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
    """How much more it gave than it had."""
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
    lacking, cuts = book.lacking(), book.cuts()
    names = {life.peer for link in book.promises for life in link} | book.convicted.keys()
    rows = []
    for peer in sorted(names):
        proof = book.convicted.get(peer)
        links = book.receipts.items()
        rows.append(
            Row(
                peer=peer,
                granted=grant(peer),
                got=sum(each.accepted for link, each in links if link.receiver.peer == peer),
                given=sum(each.accepted for link, each in links if link.sender.peer == peer),
                cut=sum(cut for link, cut in cuts.items() if link.receiver.peer == peer),
                worth=book.worth(peer),
                lacking=lacking.get(peer, 0),
                convicted="" if proof is None else proof.reason,
            )
        )
    latest = [each for each in book.since(0)[0] if isinstance(each, Promise)]
    return Verdict(rows=tuple(rows), statements=len(book.receipts) + len(latest), forged=forged)
