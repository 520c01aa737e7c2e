"""``rumor peer``: what it refuses, and how signals stop it."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app
from rumor.cli.commands.peer import stop_on_signals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--join", "nonsense"], "such as 10.0.0.5:7700"),
        (["--join", "node-a:99999"], "from 1 to 65535"),
        (["--join", "::1:7700"], "[::1]:7700"),
        (["--bind", "tcp://"], "malformed"),
        (["--advertise", "node-a"], "malformed"),
        (["--task", "nope"], "digits, mnist, quadratic"),
        (["--topology", "nope"], "ring, path, star, complete"),
        (["--rule", "nope"], "gosgd"),
        (["--partition", "nope"], "dirichlet:ALPHA"),
        (["--index", "2", "--count", "2"], "from 0 to 1"),
        (["--founders", "0"], "at least 1"),
        (["--id", "a b"], "id is 'a b'"),
        (["--device", "abacus"], "device"),
        (["--wire", "float64"], "wire is 'float64'"),
        (["--wire", "topk:2"], "must be in (0, 1]"),
        (["--wire", "int8", "--rule", "allreduce"], "needs numbers as they are"),
        (["--wire", "int8", "--exact"], "with exact it must be float32"),
        (["--shards", "0"], "shards is 0"),
        (["--shards", "4", "--rule", "dpsgd"], "mixes by weight, such as gosgd"),
        (["--shards", "2", "--shards-per-push", "3"], "from 1 to shards, 2"),
        (["--shards-per-push", "0"], "shards_per_push is 0"),
        (["--shard-order", "sorted"], "round-robin or random"),
        (["--bandwidth", "200"], "as in 200mbit, 1gbit or 25MB/s"),
        (["--mixing", "later"], "step, sliced, background"),
        (["--mix-budget-ms", "0"], "mix_budget_s is 0"),
        (["--prefetch", "-1"], "prefetch is -1"),
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


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_and_the_second_ends(number: signal.Signals) -> None:
    stop = threading.Event()
    stop_on_signals(stop)
    assert not stop.is_set()
    os.kill(os.getpid(), number)
    assert stop.is_set()
    assert signal.getsignal(signal.SIGTERM) is signal.getsignal(signal.SIGINT) is signal.SIG_DFL
