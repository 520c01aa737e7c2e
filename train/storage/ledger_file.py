"""A peer's ledgers on disk: every change of weight, written before it is acted on.

Each incarnation of a peer has its own file: ``ledger.jsonl``, then ``ledger.2.jsonl``, and so on.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...gossip.effects.ledger import Account, Entry, Kind
from ...gossip.errors import TrainingError
from ...gossip.weight import from_units, in_units
from .files import fatal
from .jsonl import MetricsLog, read_metrics

__all__ = ["LedgerFile", "ledger_paths", "new_ledger_path", "read_ledger", "read_ledgers"]

_NAME: Final = re.compile(r"ledger(?:\.([1-9]\d*))?\.jsonl")


class LedgerFile:
    """Appends the entries of one incarnation; the system has each one when `write` returns.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, path: Path, account: Account, shards: int = 1) -> None:
        self._path = path
        self._rows = MetricsLog(path)
        self.close = self._rows.close
        """Closes the file."""
        row = {"kind": "opened", "id": account.id, "incarnation": account.incarnation}
        try:
            self._rows.write(row | ({"shards": shards} if shards > 1 else {}))
        except BaseException:
            self.close()
            raise

    def write(self, entry: Entry) -> None:
        """Append one entry.

        Raises:
            TrainingError: It cannot be written, and no part of it is in the file; neither it nor
                any later entry may be acted on.
        """
        row: dict[str, Any] = {"kind": entry.kind.value, "units": in_units(entry.weight)}
        if entry.peer:
            row |= {"peer": entry.peer, "incarnation": entry.incarnation, "seq": entry.seq}
        if entry.shard:
            row["shard"] = entry.shard
        try:
            self._rows.write(row)
        except OSError as error:
            raise fatal(self._path, error) from error


def read_ledger(path: Path) -> tuple[Account, ...]:
    """Fold a ledger into accounts, one for each shard.

    A partial last line after a kill is ignored, as its entry was never acted on.

    Raises:
        TrainingError: The file is not a ledger, or its entries contradict each other.
    """
    try:
        opened, *rows = read_metrics(path)
        life = opened["id"], opened["incarnation"]
        accounts = tuple(Account(*life, shard) for shard in range(opened.get("shards", 1)))
        for row in rows:
            accounts[row.get("shard", 0)].apply(_entry(row))
    except (LookupError, ValueError) as error:
        raise TrainingError(f"{path} is not a ledger: {error}") from None
    return accounts


def ledger_paths(folder: Path) -> list[Path]:
    """Return the ledgers in a peer's folder, by incarnation."""
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.glob("ledger*.jsonl"))
    return [path for _, path in sorted((int(m[1] or 1), path) for m, path in matches if m)]


def new_ledger_path(folder: Path) -> Path:
    """Return the path for the ledger of the next incarnation of this folder's peer."""
    if not (before := ledger_paths(folder)):
        return folder / "ledger.jsonl"
    match = _NAME.fullmatch(before[-1].name)
    assert match is not None
    return folder / f"ledger.{int(match[1] or 1) + 1}.jsonl"


def read_ledgers(folder: Path) -> tuple[Account, ...]:
    """Fold all ledgers of a peer's folder into accounts by incarnation, then by shard.

    An incarnation that was killed before it completed its ledger's first line has changed no
    weight, and is skipped.

    Raises:
        TrainingError: A file is not a ledger, or its entries contradict each other.
    """
    opened = (path for path in ledger_paths(folder) if read_metrics(path))
    return tuple(account for path in opened for account in read_ledger(path))


def _entry(row: Mapping[str, Any]) -> Entry:
    return Entry(
        Kind(row["kind"]),
        from_units(row["units"]),
        row.get("peer", ""),
        row.get("incarnation", 0),
        row.get("seq", 0),
        row.get("shard", 0),
    )
