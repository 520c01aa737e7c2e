"""The launcher's processes: how they end, and who wakes stopped ones if the launcher is killed."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rumor.cli.launch.display import Display
from rumor.cli.launch.job import Place
from rumor.cli.launch.monitor import Monitor, PeerView, State
from rumor.cli.launch.processes.group import ProcessGroup, watchdog
from rumor.cli.launch.supervisor import supervise

from ...waiting import LIMIT_S
from .fakes import FAKE_PEER, places_of


class PressCtrlC:
    """A display at which a user waits for all peers to be ready and then presses the keys."""

    def __init__(self, places: Sequence[Place], times: int) -> None:
        self._files = [place.folder / "ready" for place in places]
        self._times = times

    def __call__(self, views: Sequence[PeerView], news: Sequence[str], elapsed_s: float) -> None:
        if self._times and all(file.exists() for file in self._files):
            self._times -= 1
            os.kill(os.getpid(), signal.SIGINT)


def peers(folder: Path, monkeypatch: pytest.MonkeyPatch, fate: str) -> list[Place]:
    monkeypatch.setenv("FAKE_FATES", json.dumps({"peer-0": fate, "peer-1": fate}))
    return places_of(folder, FAKE_PEER, peers=2, steps=10)


def run(places: Sequence[Place], display: Display) -> list[PeerView]:
    group = ProcessGroup(places)
    return supervise(group, Monitor(group.places, group.processes, 10), display)


def test_ctrl_c_makes_the_peers_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    places = peers(tmp_path, monkeypatch, "wait")
    before = signal.getsignal(signal.SIGINT)
    views = run(places, PressCtrlC(places, times=1))
    assert [view.state for view in views] == [State.LEFT, State.LEFT]
    assert "once more kills them" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_peers_that_do_not_leave_are_killed_by_a_second_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = peers(tmp_path, monkeypatch, "ignore")
    views = run(places, PressCtrlC(places, times=2))
    assert {(view.state, view.why) for view in views} == {(State.KILLED, "SIGKILL")}


HEARS = "trap 'touch {folder}/heard; exit 0' INT; touch {folder}/ready; sleep 600 & wait"


def test_a_script_in_a_shell_hears_ctrl_c_and_what_it_leaves_running_is_named(
    tmp_path: Path,
) -> None:
    (place,) = places_of(tmp_path, ("/bin/true",), peers=1, steps=10)
    inner = HEARS.format(folder=place.folder)
    # The shell waits for what it has started, and passes nothing on.
    place = replace(place, command=("/bin/sh", "-c", f'/bin/sh -c "{inner}"; true'))
    group = ProcessGroup([place])
    supervise(group, Monitor(group.places, group.processes, 10), PressCtrlC([place], times=1))
    assert (place.folder / "heard").exists()
    left = group.leftovers()
    assert [(each.peer, each.name) for each in left] in ([], [("peer-0", "sleep")])
    for each in left:
        os.kill(each.pid, signal.SIGKILL)


def test_what_a_script_leaves_running_is_named(tmp_path: Path) -> None:
    (place,) = places_of(tmp_path, ("/bin/true",), peers=1, steps=10)
    place = replace(place, command=("/bin/sh", "-c", "sleep 600 & exit 0"))
    group = ProcessGroup([place])
    group.start()
    group.wait()
    ((peer, pid, name),) = group.leftovers()
    os.kill(pid, signal.SIGKILL)
    assert (peer, name) == ("peer-0", "sleep")


def test_a_program_that_cannot_be_started_leaves_no_process(tmp_path: Path) -> None:
    places = places_of(tmp_path, ("/nowhere/peer",), peers=2, steps=10)
    with pytest.raises(OSError):
        run(places, PressCtrlC(places, times=0))


def test_peers_get_one_thread_each_unless_the_user_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ("/bin/sh", "-c", 'echo "threads $OMP_NUM_THREADS"', "sh")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (one,) = places_of(tmp_path / "a", program, peers=1, steps=10)
    run([one], PressCtrlC([one], times=0))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    (two,) = places_of(tmp_path / "b", program, peers=1, steps=10)
    run([two], PressCtrlC([two], times=0))
    logs = [(place.folder / "log.txt").read_text() for place in (one, two)]
    assert logs == ["threads 1\n", "threads 3\n"]


class Once:
    """Something that is done when a peer has been killed: another is started in its place."""

    def __init__(self, group: ProcessGroup, monitor: Monitor) -> None:
        self._group = group
        self._monitor = monitor
        self.next_s = 0.01
        self.will_revive = True
        self.cancelled = False

    def update(self) -> list[str]:
        if not (self.will_revive and self._monitor.over):
            return []
        self.will_revive = False
        self._monitor.ended(0)
        self._group.restart(0, self._group.places[0])
        self._monitor.reborn(0)
        return ["started again"]

    def cancel(self) -> None:
        self.cancelled = True


def test_a_run_is_not_over_while_somebody_is_to_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FATES", json.dumps({"peer-0": "kill"}))
    group = ProcessGroup(places_of(tmp_path, FAKE_PEER, peers=1, steps=10))
    monitor = Monitor(group.places, group.processes, 10)
    (view,) = supervise(
        group, monitor, PressCtrlC(group.places, times=0), cast(Any, once := Once(group, monitor))
    )
    assert [end.why for end in view.earlier] == ["SIGKILL"] and view.why == "SIGKILL"
    assert not once.cancelled


def test_after_a_ctrl_c_nothing_more_is_done_to_peers_and_the_paused_hear_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = peers(tmp_path, monkeypatch, "wait")
    group = ProcessGroup(places)
    monitor = Monitor(group.places, group.processes, 10)

    class Pause(Once):
        def update(self) -> list[str]:
            ready = (places[0].folder / "ready").exists()
            if ready and not self.cancelled:
                self._group.hold(0, "pause")
            return []

    pause = Pause(group, monitor)
    pause.will_revive = False
    views = supervise(group, monitor, PressCtrlC(places, times=1), cast(Any, pause))
    assert [view.state for view in views] == [State.LEFT, State.LEFT]
    assert pause.cancelled


def test_a_process_whose_number_cannot_be_written_down_is_not_left_behind(tmp_path: Path) -> None:
    place = Place(index=0, id="peer-0", folder=tmp_path, command=("/bin/sleep", "60"))
    (tmp_path / "pid").mkdir()  # as on a full disk, nothing can be written there
    told = io.BytesIO()
    group = ProcessGroup([place], cast(Any, SimpleNamespace(stdin=told)))
    with pytest.raises(OSError):
        group.start()
    started = int(told.getvalue())
    with pytest.raises(ProcessLookupError):
        os.kill(started, 0)
    assert group.processes == []


LAUNCHER = """
import os, signal, subprocess, sys
from rumor.cli.launch.processes.group import watchdog

