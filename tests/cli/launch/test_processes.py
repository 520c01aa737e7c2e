"""The launcher's processes: how they end, and how paused ones wake if the launcher is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from rumor.cli.launch.config import PROGRAM, Place
from rumor.cli.launch.display import Display
from rumor.cli.launch.monitor import Monitor, PeerView, State
from rumor.cli.launch.processes import ProcessGroup
from rumor.cli.launch.swarm import supervise

from ...waiting import LIMIT_S, until
from .fakes import FAKE_PEER, places_of


class PressCtrlC:
    """A display whose user waits until all peers are ready, then presses Ctrl-C."""

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


RECORDS_CTRL_C = "trap 'touch {folder}/got; exit 0' INT; touch {folder}/ready; sleep 600 & wait"


def test_a_script_in_a_shell_receives_ctrl_c(tmp_path: Path) -> None:
    (place,) = places_of(tmp_path, ("/bin/true",), peers=1, steps=10)
    inner = RECORDS_CTRL_C.format(folder=place.folder)
    # The shell waits for its child, and forwards no signal.
    place = replace(place, command=("/bin/sh", "-c", f'/bin/sh -c "{inner}"; true'))
    group = ProcessGroup([place])
    supervise(group, Monitor(group.places, group.processes, 10), PressCtrlC([place], times=1))
    assert (place.folder / "got").exists()


def test_processes_that_a_script_leaves_running_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rumor.cli.launch.processes._GRACE_S", 0.0)
    (place,) = places_of(tmp_path, ("/bin/true",), peers=1, steps=10)
    place = replace(place, command=("/bin/sh", "-c", "sleep 600 & exit 0"))
    group = ProcessGroup([place])
    group.start()
    group.wait()
    # Before it executes its program, the process has the shell's name.
    until(lambda: group.leftovers()[0].startswith("sleep (process "))
    (left,) = group.leftovers()
    os.kill(int(left.removeprefix("sleep (process ").removesuffix(") of peer-0")), signal.SIGKILL)
    until(lambda: not group.leftovers())


def test_peers_get_one_thread_each_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = places_of(tmp_path, ("/bin/sh", "-c", "echo $OMP_NUM_THREADS"), peers=1)
    group = ProcessGroup([place])
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    group.start()
    group.wait()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    group.restart(0, place)
    group.wait()
    assert (place.folder / "log.txt").read_text() == "1\n3\n"


class Once:
    """Starts a replacement once, when a peer has been killed."""

    def __init__(self, group: ProcessGroup, monitor: Monitor) -> None:
        self._group = group
        self._monitor = monitor
        self.next_s = 0.01
        self.will_revive = True

    def update(self) -> list[str]:
        if not (self.will_revive and self._monitor.over):
            return []
        self.will_revive = False
        self._monitor.ended(0)
        self._group.restart(0, self._group.places[0])
        self._monitor.reborn(0)
        return ["started again"]


def test_a_run_is_not_over_while_a_peer_is_to_be_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FATES", json.dumps({"peer-0": "kill"}))
    group = ProcessGroup(places_of(tmp_path, FAKE_PEER, peers=1, steps=10))
    monitor = Monitor(group.places, group.processes, 10)
    (view,) = supervise(
        group, monitor, PressCtrlC(group.places, times=0), cast(Any, Once(group, monitor))
    )
    assert [end.why for end in view.earlier] == ["SIGKILL"] and view.why == "SIGKILL"


def test_ctrl_c_stops_faults_and_reaches_paused_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = peers(tmp_path, monkeypatch, "wait")
    group = ProcessGroup(places)
    monitor = Monitor(group.places, group.processes, 10)

    class Pause(Once):
        def update(self) -> list[str]:
            if (places[0].folder / "ready").exists():
                self._group.hold(0, "pause")
            return []

    pause = Pause(group, monitor)
    pause.will_revive = False
    views = supervise(group, monitor, PressCtrlC(places, times=1), cast(Any, pause))
    assert [view.state for view in views] == [State.LEFT, State.LEFT]


def test_a_process_whose_id_cannot_be_saved_is_killed(tmp_path: Path) -> None:
    place = Place(index=0, id="peer-0", folder=tmp_path, command=("/bin/sleep", "60"))
    (tmp_path / "pid").mkdir()  # the file cannot be written, as on a full disk
    group = ProcessGroup([place])
    with pytest.raises(OSError):
        group.start()
    assert group.processes == []
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    names = [Path(f"/proc/{pid}/comm").read_text() for pid in children]
    assert "sleep\n" not in names


@pytest.mark.live
def test_forked_peers_die_of_signals_like_any_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import os\nraise RuntimeError(os.environ['SAYS'])\n")
    waits = ("peer", "--task=quadratic", "--join=127.0.0.1:9")
    arguments = {"version": ("--version",), "wrong": ("peer", "--task=mine:task"), "waits": waits}
    places = []
    for index, (id, words) in enumerate(arguments.items()):
        (tmp_path / id).mkdir()
        command = (*PROGRAM[:-1], *words)
        variables = {"RUMOR_ID": id, "SAYS": "hello from the environment"}
        place = Place(
            index=index, id=id, folder=tmp_path / id, command=command, variables=variables
        )
        places.append(place)
    group = ProcessGroup(places)
    group.start()
    version, wrong, waiting = group.processes
    assert version.wait(LIMIT_S) == 0 and wrong.wait(LIMIT_S) == 2
    assert (tmp_path / "version" / "log.txt").read_text().startswith("rumor ")
    assert "hello from the environment" in (tmp_path / "wrong" / "log.txt").read_text()
    until(lambda: Path(f"/proc/{waiting.pid}/comm").read_text() == "rumor waits\n")
    assert os.getsid(waiting.pid) == waiting.pid != os.getsid(0)
    assert waiting.wait(0.01) is None
    waiting.kill()
    assert waiting.wait(LIMIT_S) == -signal.SIGKILL == waiting.poll()


def test_only_the_fork_server_preloads_libraries() -> None:
    code = "import gc, sys, rumor.cli.app, rumor.cli.launch.forking as _; print(gc.isenabled(), "
    words = [sys.executable, "-c", f"{code} *sys.modules)"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    collects, *loaded = done.stdout.split()
    assert collects == "True"
    assert not {"numpy", "torch", "zmq", "rumor.cli.launch.config"} & {*loaded}


ORPHANS = """
import os, signal, sys
from pathlib import Path
from rumor.cli.launch.config import Place
from rumor.cli.launch.processes import ProcessGroup

