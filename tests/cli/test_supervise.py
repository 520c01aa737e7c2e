"""The launcher's processes: how they end when the user wants them to."""

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from rumor.cli.plan import LaunchConfig, Place, make_folders
from rumor.cli.supervise import supervise
from rumor.cli.watch import Sight, State

from .fakes import FAKE_PEER


class PressCtrlC:
    """A display at which a user waits for all peers to be ready and then presses the keys."""

    def __init__(self, places: Sequence[Place], times: int) -> None:
        self._files = [place.folder / "ready" for place in places]
        self._times = times

    def show(self, sights: Sequence[Sight], news: Sequence[str], elapsed_s: float) -> None:
        if self._times and all(file.exists() for file in self._files):
            self._times -= 1
            os.kill(os.getpid(), signal.SIGINT)


def peers(folder: Path, monkeypatch: pytest.MonkeyPatch, fate: str) -> list[Place]:
    monkeypatch.setenv("FAKE_FATES", json.dumps({"peer-0": fate, "peer-1": fate}))
    return make_folders(LaunchConfig(peers=2), 10, folder, FAKE_PEER)


def test_ctrl_c_makes_the_peers_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    places = peers(tmp_path, monkeypatch, "wait")
    before = signal.getsignal(signal.SIGINT)
    sights = supervise(places, 10, PressCtrlC(places, times=1))
    assert [sight.state for sight in sights] == [State.LEFT, State.LEFT]
    assert "once more kills them" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_peers_that_do_not_leave_are_killed_by_a_second_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = peers(tmp_path, monkeypatch, "ignore")
    sights = supervise(places, 10, PressCtrlC(places, times=2))
    assert {(sight.state, sight.why) for sight in sights} == {(State.KILLED, "SIGKILL")}


def test_a_program_that_cannot_be_started_leaves_no_process(tmp_path: Path) -> None:
    places = make_folders(LaunchConfig(peers=2), 10, tmp_path, ("/nowhere/peer",))
    with pytest.raises(OSError):
        supervise(places, 10, PressCtrlC(places, times=0))


def test_peers_get_one_thread_each_unless_the_user_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ("/bin/sh", "-c", 'echo "threads $OMP_NUM_THREADS"', "sh")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (one,) = make_folders(LaunchConfig(peers=1), 10, tmp_path / "a", program)
    supervise([one], 10, PressCtrlC([one], times=0))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    (two,) = make_folders(LaunchConfig(peers=1), 10, tmp_path / "b", program)
    supervise([two], 10, PressCtrlC([two], times=0))
    logs = [(place.folder / "log.txt").read_text() for place in (one, two)]
    assert logs == ["threads 1\n", "threads 3\n"]
