"""``rumor peer``: what it refuses, and how signals stop it."""

import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app
from rumor.cli.commands import peer as peer_command
from rumor.cli.commands.peer import stop_on_signals
from rumor.train import PeerConfig
from rumor.train.config import RunConfig


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--join", "a/b"], "such as 10.0.0.5"),
        (["--join", "node-a:99999"], "from 1 to 65535"),
        (["--join", "::1:7700"], "[::1]:7700"),
        (["--bind", "tcp://"], "malformed"),
        (["--set", "advertise=node-a:"], "malformed"),
        (["--task", "nope"], "digits, mnist, quadratic"),
        (["--index", "2", "--count", "2"], "from 0 to 1"),
        (["--id", "a b"], "id is 'a b'"),
        (["--device", "abacus"], "device"),
        (["--set=wire=int8", "--rule", "allreduce"], "needs numbers as they are"),
        (["--set=wire=int8", "--set=exact"], "with exact it must be float32"),
        (["--set=shards=4", "--rule", "dpsgd"], "mixes by weight, such as gosgd"),
        (["--set=shards=2", "--set", "shards_per_push=3"], "from 1 to shards, 2"),
        (["--set", "bandwidth=200"], "as in 200mbit, 1gbit or 25MB/s"),
    ],
)
def test_a_wrong_argument_is_status_2_two_lines_and_no_file(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["peer", "--out", str(out), *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ") and message in result.stderr
    assert result.stderr.count("\n") <= 2
    assert not out.exists()


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Commands run in this process, too, and leave theirs behind."""
    numbers = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_ends(number: signal.Signals) -> None:
    stop = threading.Event()
    stop_on_signals(stop)
    assert not stop.is_set()
    os.kill(os.getpid(), number)
    assert stop.is_set()
    assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGINT) is signal.SIG_DFL


Asked = list[tuple[RunConfig, PeerConfig]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What ``rumor peer`` would have run; its options go where a peer would have left them."""
    taken: Asked = []

    def note(run_config: RunConfig, peer_config: PeerConfig, *_: object) -> dict[str, Any]:
        taken.append((run_config, peer_config))
        if peer_config.out is not None:
            peer_config.out.mkdir(exist_ok=True)
            (peer_config.out / "options.json").write_text(json.dumps(run_config.options))
        return {}

    monkeypatch.setattr(peer_command, "_run", note)
    return taken


def typed(*arguments: str) -> None:
    result = CliRunner().invoke(app, ["peer", *arguments])
    assert result.exit_code == 0, result.stderr


FIRST = (
    *("--task=quadratic", "--steps=70", "--set=seed=5", "--id=a", "--join=node-a:7700"),
    *("--rule=gosgd:p=0.3", "--set=shards=2", "--set=wire=int8", "--set=timing=wan"),
    *("--set=checkpoint_every=5min", "--bind=[::]:7700", "--bind=10.0.0.5:7701"),
    *("--set=advertise=a.example:1", "--set=advertise=b.example:2", "--set=total_steps=9000"),
    *("--set=lr_schedule=linear", "--set=journal"),
)


def test_the_same_command_begins_and_goes_on(asked: Asked, tmp_path: Path) -> None:
    out = tmp_path / "a"
    again = (*FIRST, f"--set=rendezvous={tmp_path / 'r'}", f"--out={out}", "--resume")
    typed(*again)
    (out / "life.json").touch()
    typed(*again)
    (first, first_peer), (second, second_peer) = asked
    rule = first_peer.make_rule()
    assert replace(second_peer, rule=rule) == replace(first_peer, rule=rule)
    assert second_peer.make_rule().p == 0.3  # type: ignore[attr-defined]
    assert (first.resume, first.journal) == (False, True)
    assert replace(first, resume=True, journal=False, options=None) == replace(second, options=None)
    assert second_peer.bind == ("tcp://[::]:7700", "tcp://10.0.0.5:7701")
    assert second_peer.advertise == ("tcp://a.example:1", "tcp://b.example:2")
    assert second_peer.protocol.dead_s == 90
    assert (second.total_steps, second.lr_schedule) == (9000, "linear")


def test_a_peer_that_resumes_needs_a_folder(asked: Asked) -> None:
    result = CliRunner().invoke(app, ["peer", "--resume"])
    assert result.exit_code == 2 and "name it with --out" in result.stderr and not asked


def test_a_peer_that_only_dials_out_listens_nowhere(asked: Asked) -> None:
    typed("--set=dial_only")
    assert [peer.bind for _, peer in asked] == [None]


@pytest.mark.live
def test_from_the_command_line_to_the_end_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a program may do to its process, a test may not do to pytest's.
    monkeypatch.setattr(peer_command, "stop_on_signals", lambda stop: None)
    monkeypatch.setattr(logging, "basicConfig", lambda **settings: None)
    monkeypatch.setattr("rumor.train.tensors.buffers.keep_pages", lambda **_: False)
    out = tmp_path / "a"
    given = ["peer", "--task=quadratic", "--steps=20", "--json", f"--out={out}"]
    for arguments, steps in ((given, 20), ([*given, "--resume", "--steps=30"], 30)):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.stderr
        report = json.loads(result.stdout.splitlines()[-1])
        assert (report["steps"], report["swarm_steps"], report["state"]) == (
            steps,
            steps,
            "finished",
        )
