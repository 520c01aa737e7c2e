"""``rumor run``: what it refuses, what it shows, and what comes of a script that it starts."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rumor.cli import app as whole
from rumor.cli.app import app
from rumor.train.storage.jsonl import read_metrics

from ...forked import forked_peers
from ...gossip.transport.keyrings import Swarm
from ..launch.fakes import draw_nothing

SCRIPT = """
import argparse, os, time
import torch
from torch import nn
from rumor.train import Peer, environment

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
parser.add_argument("--fails", type=int, default=-1)
parser.add_argument("--until", default=os.devnull)  # a file: it trains at least until that is there
arguments = parser.parse_args()
torch.manual_seed(environment().index)  # each draws another model
model = nn.Linear(4, 1).to(environment().device)
with Peer(model) as peer:
    print("taking part as", peer.id)
    step = 0
    while step < arguments.steps or not os.path.exists(arguments.until):
        with torch.no_grad():
            model.weight.add_(0.01)
        time.sleep(0.01)
        step += 1
        peer.step(loss=1.0 / step)
        if step == 30 and environment().index == arguments.fails:
            raise RuntimeError("out of ideas")
"""


@pytest.fixture(autouse=True)
def in_a_folder_with_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SCRIPT)


def called(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["run", *arguments])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to run"),
        (["--", "python", "nowhere.py"], "there is no script 'nowhere.py'"),
        (["--", "no-such-program"], "there is no program 'no-such-program'"),
        (["--rule", "gosdg", "--", "mine.py"], "did you mean 'gosgd'?"),
        (["--device", "cuda:{k}", "--", "mine.py"], "cuda:{i}"),
        (["--wire", "int8", "--rule", "allreduce", "--", "mine.py"], "needs numbers as they are"),
        (["--out", "mine.py", "--", "mine.py"], "mine.py is a file"),
        (["--faults", "nowhere.json", "--", "mine.py"], "--faults nowhere.json: "),
        (["--config", "nowhere.toml"], "nowhere.toml: No such file"),
        (["--resume", "--", "mine.py"], "name it with --out"),
        (["--resume", "--out", "x", "--rule", "dpsgd", "--", "mine.py"], "takes nobody in"),
    ],
)
def test_a_wrong_argument_is_status_2_one_line_and_no_file(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    result = called(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ") and message in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


def test_a_dry_run_shows_what_each_process_finds_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "swarm.toml").write_text(
        'command = "mine.py --steps 3"\npeers = 2\nrule = "sgp"\nslow = ["1:4"]\n'
        'metrics_port = 9100\ndevice = "cuda:{i}"\nwire = "float16"\nlinger-s = 5\nout = "there"\n'
        'faults = "faults.json"\n'
    )
    (tmp_path / "faults.json").write_text('[{"at_s": 1, "kind": "crash", "peer": 1}]')
    result = called("--config", "swarm.toml", "--dry-run", "--json", "-n", "3")
    told = json.loads(result.stdout)
    assert told["command"][1:] == ["mine.py", "--steps", "3"]
    assert (told["settings"]["peers"], told["settings"]["linger_s"]) == (3, 5.0)
    assert told["settings"]["faults"] == "faults.json"
    first, second, _ = told["environment"].values()
    assert (first["RUMOR_DEVICE"], second["RUMOR_DEVICE"]) == ("cuda:0", "cuda:1")
    assert (first["RUMOR_RULE"], second["RUMOR_SLOW"]) == ("sgp", "4.0")
    assert first["RUMOR_WIRE"] == "float16"
    assert "RUMOR_SLOW" not in first
    assert [first["RUMOR_METRICS_PORT"], second["RUMOR_METRICS_PORT"]] == ["9100", "9101"]
    assert not (tmp_path / "there").exists()
    shown = called("--config", "swarm.toml", "--dry-run").stdout
    assert "peer-1:\n  RUMOR_ID=peer-1\n" in shown


def test_each_process_is_told_of_keys(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    key = swarm.machine("peer-*")
    keys = ("--key", str(key), "--roster", str(swarm.file()))
    shown = called("-n", "2", *keys, "--dry-run", "--json", "--", "mine.py")
    assert shown.exit_code == 0, shown.stderr
    for variables in json.loads(shown.stdout)["environment"].values():
        assert variables["RUMOR_KEY"] == str(key)
    plain = json.loads(called("--dry-run", "--json", "--", "mine.py").stdout)
    assert "RUMOR_KEY" not in plain["environment"]["peer-0"]


def test_options_of_the_script_without_dashes_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["rumor", "run", "mine.py", "--steps", "3"])
    with pytest.raises(SystemExit) as ended:
        whole.run()
    assert ended.value.code == 2
    assert "Write -- in front of your command" in capsys.readouterr().err


@pytest.mark.live
def test_a_script_is_trained_by_all_and_one_that_fails_is_named_with_its_log(
    tmp_path: Path,
) -> None:
    with forked_peers():
        words = ("--", "mine.py", "--steps", "60", "--fails", "2")
        options = (
            "--rule",
            "gosgd:p=0.5",
            "--out",
            "run",
            "--set",
            "loggers=tensorboard",
            "--set",
            "metrics_port=0",
        )
        result = called("-n", "3", *options, "--json", *words)
    assert result.exit_code == 1
    summary = json.loads(result.stdout)
    assert [peer["state"] for peer in summary["peers_detail"]] == ["finished", "finished", "failed"]
    assert summary["weight_units_total"] == summary["weight_units_expected"] == 3 * 2**40
    assert summary["consensus_distance"] < 0.1
    assert (summary["task"], summary["rule"], summary["p"]) == ("mine.py", "gosgd", 0.5)
    assert "peer-2 failed; the end of run/peers/peer-2/log.txt:" in result.stderr
    assert "RuntimeError: out of ideas" in result.stderr
    files = {path.name for path in (tmp_path / "run").iterdir()}
    written = {"model.safetensors", "summary.json", "training.png"}
    assert files == {"peers", "rendezvous", "tensorboard", *written}
    series = {path.name for path in (tmp_path / "run" / "tensorboard").iterdir()}
    assert series == {"peer-0", "peer-1", "peer-2", "swarm"}
    assert "metrics at http://127.0.0.1:" in (tmp_path / "run/peers/peer-1/log.txt").read_text()


def test_faults_are_for_the_processes_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "faults.json").write_text("[]")
    (tmp_path / "hosts.txt").write_text("there\n")
    result = called("--hosts", "hosts.txt", "--faults", "faults.json", "--", "mine.py")
    assert result.exit_code == 2 and "and not on other machines" in result.stderr
    told = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "x"}
    for name, value in {**told, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    result = called("--faults", "faults.json", "--", "mine.py")
    assert result.exit_code == 2 and "and not in a job of torchrun" in result.stderr


@pytest.mark.extended
@pytest.mark.live
def test_a_script_that_a_fault_kills_comes_back_and_a_newcomer_joins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_nothing(monkeypatch)
    faults = [
        {"at_s": 0.5, "kind": "crash", "peer": 1},
        {"at_s": 0.5, "kind": "join"},
        {"at_s": 0.6, "kind": "pause", "peer": 0, "for_s": 0.2},
        {"at_s": 1.0, "kind": "restart", "peer": 1},
    ]
    (tmp_path / "faults.json").write_text(json.dumps(faults))
    peers = tmp_path / "run" / "peers"
    over = threading.Event()

    def end() -> None:
        """Let all end once the peer that is killed and the newcomer have begun."""
        logs = peers / "peer-1" / "log.txt", peers / "join-1" / "log.txt"
        while not over.wait(0.05):
            told = [log.read_text().count("taking part") if log.exists() else 0 for log in logs]
            if told == [2, 1]:
                (tmp_path / "over").touch()
                return

    thread = threading.Thread(target=end)
    thread.start()
    with forked_peers():
        options = (
            "--faults",
            "faults.json",
            "--rule=gosgd:p=0.3",
            "--set",
            "log_every=1",
            "--out",
            "run",
        )
        words = ("--", "mine.py", "--steps", "100", "--until", str(tmp_path / "over"))
        result = called("-n", "2", *options, "--json", *words)
    over.set()
    thread.join()
    summary = json.loads(result.stdout)
    assert result.exit_code == 0, result.stderr
    ends = {peer["id"]: (peer["state"], peer["lives"]) for peer in summary["peers_detail"]}
    assert ends == {"peer-0": ("finished", 1), "peer-1": ("finished", 2), "join-1": ("finished", 1)}
    assert summary["weight_units_total"] == summary["weight_units_expected"]
    done = {fault["kind"]: fault["done"][0]["what"] for fault in summary["faults"]}
    assert done["crash"] == "peer-1 is killed" and done["join"] == "join-1 starts"
    assert done["pause"] == "peer-0 stands still"
    assert done["restart"] == "peer-1 restarts from its last checkpoint"
    log = (peers / "peer-1" / "log.txt").read_text()
    assert log.count("taking part as peer-1") == 2


@pytest.mark.live
def test_a_launcher_that_is_told_to_stop_lets_all_leave_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_nothing(monkeypatch)
    over = threading.Event()

    def interrupt() -> None:
        logs = [tmp_path / f"run/peers/peer-{index}/metrics.jsonl" for index in range(2)]
        while not all(map(read_metrics, logs)) and not over.wait(0.05):
            pass
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with forked_peers():
        words = ("--", "mine.py", "--steps", "100000")
        result = called("-n", "2", "--out", "run", "--json", *words)
    over.set()
    thread.join()
    summary = json.loads(result.stdout)
    assert [peer["state"] for peer in summary["peers_detail"]] == ["left", "left"]
    assert summary["weight_units_total"] == summary["weight_units_expected"]
    assert result.exit_code == 1 and "stopped before the end" in result.stderr
    assert (tmp_path / "run/model.safetensors").is_file()
    for index in range(2):
        # As Ctrl-C ends a script that runs alone.
        assert "KeyboardInterrupt" in (tmp_path / f"run/peers/peer-{index}/log.txt").read_text()


FAILS_LATE = """
import torch
from rumor.train import Peer, environment

