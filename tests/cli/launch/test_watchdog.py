"""Who wakes stopped peers when their launcher has been killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rumor.cli.launch.folder import Place
from rumor.cli.launch.processes import ProcessGroup
from rumor.cli.launch.watchdog import Watchdog, start_of, wake_orphans

LAUNCHER = """
import os, signal, subprocess, sys
from rumor.cli.launch.watchdog import Watchdog

watchdog = Watchdog()
peer = subprocess.Popen(["/bin/sh", "-c", "kill -STOP $$; echo awake"], start_new_session=True)
print(peer.pid, flush=True)
watchdog.watch_over(peer.pid)
os.waitpid(peer.pid, os.WUNTRACED)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def sleeper() -> "Iterator[subprocess.Popen[bytes]]":
    """A process that stands still."""
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        yield process
        process.kill()


def goes_on(process: "subprocess.Popen[bytes]") -> bool:
    pid, _ = os.waitpid(process.pid, os.WCONTINUED | os.WNOHANG)
    return pid == process.pid


def test_a_peer_that_stands_still_goes_on_when_its_launcher_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", LAUNCHER], stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        peer = int(launcher.stdout.readline())
        try:
            # Its end is when the peer has ended, too: it has the other side.
            said, _ = launcher.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.kill(peer, signal.SIGKILL)
            raise
    assert (launcher.returncode, said) == (-signal.SIGKILL, b"awake\n")


def test_one_that_is_still_the_same_is_woken(sleeper: "subprocess.Popen[bytes]") -> None:
    wake_orphans([f"{sleeper.pid} {start_of(sleeper.pid)}\n"])
    assert goes_on(sleeper)


def test_another_process_of_the_same_number_is_left_alone(
    sleeper: "subprocess.Popen[bytes]",
) -> None:
    wake_orphans([f"{sleeper.pid} {start_of(os.getpid())}1\n", f"{sleeper.pid} \n"])
    assert not goes_on(sleeper)


def test_who_has_ended_is_no_trouble(sleeper: "subprocess.Popen[bytes]") -> None:
    started = start_of(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    assert start_of(sleeper.pid) == ""
    wake_orphans([f"{sleeper.pid} {started}\n"])


def inodes(folder: Path) -> Iterator[int]:
    for path in folder.iterdir():
        # A program that has just begun opens its libraries, and closes them again.
        with suppress(FileNotFoundError):
            yield path.stat().st_ino


def test_a_guard_is_told_of_all_that_are_started_and_no_peer_holds_its_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(Watchdog, "watch_over", lambda watchdog, pid: told.append(pid))
    place = Place(index=0, id="peer-0", folder=tmp_path, command=("/bin/sleep", "60"))
    with Watchdog() as watchdog:
        group = ProcessGroup([place], watchdog)
        group.start()
        group.add(place)
        group.kill(0)
        group.restart(0, place)
        pipe = watchdog._process.stdin
        assert pipe is not None
        try:
            for process in group.processes:
                folder = Path(f"/proc/{process.pid}/fd")
                if folder.exists():
                    held = list(inodes(folder))
                    assert held and os.fstat(pipe.fileno()).st_ino not in held
        finally:
            group.kill_all()
            group.wait()
    assert len(told) == 3 and {process.pid for process in group.processes} < set(told)
    # It has ended by itself.
    assert watchdog._process.returncode == 0


def test_a_run_goes_on_without_a_guard_that_was_killed() -> None:
    with Watchdog() as watchdog:
        watchdog._process.kill()
        watchdog._process.wait()
        for _ in range(3):
            watchdog.watch_over(os.getpid())