pipe = watchdog().stdin
peer = subprocess.Popen(["/bin/sh", "-c", "kill -STOP $$; echo awake"], start_new_session=True)
print(peer.pid, flush=True)
pipe.write(f"{peer.pid}\\n".encode())
os.waitpid(peer.pid, os.WUNTRACED)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_peer_that_stands_still_goes_on_when_its_launcher_is_killed() -> None:
    # Without a buffer, in which `communicate` would not look for what came with the first line.
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER], bufsize=0, stdout=subprocess.PIPE
    ) as launcher:
        assert launcher.stdout is not None
        peer = int(launcher.stdout.readline())
        try:
            # Its end is when the peer has ended, too: it has the other side.
            said, _ = launcher.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.kill(peer, signal.SIGKILL)
            raise
    assert (launcher.returncode, said) == (-signal.SIGKILL, b"awake\n")


def inodes(folder: Path) -> Iterator[int]:
    for path in folder.iterdir():
        # A program that has just begun opens its libraries, and closes them again.
        with suppress(FileNotFoundError):
            yield path.stat().st_ino


def test_a_watchdog_is_told_of_all_that_are_started_and_no_peer_holds_its_pipe(
    tmp_path: Path,
) -> None:
    place = Place(index=0, id="peer-0", folder=tmp_path, command=("/bin/sleep", "60"))
    read, write = os.pipe()
    with open(read, "rb") as reader, open(write, "wb", buffering=0) as pipe:
        group = ProcessGroup([place], cast(Any, SimpleNamespace(stdin=pipe)))
        group.start()
        group.add(place)
        group.kill(0)
        group.restart(0, place)
        try:
            for process in group.processes:
                folder = Path(f"/proc/{process.pid}/fd")
                if folder.exists():
                    held = list(inodes(folder))
                    assert held and os.fstat(write).st_ino not in held
        finally:
            group.kill_all()
            group.wait()
        pipe.close()
        told = {int(line) for line in reader}
    assert len(told) == 3 and {process.pid for process in group.processes} < told


def test_a_run_goes_on_without_a_watchdog_that_was_killed(tmp_path: Path) -> None:
    place = Place(index=0, id="peer-0", folder=tmp_path, command=("/bin/true",))
    with watchdog() as waker:
        waker.kill()
        waker.wait()
        group = ProcessGroup([place, place, place], waker)
        group.start()
        group.wait()
    assert [process.poll() for process in group.processes] == [0, 0, 0]


def test_a_watchdog_ends_with_the_run_whoever_has_ended_before() -> None:
    with watchdog() as waker, subprocess.Popen(["/bin/true"]) as ended:
        assert waker.stdin is not None
        ended.wait()
        waker.stdin.write(f"{ended.pid}\n".encode())
    assert waker.returncode == 0
