"""A full disk: rows are lost and training continues, but an unwritable ledger ends it."""

import errno
import json
import logging
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
from safetensors import SafetensorError

from rumor.gossip import GoSGD, TrainingError
from rumor.gossip.weight import ONE
from rumor.train import Peer, PeerConfig
from rumor.train.config import RunConfig
from rumor.train.loop.trainer import run
from rumor.train.storage.journal import Call, Journal, JournalFile
from rumor.train.storage.jsonl import JsonlLog, MetricsLog, read_metrics
from rumor.train.storage.ledger_file import read_ledger

from ...waiting import turning, until
from ..members import linear, settings
from .test_journal import HEAD

WHY = "ledger.jsonl cannot be written .No space left on device.: training ends here"


def no_space(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullDisk:
    """Accepts *room_bytes* more for files of one name, then raises `OSError`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, room_bytes: int = 0) -> None:
        self.is_full = True
        self._name = name
        self._room_bytes = room_bytes
        self._write = os.write
        monkeypatch.setattr(os, "write", self._take)

    def _take(self, fd: int, data: bytes) -> int:
        if not self.is_full or Path(os.readlink(f"/proc/self/fd/{fd}")).name != self._name:
            return self._write(fd, data)
        if not self._room_bytes:
            no_space()
        taken = self._write(fd, data[: self._room_bytes])
        self._room_bytes -= taken
        return taken


def test_a_row_that_does_not_fit_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MetricsLog(tmp_path / "m") as log:
        log.write({"step": 1})
        disk = FullDisk(monkeypatch, "m", room_bytes=4)
        for step in (2, 3):
            with pytest.raises(OSError, match="No space left"):
                log.write({"step": step})
            assert (tmp_path / "m").read_text() == '{"step":1}\n'
        disk.is_full = False
        log.write({"step": 4})
    assert read_metrics(tmp_path / "m") == [{"step": 1}, {"step": 4}]


def test_a_partial_row_is_removed_before_the_next_row_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MetricsLog(tmp_path / "m")
    disk, file = FullDisk(monkeypatch, "m", room_bytes=4), log._file
    with monkeypatch.context() as broken:
        broken.setattr(log, "_file", SimpleNamespace(fileno=file.fileno, truncate=no_space))
        with pytest.raises(OSError, match="No space left"):
            log.write({"step": 1})
        assert (tmp_path / "m").read_text() == '{"st'
        disk.is_full = False
        with pytest.raises(OSError, match="No space left"):
            log.write({"step": 2})
    log.write({"step": 3})
    log.close()
    assert read_metrics(tmp_path / "m") == [{"step": 3}]


def test_lost_rows_are_logged_once_until_writing_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = JsonlLog(tmp_path / "metrics.jsonl")
    disk = FullDisk(monkeypatch, "metrics.jsonl")
    with caplog.at_level(logging.WARNING, "rumor"):
        for step, is_full in enumerate([True, True, False, False, True]):
            disk.is_full = is_full
            log.write({"step": step})
    log.close()
    log.write({"step": 9})
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 2}, {"step": 3}]
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 3 and messages[1] == f"{tmp_path}/metrics.jsonl can be written again"
    assert messages[0] == messages[2]
    assert "metrics.jsonl could not be written, training goes on" in messages[0]


def test_a_log_that_cannot_be_opened_is_retried_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    log = JsonlLog(tmp_path / "metrics.jsonl")
    log.write({"step": 1})
    (tmp_path / "metrics.jsonl").rmdir()
    log.write({"step": 2})
    log.close()
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 2}]
    assert len(caplog.records) == 2


@pytest.mark.parametrize("written", [True, False], ids=["not executed", "not written"])
def test_a_journal_with_missing_records_is_not_closed(tmp_path: Path, written: bool) -> None:
    journal = Journal(tmp_path / "j", HEAD)
    journal.called(Call("wake", 1.0))
    if not written:
        file = journal._file
        file.flush()
        journal._file = cast(Any, SimpleNamespace(write=no_space))
        for _ in range(2):
            with pytest.raises(TrainingError, match=r"j cannot be written .No space left"):
                journal.called(Call("wake", 2.0))
        journal._file = file
        with pytest.raises(TrainingError, match="No space left"):
            journal.called(Call("wake", 3.0))
    journal.close(whole=not written)
    read = JournalFile(tmp_path / "j")
    assert list(read) == [Call("wake", 1.0)] and not read.closed


def rumor_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("rumor-")]


@pytest.mark.live
def test_an_unwritable_ledger_ends_the_peer_like_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer(linear(), settings("a", out=tmp_path))
    with pytest.raises(TrainingError, match=WHY), peer:
        peer.step()
        FullDisk(monkeypatch, "ledger.jsonl", room_bytes=9)
        peer.leave()  # a lone peer burns its weight, which would have to be written
    with pytest.raises(TrainingError, match=WHY):
        peer.step()
    assert rumor_threads() == [] and "Traceback" not in caplog.text
    assert "leave in good order" not in caplog.text
    assert (tmp_path / "ledger.jsonl").read_text().endswith("\n")
    assert read_ledger(tmp_path / "ledger.jsonl")[0].weight == ONE


@pytest.mark.extended
@pytest.mark.live
def test_a_write_error_of_the_network_thread_reaches_the_training_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Peer(linear(), settings("a", rule=GoSGD(p=1e-9), leave_s=2)) as a:
        eager = settings("b", rule=GoSGD(p=1.0), out=tmp_path, join=a.address or "", leave_s=2)
        b = Peer(linear(), eager)
        with turning(a.step), pytest.raises(TrainingError, match=WHY), b:
            b._running().wait_for_share(0)
            # Enough room for a push, but not for its outcome.
            FullDisk(monkeypatch, "ledger.jsonl", room_bytes=130)
            while not b.stats().counters.pushes:
                b.step()
            failed = b._running()
            until(lambda: not failed.is_sound)
            assert b.weight > 0
            b.step()
        assert [name for name in rumor_threads() if name != "rumor-network"] == []
        a.leave()
    assert "Traceback" not in caplog.text
    kinds = [row["kind"] for row in read_metrics(tmp_path / "ledger.jsonl")]
    assert kinds[-1] == "pushed"


@pytest.mark.live
def test_a_run_continues_if_metrics_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    FullDisk(monkeypatch, "metrics.jsonl", room_bytes=700)
    with caplog.at_level(logging.WARNING, "rumor"):
        report = run(RunConfig(steps=30), PeerConfig(id="a", log_every=1, out=tmp_path))
    assert (report.state, report.stats.steps) == ("finished", 30)
    assert caplog.text.count("metrics.jsonl could not be written, training goes on") == 1
    assert read_metrics(tmp_path / "metrics.jsonl")


@pytest.mark.extended
@pytest.mark.live
def test_a_run_fails_if_its_final_model_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(sys.modules["rumor.train.storage.merge"], "save_file", fail)
    with pytest.raises(TrainingError, match=r"its end cannot be written to .*: make room"):
        run(RunConfig(steps=2), PeerConfig(id="a", out=tmp_path))
    assert not list(tmp_path.glob("*.draft"))
    report = json.loads((tmp_path / "peer.json").read_text())
    assert report["state"] == "failed" and "No space left on device" in report["error"]


@pytest.mark.extended
@pytest.mark.live
def test_a_run_fails_if_its_ledger_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    FullDisk(monkeypatch, "ledger.jsonl", room_bytes=100)
    stop.set()
    with pytest.raises(TrainingError, match=WHY):
        run(RunConfig(), PeerConfig(id="a", out=tmp_path), stop=stop)
    report = json.loads((tmp_path / "peer.json").read_text())
    assert report["state"] == "failed" and "make room, and resume it" in report["error"]
    assert rumor_threads() == []
