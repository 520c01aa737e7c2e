"""``rumor run``: its output, and the fate of the scripts that it starts."""

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


def run(*arguments: str) -> Result:
    return called("run", *arguments)


def run_processes(*arguments: str, status: int = 0, out: str = "run") -> tuple[dict[str, Any], str]:
    """Run real processes and return the summary and stderr; assert that weight is exact."""
    with forked_peers():
        result = run("--out", out, "--json", *arguments)
    assert result.exit_code == status, result.stderr
    summary: dict[str, Any] = json.loads(result.stdout)
    for each in (summary, *summary.get("further", {}).values()):
        assert each["weight_units_total"] == each["weight_units_expected"]
    return summary, result.stderr


def values_of(summary: dict[str, Any], name: str = "state") -> list[Any]:
    return [peer[name] for peer in summary["peers_detail"]]


@pytest.fixture
def without_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_nothing(monkeypatch)


def test_a_dry_run_shows_the_environment_of_each_process_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "swarm.toml").write_text(
        'command = "mine.py --steps 3"\npeers = 2\nrule = "sgp"\nslow = ["1:4"]\n'
        'metrics_port = 9100\ndevice = "cuda:{i}"\nwire = "float16"\nlinger-s = 5\nout = "there"\n'
        'faults = "faults.json"\n'
    )
    (tmp_path / "faults.json").write_text('[{"at_s": 1, "kind": "crash", "peer": 1}]')
    result = run("--config", "swarm.toml", "--dry-run", "--json", "-n", "3")
    plan = json.loads(result.stdout)
    assert plan["command"][1:] == ["mine.py", "--steps", "3"]
    first, second, _ = plan["environment"].values()
    assert (first["RUMOR_COUNT"], first["RUMOR_LINGER_S"]) == ("3", "5.0")
    assert (first["RUMOR_DEVICE"], second["RUMOR_DEVICE"]) == ("cuda:0", "cuda:1")
    assert (first["RUMOR_RULE"], second["RUMOR_SLOW"]) == ("sgp", "4.0")
    assert first["RUMOR_WIRE"] == "float16"
    assert "RUMOR_SLOW" not in first
    assert [first["RUMOR_METRICS_PORT"], second["RUMOR_METRICS_PORT"]] == ["9100", "9101"]
    assert not (tmp_path / "there").exists()
    shown = run("--config", "swarm.toml", "--dry-run").stdout
    assert "peer-1:\n  RUMOR_ID=peer-1\n" in shown


def test_each_process_gets_the_keys(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path)
    key = swarm.machine("peer-*")
    keys = ("--key", str(key), "--roster", str(swarm.file()))
    shown = run("-n", "2", *keys, "--dry-run", "--json", "--", "mine.py")
    assert shown.exit_code == 0, shown.stderr
    for variables in json.loads(shown.stdout)["environment"].values():
        assert variables["RUMOR_KEY"] == str(key)
    plain = json.loads(run("--dry-run", "--json", "--", "mine.py").stdout)
    assert "RUMOR_KEY" not in plain["environment"]["peer-0"]


def test_script_options_without_a_separator_are_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["rumor", "run", "mine.py", "--steps", "3"])
    with pytest.raises(SystemExit) as ended:
        whole.run()
    assert ended.value.code == 2
    assert "Write -- in front of your command" in capsys.readouterr().err


@pytest.mark.extended
@pytest.mark.live
def test_a_failing_process_is_reported_with_its_log() -> None:
    options = "-n 3 --rule gosgd:p=0.5 --set loggers=tensorboard --set metrics_port=0"
    words = "-- mine.py --steps 60 --fails 2"
    summary, stderr = run_processes(*options.split(), *words.split(), status=1)
    assert values_of(summary) == ["finished", "finished", "failed"]
    assert summary["weight_units_total"] == 3 * 2**40 and summary["consensus_distance"] < 0.1
    assert (summary["task"], summary["rule"], summary["p"]) == ("mine.py", "gosgd", 0.5)
    assert "peer-2 failed; the end of run/peers/peer-2/log.txt:" in stderr
    assert "RuntimeError: out of ideas" in stderr
    written = {"model.safetensors", "summary.json", "training.png"}
    folders = {"peers", "rendezvous", "tensorboard"}
    assert {path.name for path in Path("run").iterdir()} == folders | written
    series = {path.name for path in Path("run/tensorboard").iterdir()}
    assert series == {"peer-0", "peer-1", "peer-2", "swarm"}
    assert "metrics at http://127.0.0.1:" in Path("run/peers/peer-1/log.txt").read_text()


