"""A peer's ledger on disk: every change of weight, written before anything leaves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..gossip.errors import TrainingError
from ..gossip.ledger import Account, Entry, Kind
from .metrics import MetricsLog, read_metrics

__all__ = ["LedgerFile", "read_ledger"]


class LedgerFile:
    """Appends the entries of one life of a peer; each is with the system when `write` returns.

    Args:
        path: Where they go.
        account: The peer's, of any shard.
        shards: Into how many the vector is cut.
    """

    def __init__(self, path: Path, account: Account, shards: int = 1) -> None:
        self._rows = MetricsLog(path)
        row = {"kind": "opened", "id": account.id, "incarnation": account.incarnation}
        self._rows.write(row | ({"shards": shards} if shards > 1 else {}))

    def write(self, entry: Entry) -> None:
        """Append one entry."""
        row = {"kind": entry.kind.value, "units": entry.units}
        if entry.peer:
            row |= {"peer": entry.peer, "incarnation": entry.incarnation, "seq": entry.seq}
        if entry.shard:
            row["shard"] = entry.shard
        self._rows.write(row)

    def close(self) -> None:
        """Close the file."""
        self._rows.close()


def read_ledger(path: Path) -> tuple[Account, ...]:
    """Fold a ledger into the accounts that it describes, one for each shard.

    A last line that a kill cut short is passed over: what it says was never acted on.

    Raises:
        TrainingError: This is not a ledger, or its entries contradict one another.
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


def _entry(row: Mapping[str, Any]) -> Entry:
    return Entry(
        Kind(row["kind"]),
        row["units"],
        row.get("peer", ""),
        row.get("incarnation", 0),
        row.get("seq", 0),
        row.get("shard", 0),
    )
