"""A peer's ledger on disk."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from rumor.gossip import TrainingError
from rumor.gossip.effects.ledger import Account, Entry, Kind
from rumor.gossip.weight import ONE, UNIT
from rumor.train.storage.ledger_file import LedgerFile, read_ledger

ENTRIES = [
    Entry(Kind.FOUNDED, ONE),
    Entry(Kind.PUSHED, ONE // 2, "b", 7, 1),
    Entry(Kind.ACCEPTED, 5, "c", 9, 3),
    Entry(Kind.SETTLED, ONE // 4, "b", 7, 1),
]


def write_ledger(path: Path, entries: Sequence[Entry] = ENTRIES) -> Account:
    account = Account("a", 42)
    ledger = LedgerFile(path, account)
    for entry in entries:
        ledger.write(account.apply(entry))
    ledger.close()
    return account


def test_a_ledger_is_read_as_written_even_below_a_unit(tmp_path: Path) -> None:
    assert (write_ledger(tmp_path / "whole"),) == read_ledger(tmp_path / "whole")
    held, path = 2**53 - 1, tmp_path / "ledger.jsonl"
    account = write_ledger(
        path,
        [
            Entry(Kind.ACCEPTED, held, "b", 7, 1),
            Entry(Kind.PUSHED, held // 2, "b", 7, 1),
            Entry(Kind.ACCEPTED, 3 * UNIT // 2, "c", 9, 1),
            Entry(Kind.BURNED, 3 * UNIT // 2, "", 0, 0),
        ],
    )
    assert (account,) == read_ledger(path) and account.weight == held - held // 2
    assert '"units":"3/2^1"' in path.read_text().replace(" ", "")


OPENED = '{"kind":"opened","id":"a","incarnation":1}\n'


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"kind":"founded","units":1}\n',
        '{"x":1}\n{"y":2}\n',
        OPENED + '{"kind":"founded","units":-1}\n',
        OPENED + '{"kind":"founded","units":"2/2^1"}\n',
        OPENED + '{"kind":"founded","units":1.5}\n',
    ],
)
def test_a_file_that_is_not_a_ledger_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(text)
    with pytest.raises(TrainingError, match="not a ledger"):
        read_ledger(path)
