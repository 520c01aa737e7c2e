"""The process that peers are forked from."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rumor.cli import app
from rumor.cli.launch.job import PROGRAM, Place
from rumor.cli.launch.processes import fork_server as forking
from rumor.cli.launch.processes.fork_server import (
    ForkedProcess,
    ForkServer,
    begun_early,
    fork_server,
)
from rumor.cli.launch.processes.group import ProcessGroup

from ...waiting import LIMIT_S, until

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open, which Linux has"),
]


@pytest.fixture
def server() -> Iterator[ForkServer]:
    """One that has imported next to nothing."""
    made = ForkServer(["numpy"])
    yield made
    made.close()


def start(server: ForkServer, folder: Path, *arguments: str) -> ForkedProcess:
    with open(folder / "log.txt", "ab") as log:
        process = server.start(arguments, log, os.environ)
    assert process is not None
    return process


def sleeper(server: ForkServer, folder: Path) -> ForkedProcess:
    """A peer that waits for another one for ever."""
    process = start(server, folder, "peer", "--task=quadratic", "--join=127.0.0.1:9", "--id=one")
    until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "rumor one\n")
    return process


def test_a_fork_runs_the_command_in_the_folder_with_the_environment_and_tells_its_status(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import os\nraise RuntimeError(os.environ['SAYS'])\n")
    monkeypatch.setenv("SAYS", "hello from the environment")
    assert start(server, tmp_path, "--version").wait(LIMIT_S) == 0
    assert start(server, tmp_path, "peer", "--task=mine:task").wait(LIMIT_S) == 2
    log = (tmp_path / "log.txt").read_text()
    assert log.startswith("rumor ") and "hello from the environment" in log


def test_a_fork_is_in_a_session_of_its_own_and_dies_of_signals_like_any_process(
    server: ForkServer, tmp_path: Path
) -> None:
    process = sleeper(server, tmp_path)
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    assert process.poll() is None
    with pytest.raises(TimeoutError, match="still runs"):
        process.wait(0.01)
    process.kill()
    assert process.wait(LIMIT_S) == -signal.SIGKILL == process.poll()
    # Nobody else gets what is meant for it.
    process.terminate()


def test_forks_outlive_the_server_and_can_still_be_waited_for(tmp_path: Path) -> None:
    server = ForkServer([])
    process = sleeper(server, tmp_path)
    os.kill(server._process.pid, signal.SIGKILL)
    server._process.wait()
    assert process.poll() is None
    assert server.start(["--version"], sys.stdout.buffer, {}) is None
    process.kill()
    # How it ended, nobody could tell.
    assert process.wait(LIMIT_S) == 0
    server.close()


def test_a_group_forks_peers_and_starts_other_programs_itself(
    server: ForkServer, tmp_path: Path
) -> None:
    commands = {"peer": (*PROGRAM, "--version"), "other": ("/bin/true",)}
    places = []
    for index, (id, command) in enumerate(commands.items()):
        (tmp_path / id).mkdir()
        places.append(Place(index=index, id=id, folder=tmp_path / id, command=command))
    group = ProcessGroup(places, None, server)
    group.start()
    group.wait()
    assert [type(process) for process in group.processes] == [ForkedProcess, subprocess.Popen]
    pids = [int((place.folder / "pid").read_text()) for place in places]
    assert pids == [process.pid for process in group.processes]


def test_a_server_that_is_still_importing_does_not_keep_anybody_waiting() -> None:
    with fork_server() as server:
        assert server is not None
    assert server._process.returncode == -signal.SIGKILL
    assert not server.is_there


def test_a_server_that_was_begun_early_is_taken_by_the_first_and_closed_where_nobody_wants_it() -> (
    None
):
    with begun_early():
        (early,) = forking._begun
        with fork_server() as first:
            assert first is early
            with fork_server() as second:
                assert second is not early
    with begun_early():
        (unused,) = forking._begun
    assert early._process.returncode == unused._process.returncode == -signal.SIGKILL
    assert not forking._begun


def test_the_program_begins_a_server_for_a_command_that_forks_and_ends_it_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []

    def command(**_: object) -> int:
        seen.append(len(forking._begun))
        return 0

    monkeypatch.setattr(app, "app", command)
    for arguments in (["launch"], ["launch", "--help"], ["peer"], [], ["-n", "launch"]):
        monkeypatch.setattr(sys, "argv", ["rumor", *arguments])
        with pytest.raises(SystemExit):
            app.run()
    assert seen == [1, 0, 0, 0, 0] and not forking._begun


def test_where_forks_cannot_be_watched_there_is_no_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with begun_early(), fork_server() as server:
        assert server is None