with Peer(torch.nn.Linear(4, 1)) as peer:
    for step in range(20):
        peer.step()
    assert peer.merge(timeout_s=600)
    if environment().index == 0:
        raise RuntimeError("no room for the picture")
raise ImportError("no plots here")
"""


@pytest.mark.extended
@pytest.mark.live
def test_what_fails_after_the_training_takes_nothing_of_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_nothing(monkeypatch)
    (tmp_path / "late.py").write_text(FAILS_LATE)
    with forked_peers():
        result = called("-n", "2", "--out", "run", "--json", "--", "late.py")
    summary = json.loads(result.stdout)
    peers = summary["peers_detail"]
    assert [peer["state"] for peer in peers] == ["finished", "finished"]
    assert [peer["script_error"] for peer in peers] == [
        "RuntimeError: no room for the picture",
        "ImportError: no plots here",
    ]
    assert summary["digest"] and (tmp_path / "run/model.safetensors").is_file()
    assert summary["weight_units_total"] == summary["weight_units_expected"] == 2 * 2**40
    assert result.exit_code == 1
    told = "error: peer-0 trained, and then the script failed: RuntimeError: no room"
    assert told in result.stderr and "no peer finished" not in result.stderr


# Nobody would be considered dead within the hour by silence alone.
OUTLIVES = """
import os, signal, time
from pathlib import Path
import torch
from rumor.gossip import ProtocolConfig
from rumor.train import Peer, PeerConfig, environment

