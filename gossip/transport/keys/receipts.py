"""A peer's book of receipts on disk: one file for each of its incarnations, replaced as a whole."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import TrainingError
from ...receipts.audit import Verdict, audit
from ...receipts.book import Book, Proof
from ...receipts.statement import Life, Link, Promise, Receipt, Statement
from ...weight import from_units, in_units
from .files import key_bytes, key_text, replace_file
from .roster import Roster
from .signing import Signer

__all__ = [
    "Kept",
    "audit_books",
    "audit_folder",
    "read_receipts",
    "receipts_path",
    "write_receipts",
]

_FORMAT = "rumor receipts 1"
_SIGNATURE_BYTES = 64
_FILE_BYTES_MAX = 1 << 28


class Kept(NamedTuple):
    """What one file holds, or one peer has told."""

    swarm: bytes
    shards: int
    statements: list[Statement]
    proofs: list[Proof]


def receipts_path(folder: Path, incarnation: int) -> Path:
    """Where an incarnation of the peer of a folder keeps its book."""
    return folder / f"receipts.{incarnation}.json"


def write_receipts(folder: Path, book: Book, shards: int) -> None:
    """Replace the file of a book.

    Raises:
        OSError: It cannot be written; what was there still is.
    """
    statements, proofs = book.since(0)
    content = {
        "format": _FORMAT,
        "id": book.me.peer,
        "incarnation": book.me.incarnation,
        "swarm": book.swarm.hex(),
        "shards": shards,
        "statements": [_as_json(each) for each in statements],
        "proofs": [[_as_json(each) for each in proof.statements] for proof in proofs],
    }
    replace_file(receipts_path(folder, book.me.incarnation), json.dumps(content) + "\n")


def read_receipts(path: Path) -> Kept:
    """Read the file of a book; signatures are not looked at.

    Raises:
        TrainingError: It cannot be read, or is none.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1)
        if len(text) > _FILE_BYTES_MAX:
            raise ValueError("it is too long")
        told = json.loads(text)
        if told["format"] != _FORMAT or type(told["shards"]) is not int:
            raise ValueError("it is of another format")
        proofs = [Proof(tuple(map(_statement, each))) for each in told["proofs"]]
        return Kept(
            bytes.fromhex(told["swarm"]),
            told["shards"],
            list(map(_statement, told["statements"])),
            [proof for proof in proofs if proof.statements],
        )
    except OSError as error:
        raise TrainingError(f"{path} cannot be read: {error.strerror or error}") from None
    except (LookupError, ValueError, TypeError, RecursionError) as error:
        raise TrainingError(f"{path} holds no receipts: {error}") from None


def audit_folder(folder: Path, roster: Path) -> Verdict:
    """Check the receipts of a run, or of one peer.

    Args:
        folder: Of a run, whose peers each kept a book, or of a peer.
        roster: Says who may found, and with which keys peers sign.

    Raises:
        ConfigError: The roster cannot be read, or is none.
        TrainingError: There are no receipts, they cannot be read, or are of several swarms.
    """
    paths = sorted({*folder.glob("receipts.*.json"), *folder.glob("peers/*/receipts.*.json")})
    kept = [read_receipts(path) for path in paths]
    if not kept:
        raise TrainingError(
            f"{folder} holds no receipts: give the folder of a run, or of a peer, with --receipts"
        )
    if len({(each.swarm, each.shards) for each in kept}) > 1:
        raise TrainingError(f"{folder} holds receipts of several swarms: give one peer's folder")
    return audit_books(kept, roster)


def audit_books(kept: Sequence[Kept], roster: Path) -> Verdict:
    """Check what several peers have kept of one swarm.

    Args:
        kept: Of each, at least one; all of the same swarm and number of shards.
        roster: Says who may found, and with which keys peers sign.

    Raises:
        ConfigError: The roster cannot be read, or is none.
    """
    keys, shards = _keys(roster), kept[0].shards

    def grant(peer: str) -> int:
        return keys.grant(peer) * shards

    books = [(each.statements, each.proofs) for each in kept]
    return audit(books, kept[0].swarm, keys, grant)


def _keys(path: Path) -> Signer:
    # Those count, too, that have expired since: what they signed is as true as it was.
    roster = Roster.read(path, 0.0)
    signers = {each.signs: each.names for each in roster.machines.values() if each.signs}
    return Signer(None, signers, lambda: roster.founders)


def _as_json(statement: Statement) -> list[Any]:
    if isinstance(statement, Promise):
        totals = [in_units(statement.offered), in_units(statement.spent)]
        link = [*statement.link.sender, *statement.link.receiver]
        return [*link, statement.number, *totals, key_text(statement.signature)]
    totals = [in_units(statement.decided), in_units(statement.accepted)]
    return [*_as_json(statement.promise), *totals, key_text(statement.signature)]


def _statement(told: Any) -> Statement:
    sender, sender_life, receiver, receiver_life, number, offered, spent, signature = told[:8]
    names, numbers = (sender, receiver), (sender_life, receiver_life, number)
    if not all(type(each) is str for each in names) or not all(type(n) is int for n in numbers):
        raise ValueError("a statement has a name or a number that is none")
    promise = Promise(
        Link(Life(sender, sender_life), Life(receiver, receiver_life)),
        number,
        from_units(offered),
        from_units(spent),
        key_bytes(signature, _SIGNATURE_BYTES),
    )
    if len(told) == 8:
        return promise
    decided, accepted, signature = told[8:]
    totals = from_units(decided), from_units(accepted)
    return Receipt(promise, *totals, key_bytes(signature, _SIGNATURE_BYTES))
