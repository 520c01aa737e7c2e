"""Files that one incarnation of a peer leaves for the next."""

from pathlib import Path

import pytest

from rumor.gossip import ConfigError, audit
from rumor.gossip.effects.ledger import Account, Entry, Kind
from rumor.train.config import Recurrence
from rumor.train.storage.incarnation import (
    LastIncarnation,
    last_incarnation,
    next_incarnation,
    note_incarnation,
)
from rumor.train.storage.ledger_file import LedgerFile, ledger_paths, new_ledger_path, read_ledgers

DAY_MS = 86_400_000


def test_incarnations_follow_the_clock_and_never_repeat(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        assert next_incarnation(folder, "a", 12.5) == 12_500
    note_incarnation(tmp_path, "a", 90_000)
    assert next_incarnation(tmp_path, "a", 12.5) == 90_001
    assert next_incarnation(tmp_path, "a", 91.0) == 91_000


def test_an_incarnation_too_far_in_the_future_is_refused(tmp_path: Path) -> None:
    note_incarnation(tmp_path, "a", 1_000 + 3 * DAY_MS)
    with pytest.raises(ConfigError, match=r"3 days ahead .* set the clock right"):
        next_incarnation(tmp_path, "a", 1.0)


def test_a_folder_belongs_to_one_peer(tmp_path: Path) -> None:
    assert last_incarnation(tmp_path) is None
    note_incarnation(tmp_path, "a", 5)
    assert last_incarnation(tmp_path) == LastIncarnation("a", 5, ())
    with pytest.raises(ConfigError, match="is of peer a, and this is b"):
        next_incarnation(tmp_path, "b", 1.0)


@pytest.mark.parametrize("content", ["", "[]", '{"id": "a"}', '{"id": "a", "incarnation": "x"}'])
def test_an_unreadable_incarnation_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "life.json").write_text(content)
    with pytest.raises(ConfigError, match="which incarnation of its peer was the last"):
        next_incarnation(tmp_path, "a", 1.0)


def test_addresses_are_kept_with_the_incarnation(tmp_path: Path) -> None:
    note_incarnation(tmp_path, "a", 5, ("tcp://b:1", "tcp://c:1"))
    assert last_incarnation(tmp_path) == LastIncarnation("a", 5, ("tcp://b:1", "tcp://c:1"))


def write_ledger(folder: Path, incarnation: int, *entries: Entry) -> None:
    account = Account("a", incarnation)
    file = LedgerFile(new_ledger_path(folder), account)
    for entry in entries:
        file.write(entry)
    file.close()


def test_each_incarnation_has_its_own_ledger(tmp_path: Path) -> None:
    assert read_ledgers(tmp_path) == ()
    for incarnation in range(1, 12):
        write_ledger(tmp_path, incarnation, Entry(Kind.FOUNDED, 10))
    assert [path.name for path in ledger_paths(tmp_path)][:2] == ["ledger.jsonl", "ledger.2.jsonl"]
    accounts = read_ledgers(tmp_path)
    assert [account.incarnation for account in accounts] == list(range(1, 12))
    assert audit(accounts, [("a", n) for n in range(1, 11)]).died == 100
    # A ledger without a whole line is skipped.
    (tmp_path / "ledger.jsonl").write_bytes(b'{"kind":"ope')
    assert [account.incarnation for account in read_ledgers(tmp_path)] == list(range(2, 12))


@pytest.mark.parametrize(
    ("text", "every_s", "every_steps"),
    [
        ("1.5min", 90.0, None),
        ("2 h", 7200.0, None),
        ("1 step", None, 1),
        ("10s, 5steps", 10.0, 5),
        ("never", None, None),
    ],
)
def test_an_interval_is_parsed_and_restarts_when_it_is_over(
    text: str, every_s: float | None, every_steps: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s = 100.0
    monkeypatch.setattr("rumor.train.config.time.monotonic", lambda: clock_s)
    recurrence = Recurrence(text)
    for start_steps in (10, 1000):
        recurrence.done(start_steps)
        assert not recurrence.is_due(start_steps)
        far = start_steps + (every_steps or 10**6)
        assert recurrence.is_due(far) is (every_steps is not None)
        assert not recurrence.is_due(far - 1)
        clock_s += every_s or 10**6
        assert recurrence.is_due(start_steps) is (every_s is not None)


@pytest.mark.parametrize("text", ["", "60", "0s", "-5s", "2.5steps", "steps", "60s,", "3d"])
def test_a_malformed_interval_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is malformed: write 60s"):
        Recurrence(text)
