"""The launcher's view of its peers: their progress, ends and errors."""

import errno
import json
from pathlib import Path

import pytest

from rumor.cli.launch.config import Place
from rumor.cli.launch.monitor import Monitor, State, last_words, read_log


class FakeProcess:
    """A fake process with this exit status; None means that it runs."""

    def __init__(self, status: int | None = None) -> None:
        self.status = status

    def poll(self) -> int | None:
        return self.status


def place(folder: Path) -> Place:
    return Place(index=0, id="peer-0", folder=folder, command=())


def test_a_peer_starts_trains_and_finishes(tmp_path: Path) -> None:
    process = FakeProcess()
    monitor = Monitor([place(tmp_path)], [process], steps=20)
    seen = []
    for row in ("", '{"step":10}\n', '{"step":20}\n'):
        with open(tmp_path / "metrics.jsonl", "a") as file:
            file.write(row)
        assert monitor.update() == []
        seen.append(monitor.views[0].state)
    assert seen == [State.STARTING, State.TRAINING, State.FINISHED]
    # The peer still mixes with peers that train.
    assert not monitor.over
    (tmp_path / "peer.json").write_text('{"state":"finished","error":null}')
    process.status = 0
    assert monitor.update() == [] and monitor.over


def test_new_rows_are_passed_to_the_callback_once(tmp_path: Path) -> None:
    received: list[tuple[str, int]] = []
    (tmp_path / "metrics.jsonl").write_text('{"step":10}\n')
    monitor = Monitor(
        [place(tmp_path)],
        [FakeProcess()],
        20,
        on_row=lambda id, row: received.append((id, row["step"])),
    )
    assert (monitor.views[0].step, monitor.began) == (10, False)
    for step in (11, 12):
        with open(tmp_path / "metrics.jsonl", "a") as file:
            file.write(f'{{"step":{step}}}\n')
        monitor.update()
        monitor.update()
    assert received == [("peer-0", 11), ("peer-0", 12)]


FINISHED, LEFT, NAN = {"state": "finished"}, {"state": "left"}, {"state": "failed", "error": "NaN"}
ENDED = FINISHED | {"ended_by": "ada"}
AFTERWARDS = "peer-0: its script failed afterwards: "
NOT_REACHED = (
    "peer-0 failed at step 10: its process ended with exit status 0, and no peer trained "
    "to its end in it: see that it reaches the end of a `with Peer(model)` block, and is not read "
    "from stdin, which is empty"
)


@pytest.mark.parametrize(
    ("status", "report", "state", "news"),
    [
        (-9, None, State.KILLED, "peer-0 killed at step 10: SIGKILL"),
        # A real-time signal, which has no name.
        (-40, None, State.KILLED, "peer-0 killed at step 10: signal 40"),
        (0, LEFT, State.LEFT, "peer-0 left at step 10"),
        (1, NAN, State.FAILED, "peer-0 failed at step 10: NaN"),
        (1, None, State.FAILED, "peer-0 failed at step 10: no such device"),
        # The peer had written its report, so its training is complete.
        (-9, FINISHED, State.FINISHED, f"{AFTERWARDS}ended by SIGKILL"),
        (1, FINISHED, State.FINISHED, f"{AFTERWARDS}no such device"),
        (1, LEFT, State.LEFT, f"peer-0 left at step 10; {AFTERWARDS}no such device"),
        (-2, LEFT, State.LEFT, "peer-0 left at step 10"),
        (143, LEFT, State.LEFT, "peer-0 left at step 10"),
        (-11, None, State.FAILED, "peer-0 failed at step 10: ended by SIGSEGV"),
        (139, None, State.FAILED, "peer-0 failed at step 10: ended by SIGSEGV"),
        (0, None, State.FAILED, NOT_REACHED),
        (0, ENDED, State.FINISHED, "peer-0 finished at step 10: ended by ada"),
    ],
)
def test_the_end_of_a_peer_is_reported_once(
    tmp_path: Path, status: int, report: dict[str, str] | None, state: State, news: str
) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step":10}\n')
    (tmp_path / "log.txt").write_text("12:00 met peer-1\nerror: no such device\nlast line\n")
    if report is not None:
        (tmp_path / "peer.json").write_text(json.dumps(report))
    monitor = Monitor([place(tmp_path)], [FakeProcess(status)], steps=20)
    assert "; ".join(monitor.update()) == news
    view = monitor.views[0]
    assert view.state is state and bool(view.script_error) is (AFTERWARDS in news)
    assert monitor.over and monitor.update() == []


