"""Processes that become peers: tasks of Slurm and torchrun, with the variables of the scheduler,
and processes started by hand with a list of addresses.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import Result

from rumor.train.runtime.script.cluster import cluster_task
from rumor.train.storage.jsonl import read_metrics
from rumor.train.storage.ledger_file import read_ledgers

from ...waiting import LIMIT_S, until
from ..called import called
from .machines import SCRIPT, free_port

RUMOR = (sys.executable, "-P", "-m", "rumor.cli")


def slurm(rank: int, job: int, size: int = 8) -> dict[str, str]:
    """Variables that Slurm sets for a task, with half of the tasks on each of two nodes."""
    half = size // 2
    return {
        "SLURM_JOB_ID": str(job),
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank % half),
        "SLURM_NODEID": str(rank // half),
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_STEP_NODELIST": "127.0.0.[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": f"{half}(x2)",
    }


def job_with_free_ports(size: int) -> int:
    """The id of a job whose ports are all free here."""

    def is_free(job: int) -> bool:
        task, _ = cluster_task(slurm(0, job, size))
        assert task is not None
        with ExitStack() as stack:
            try:
                for place in task.places:
                    stack.enter_context(socket.socket()).bind(place)
            except OSError:
                return False
        return True

    return next(job for job in range(os.getpid(), os.getpid() + 700) if is_free(job))


@pytest.fixture(autouse=True)
def in_a_folder_with_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SCRIPT)


def run_command(monkeypatch: pytest.MonkeyPatch, env: Mapping[str, str], *words: str) -> Result:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return called("run", *words)


def test_a_dry_run_of_a_task_shows_the_settings_of_its_peer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ("--set", "metrics_port=9100", "--device", "cuda:{i}", "--dry-run", "--json")
    result = run_command(monkeypatch, slurm(5, 4711), *options, "--", "mine.py")
    assert result.exit_code == 0, result.stderr
    env = json.loads(result.stdout)["environment"]["peer-5"]
    assert (env["RUMOR_ID"], env["RUMOR_DEVICE"], env["RUMOR_METRICS_PORT"]) == (
        "peer-5",
        "cuda:1",
        "9101",
    )
    assert env["RUMOR_OUT"] == str(Path.cwd() / "runs/slurm-4711/peers/peer-5")
    assert (env["RUMOR_RESUME"], env["RUMOR_FOUNDERS"]) == ("1", "1")
    assert "RUMOR_RENDEZVOUS" not in env
    together = run_command(
        monkeypatch, {}, "--rule", "allreduce", "--dry-run", "--json", "--", "mine.py"
    )
    env = json.loads(together.stdout)["environment"]["peer-5"]
    assert env["RUMOR_FOUNDERS"] == "8" and env["RUMOR_RENDEZVOUS"].endswith("rendezvous")
    moved = run_command(monkeypatch, {}, "--port", "7700", "--dry-run", "--", "mine.py")
    assert "RUMOR_ADVERTISE=tcp://127.0.0.2:7701" in moved.stdout or ":*" in moved.stdout


def test_an_explicit_number_of_peers_overrides_the_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = slurm(5, 4711)
    for env, words in ((task, ("-n", "2")), (task | {"RUMOR_CLUSTER": "none"}, ())):
        result = run_command(monkeypatch, env, *words, "--dry-run", "--json", "--", "mine.py")
        assert "peer-1" in json.loads(result.stdout)["environment"]
    result = run_command(monkeypatch, {"RUMOR_CLUSTER": "torchrun"}, "--", "mine.py")
    assert result.exit_code == 2 and "WORLD_SIZE is not set" in result.stderr


def test_a_task_replaces_itself_with_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, tuple[str, ...], dict[str, str]]] = []
    monkeypatch.setattr(os, "execvpe", lambda *given: calls.append(given))
    result = run_command(monkeypatch, slurm(5, 4711), "--", "mine.py", "--steps", "3")
    assert result.exit_code == 0, result.stderr
    ((program, words, variables),) = calls
    assert (program, *words[1:]) == (sys.executable, "mine.py", "--steps", "3")
    assert (variables["RUMOR_ID"], variables["SLURM_PROCID"]) == ("peer-5", "5")


def test_a_list_of_addresses_makes_one_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"RUMOR_JOIN": f"{socket.gethostname()}:{free_port()},node-b.invalid"}
    options = ("--rule", "gosgd:p=0.3", "--dry-run", "--json", "--out", "runs/x", "--", "mine.py")
    result = run_command(monkeypatch, env, *options)
    assert result.exit_code == 0, result.stderr
    ((id, variables),) = json.loads(result.stdout)["environment"].items()
    assert variables["RUMOR_ID"] == id and id.startswith(socket.gethostname())
    assert variables["RUMOR_OUT"] == str(Path.cwd() / "runs/x/peers" / id)
    assert variables["RUMOR_BIND"].startswith("tcp://0.0.0.0:")
    assert (variables["RUMOR_RULE"], variables["RUMOR_FOUNDERS"]) == ("gosgd:p=0.3", "1")
    assert variables.keys().isdisjoint({"RUMOR_COUNT", "RUMOR_RENDEZVOUS"})
    result = run_command(monkeypatch, env, "-n", "2", "--", "mine.py")
    assert result.exit_code == 2 and "once for each peer" in result.stderr


@pytest.fixture
def processes() -> "Iterator[list[subprocess.Popen[bytes]]]":
    """Started processes; those still running at the end are killed."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def start(env: Mapping[str, str], *words: str) -> "subprocess.Popen[bytes]":
    name = env.get("SLURM_PROCID", "torchrun")
    with open(f"log-{name}.txt", "ab") as log:
        env = {**os.environ, "OMP_NUM_THREADS": "1", **env}
        return subprocess.Popen(words, env=env, stdout=log, stderr=log)


