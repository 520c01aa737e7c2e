"""The store of finished trials: whole or missing, even if its files are damaged."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from rumor.sim.study.execution.store import Store

KEY = "ab" * 16
RECORD: dict[str, Any] = {
    "summary": {"accuracy": 0.1 + 0.2, "digest": "x"},
    "facts": {},
    "wall_s": 1.5,
    "series": {"time_s": [0.0, 1e-300], "loss": [None, 2.5]},
}


def test_a_stored_trial_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    Store(tmp_path).put(KEY, RECORD)
    store = Store(tmp_path)
    assert store.get(KEY) == RECORD
    assert store.get("cd" * 16) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "\x00" * len(text),
        lambda text: text.replace(KEY, "cd" * 16),
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: "[]",
        lambda text: "{}",
        lambda text: "[" * 100_000,
    ],
)
def test_a_damaged_file_counts_as_missing(tmp_path: Path, spoil: Any) -> None:
    store = Store(tmp_path)
    store.put(KEY, RECORD)
    path = tmp_path / "trials" / f"{KEY}.json"
    path.write_text(spoil(path.read_text()))
    assert store.get(KEY) is None


def test_a_full_disk_leaves_the_old_trial_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.put(KEY, RECORD)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rumor.train.storage.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.put(KEY, RECORD | {"wall_s": 9.0})
    with pytest.raises(OSError, match="No space left"):
        store.put("cd" * 16, RECORD)
    assert store.get(KEY) == RECORD
    assert [path.name for path in (tmp_path / "trials").iterdir()] == [f"{KEY}.json"]