index = environment().index
config = PeerConfig(protocol=ProtocolConfig(suspect_s=3600, dead_s=7200))

def until(is_so):
    while not is_so():
        peer.step()
        time.sleep(0.01)

with Peer(torch.nn.Linear(4, 1), config) as peer:
    until(lambda: len(peer.members) == 3)
    Path(f"saw-{index}").touch()
    if index == 1:
        # One that died before would never be seen by the others.
        until(lambda: Path("saw-0").exists() and Path("saw-2").exists())
        for step in range(20):
            peer.step()
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    until(lambda: len(peer.members) < 3)
"""


@pytest.mark.live
def test_the_others_hear_of_a_process_that_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_nothing(monkeypatch)
    (tmp_path / "outlives.py").write_text(OUTLIVES)
    with forked_peers():
        result = called(
            "-n", "3", "--rule=gosgd:p=0.5", "--out", "run", "--json", "--", "outlives.py"
        )
    summary = json.loads(result.stdout)
    states = [peer["state"] for peer in summary["peers_detail"]]
    assert states == ["finished", "killed", "finished"]
    assert summary["weight_units_total"] == summary["weight_units_expected"]
    assert "peer-1 has died" in (tmp_path / "run/peers/peer-0/log.txt").read_text()


GOES_ON = """
import sys, time
import torch
from torch import nn
from rumor.train import Peer

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
peer = Peer(model)
peer.register(optimizer=optimizer)
with peer:
    print("begins at", peer.steps)
    while peer.steps < int(sys.argv[1]):
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
        peer.step(loss=0.5)
        time.sleep(0.01)
