"""``rumor run``: its output, and what happens to the script that it starts."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from rumor.cli import app as whole
from rumor.train.storage.jsonl import read_metrics

from ...forked import forked_peers
from ...gossip.transport.keyrings import Swarm
from ...waiting import until
from ..called import called
from ..cluster.machines import SCRIPT
from ..launch.fakes import draw_nothing


@pytest.fixture(autouse=True)
def in_a_folder_with_a_script(in_empty_folder: Path) -> None:
    Path("mine.py").write_text(SCRIPT)


def ran(*arguments: str) -> Result:
    return called("run", *arguments)


def trained(*arguments: str, status: int = 0, out: str = "run") -> tuple[dict[str, Any], str]:
    """Run real processes; return the summary and stderr. No unit of weight may be missing."""
    with forked_peers():
        result = ran("--out", out, "--json", *arguments)
    assert result.exit_code == status, result.stderr
    summary: dict[str, Any] = json.loads(result.stdout)
    for each in (summary, *summary.get("further", {}).values()):
        assert each["weight_units_total"] == each["weight_units_expected"]
    return summary, result.stderr


def ends(summary: dict[str, Any], name: str = "state") -> list[Any]:
    return [peer[name] for peer in summary["peers_detail"]]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_nothing(monkeypatch)


def test_a_dry_run_shows_the_environment_of_each_process_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "swarm.toml").write_text(
        'command = "mine.py --steps 3"\npeers = 2\nrule = "sgp"\nslow = ["1:4"]\n'
        'metrics_port = 9100\ndevice = "cuda:{i}"\nwire = "float16"\nlinger-s = 5\nout = "there"\n'
        'faults = "faults.json"\n'
    )
    (tmp_path / "faults.json").write_text('[{"at_s": 1, "kind": "crash", "peer": 1}]')
    result = ran("--config", "swarm.toml", "--dry-run", "--json", "-n", "3")
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
    shown = ran("--config", "swarm.toml", "--dry-run").stdout
    assert "peer-1:\n  RUMOR_ID=peer-1\n" in shown


def test_each_process_gets_the_keys(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    key = swarm.machine("peer-*")
    keys = ("--key", str(key), "--roster", str(swarm.file()))
    shown = ran("-n", "2", *keys, "--dry-run", "--json", "--", "mine.py")
    assert shown.exit_code == 0, shown.stderr
    for variables in json.loads(shown.stdout)["environment"].values():
        assert variables["RUMOR_KEY"] == str(key)
    plain = json.loads(ran("--dry-run", "--json", "--", "mine.py").stdout)
    assert "RUMOR_KEY" not in plain["environment"]["peer-0"]


def test_options_of_the_script_are_recognized_without_dashes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["rumor", "run", "mine.py", "--steps", "3"])
    with pytest.raises(SystemExit) as ended:
        whole.run()
    assert ended.value.code == 2
    assert "Write -- in front of your command" in capsys.readouterr().err


@pytest.mark.extended
@pytest.mark.live
def test_all_processes_train_and_a_failing_one_is_named_with_its_log() -> None:
    options = "-n 3 --rule gosgd:p=0.5 --set loggers=tensorboard --set metrics_port=0"
    words = "-- mine.py --steps 60 --fails 2"
    summary, said = trained(*options.split(), *words.split(), status=1)
    assert ends(summary) == ["finished", "finished", "failed"]
    assert summary["weight_units_total"] == 3 * 2**40 and summary["consensus_distance"] < 0.1
    assert (summary["task"], summary["rule"], summary["p"]) == ("mine.py", "gosgd", 0.5)
    assert "peer-2 failed; the end of run/peers/peer-2/log.txt:" in said
    assert "RuntimeError: out of ideas" in said
    written = {"model.safetensors", "summary.json", "training.png"}
    folders = {"peers", "rendezvous", "tensorboard"}
    assert {path.name for path in Path("run").iterdir()} == folders | written
    series = {path.name for path in Path("run/tensorboard").iterdir()}
    assert series == {"peer-0", "peer-1", "peer-2", "swarm"}
    assert "metrics at http://127.0.0.1:" in Path("run/peers/peer-1/log.txt").read_text()


def test_faults_are_for_the_processes_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("faults.json").write_text("[]")
    told = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "x"}
    for name, value in {**told, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    result = ran("--faults", "faults.json", "--", "mine.py")
    assert result.exit_code == 2 and "and not in a job of torchrun" in result.stderr


@pytest.mark.live
@pytest.mark.usefixtures("undrawn")
def test_a_launcher_that_is_stopped_lets_all_peers_leave_properly() -> None:
    logs = [Path(f"run/peers/peer-{index}/metrics.jsonl").absolute() for index in range(2)]

    def interrupt() -> None:
        until(lambda: all(map(read_metrics, logs)))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    summary, said = trained("-n", "2", "--", "mine.py", "--steps", "100000", status=1)
    assert ends(summary) == ["left", "left"] and "stopped before the end" in said
    assert Path("run/model.safetensors").is_file()
    for index in range(2):
        # As Ctrl-C ends a script without a launcher.
        assert "KeyboardInterrupt" in Path(f"run/peers/peer-{index}/log.txt").read_text()


# Silence alone would take an hour to have a peer considered dead.
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


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.usefixtures("undrawn")
def test_the_others_are_notified_of_a_dead_process() -> None:
    Path("outlives.py").write_text(OUTLIVES)
    summary, _ = trained("-n", "3", "--rule=gosgd:p=0.5", "--", "outlives.py")
    assert ends(summary) == ["finished", "killed", "finished"]
    assert "peer-1 has died" in Path("run/peers/peer-0/log.txt").read_text()


GOES_ON = """
import sys
import torch
from torch import nn
from rumor.train import Peer, environment

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
peer = Peer(model)
if environment().index == 1:
    peer.register(optimizer=optimizer)