def test_the_last_line_of_a_log_without_an_error_is_shown(tmp_path: Path) -> None:
    assert last_words(tmp_path) == ""
    (tmp_path / "log.txt").write_text("Traceback:\n  ...\nMemoryError\n\n")
    assert last_words(tmp_path) == "MemoryError"


def test_torchruns_own_report_is_not_mistaken_for_the_error(tmp_path: Path) -> None:
    report = "torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)"
    log = [
        "[rank0]:   in main",
        "[rank0]: ValueError: no data",
        f"E1129 {report}",
        "train.py FAILED",
    ]
    (tmp_path / "log.txt").write_text("\n".join([*log, "====="]))
    assert last_words(tmp_path) == "ValueError: no data"
    assert read_log(tmp_path) == log[:2]


def test_a_run_ends_when_the_swarm_has_taken_its_total_steps(
    tmp_path: Path,
) -> None:
    monitor = Monitor([place(tmp_path)], [FakeProcess()], steps=None, steps_total=400)
    seen = []
    for row in ('{"step":10,"swarm_steps":100}\n', '{"step":40,"swarm_steps":400}\n'):
        with open(tmp_path / "metrics.jsonl", "a") as file:
            file.write(row)
        monitor.update()
        seen.append((monitor.views[0].progress, monitor.views[0].state))
    assert seen == [(0.25, State.TRAINING), (1.0, State.FINISHED)]


def test_a_later_incarnation_is_followed_in_its_new_folder(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step":10}\n')
    places, processes = [place(tmp_path)], [FakeProcess(-9)]
    monitor = Monitor(places, processes, steps=20)
    monitor.ended(0)
    assert monitor.update() == ["peer-0 killed at step 10: SIGKILL"]
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "metrics.jsonl").write_text('{"step":5}\n')
    places[0], processes[0] = place(tmp_path / "new"), FakeProcess()
    monitor.reborn(0)
    assert not monitor.over and not monitor.began
    assert monitor.update() == []
    assert (monitor.views[0].step, monitor.views[0].state) == (5, State.TRAINING)
    assert [(end.step, end.state) for end in monitor.views[0].earlier] == [(10, State.KILLED)]


def test_the_launcher_reports_a_full_disk_that_the_log_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    (tmp_path / "log.txt").write_text("taking part as peer-0\n")
    monitor = Monitor([place(tmp_path)], [FakeProcess(1)], steps=20)
    (message,) = monitor.update()
    assert (
        message == "peer-0 failed at step 0: its folder cannot be written: No space left on device"
    )


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("[Errno 24] Too many open files: 'x'", "ulimit -n"),
        ("[Errno 28] No space left on device", "another disk"),
    ],
)
def test_a_system_limit_is_reported_with_advice(error: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(f"OSError: {error}\n")
    monitor = Monitor([place(tmp_path)], [FakeProcess(1)], steps=20)
    (message,) = monitor.update()
    assert error in message and advice in message


@pytest.mark.parametrize("again", [False, True])
def test_deaths_are_announced_once_unless_the_peer_is_restarted(
    tmp_path: Path, again: bool
) -> None:
    (tmp_path / "ledger.jsonl").write_text('{"kind":"opened","id":"peer-0","incarnation":7}\n')
    monitor = Monitor([place(tmp_path)], [FakeProcess(-9)], steps=20)
    if again:
        monitor.ended(0)
        monitor.reborn(0)
    else:
        monitor.update()
        assert monitor.take_deaths() == [("peer-0", 7)]
    assert monitor.take_deaths() == []
