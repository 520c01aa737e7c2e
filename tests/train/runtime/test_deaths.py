"""What a launcher tells a peer of others that died."""

from pathlib import Path

import pytest

from rumor.train.runtime.telling import deaths
from rumor.train.runtime.telling.deaths import DeathNotices, note_death


def test_each_death_is_read_once_and_a_torn_line_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deaths, "_EVERY_S", 0.0)
    notices = DeathNotices(tmp_path)
    assert list(notices.take()) == []
    note_death(tmp_path, "ann", 3)
    assert list(notices.take()) == [("ann", 3)]
    with open(tmp_path / "dead.jsonl", "a") as file:
        file.write('{"id": "b')  # the disk was full
    assert list(notices.take()) == []
    note_death(tmp_path, "bob", 4)
    assert list(notices.take()) == []
    note_death(tmp_path, "cyd", 5)
    assert list(notices.take()) == [("cyd", 5)]
    assert list(DeathNotices(None).take()) == []