def test_faults_are_refused_in_a_torchrun_job(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("faults.json").write_text("[]")
    variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "x"}
    for name, value in {**variables, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    result = run("--faults", "faults.json", "--", "mine.py")
    assert result.exit_code == 2 and "and not in a job of torchrun" in result.stderr


@pytest.mark.live
@pytest.mark.usefixtures("without_picture")
def test_an_interrupted_launcher_lets_all_peers_leave() -> None:
    logs = [Path(f"run/peers/peer-{index}/metrics.jsonl").absolute() for index in range(2)]

    def interrupt() -> None:
        until(lambda: all(map(read_metrics, logs)))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    summary, stderr = run_processes("-n", "2", "--", "mine.py", "--steps", "100000", status=1)
    assert values_of(summary) == ["left", "left"] and "stopped before the end" in stderr
    assert Path("run/model.safetensors").is_file()
    for index in range(2):
        # Ctrl-C ends a script without a launcher in the same way.
        assert "KeyboardInterrupt" in Path(f"run/peers/peer-{index}/log.txt").read_text()


# With these timeouts, only a report of the launcher can make the other peers notice the death.
AWAITS_DEATH = """
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
        # If it died earlier, the other peers would never have seen it.
        until(lambda: Path("saw-0").exists() and Path("saw-2").exists())
        for step in range(20):
            peer.step()
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    until(lambda: len(peer.members) < 3)
"""


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.usefixtures("without_picture")
def test_surviving_peers_are_notified_of_a_dead_process() -> None:
    Path("outlives.py").write_text(AWAITS_DEATH)
    summary, _ = run_processes("-n", "3", "--rule=gosgd:p=0.5", "--", "outlives.py")
    assert values_of(summary) == ["finished", "killed", "finished"]
    assert "peer-1 has died" in Path("run/peers/peer-0/log.txt").read_text()


RESUMABLE = """
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
@pytest.mark.usefixtures("without_picture")
def test_one_command_line_starts_and_resumes_a_run() -> None:
    Path("on.py").write_text(RESUMABLE)
    for steps in (40, 70):
        summary, _ = run_processes("-n", "2", "--resume", "--", "on.py", str(steps))
        assert values_of(summary, "steps") == [steps, steps]
        # The peers find each other, even in such a short run.
        assert len({path.read_text() for path in Path().glob("run/peers/*/swarm")}) == 1
    for id in ("peer-0", "peer-1"):
        log = Path(f"run/peers/{id}/log.txt").read_text()
        assert "begins at 0" in log and "begins at 40" in log
        alone = "resumed the model alone, after 40 steps" in log and "peer.register" in log
        assert alone is (id == "peer-0")
    refused = run("-n", "1", "--out", "run", "--resume", "--", "on.py", "80")
    assert refused.exit_code == 2 and "peer-1 was a peer there" in refused.stderr


EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.usefixtures("without_picture")
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
    run_processes("-n", "2", "--", str(EXAMPLES / script), *options)
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
@pytest.mark.usefixtures("without_picture")
def test_a_script_failure_after_training_keeps_the_model() -> None:
    Path("late.py").write_text(FAILS_LATE)
    summary, stderr = run_processes("-n", "2", "--", "late.py", status=1)
    assert values_of(summary) == ["finished", "finished"]
    assert values_of(summary, "script_error") == [
        "RuntimeError: no room for the picture",
        "ImportError: no plots here",
    ]
    assert summary["digest"] and Path("run/model.safetensors").is_file()
    error = "error: peer-0 trained, and then the script failed: RuntimeError: no room"
    assert error in stderr and "no peer finished" not in stderr


@pytest.mark.extended
@pytest.mark.live
@pytest.mark.usefixtures("without_picture")
def test_successive_peers_of_a_process_belong_to_separate_swarms() -> None:
    Path("folds.py").write_text(FOLDS)
    summary, _ = run_processes("-n", "2", "--rule=gosgd:p=0.5", "--", "folds.py")
    assert [*summary["further"]] == ["last", "swarm-2"]
    swarms = (summary, *summary["further"].values())
    for each in swarms:
        assert values_of(each, "steps") == [20, 20] and each["weight_units_total"] == 2 * 2**40
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
