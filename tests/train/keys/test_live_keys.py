"""Real peers with keys: members train, everybody else is kept out, the revoked are cut off."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app
from rumor.gossip.effects.ledger import audit
from rumor.gossip.weight import ONE, UNIT
from rumor.train.storage.ledger_file import read_ledgers

from ...waiting import LIMIT_S, until

pytestmark = pytest.mark.live

ENDLESS = "1000000"
MEMBER = (
    *("--task", "quadratic", "--steps", "40", "--set", "step_s_min=0.02", "--json"),
    *("--set", f"leave_s={LIMIT_S}"),
)


def rumor(*words: object, status: int = 0) -> str:
    """Run a command in this process; what it printed."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == status, result.output
    return result.output


class Run:
    """Processes of peers in a folder with keys."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        rumor("keys", "make", folder / "m1.key")
        self.owner = "--key", folder / "m1.key"
        rumor("keys", "init", self.roster("m1"), *self.owner)

    def roster(self, name: str) -> Path:
        return self.folder / f"{name}.roster"

    def machine(self, name: str) -> None:
        """A key for a machine, which the first machine's roster lists."""
        line = rumor("keys", "make", self.folder / f"{name}.key")
        rumor("keys", "add", self.roster("m1"), *line.split(), *self.owner)

    def start(self, name: str, *more: object, roster: str | None = None) -> "Started":
        words = [*MEMBER, "--out", self.folder / f"out-{name}", *more]
        if roster is not None:
            words += ["--key", self.folder / f"{name}.key", "--roster", self.roster(roster)]
        log = self.folder / f"{name}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "rumor.cli", "peer", *map(str, words)],
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        # Waits, and closes the pipe.
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return Started(process, log)


class Started:
    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def says(self, words: str) -> None:
        self.wait_for(lambda: words in self.log)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        until(condition, lambda: self.log)

    def report(self) -> dict[str, Any]:
        told = self.process.communicate(timeout=LIMIT_S)[0]
        assert self.process.returncode == 0, self.log
        found: dict[str, Any] = json.loads(told.splitlines()[-1])
        return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with ExitStack() as stack:
        yield Run(tmp_path, stack)


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.extended
@pytest.mark.parametrize("more", [(), ("--set=shared_memory=false",)], ids=str)
def test_members_train_together_by_the_address_alone(run: Run, more: tuple[str, ...]) -> None:
    run.machine("m2")
    port = free_port()
    both = ("--set", "founders=2", "--rule", "gosgd:p=1", *more)
    one = run.start("m1", "--bind", f"127.0.0.1:{port}", *both, roster="m1")
    two = run.start("m2", "--join", f"127.0.0.1:{port}", *both, roster="m1")
    reports = [one.report(), two.report()]
    assert [each["id"] for each in reports] == ["m1", "m2"]
    assert sum(each["weight_units"] for each in reports) == 2 * ONE // UNIT
    assert all(each["pushes"] and each["merge"]["complete"] for each in reports)
    assert "met m1" in two.log
    assert "without keys" not in one.log


@pytest.mark.extended
def test_those_without_a_valid_key_stay_outside_and_training_goes_on(run: Run) -> None:
    old = run.roster("m1").read_text()
    run.machine("m4")
    run.roster("m4").write_text(run.roster("m1").read_text())
    run.roster("m1").write_text(old)
    port = free_port()
    one = run.start("m1", "--bind", f"127.0.0.1:{port}", "--steps", ENDLESS, roster="m1")
    one.says("founded")
    outside = ("--join", f"127.0.0.1:{port}", "--id")
    unknown = run.start("m4", *outside, "m4", roster="m4")
    # Of refusals one line is written in ten seconds, whoever is refused.
    one.says("is not in version 1 of the roster")
    unknown.says("refuses this machine's key, which its roster does not list")
    bare = run.start("bare", *outside, "m1", "--set", "join_timeout_s=3")
    assert bare.process.wait(LIMIT_S) == 1
    assert one.process.poll() is None and "met" not in one.log


@pytest.mark.extended
def test_a_key_for_another_name_is_refused_at_the_start(run: Run) -> None:
    thief = run.start("m1", "--id", "m2", roster="m1")
    assert thief.process.wait(LIMIT_S) == 2
    assert "the roster lists this machine as m1" in thief.log


@pytest.mark.extended
def test_weight_is_accounted_for_to_the_last_unit_after_a_revocation(run: Run) -> None:
    names = ("m1", "m2", "m3")
    for name in names[1:]:
        run.machine(name)
    for name in names[1:]:
        run.roster(name).write_text(run.roster("m1").read_text())
    port = free_port()
    # Each step pushes: something is in flight whenever somebody is cut off.
    busy = (
        "--steps",
        ENDLESS,
        "--rule",
        "gosgd:p=1",
        "--set",
        "founders=3",
        "--topology",
        "complete",
    )
    one = run.start("m1", "--bind", f"127.0.0.1:{port}", *busy, roster="m1")
    others = [
        run.start(name, "--join", f"127.0.0.1:{port}", *busy, roster=name) for name in names[1:]
    ]
    for name in names[1:]:
        one.says(f"met {name}")
    ledger = run.folder / "out-m3" / "ledger.jsonl"
    one.wait_for(lambda: ledger.exists() and ledger.stat().st_size > 20_000)
    rumor("keys", "revoke", run.roster("m1"), "m3", *run.owner)
    for member in (one, others[0]):
        member.says("m3 is let in no more: its key was revoked")
    # Nobody talks to it any more, not even to tell it why; what it still had is lost with it.
    others[1].process.kill()
    others[1].process.wait(LIMIT_S)
    for member in (one, others[0]):
        member.process.terminate()
        assert member.report()["state"] == "left"

    accounts = [each for name in names for each in read_ledgers(run.folder / f"out-{name}")]
    found = audit(accounts, dead=[each.life for each in accounts if each.life[0] == "m3"])
    assert found.balanced and found.founded == 3 * ONE
    assert found.died > 0 == found.in_flight
