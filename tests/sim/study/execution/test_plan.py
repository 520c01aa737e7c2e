"""Plans of studies: what is finished, how many processes fit, and how long it will take."""

from pathlib import Path
from typing import Any

import pytest

import rumor.sim.study.execution.plan as module
from rumor.gossip import ConfigError
from rumor.sim.study.execution.plan import check_trials, plan_study
from rumor.sim.study.execution.store import Store
from rumor.sim.study.study import Study

from ..small import grid_of, small_study

RECORD: dict[str, Any] = {"summary": {}, "series": {}, "facts": {}, "wall_s": 7.0}


def two_sizes() -> Study:
    sizes = {str(n): {"workers": n} for n in (4, 16)}
    return grid_of({"size": sizes}, settings={"task": "consensus", "steps": 20}, seeds=3)


def test_a_plan_goes_seed_by_seed_and_writes_nothing(
    tmp_path: Path,
) -> None:
    plan = plan_study(two_sizes(), tmp_path / "a", jobs=1)
    assert not (tmp_path / "a").exists()
    assert [trial.trial.labels["size"] for trial in plan.to_do] == ["16", "4"] * 3
    assert [trial.trial.seed for trial in plan.to_do] == [0, 0, 1, 1, 2, 2]
    assert [trial.trial.labels["size"] for trial in plan.trials] == ["4"] * 3 + ["16"] * 3


def test_finished_trials_are_not_planned_again(tmp_path: Path) -> None:
    trials, _ = check_trials(two_sizes().trials())
    for trial in (trials[0], trials[4]):
        Store(tmp_path).put(trial.key, RECORD)
    plan = plan_study(two_sizes(), tmp_path, jobs=1)
    assert plan.finished == 2 and len(plan.to_do) == 4


@pytest.mark.parametrize(
    ("free_gib", "cores", "jobs"), [(100.0, 8, 6), (100.0, 2, 2), (1.0, 8, 2), (0.1, 8, 1)]
)
def test_processes_are_limited_by_cores_memory_and_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_gib: float, cores: int, jobs: int
) -> None:
    monkeypatch.setattr(module, "free_gib", lambda: free_gib)
    monkeypatch.setattr(module, "usable_cores", lambda: cores)
    plan = plan_study(two_sizes(), tmp_path)
    assert plan.jobs == jobs


def test_a_cluster_decides_on_its_number_of_processes(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="distributed is not installed")
    plan = plan_study(small_study(), tmp_path, backend="dask:tcp://127.0.0.1:1")
    assert plan.jobs is None


def test_zero_jobs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="jobs is 0: it must be at least 1"):
        plan_study(small_study(), tmp_path, jobs=0)
