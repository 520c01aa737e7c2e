"""Properties of a whole process, tested in a new process that does nothing else."""

import itertools
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from rumor.gossip.rules.registry import RULES
from rumor.sim import simulate
from rumor.train.storage.jsonl import read_metrics

from .sim import test_testing
from .sim.batched import test_exactness
from .sim.kernel import test_fleet_faults_run
from .waiting import LIMIT_S

# Libraries for plots, analysis and terminals, which would slow the start of every live peer.
LIBRARIES: Final = ("matplotlib", "networkx", "pandas", "rich", "scipy", "sklearn", "torchvision")

OTHER_LAYERS: Final = ("rumor.cli", "rumor.sim")

SIMULATED: Final[list[dict[str, Any]]] = [
    *(
        test_exactness.SETTINGS | test_exactness.CASES[rule] | {"engine": engine}
        for rule, engine in zip(RULES, itertools.cycle(["dense", "loop", "vmap"]))
    ),
    *(
        test_exactness.SETTINGS | test_exactness.CASES[name]
        for name in ("bfloat16", "topk shards", "pairs")
    ),
    test_fleet_faults_run.SETTINGS,
]

ROW: Final = {"step": 3, "loss": 0.5}

PROGRAM: Final = """
import json, os, signal, sys
request = json.loads(sys.argv[1])
def report(found):
    print(json.dumps(found), flush=True)
import rumor.train
report([name for name in request["unwanted"] if name in sys.modules])
import rumor.sim.results.run
report([name for name in ("matplotlib", "rich") if name in sys.modules])
from rumor.train.tensors.buffers import give_pages_back, keep_pages
report(keep_pages())
import torch
def resident_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
found = []
if sys.platform == "linux":
    before = resident_bytes()
    torch.ones(16 << 20)
    found.append(resident_bytes() - before)
    give_pages_back()
    found.append(resident_bytes() - before)
report(found)
from rumor.sim import simulate
summaries = [simulate(**settings).summary for settings in request["simulated"]]
report([[summary["digest"], summary["model_digest"]] for summary in summaries])
scope = {"SEED": 7}
exec(request["swarm"], scope)
report(scope["swarm"].digest)
from rumor.train.storage.jsonl import MetricsLog
MetricsLog(request["log"]).write(request["row"])
os.kill(os.getpid(), signal.SIGKILL)
"""


@dataclass(frozen=True, slots=True)
class Fresh:
    """Output of the other process, in order."""

    unwanted_of_train: list[str]
    unwanted_of_results: list[str]
    keeps_pages: bool
    grown_bytes: list[int]
    """Growth of a process that keeps pages after it has freed 64 MiB, and after it has given the
    pages back; empty except on Linux."""
    simulated: list[list[str]]
    swarm: str
    status: int
    log: Path


def run_program(folder: Path, simulated: list[dict[str, Any]]) -> Fresh:
    """Run the program in a process with another hash seed and more threads."""
    request = {
        "unwanted": LIBRARIES + OTHER_LAYERS,
        "simulated": simulated,
        "swarm": test_testing.RUN,
        "log": str(folder / "metrics.jsonl"),
        "row": ROW,
    }
    variables = {"PYTHONHASHSEED": "2", "OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(request)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    train, results, pages, grown, digests, swarm = map(json.loads, done.stdout.splitlines())
    log = folder / "metrics.jsonl"
    return Fresh(train, results, pages, grown, digests, swarm, done.returncode, log)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    return run_program(tmp_path_factory.mktemp("fresh"), [])


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    return run_program(tmp_path_factory.mktemp("simulated"), SIMULATED).simulated


@pytest.mark.extended
def test_live_peers_and_results_load_no_unneeded_library(fresh: Fresh) -> None:
    assert fresh.unwanted_of_train == fresh.unwanted_of_results == []


@pytest.mark.extended
def test_the_allocator_keeps_freed_pages_until_they_are_given_back(fresh: Fresh) -> None:
    assert fresh.keeps_pages in (True, False)
    if fresh.keeps_pages and fresh.grown_bytes:
        kept, left = fresh.grown_bytes
        assert kept > 60 << 20 and left < 16 << 20


@pytest.mark.extended
@pytest.mark.parametrize("number", range(len(SIMULATED)))
def test_a_simulation_has_the_same_bits_in_another_process(
    simulated: list[list[str]], number: int
) -> None:
    """The hash seed and the number of threads have no influence."""
    summary = simulate(**SIMULATED[number]).summary
    assert simulated[number] == [summary["digest"], summary["model_digest"]]


def test_a_seed_gives_the_same_swarm_in_every_process(fresh: Fresh) -> None:
    assert fresh.swarm == test_testing.digest(7) != test_testing.digest(8)


def test_a_written_row_survives_a_killed_process(fresh: Fresh) -> None:
    assert fresh.status == -signal.SIGKILL
    assert read_metrics(fresh.log) == [ROW]