with peer:
    print("begins at", peer.steps)
    (environment().out / "swarm").write_text(f"{peer.stats().swarm} {peer.members}")
    while peer.steps < int(sys.argv[1]):
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
        peer.step(loss=0.5)
"""


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.usefixtures("undrawn")
def test_one_command_line_begins_and_resumes_a_run() -> None:
    Path("on.py").write_text(GOES_ON)
    for steps in (40, 70):
        summary, _ = trained("-n", "2", "--resume", "--", "on.py", str(steps))
        assert ends(summary, "steps") == [steps, steps]
        # They meet, even in so short a run.
        assert len({path.read_text() for path in Path().glob("run/peers/*/swarm")}) == 1
    for id in ("peer-0", "peer-1"):
        log = Path(f"run/peers/{id}/log.txt").read_text()
        assert "begins at 0" in log and "begins at 40" in log
        alone = "resumed the model alone, after 40 steps" in log and "peer.register" in log
        assert alone is (id == "peer-0")
    refused = ran("-n", "1", "--out", "run", "--resume", "--", "on.py", "80")
    assert refused.exit_code == 2 and "peer-1 was a peer there" in refused.stderr


EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("script", "options", "swarms"),
    [
        ("kfold.py", ("--folds", "2", "--steps", "30"), ["fold-0", "fold-1"]),
        ("gan.py", ("--steps", "30"), ["discriminator", "generator"]),
    ],
)
def test_examples_with_several_swarms_write_a_model_for_each(
    script: str, options: tuple[str, ...], swarms: list[str]
) -> None:
    trained("-n", "2", "--", str(EXAMPLES / script), *options)
    assert sorted(path.parent.name for path in Path("run").glob("swarms/*/*.safetensors")) == swarms


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
@pytest.mark.usefixtures("undrawn")
def test_a_failure_after_training_does_not_undo_it() -> None:
    Path("late.py").write_text(FAILS_LATE)
    summary, said = trained("-n", "2", "--", "late.py", status=1)
    assert ends(summary) == ["finished", "finished"]
    assert ends(summary, "script_error") == [
        "RuntimeError: no room for the picture",
        "ImportError: no plots here",
    ]
    assert summary["digest"] and Path("run/model.safetensors").is_file()
    told = "error: peer-0 trained, and then the script failed: RuntimeError: no room"
    assert told in said and "no peer finished" not in said


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.usefixtures("undrawn")
def test_each_peer_of_a_process_belongs_to_its_own_swarm_of_all_processes() -> None:
    Path("folds.py").write_text(FOLDS)
    summary, _ = trained("-n", "2", "--rule=gosgd:p=0.5", "--", "folds.py")
    assert [*summary["further"]] == ["last", "swarm-2"]
    swarms = (summary, *summary["further"].values())
    for each in swarms:
        assert ends(each, "steps") == [20, 20] and each["weight_units_total"] == 2 * 2**40
        assert Path(each["out"], "model.safetensors").exists()
    assert len({each["digest"] for each in swarms}) == 3
    logs = [Path(f"run/peers/peer-{index}/log.txt").read_text() for index in range(2)]
    # All began with the first process's model, which differs between swarms.
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
