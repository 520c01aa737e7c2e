"""`simulate` with faults: real gradients through crashes and partitions, and the report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rumor.gossip import ConfigError
from rumor.sim import Run, simulate
from rumor.sim.batched.vector_tasks import consensus

from ...faults import fault
from ..test_simulate import tiny

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "partition.json"


BUSY = [
    fault(2.0, "loss", rate=0.1),
    fault(3.0, "crash", peer=1, accepting=True),
    fault(5.0, "restart", peer=1),
    fault(6.0, "join", count=2),
    fault(9.0, "leave", peer=2),
    fault(11.0, "crash", peer="join-1", after=2),
    fault(12.0, "restart", peer="join-1", state="lost"),
]
SETTINGS: dict[str, Any] = {
    "task": "digits",
    "workers": 5,
    "steps": 150,
    "batch_size": 8,
    "p": 0.3,
    "network": "lossy",
    "timing": "local",
    "checkpoint_every_s": 1.0,
    "faults": BUSY,
    "engine": "loop",
    "seed": 2,
}


def balanced(run: Run) -> bool:
    return bool(run.summary["weight_units_total"] == run.summary["weight_units_expected"])


@pytest.fixture(scope="module")
def busy() -> Run:
    return simulate(**SETTINGS)


@pytest.mark.extended
def test_a_run_reports_the_outcome_of_its_faults(busy: Run) -> None:
    summary = busy.summary
    assert balanced(busy)
    assert [reported["kind"] for reported in summary["faults"]] == [each["kind"] for each in BUSY]
    assert summary["faults"][1]["peer"] == "peer-1"
    assert (summary["crashes"], summary["restarts"], summary["joins"]) == (2, 2, 2)
    assert summary["weight_units_died"] > 0
    assert 0 < summary["join_s_median"] <= summary["join_s_most"] < 10
    assert summary["joins_failed"] == summary["restarts_failed"] == 0
    assert summary["membership_bytes_s"] > 0
    assert summary["members"] == 6
    assert (summary["timing"], summary["stranded"]) == ("local", [])
    assert busy.workers["steps"].shape == (7,)
    # Steps after the last checkpoint of a crashed worker were taken twice.
    assert busy.workers["steps"][1] > 150
    assert busy.series["members"].max() == 7
    json.dumps(summary, allow_nan=False)


@pytest.mark.extended
@pytest.mark.parametrize("change", [{"window": 7}, {"threads": 2, "window": 11}], ids=str)
def test_window_and_threads_change_no_bit(busy: Run, change: dict[str, Any]) -> None:
    run = simulate(**SETTINGS | change)
    assert run.summary["digest"] == busy.summary["digest"]
    assert run.summary["model_digest"] == busy.summary["model_digest"]


@pytest.mark.extended
@pytest.mark.parametrize(
    ("engine", "optimizer"), [("loop", "sgd"), ("dense", "sgd"), ("dense", "adam")]
)
@pytest.mark.parametrize("state", ["kept", "lost"])
def test_a_lone_worker_ends_with_the_same_bits_after_a_crash(
    engine: str, optimizer: str, state: str
) -> None:
    settings: dict[str, Any] = {
        "task": tiny(lr=0.02, steps=120),
        "workers": 1,
        "topology": "complete",
        "engine": engine,
        "optimizer": optimizer,
        "checkpoint_every_s": 1.0,
    }
    faults = [fault(5.07, "crash", peer=0), fault(6.0, "restart", peer=0, state=state)]
    again, plain = simulate(**settings, faults=faults), simulate(**settings)
    assert again.summary["model_digest"] == plain.summary["model_digest"]
    repeated = again.summary["steps"] - plain.summary["steps"]
    # Nearly fifty steps were taken by then, and the checkpoint is at most a second old.
    assert (0 < repeated <= 11) if state == "kept" else 40 <= repeated <= 50
    assert balanced(again)


def test_vectors_restart_from_their_own_values() -> None:
    settings: dict[str, Any] = {
        "task": consensus(np.arange(12.0).reshape(4, 3)),
        "workers": 4,
        "topology": "complete",
        "p": 1.0,
        "time_s": 20.0,
        "timing": "local",
        "eval_every": 5,
    }
    run = simulate(**settings, faults=[fault(1.0, "mass-restart", for_s=1.0, state="lost")])
    time_s, found = run.series["time_s"], run.series["disagreement"]
    # All are down for a while; then one founds a swarm with its own vector, and the rest copy it.
    assert np.isnan(found[(time_s > 1.1) & (time_s < 1.9)]).all()
    assert found[(time_s > 2.01) & (time_s < 3.0)] == pytest.approx(45.0)
    assert found[-1] < 1e-9
    assert balanced(run)


@pytest.mark.extended
def test_parts_of_a_partition_train_apart_and_merge_into_a_better_model() -> None:
    """The run has three sections: before the partition, 500 steps of it, and after."""
    settings: dict[str, Any] = {
        "task": "digits",
        "workers": 8,
        "steps": 750,
        "p": 0.2,
        "partition": "dirichlet:0.1",
        "timing": "local",
        "seed": 3,
        "engine": "dense",
        "eval_every": 50,
    }
    cut = fault(10.0, "partition", groups=[[0, 1, 2, 3]], for_s=50.0)
    run = simulate(**settings, faults=[cut])
    series, summary = run.series, run.summary
    apart = np.isfinite(series["accuracy_of_groups"]).all(axis=1)
    steps = series["steps"][apart]
    assert steps[-1] - steps[0] >= 400
    halves = summary["accuracy_of_groups"]
    assert len(halves) == 2 and summary["accuracy"] >= max(halves)
    # Each half of the swarm hardly knows half of the classes.
    assert max(halves) < 0.9 < summary["accuracy"]
    assert summary["heal_s"] is not None and summary["heal_s"] < 10
    # Apart, the halves are far from each other; then they agree.
    distance = series["consensus_distance"]
    assert distance[-1] < 0.5 * distance[apart].min()
    assert balanced(run)


@pytest.mark.extended
@pytest.mark.skipif(not EXAMPLE.exists(), reason="the examples are not next to the tests")
def test_the_example_of_a_partition_is_a_valid_file() -> None:
    run = simulate(task="consensus", workers=16, time_s=120.0, faults=EXAMPLE)
    assert run.summary["faults"][0]["kind"] == "partition"
    assert run.summary["heal_s"] is not None


def test_faults_after_the_end_are_reported() -> None:
    late = [fault(1.0, "crash", peer=0), fault(500.0, "crash", peer=1)]
    run = simulate(task="consensus", workers=3, steps=30, faults=late)
    assert run.summary["faults_after_end"] == 1
    with pytest.raises(ConfigError, match=r"fault 2 \(crash\) is at 500 s, after the end"):
        simulate(task="consensus", workers=3, time_s=30.0, faults=late)
