"""``rumor peer``: what it refuses, and how signals stop it."""

import json
import logging
import os
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import fields, replace
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
        (["--join", "nonsense"], "such as 10.0.0.5:7700"),
        (["--join", "node-a:99999"], "from 1 to 65535"),
        (["--join", "::1:7700"], "[::1]:7700"),
        (["--bind", "tcp://"], "malformed"),
        (["--set", "advertise=node-a"], "malformed"),
        (["--task", "nope"], "digits, mnist, noisy-digits, quadratic"),
        (["--topology", "nope"], "ring, path, star, complete"),
        (["--rule", "nope"], "gosgd"),
        (["--partition", "nope"], "dirichlet:ALPHA"),
        (["--index", "2", "--count", "2"], "from 0 to 1"),
        (["--set=founders=0"], "at least 1"),
        (["--id", "a b"], "id is 'a b'"),
        (["--device", "abacus"], "device"),
        (["--set=wire=float64"], "unknown wire 'float64'"),
        (["--set=wire=topk:2"], "must be in (0, 1]"),
        (["--set=wire=int8", "--rule", "allreduce"], "needs numbers as they are"),
        (["--set=wire=int8", "--set=exact"], "with exact it must be float32"),
        (["--set=shards=0"], "shards=0"),
        (["--set=shards=4", "--rule", "dpsgd"], "mixes by weight, such as gosgd"),
        (["--set=shards=2", "--set", "shards_per_push=3"], "from 1 to shards, 2"),
        (["--set", "shards_per_push=0"], "shards_per_push=0"),
        (["--set", "shard_order=sorted"], "round-robin or random"),
        (["--set", "bandwidth=200"], "as in 200mbit, 1gbit or 25MB/s"),
        (["--set", "memory_models=1.5"], "memory_models=1.5: it must be at least 2"),
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


def test_the_folder_alone_is_enough(asked: Asked, tmp_path: Path) -> None:
    out = tmp_path / "a"
    typed(*FIRST, f"--set=rendezvous={tmp_path / 'r'}", f"--out={out}")
    typed(f"--resume={out}")
    (first, first_peer), (second, second_peer) = asked
    rule = first_peer.make_rule()
    assert replace(second_peer, rule=rule) == replace(first_peer, rule=rule)
    assert second_peer.make_rule().p == 0.3  # type: ignore[attr-defined]
    assert second.resume and not first.resume
    assert first.journal and not second.journal
    own = ("resume", "journal", "options")
    alike = [each.name for each in fields(RunConfig) if each.name not in own]
    assert all(getattr(first, name) == getattr(second, name) for name in alike)
    assert second_peer.bind == ("tcp://[::]:7700", "tcp://10.0.0.5:7701")
    assert second_peer.advertise == ("tcp://a.example:1", "tcp://b.example:2")
    assert second_peer.protocol.dead_s == 90
    assert (second.total_steps, second.lr_schedule) == (9000, "linear")


def test_options_of_earlier_versions_and_of_one_life_alone_are_not_taken_up(
    asked: Asked, tmp_path: Path
) -> None:
    out = tmp_path / "a"
    typed("--task=quadratic", "--id=a", f"--out={out}")
    kept = json.loads((out / "options.json").read_text())
    assert "out" not in kept
    (out / "options.json").write_text(json.dumps(kept | {"socks_proxy": "localhost:1080"}))
    typed(f"--resume={out}")
    (_, (second, second_peer)) = asked
    assert second.resume and second_peer.id == "a"


def test_what_is_typed_anew_holds_from_then_on(asked: Asked, tmp_path: Path) -> None:
    out = tmp_path / "a"
    typed(*FIRST, f"--out={out}")
    typed(f"--resume={out}", "--steps=99", "--join=node-b:1", "--join=node-c:2", "--bind=*:1")
    typed(f"--resume={out}", "--set=leave_s=3", "--set=dial_only")
    (_, _), (second, second_peer), (third, third_peer) = asked
    assert (second.steps, third.steps) == (99, 99)
    assert second_peer.join == third_peer.join == ("tcp://node-b:1", "tcp://node-c:2")
    assert second_peer.bind == ("tcp://*:1",) and third_peer.bind is None
    assert third_peer.make_rule().p == 0.3  # type: ignore[attr-defined]