folder, orphaned, *command = sys.argv[1:]
place = Place(index=0, id="peer-0", folder=Path(folder), command=tuple(command))
group = ProcessGroup([place], orphaned=int(orphaned))
group.start()
log = place.folder / "log.txt"
while not log.exists() or "here" not in log.read_text(): pass
group.hold(0, "pause")
os.kill(os.getpid(), signal.SIGKILL)
"""
WAITS = "import time; print('here', flush=True); time.sleep(600)"


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize(
    ("command", "orphaned", "ends"),
    [
        ((sys.executable, "-c", WAITS), signal.SIGCONT, False),
        ((sys.executable, "-c", WAITS), signal.SIGTERM, True),
        ((*PROGRAM, "--task=mine:task", "--join=127.0.0.1:9"), signal.SIGCONT, False),
    ],
)
def test_a_paused_peer_resumes_or_ends_when_its_launcher_was_killed(
    tmp_path: Path, command: tuple[str, ...], orphaned: int, ends: bool
) -> None:
    (tmp_path / "mine.py").write_text(WAITS)
    arguments = (sys.executable, "-c", ORPHANS, str(tmp_path), str(int(orphaned)), *command)
    launcher = subprocess.run(arguments, cwd=tmp_path, check=False)
    assert launcher.returncode == -signal.SIGKILL
    peer = Path("/proc") / (tmp_path / "pid").read_text().strip()
    if ends:
        os.kill(int(peer.name), signal.SIGCONT)  # a paused process reacts to no other signal
        until(lambda: not peer.exists())
        return
    until(lambda: "State:\tT" not in (peer / "status").read_text())
    os.kill(int(peer.name), signal.SIGKILL)


def test_a_program_that_cannot_be_started_leaves_no_process(tmp_path: Path) -> None:
    places = places_of(tmp_path, ("/nowhere/peer",), peers=2, steps=10)
    with pytest.raises(OSError):
        run(places, PressCtrlC(places, times=0))
