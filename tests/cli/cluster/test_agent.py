"""An agent obeys the launcher, reports to it, and lets its peers leave if the launcher is lost."""

import base64
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rumor.cli.cluster import agent as module
from rumor.cli.cluster.agent import Agent
from rumor.cli.launch.processes import ProcessGroup

from ...waiting import LIMIT_S, until

# Exits on SIGTERM, as a peer does.
POLITE = "trap 'echo asked; exit 0' TERM; echo here; while :; do sleep 0.05; done"
STUBBORN = "trap '' TERM; echo here; while :; do sleep 0.05; done"


class Launcher:
    """A launcher's ends of the two pipes of an agent in this process."""

    def __init__(self) -> None:
        orders, self._orders = os.pipe()
        self._news, news = os.pipe()
        self._ends = [orders, news]
        self._open = {self._orders, self._news}
        self._read = b""
        self.agent = Agent(orders, news)

    def say(self, **order: Any) -> None:
        """Give an order."""
        os.write(self._orders, json.dumps(order).encode() + b"\n")

    def close_orders(self) -> None:
        """Close the pipe of orders."""
        self._open.discard(self._orders)
        os.close(self._orders)

    def close_news(self) -> None:
        """Close the pipe of news."""
        self._open.discard(self._news)
        os.close(self._news)

    def news(self) -> Iterator[dict[str, Any]]:
        """Return all news, once the agent has ended."""
        self.close_theirs()
        while data := os.read(self._news, 1 << 16):
            self._read += data
        yield from map(json.loads, self._read.splitlines())

    def close_theirs(self) -> None:
        """Close the ends that the agent's own process would have closed on exit."""
        while self._ends:
            os.close(self._ends.pop())

    def close(self) -> None:
        """Close all pipes."""
        self.close_theirs()
        while self._open:
            os.close(self._open.pop())


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.environ["PATH"])
    numbers = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    made = Launcher()
    yield made
    made.close()
    for number, handler in before.items():
        signal.signal(number, handler)


def job_of(*command: str, script: str | None = None, models: bool = False) -> dict[str, Any]:
    peers = [{"index": 4, "id": "ada", "folder": "run/ada", "variables": {"RUMOR_ID": "ada"}}]
    job: dict[str, Any] = {
        "dir": ".",
        "command": command,
        "script": script,
        "host": "127.0.0.1",
        "ports": [],
    }
    return job | {"peers": peers, "leave_s": 0.0, "models": models}


def start_peer(launcher: Launcher, script: str, *, models: bool = False) -> Path:
    """Order the agent to start one peer; return the folder it writes to."""
    launcher.say(job=job_of("sh", "-c", script, models=models), start=True)
    return Path("run/ada")


def when(condition: Callable[[], bool], act: Callable[[], None]) -> threading.Thread:
    """Call *act* on another thread once *condition* holds, while the agent runs on this one."""

    def wait() -> None:
        until(condition, "the condition holds")
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def has_started(folder: Path) -> Callable[[], bool]:
    log = (Path.cwd() / folder) / "log.txt"
    return lambda: log.exists() and "here" in log.read_text()


def files_in(news: list[dict[str, Any]]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for each in news:
        if "file" in each:
            found[each["file"]] = found.get(each["file"], b"") + base64.b64decode(each["data"])
    return found


def test_the_agent_reports_all_output_of_a_peer_before_its_exit(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PIECE_BYTES", 60)
    start_peer(
        launcher,
        "cd run/ada; for i in $(seq 40); do echo line $i; done; echo '{}' > peer.json; "
        "echo model > model.safetensors; echo x > secret.txt; exit 3",
        models=True,
    )
    assert launcher.agent.run() == 0
    news = list(launcher.news())
    assert news[-1] == {"peer": 4, "exit": 3}
    files = files_in(news)
    assert files["log.txt"].splitlines()[-1] == b"line 40"
    assert {*files} == {"log.txt", "peer.json", "model.safetensors"}


@pytest.mark.parametrize(
    ("script", "order", "status"),
    [(STUBBORN, {"kill": True}, -9), (POLITE, {"leave": int(signal.SIGTERM)}, 0)],
)
def test_the_agent_kills_peers_or_lets_them_leave_on_command(
    launcher: Launcher, script: str, order: dict[str, Any], status: int
) -> None:
    launcher.say(leave=15, dead=[], kill=True, ping=True)  # no peers are running yet
    folder = start_peer(launcher, script)
    when(has_started(folder), lambda: launcher.say(**order))
    assert launcher.agent.run() == 0
    assert list(launcher.news())[-1] == {"peer": 4, "exit": status}


@pytest.mark.parametrize(
    ("lose", "why"),
    [
        (lambda launcher, _: launcher.close_orders(), "the connection to the launcher has ended"),
        (lambda *_: os.kill(os.getpid(), signal.SIGHUP), "a signal came"),
        (
            lambda _, patch: patch.setattr(module, "LOST_S", 0.1),
            "nothing was heard of the launcher for 0.1 s",
        ),
        (lambda launcher, _: launcher.close_news(), "the launcher does not listen any more"),
    ],
)
def test_peers_leave_when_the_launcher_is_lost(
    launcher: Launcher,
    monkeypatch: pytest.MonkeyPatch,
    lose: Callable[[Launcher, pytest.MonkeyPatch], None],
    why: str,
) -> None:
    # The peer keeps printing: its output becomes news, which the launcher may no longer read.
    folder = start_peer(launcher, POLITE.replace("sleep 0.05", "sleep 0.05; echo more"))
    thread = when(has_started(folder), lambda: lose(launcher, monkeypatch))
    assert launcher.agent.run() == 1
    thread.join(LIMIT_S)
    log = (folder / "log.txt").read_text()
    assert f"rumor: {why}, so this peer is asked to leave\n" in log
    assert log.endswith("asked\n")


def test_a_signal_during_the_start_reaches_all_peers(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = ProcessGroup.start

    def interrupted(group: ProcessGroup) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        start(group)

    monkeypatch.setattr(ProcessGroup, "start", interrupted)
    start_peer(launcher, POLITE)
    assert launcher.agent.run() == 1
    assert launcher.agent._group is not None
    # The peer was asked to leave, whether or not it could react yet; otherwise it would have
    # been killed.
    assert launcher.agent._group.processes[0].poll() in (0, -signal.SIGTERM)


def test_a_peer_that_does_not_leave_is_killed_eventually(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.3)
    folder = start_peer(launcher, STUBBORN)
    when(has_started(folder), launcher.close_orders)
    assert launcher.agent.run() == 1


def test_a_failed_start_is_reported(launcher: Launcher) -> None:
    Path("run/ada").mkdir(parents=True)
    start_peer(launcher, POLITE)
    assert launcher.agent.run() == 1
    assert "File exists" in list(launcher.news())[-1]["failed"]


def test_a_job_is_answered_by_versions_and_problems(launcher: Launcher) -> None:
    Path("mine.py").touch()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        for ports in ([], [port]):
            launcher.say(job=job_of("sh", script="mine.py") | {"ports": ports})
        launcher.close_orders()
        launcher.agent.run()
    free, taken = (each["hello"] for each in launcher.news())
    assert free == module.versions() | {"problems": []}
    assert taken["problems"] == [f"port {port} is not free: see --port and listen="]


def test_output_of_a_library_is_not_mistaken_for_news(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(self: Agent) -> int:
        os.write(1, b"a library prints\n")
        return 7

    kept = os.dup(1)
    monkeypatch.setattr(Agent, "run", run)
    try:
        assert module.main() == 7
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    assert capfd.readouterr().err == "a library prints\n"