def test_a_peer_that_only_dialled_out_can_listen_in_its_next_life(
    asked: Asked, tmp_path: Path
) -> None:
    out = tmp_path / "a"
    typed("--set=dial_only", f"--out={out}")
    typed(f"--resume={out}")
    typed(f"--resume={out}", "--bind=127.0.0.1:7700")
    assert [peer.bind for _, peer in asked] == [None, None, ("tcp://127.0.0.1:7700",)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task=mnist"], "task is mnist, and was quadratic"),
        (["--set=seed=6"], "seed is 6, and was 5"),
        (["--partition=iid"], "partition is iid, and was shared"),
        (["--set=batch_size=3"], "batch_size is 3, and was None"),
        (["--id=b"], "id is b, and was a"),
        (["--set=shards=4"], "shards is 4, and was 2"),
        (["--set=frozen_may_differ"], "frozen_may_differ is True, and was False"),
        (["--set=journal"], "resume without it"),
        (["--out=elsewhere"], "goes on in"),
        (["--set=checkpoint_every=60"], "is malformed: write 60s"),
        (["--bind=nonsense"], "malformed"),
    ],
)
def test_what_it_cannot_go_on_with_is_status_2_and_named(
    asked: Asked, tmp_path: Path, arguments: list[str], message: str
) -> None:
    typed(*FIRST, f"--out={tmp_path / 'a'}")
    result = CliRunner().invoke(app, ["peer", f"--resume={tmp_path / 'a'}", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ") and message in result.stderr.replace("\n", " ")
    assert len(asked) == 1


def test_what_is_typed_as_it_was_is_no_contradiction(asked: Asked, tmp_path: Path) -> None:
    typed(*FIRST, f"--out={tmp_path / 'a'}")
    typed(
        f"--resume={tmp_path / 'a'}", "--task=quadratic", "--set=seed=5", "--id=a", "--set=shards=2"
    )
    assert len(asked) == 2


def test_code_that_a_folder_brings_is_not_run_unasked(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')")
    monkeypatch.chdir(tmp_path)
    for options in ({"task": "evil:make"}, {"task": "digits", "rule": "evil:Rule"}):
        (tmp_path / "options.json").write_text(json.dumps(options))
        result = CliRunner().invoke(app, ["peer", "--resume=."])
        assert result.exit_code == 2 and "it ran" not in result.stderr
        assert re.search("give --(task|rule) evil:[mR].* to import and run it", result.stderr)
    assert not asked


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "there is no such folder"),
        ({"notes.txt": ""}, "not the folder of a peer: name one that `rumor peer --out` has made"),
        ({"peers/peer-0/options.json": "{}"}, "of a run: its command goes on with it"),
        ({"options.json": ""}, "FOLDER/options.json cannot be read: Expecting value"),
        ({"options.json": "[]"}, "FOLDER/options.json does not hold the options of a peer"),
    ],
)
def test_another_folder_is_refused(
    asked: Asked, tmp_path: Path, files: dict[str, str], says: str
) -> None:
    folder = tmp_path / "state"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    result = CliRunner().invoke(app, ["peer", f"--resume={folder}"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: --resume {folder}: ")
    assert says.replace("FOLDER", str(folder)) in result.stderr
    assert not asked


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
    for arguments, steps in (
        (given, 20),
        (["peer", f"--resume={out}", "--steps=30", "--json"], 30),
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.stderr
        report = json.loads(result.stdout.splitlines()[-1])
        assert (report["steps"], report["swarm_steps"], report["state"]) == (
            steps,
            steps,
            "finished",
        )
