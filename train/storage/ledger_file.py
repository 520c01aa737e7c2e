"""A peer's ledgers on disk: every change of weight, written before it is acted on.

Each incarnation of a peer has its own file: ``ledger.jsonl``, then ``ledger.2.jsonl``, and so on.
"""

import re
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
    """Appends the entries of one incarnation; the system has each one when `write` returns."""

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
        """Append one entry, or raise TrainingError: then no further entry may be acted on."""
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

    Raises:
        TrainingError: The file is not a ledger, or its entries contradict each other.
    """
    try:
        # After a kill, this leaves out a partial last entry, which was never acted on.
        opened, *rows = read_metrics(path)
        life = opened["id"], opened["incarnation"]
        accounts = tuple(Account(*life, shard) for shard in range(opened.get("shards", 1)))
        for row in rows:
            accounts[row.get("shard", 0)].apply(
                Entry(
                    Kind(row["kind"]),
                    from_units(row["units"]),
                    row.get("peer", ""),
                    row.get("incarnation", 0),
                    row.get("seq", 0),
                    row.get("shard", 0),
                )
            )
    except (LookupError, ValueError) as error:
        raise TrainingError(f"{path} is not a ledger: {error}") from None
    return accounts


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.glob("ledger*.jsonl"))
    return sorted((int(match[1] or 1), path) for match, path in matches if match)


def ledger_paths(folder: Path) -> list[Path]:
    """Return the ledgers in a peer's folder, by incarnation."""
    return [path for _, path in _numbered(folder)]


def new_ledger_path(folder: Path) -> Path:
    """Return the path for the ledger of the next incarnation of this folder's peer."""
    if before := _numbered(folder):
        return folder / f"ledger.{before[-1][0] + 1}.jsonl"
    return folder / "ledger.jsonl"


def read_ledgers(folder: Path) -> tuple[Account, ...]:
    """Fold all ledgers of a peer's folder, see `read_ledger`; by incarnation, then by shard."""
    # An incarnation that was killed before it completed its first line has changed no weight.
    opened = (path for path in ledger_paths(folder) if read_metrics(path))
    return tuple(account for path in opened for account in read_ledger(path))
