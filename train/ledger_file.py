"""A peer's ledger on disk: every change of weight, written before anything leaves."""

from pathlib import Path

from ..gossip.errors import TrainingError
from ..gossip.ledger import Account, Entry, Kind
from .metrics import MetricsLog, read_metrics

__all__ = ["LedgerFile", "read_ledger"]


class LedgerFile:
    """Appends the entries of one life of a peer; each is with the system when `write` returns."""

    def __init__(self, path: Path, account: Account) -> None:
        self._rows = MetricsLog(path)
        row = {"kind": "opened", "id": account.id, "incarnation": account.incarnation}
        self._rows.write(row)

    def write(self, entry: Entry) -> None:
        """Append one entry."""
        row = {"kind": entry.kind.value, "units": entry.units}
        if entry.peer:
            row |= {"peer": entry.peer, "incarnation": entry.incarnation, "seq": entry.seq}
        self._rows.write(row)

    def close(self) -> None:
        """Close the file."""
        self._rows.close()


def read_ledger(path: Path) -> Account:
    """Fold a ledger into the account that it describes.

    A last line that a kill cut short is passed over: what it says was never acted on.

    Raises:
        TrainingError: This is not a ledger, or its entries contradict one another.
    """
    try:
        opened, *rows = read_metrics(path)
        account = Account(opened["id"], opened["incarnation"])
        for row in rows:
            account.apply(
                Entry(
                    Kind(row["kind"]),
                    row["units"],
                    row.get("peer", ""),
                    row.get("incarnation", 0),
                    row.get("seq", 0),
                )
            )
    except (KeyError, ValueError) as error:
        raise TrainingError(f"{path} is not a ledger: {error}") from None
    return account
