"""``rumor run --hosts``: its checks, the files that it copies back, and interrupts."""

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import Result

from rumor.cli.cluster import fleet
from rumor.train.storage.incarnation import is_locked

from ...waiting import LIMIT_S, until
from ..called import called
from ..launch.fakes import draw_nothing
from .machines import Machines

pytestmark = pytest.mark.live

IDS = ("peer-0", "peer-1", "peer-2")
QUICK = ("--timing", "local", "--rule", "gosgd:p=0.5", "--out", "run")


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    monkeypatch.chdir(tmp_path)
    draw_nothing(monkeypatch)
    return Machines(tmp_path, ["127.0.0.1", "127.0.0.2"])


@contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Run *action* on another thread while a command runs; a failure there fails the test."""
    failures: list[BaseException] = []

    def act() -> None:
        try:
            action()
        except BaseException as failure:
            failures.append(failure)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    yield
    thread.join(LIMIT_S)
    assert not failures, failures


@pytest.mark.extended
def test_a_script_trains_on_all_machines_and_their_files_come_back(
    machines: Machines,
) -> None:
    arguments = machines.arguments(*QUICK, "--json", lines=["slots=2", "env:COLOR=red"])
    result = called(*arguments, "--", "mine.py", "--steps", "60")
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert [peer["state"] for peer in summary["peers_detail"]] == ["finished"] * 3
    assert summary["weight_units_total"] == summary["weight_units_expected"] == 2**40
    assert summary["consensus_distance"] < 0.1 and summary["unreached"] == []
    assert all(peer["pushes"] for peer in summary["peers_detail"])
    assert "[127.0.0.1 peer-1] taking part as peer-1 of 3" in result.stderr
    assert "[127.0.0.2 peer-2] taking part as peer-2 of 3" in result.stderr
    assert machines.folder_of("127.0.0.2", "run", "peer-2").is_dir()
    copies = machines.folder / "run" / "peers" / "peer-2"
    for path in copies.iterdir():
        there = machines.folder_of("127.0.0.2", "run", "peer-2") / path.name
        assert path.read_bytes() == there.read_bytes(), path.name
    assert {path.name for path in copies.iterdir()} >= {"log.txt", "ledger.jsonl", "peer.json"}


@pytest.mark.extended
@pytest.mark.parametrize(
    ("lines", "arguments", "messages"),
    [
        (["python=/nowhere/python"], ["--", "mine.py"], ["127.0.0.1: ", "/nowhere/python"]),
        (["dir=elsewhere"], ["--", "mine.py"], ["127.0.0.1: folder elsewhere cannot be opened"]),
        ([], ["--", "theirs.py"], ["127.0.0.1: script 'theirs.py' was not found in"]),
        ([], ["--", "no-such-program"], ["program 'no-such-program' was not found; 127.0.0.2: "]),
        (["slots=2"], ["-n", "7", "--", "mine.py"], ["--peers is 7, and", "has 3 slots"]),
        (["slots=2 listen=65535"], ["--", "mine.py"], ["its last peer would listen at port 65536"]),
        (["device=cuda:{k}"], ["--", "mine.py"], ["cuda:{i}"]),
    ],
)
def test_missing_things_on_a_machine_are_reported_before_anything_starts(
    machines: Machines, lines: list[str], arguments: list[str], messages: list[str]
) -> None:
    result = called(*machines.arguments("--out", "run", lines=lines), *arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.stderr
    for message in messages:
        assert message in result.stderr
    assert not (machines.folder / "run").exists()


@pytest.mark.extended
def test_other_versions_an_existing_folder_and_a_wrong_ssh_are_reported(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.folder_of("127.0.0.2", "run", "peer-1").mkdir(parents=True)
    monkeypatch.setattr(fleet, "versions", lambda: {"python": "2.7", "rumor": "0.0.1"})
    words = (*machines.arguments("--out", "run"), "--", "mine.py")
    error = called(*words, status=2).stderr
    assert "127.0.0.1: python is 3." in error and "there and 2.7 here" in error
    assert "127.0.0.2: run/hosts/127.0.0.2/peer-1 is there already" in error
    errors = {"nowhere -F x": "--ssh: nowhere: No such file", "false": "false ended"}
    for ssh, message in errors.items():
        hosts_file = ("--hosts", machines.file(), "--set", f"ssh={ssh}")
        assert message in called("run", *hosts_file, "--", "mine.py", status=2).stderr
    machines.cut_off_all()
    error = called(*machines.arguments("--out", "run"), "--", "mine.py").stderr
    assert "127.0.0.1: ssh: connect to host 127.0.0.1: No route to host" in error


def test_a_dry_run_shows_the_commands_by_machine_and_contacts_none(machines: Machines) -> None:
    machines.cut_off_all()
    arguments = machines.arguments("--out", "run", "--dry-run", lines=["slots=2"])
    result = called(*arguments, "--", "mine.py", "--steps", "9")
    assert result.exit_code == 0, result.stderr
    assert "command: python mine.py --steps 9\n" in result.stdout
    assert f"127.0.0.1 (peer-0, peer-1): {machines.ssh} -T " in result.stdout
    assert "peer-2:\n  RUMOR_ID=peer-2\n" in result.stdout
    assert re.search(r"  RUMOR_ADVERTISE=tcp://127\.0\.0\.2:\d+\n", result.stdout)


def lose_contact(machines: Machines, lose: Callable[[], None], more: str = "--json") -> Result:
    """Lose contact with the second machine's peer, and let the other peers end once it has left."""
    left, over = machines.folder_of("127.0.0.2", "run", "peer-2"), machines.folder / "over"

    def act() -> None:
        machines.wait_until_training("run", IDS)
        lose()
        until(lambda: not is_locked(left), "the peer has left")
        over.touch()

    arguments = machines.arguments(*QUICK, more, lines=["slots=2"])
    with meanwhile(act):
        return called(*arguments, "--", "mine.py", "--steps", "100", "--until", str(over))