def logs() -> str:
    return "\n".join(path.read_text() for path in sorted(Path().glob("log-*.txt")))


def have_trained(folders: Sequence[Path], steps: int) -> bool:
    rows = [read_metrics(folder / "metrics.jsonl") for folder in folders if folder.exists()]
    return len(rows) == len(folders) and all(each and each[-1]["step"] >= steps for each in rows)


@pytest.mark.extended
@pytest.mark.live
def test_a_requeued_job_resumes_where_it_stopped(
    processes: "list[subprocess.Popen[bytes]]",
) -> None:
    job = job_with_free_ports(2)
    words = (*RUMOR, "run", "--timing", "local", "--set", "log_every=5", "--", "mine.py", "--steps")
    peers = [Path(f"runs/slurm-{job}/peers/peer-{rank}") for rank in range(2)]
    for rank in range(2):
        processes.append(start(slurm(rank, job, 2), *words, "100000"))
    until(lambda: have_trained(peers, 20), "all train")
    # Slurm preempts the job.
    for process in processes:
        process.terminate()
    assert [process.wait(LIMIT_S) for process in processes] == [143, 143], logs()
    before = [read_metrics(folder / "metrics.jsonl")[-1]["step"] for folder in peers]
    steps = str(max(before) + 50)
    for rank in range(2):
        env = slurm(rank, job, 2) | {"SLURM_RESTART_COUNT": "1"}
        processes.append(start(env, *words, steps))
    assert [process.wait(LIMIT_S) for process in processes[2:]] == [0, 0], logs()
    for folder, step in zip(peers, before, strict=True):
        rows = [row["step"] for row in read_metrics(folder / "metrics.jsonl")]
        assert rows[-1] >= int(steps) - 5 and min(rows[rows.index(step) + 1 :]) >= step
        assert len({account.life for account in read_ledgers(folder)}) == 2


@pytest.mark.extended
@pytest.mark.live
def test_scripts_started_by_torchrun_form_one_swarm(
    processes: "list[subprocess.Popen[bytes]]",
) -> None:
    torchrun = (sys.executable, "-m", "torch.distributed.run")
    env = {"RUMOR_LINGER_S": str(LIMIT_S), "RUMOR_DEVICE": "cpu"}
    words = ("--standalone", "--nproc-per-node", "2", "mine.py", "--steps", "40")
    processes.append(start(env, *torchrun, *words))
    assert processes[0].wait(LIMIT_S) == 0, logs()
    assert "taking part as peer-0 of 2" in logs() and "taking part as peer-1 of 2" in logs()


@pytest.mark.extended
@pytest.mark.live
def test_one_command_line_founds_joins_and_restarts(
    processes: "list[subprocess.Popen[bytes]]",
) -> None:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in sockets]
    env = {"RUMOR_JOIN": ",".join(f"localhost:{port}" for port in ports)}
    options = ("--timing", "local", "--set", "log_every=5", "--out", "run", "--resume")
    script = ("python", "mine.py", "--steps", "100", "--until", "over")
    line = (*RUMOR, "run", *options, "--", *script)
    peers = [Path(f"run/peers/localhost-{port}") for port in ports]
    # Two processes that start together take places in either order.
    processes += [start(env, *line), start(env, *line)]
    until(lambda: have_trained(peers[:2], 20), "two train")
    processes.append(start(env, *line))
    until(lambda: have_trained(peers, 20), "three train")
    processes[0].kill()
    processes[0].wait()
    processes.append(start(env, *line))
    until(lambda: logs().count("taking part") == 4, "one is back")
    Path("over").touch()
    assert [process.wait(LIMIT_S) for process in processes[1:]] == [0, 0, 0], logs()
    reports = [json.loads((each / "peer.json").read_text()) for each in peers]
    assert [report["state"] for report in reports] == ["finished"] * 3
    output = logs()
    assert output.count("loading torch") == 4 and output.count("founded a swarm") == 1
    assert output.count("joined: the model is now a copy of") == 3
