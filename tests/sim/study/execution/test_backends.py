"""Backends: trials give the same bytes on processes of this machine, on Dask and on Ray."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import rumor.sim.study.execution.backends as module
from rumor.gossip import ConfigError, TransportError
from rumor.sim.study import Results, load_results, read_study, run_study, write_tables
from rumor.sim.study.execution.backends import answers, read_backend

from ....waiting import LIMIT_S
from ..small import OWN_STUDY, TOML, own_task, tables_of


@pytest.fixture
def expected(tmp_path: Path) -> tuple[bytes, ...]:
    """Tables of a study that was computed in this process."""
    path = tmp_path / "mine.toml"
    path.write_text(TOML)
    write_tables(run_study(read_study(path), tmp_path / "expected", jobs=1), tmp_path / "expected")
    return tables_of(tmp_path / "expected")


@pytest.mark.parametrize(
    ("text", "kind", "address"),
    [
        ("loky", "loky", None),
        ("dask:tcp://10.0.0.1:8786", "dask", "tcp://10.0.0.1:8786"),
        ("ray", "ray", None),
        ("ray:ray://host:10001", "ray", "ray://host:10001"),
    ],
)
def test_a_backend_is_parsed(
    text: str, kind: str, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: name)
    found = read_backend(text)
    assert (found.kind, found.address, found.is_local) == (kind, address, kind == "loky")


def test_an_unknown_or_missing_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", "dask", "dask:", "ray:", "loky:2", "threads", "Dask:tcp://x"):
        with pytest.raises(ConfigError, match=r"backend is .*: it must be loky"):
            read_backend(text)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs distributed, .*: pip install -e '\.\[dask\]'"):
        read_backend("dask:tcp://10.0.0.1:8786")


def pid_of(order: str) -> str:
    """Answer with the id of this process."""
    return f"{order} {os.getpid()}"


def test_one_job_needs_no_process() -> None:
    found = list(answers(read_backend("loky"), pid_of, ["a", "b"], 1))
    assert found == [("a", f"a {os.getpid()}"), ("b", f"b {os.getpid()}")]
    assert list(answers(read_backend("loky"), pid_of, [], 1)) == []


def cannot_fork(*arguments: object, **settings: object) -> str:
    """Fail like the system if there are too many processes."""
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_process_that_cannot_start_is_a_transport_error(
    jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joblib.externals.loky.get_reusable_executor", cannot_fork)
    with pytest.raises(TransportError, match=r"failed: BlockingIOError: .*temporarily unavail"):
        list(answers(read_backend("loky"), cannot_fork, ["a", "b"], jobs))


@pytest.mark.extended
@pytest.mark.live
def test_processes_of_this_machine_give_the_same_bytes(
    tmp_path: Path, expected: tuple[bytes, ...]
) -> None:
    folder = tmp_path / "loky"
    results = run_study(read_study(tmp_path / "mine.toml"), folder, jobs=2)
    write_tables(results, folder)
    assert tables_of(folder) == expected


def run_command(
    study: str, folder: Path, backend: str, *, cwd: Path
) -> "subprocess.CompletedProcess[str]":
    """Run a study in a Python of its own, since backends leave threads and sockets behind."""
    command = [sys.executable, "-m", "rumor.cli", "study", study, "--out", str(folder)]
    command += ["--backend", backend, "--jobs", "2", "--no-report"]
    given: Any = {"capture_output": True, "text": True, "timeout": LIMIT_S, "check": False}
    return subprocess.run(command, cwd=cwd, **given)


NO_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")


@pytest.fixture
def dask_cluster() -> Iterator[str]:
    """Address of a Dask cluster of two processes on this machine."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    given = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    quiet = {"silence_logs": "ERROR", "host": "127.0.0.1"}
    with distributed.LocalCluster(**given, **quiet) as cluster:
        yield cluster.scheduler_address


@pytest.mark.live
@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")  # warnings of Dask are not ours
def test_a_dask_cluster_gives_the_same_bytes(
    tmp_path: Path, expected: tuple[bytes, ...], dask_cluster: str
) -> None:
    folder = tmp_path / "dask"
    study = read_study(tmp_path / "mine.toml")
    write_tables(run_study(study, folder, backend=f"dask:{dask_cluster}"), folder)
    assert tables_of(folder) == expected


@pytest.fixture
def deadly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of three trials, of which the second kills its process."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(own_task("seed != 1 or os.kill(os.getpid(), 9)"))
    (tmp_path / "deadly.toml").write_text(OWN_STUDY)
    return tmp_path / "deadly.toml"


def assert_only_the_second_failed(results: Results) -> None:
    assert [result.trial.seed for result in results.results] == [0, 2]
    assert results.failures == {
        "ring, seed 1": "its process was killed; perhaps it took too much memory"
    }


@pytest.fixture
def impatient() -> Iterator[None]:
    """A Dask that blames a trial for the first worker that dies with it, not for the fourth."""
    dask = pytest.importorskip("dask", reason="dask is not installed")
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        yield


@pytest.mark.live
@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
def test_a_trial_that_kills_its_dask_worker_fails_alone(
    impatient: None, dask_cluster: str, deadly: Path
) -> None:
    results = run_study(read_study(deadly), Path("a"), backend=f"dask:{dask_cluster}")
    assert_only_the_second_failed(results)


@pytest.mark.live
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("loky", marks=pytest.mark.extended),
        pytest.param("ray", marks=[pytest.mark.cluster, pytest.mark.slow, NO_RAY]),
    ],
)
def test_a_trial_that_kills_its_process_fails_alone(deadly: Path, backend: str) -> None:
    done = run_command("deadly.toml", Path("a"), backend, cwd=Path.cwd())
    assert done.returncode == 1 and "1 trial failed" in done.stderr, done.stderr
    # Trials that were killed along with it are retried alone.
    assert_only_the_second_failed(load_results(Path("a")))


@pytest.mark.live
@pytest.mark.cluster
@NO_RAY
def test_ray_gives_the_same_bytes(tmp_path: Path, expected: tuple[bytes, ...]) -> None:
    folder = tmp_path / "ray"
    done = run_command("mine.toml", folder, "ray", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert tables_of(folder) == expected


@pytest.mark.live
@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("package", "backend", "message"),
    [
        ("distributed", "dask:tcp://127.0.0.1:1", r"no Dask scheduler at tcp://127\.0\.0\.1:1"),
        ("ray", "ray:127.0.0.1:1", r"there is no Ray cluster at 127\.0\.0\.1:1"),
    ],
)
def test_a_missing_cluster_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch, package: str, backend: str, message: str
) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    monkeypatch.setattr(module, "_CONNECT_S", 0.5)
    with pytest.raises(TransportError, match=message):
        list(answers(read_backend(backend), pid_of, ["a"], None))