@pytest.mark.extended
def test_peers_that_lose_the_launcher_leave_and_weight_is_unknown(
    machines: Machines,
) -> None:
    result = lose_contact(machines, lambda: machines.cut("127.0.0.2"), "--set=models=false")
    assert result.exit_code == 1
    error = result.stderr.splitlines()[-1]
    assert error.startswith("error: peer-2 failed: ")
    assert error.endswith(
        "; the ledgers of peer-2 are out of reach, so that no weight can be counted"
    )
    assert "127.0.0.2: the connection was lost" in result.stderr
    assert "stays there, in 127.0.0.2/run/hosts/127.0.0.2" in result.stderr
    assert "Weight cannot be counted: the ledgers of peer-2 are out of reach." in result.stdout
    folder = machines.folder_of("127.0.0.2", "run", "peer-2")
    assert (folder / "model.safetensors").exists()
    assert not [*machines.folder.glob("run/peers/*/model.safetensors")]
    assert json.loads((folder / "peer.json").read_text())["state"] == "left"
    log = (folder / "log.txt").read_text()
    assert "the connection to the launcher has ended, so this peer is asked to leave" in log


@pytest.mark.extended
def test_a_second_interrupt_kills_all_peers_at_once(machines: Machines) -> None:
    logs = [machines.folder / "run" / "peers" / id / "log.txt" for id in IDS]

    def interrupt() -> None:
        machines.wait_until_training("run", IDS)
        os.kill(os.getpid(), signal.SIGINT)
        # All peers are in a long step, which they may finish after the first signal.
        asked = "this peer ends its step and leaves"
        until(lambda: all(asked in log.read_text() for log in logs), "all are asked")
        os.kill(os.getpid(), signal.SIGINT)

    arguments = machines.arguments(*QUICK, "--set", "log_every=1", "--json", lines=["slots=2"])
    with meanwhile(interrupt):
        result = called(*arguments, "--", "mine.py", "--steps", "100000", "--pause", "8")
    states = {peer["state"] for peer in json.loads(result.stdout)["peers_detail"]}
    assert "killed" in states and "finished" not in states
    assert result.exit_code == 1