"""


@pytest.mark.extended
@pytest.mark.live
def test_the_same_command_line_begins_a_run_and_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_nothing(monkeypatch)
    (tmp_path / "on.py").write_text(GOES_ON)

    def ran(steps: int, *options: str) -> Result:
        with forked_peers():
            return called(
                "-n",
                "2",
                "--out",
                "there",
                "--resume",
                "--json",
                *options,
                "--",
                "on.py",
                str(steps),
            )

    first, second = json.loads(ran(40).stdout), json.loads(ran(70).stdout)
    assert [peer["steps"] for peer in first["peers_detail"]] == [40, 40]
    assert [peer["steps"] for peer in second["peers_detail"]] == [70, 70]
    assert second["weight_units_total"] == second["weight_units_expected"]
    for id in ("peer-0", "peer-1"):
        log = (tmp_path / "there" / "peers" / id / "log.txt").read_text()
        assert "begins at 0" in log and "begins at 40" in log
    refused = called("-n", "1", "--out", "there", "--resume", "--", "on.py", "80")
    assert refused.exit_code == 2 and "peer-1 was a peer there" in refused.stderr


EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.extended
@pytest.mark.live
def test_each_peer_of_a_process_is_of_a_swarm_of_its_own_in_which_all_processes_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_nothing(monkeypatch)
    (tmp_path / "folds.py").write_text(FOLDS)
    with forked_peers():
        result = called("-n", "2", "--rule=gosgd:p=0.5", "--out", "run", "--json", "--", "folds.py")
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert [*summary["further"]] == ["last", "swarm-2"]
    digests = set()
    for each in (summary, *summary["further"].values()):
        assert [peer["steps"] for peer in each["peers_detail"]] == [20, 20]
        assert each["weight_units_total"] == each["weight_units_expected"] == 2 * 2**40
        assert (Path(each["out"]) / "model.safetensors").exists()
        digests.add(each["digest"])
    assert len(digests) == 3
    logs = [(tmp_path / f"run/peers/peer-{index}/log.txt").read_text() for index in range(2)]
    # All began with the model that the first process had drawn, another one in each swarm.
    assert logs[0] == logs[1] and len({*logs[0].splitlines()}) == 3


FOLDS = """
import torch
from torch import nn
from rumor.train import Peer, environment

torch.manual_seed(environment().index)
for name in (None, None, "last"):
    model = nn.Linear(4, 1)
    with Peer(model, swarm=name) as peer:
        print(model.weight[0, 0].item(), peer.members)
        while peer.steps < 20:
            peer.step()
"""


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.parametrize(
    ("script", "options", "swarms"),
    [
        ("kfold.py", ("--folds", "2", "--steps", "30"), ["fold-0", "fold-1"]),
        ("gan.py", ("--steps", "30"), ["discriminator", "generator"]),
    ],
)
def test_examples_with_several_swarms_leave_a_model_of_each(
    monkeypatch: pytest.MonkeyPatch, script: str, options: tuple[str, ...], swarms: list[str]
) -> None:
    draw_nothing(monkeypatch)
    with forked_peers():
        words = ("--", str(EXAMPLES / script), *options)
        result = called("-n", "2", "--out", "run", "--json", *words)
    assert result.exit_code == 0, result.stderr
    assert sorted(path.parent.name for path in Path("run").glob("swarms/*/*.safetensors")) == swarms


@pytest.mark.extended
@pytest.mark.live
def test_peers_of_a_run_that_goes_on_meet_however_short_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_nothing(monkeypatch)
    (tmp_path / "short.py").write_text(SHORT)
    for life in range(2):
        with forked_peers():
            words = ("--out", "run", "--resume", "--json", "--", "short.py", str(20 + 20 * life))
            result = called("-n", "2", *words)
        assert result.exit_code == 0, result.stderr
        swarms = {path.read_text() for path in tmp_path.glob("run/peers/*/swarm")}
        assert len(swarms) == 1
    log = (tmp_path / "run/peers/peer-0/log.txt").read_text()
    assert "resumed the model alone, after 20 steps" in log and "peer.register" in log


SHORT = """
import sys, time
from torch import nn
from rumor.train import Peer, environment

told = environment()
with Peer(nn.Linear(4, 1)) as peer:
    (told.out / "swarm").write_text(f"{peer.stats().swarm} {peer.members}")
    while peer.steps < int(sys.argv[1]):
        peer.step()
"""
