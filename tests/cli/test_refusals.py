"""Wrong arguments: every command prints a line or two, exits with status 2, and writes no file."""

import shlex
import sys
from pathlib import Path

import pytest

from ..sim.live_folders import leave_run
from ..sim.study.small import TOML
from .called import called

REFUSED = {
    "peer": [
        ("--join a/b", "such as 10.0.0.5"),
        ("--set advertise=node-a:", "malformed"),
        ("--task nope", "digits, mnist, quadratic"),
        ("--index 2 --count 2", "from 0 to 1"),
        ("--id 'a b'", "id is 'a b'"),
        ("--device abacus", "device"),
        ("--set=wire=int8 --rule allreduce", "needs numbers as they are"),
        ("--set=shards=4 --rule dpsgd", "mixes by weight, such as gosgd"),
        ("--set=shards=2 --set shards_per_push=3", "from 1 to shards, 2"),
        ("--resume", "name it with --out"),
    ],
    "run": [
        ("", "there is nothing to run"),
        ("-- python nowhere.py", "script 'nowhere.py' was not found"),
        ("-- no-such-program", "program 'no-such-program' was not found"),
        ("--rule gosdg -- mine.py", "did you mean 'gosgd'?"),
        ("--device cuda:{k} -- mine.py", "cuda:{i}"),
        ("--wire int8 --rule allreduce -- mine.py", "needs numbers as they are"),
        ("--out mine.py -- mine.py", "mine.py is a file"),
        ("--faults nowhere.json -- mine.py", "--faults nowhere.json: "),
        ("--hosts hosts.txt --faults faults.json -- mine.py", "and not on other machines"),
        ("--config nowhere.toml", "nowhere.toml: No such file"),
        ("--port 70000 -- mine.py", "port is 70000"),
        ("--resume -- mine.py", "name it with --out"),
        ("--resume --out x --rule dpsgd -- mine.py", "admits no peers"),
    ],
    "launch": [
        ("--peers 0", "peers is 0"),
        ("--task nope", "digits, mnist, quadratic"),
        ("--task nowhere:task", "no module 'nowhere'"),
        ("--task broken_task:task", "broken_task.py:2\n"),
        ("--partition iid --peers 5000", "use fewer, or partition shared"),
        ("--wire int8 --rule allreduce", "needs numbers as they are"),
        ("--set loggers=csv", "known are tensorboard, trackio, wandb, mlflow"),
        ("--set metrics_port=65533", "metrics_port is 65533 for 4 peers"),
    ],
    "simulate": [
        ("--out mine.py", "is a file"),
        ("--out mine.py/run", "takes no new files"),
        ("--out old", "holds another run (series.npz)"),
        ("--task nope", "nope"),
        ("--set latency_s=-1", "latency_s is -1"),
        ("--set slow=99:2", "99"),
        ("--partition iid -n 5000", "use fewer, or partition shared"),
        ("--against old", "is not the folder of a live run"),
        ("--against live --set time_to=0", "time_to=0: it must be in (0, 1]"),
        ("--against live --set time_to=1.5", "time_to=1.5: it must be in (0, 1]"),
        ("--against live --set tolerance=0", "tolerance=0: it must be above 0"),
        (
            "--from none.json",
            "none.json is not a calibration: `rumor calibrate -o FILE` writes one",
        ),
    ],
    "study": [
        ("", "say which study: a file that ends in .toml, or a name of --list"),
        ("graphz", "unknown study 'graphz', did you mean 'graphs'"),
        ("gone.toml", "gone.toml cannot be read: No such file"),
        ("mine.toml --jobs 0", "jobs is 0: it must be an integer of at least 1"),
        ("mine.toml --backend spark", "backend is 'spark': it must be loky"),
        ("mine.toml --out mine.toml", "mine.toml is a file: name a new folder"),
        ("graphs --copy mine.toml", "mine.toml: File exists"),
        ("graphs --copy mine.txt", "mine.txt must end in .toml"),
        ("gone.toml --copy new.toml", "gone.toml: No such file"),
    ],
    "topology": [
        ("ring", "say how many nodes"),
        ("rign -n 8", "did you mean 'ring'?"),
        ("ring -n 8 --draw nowhere/ring.png", "a folder that exists"),
        ("ring -n 8 --draw /", "it must end in .png, .svg or .pdf"),
        ("ring -n 8 --draw ring.bmp", "it must end in .png"),
        ("ring -n 501 --draw ring.png", "at most 500"),
        ("ring -n 10000001", "at most 10,000,000"),
        ("grid:rows=4000,cols=4000", "16,000,000 nodes is too large"),
        ("spanning-tree:of=hosts:sizes=9999999x2", "10,000,001 nodes is too large"),
        ("ring --list", "only one of them"),
        ("", "give a topology"),
    ],
    "calibrate": [
        ("nowhere", "which does not exist, is not the folder of a live run"),
        ("live --join x:", "address 'x:' is malformed"),
        ("live -o nowhere/x.json", "name a file in a folder that exists"),
        ("live -o live", "name a file in a folder that exists"),
        ("", "name the folder of a run, or give --join"),
    ],
    "advise": [
        ("", "say which machines"),
        ("nowhere.json", "nowhere.json cannot be read: No such file"),
        ("--hosts a --join b:1", "not both"),
        ("--hosts a --out mine.toml", "mine.toml is a file: name a new folder"),
        ("--hosts a --seeds 0", "seeds is 0"),
        ("--hosts a@fast", "--hosts has 'a@fast': each group must be as in 4x rtx"),
        ("--hosts '8 a'", "--hosts has '8 a': each group must be as in"),
    ],
    "doctor": [
        ("a/b", "write HOST or HOST:PORT"),
        ("node-a:1 --key m1.key", "belong together"),
        ("node-a:1 --timeout-s 0", "timeout_s is 0"),
        ("node-a:1 --task nope", "digits, mnist, quadratic"),
        ("node-a:1 --rule nope", "gosgd"),
        ("node-a:1 --shards 2", "is of a model: give --task, too"),
    ],
    "stop": [
        ("a/b", "write HOST or HOST:PORT"),
        ("node-a:1 --wait-s 0", "wait_s is 0.0: it must be in (0, 86400]"),
        ("node-a:1 --key m1.key", "give both or neither"),
    ],
    "top": [
        ("a/b", "address 'a/b' is malformed"),
        ("a:1 --every-s 0.01", "every_s is 0.01: it must be in [0.2, 3600]"),
        ("a:1 --every-s nan", "it must be in [0.2, 3600]"),
        ("a:1 --sort weigth", "it must be peer, state, step"),
        ("a:1 --key m1.key", "key and roster belong together"),
        ("a:1 --listen 127.0.0.1:0", "--listen says where the page is: give --web, too"),
        ("--web a:1 --once", "--web shows a page: leave --once and --json out"),
        ("--web a:1 --json", "--web shows a page: leave --once and --json out"),
        ("--web a:1 --listen '8000'", "--listen is '8000': write HOST:PORT, such as"),
        ("--web a:1 --listen ':8000'", "--listen is ':8000': write HOST:PORT, such as"),
        ("--web a:1 --listen 'node-a:'", "--listen is 'node-a:': write HOST:PORT, such as"),
        ("--web a:1 --listen 'node-a:x'", "--listen is 'node-a:x': write HOST:PORT, such as"),
        (
            "--web a:1 --listen 'node-a:65536'",
            "--listen is 'node-a:65536': write HOST:PORT, such as",
        ),
        ("--web a:1 --listen ''", "--listen is '': write HOST:PORT, such as"),
    ],
    "pull": [
        (":1 -o new", "is malformed"),
        ("node-a:1 -o mine.py", "mine.py is there already: give --force to overwrite it"),
        ("node-a:1 -o missing/new", "name a file in a folder that exists"),
        ("node-a:1 -o . --force", "name a file in a folder that exists"),
        ("node-a:1 -o new --watch 500steps", "it must be a time"),
        ("node-a:1 -o new --watch soon", "soon"),
        ("node-a:1 -o new --timeout-s 0", "timeout_s"),
        ("node-a:1 -o new --key m1.key", "give both or neither"),
    ],
    "demo": [("--seconds 0", "seconds is 0")],
    "rules": [("gosdg", "unknown rule 'gosdg', did you mean 'gosgd'?")],
    "config": [("lingers", "did you mean 'linger_s'?")],
}


def listing(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [(command, *row) for command, rows in REFUSED.items() for row in rows],
)
def test_a_wrong_argument_gives_status_2_one_or_two_lines_and_no_file(
    in_empty_folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: str, message: str
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path, str(in_empty_folder)])
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "broken_task", raising=False)
    for name, text in {
        "mine.py": "",
        "mine.toml": TOML,
        "hosts.txt": "there\n",
        "faults.json": "[]",
        "none.json": "{}",
        "old/series.npz": "",
        "broken_task.py": "def task():\n    return 1 / 0\n",
    }.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    leave_run(Path("live"), (0.1, 0.3))
    before = listing(in_empty_folder)
    done = called(command, *shlex.split(words))
    assert (done.exit_code, done.stdout) == (2, "")
    # Some commands print a line about their subject before the error.
    error = done.stderr[done.stderr.index("error: ") :]
    assert message in error and error.count("\n") <= 2
    assert listing(in_empty_folder) == before
