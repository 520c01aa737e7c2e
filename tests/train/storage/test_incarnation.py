"""What survives of one life of a peer for the next one."""

import json
from pathlib import Path

import pytest

from rumor.gossip import ConfigError, audit
from rumor.gossip.effects.ledger import Account, Entry, Kind
from rumor.gossip.wire.messages import Member, Phase
from rumor.train.config import Recurrence
from rumor.train.storage.incarnation import (
    PeerTable,
    last_id,
    next_incarnation,
    note_incarnation,
)
from rumor.train.storage.ledger_file import LedgerFile, ledger_paths, new_ledger_path, read_ledgers

DAY_MS = 86_400_000


def test_the_clock_counts_lives_and_one_that_went_back_repeats_none(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        assert next_incarnation(folder, "a", 12.5, DAY_MS) == 12_500
    note_incarnation(tmp_path, "a", 90_000)
    assert next_incarnation(tmp_path, "a", 12.5, DAY_MS) == 90_001
    assert next_incarnation(tmp_path, "a", 91.0, DAY_MS) == 91_000


def test_a_life_that_nobody_would_believe_is_not_begun(tmp_path: Path) -> None:
    note_incarnation(tmp_path, "a", 1_000 + 3 * DAY_MS)
    with pytest.raises(ConfigError, match=r"3 days ahead .* set the clock right"):
        next_incarnation(tmp_path, "a", 1.0, DAY_MS)
    assert next_incarnation(tmp_path, "a", 1.0, 4 * DAY_MS) == 1_001 + 3 * DAY_MS


def test_a_folder_knows_whose_it_is(tmp_path: Path) -> None:
    assert last_id(tmp_path) is None
    note_incarnation(tmp_path, "a", 5)
    assert last_id(tmp_path) == "a"
    with pytest.raises(ConfigError, match="is of peer a, and this is b"):
        next_incarnation(tmp_path, "b", 1.0, DAY_MS)


@pytest.mark.parametrize("content", ["", "[]", '{"id": "a"}', '{"id": "a", "incarnation": "x"}'])
def test_a_count_that_cannot_be_read_is_not_guessed(tmp_path: Path, content: str) -> None:
    (tmp_path / "life.json").write_text(content)
    with pytest.raises(ConfigError, match="which incarnation of its peer was the last"):
        next_incarnation(tmp_path, "a", 1.0, DAY_MS)


def member(id: str, *addresses: str) -> Member:
    return Member(id, 1, 0, Phase.TRAINING, 0, addresses)


def test_the_table_says_whom_the_next_life_can_ask(tmp_path: Path) -> None:
    table = PeerTable(tmp_path)
    assert table.addresses() == ()
    known = [member("a", "tcp://a:1", "tcp://b:2"), member("c"), member("d", "x:1")]
    assert table.update(known)
    table.write()
    assert not table.update(known) and not table.update([]), "nothing is new, and it may come back"
    assert PeerTable(tmp_path).addresses() == ("tcp://a:1", "tcp://b:2", "tcp://x:1")


def noted(folder: Path) -> list[str]:
    return [row["id"] for row in json.loads((folder / "peers.json").read_text())]


def lived(folder: Path, *members: Member, departed: tuple[str, ...] = ()) -> PeerTable:
    """A life in which these were known."""
    table = PeerTable(folder)
    table.update(members, departed)
    table.write()
    return table


def test_a_life_that_meets_nobody_leaves_the_next_one_somebody_to_ask(tmp_path: Path) -> None:
    lived(tmp_path, member("y", "tcp://y:1"), member("z", "tcp://z:1"))
    lived(tmp_path)
    assert PeerTable(tmp_path).addresses() == ("tcp://y:1", "tcp://z:1")
    lived(tmp_path, member("a", "tcp://a:1"), member("z", "tcp://z:2"))
    assert PeerTable(tmp_path).addresses() == ("tcp://a:1", "tcp://z:2", "tcp://y:1")
    lived(tmp_path, member("z"), departed=("y",))
    assert noted(tmp_path) == ["a"], "z only dials out now, and y has left"


def test_a_table_forgets_a_peer_that_left(tmp_path: Path) -> None:
    table = lived(tmp_path, member("y", "tcp://y:1"), member("z", "tcp://z:1"))
    assert table.update([member("y", "tcp://y:1")], ["z"])
    assert not table.update([])
    table.write()
    assert noted(tmp_path) == ["y"]


def test_the_table_has_bounds_and_those_stay_that_were_heard_last(tmp_path: Path) -> None:
    former = [member(f"old-{number:03}", f"tcp://old:{number + 1}") for number in range(300)]
    lived(tmp_path, *former)
    assert noted(tmp_path) == [each.id for each in former[:64]]
    lived(tmp_path, *(member(f"new-{number}", f"tcp://new:{number + 1}") for number in range(3)))
    assert noted(tmp_path) == ["new-0", "new-1", "new-2", *(each.id for each in former[:61])]


@pytest.mark.parametrize("content", ["", "3", '[{"id": 1}]', '[{"addresses": ["a/b"]}]'])
def test_a_damaged_table_costs_seeds_and_nothing_else(tmp_path: Path, content: str) -> None:
    (tmp_path / "peers.json").write_text(content)
    assert PeerTable(tmp_path).addresses() == ()


def opened(folder: Path, incarnation: int, *entries: Entry) -> None:
    account = Account("a", incarnation)
    file = LedgerFile(new_ledger_path(folder), account)
    for entry in entries:
        file.write(entry)
    file.close()


def test_each_life_has_a_ledger_of_its_own(tmp_path: Path) -> None:
    assert read_ledgers(tmp_path) == ()
    for life in range(1, 12):
        opened(tmp_path, life, Entry(Kind.FOUNDED, 10))
    assert [path.name for path in ledger_paths(tmp_path)][:2] == ["ledger.jsonl", "ledger.2.jsonl"]
    accounts = read_ledgers(tmp_path)
    assert [account.incarnation for account in accounts] == list(range(1, 12))
    assert audit(accounts, [("a", n) for n in range(1, 11)]).died == 100
    # One that never wrote a whole line is passed over.
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
def test_an_interval_is_as_people_type_it_and_begins_anew_when_it_is_over(
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
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is malformed: write 60s"):
        Recurrence(text)
