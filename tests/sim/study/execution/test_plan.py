"""Plans of studies: what is finished, how many processes fit, and how long it will take."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rumor.sim.study.execution.plan as module
from rumor.gossip import ConfigError
from rumor.sim.study.execution.check import check_trials
from rumor.sim.study.execution.plan import StudyPlan, estimate_s, plan_study
from rumor.sim.study.execution.store import Store
from rumor.sim.study.study import Axis, Point, Study

from ..small import small_study

RECORD: dict[str, Any] = {
    "summary": {},
    "series": {},
    "facts": {},
    "wall_s": 7.0,
    "peak_rss_mib": 1.0,
}


def two_sizes() -> Study:
    points = tuple(Point(str(n), {"workers": n}) for n in (4, 16))
    return Study(
        name="sizes",
        title="",
        question="",
        settings={"task": "consensus", "steps": 20},
        axes=(Axis("size", points),),
        seeds=(0, 1, 2),
    )


def test_nothing_is_written_by_planning(tmp_path: Path) -> None:
    plan = plan_study(two_sizes(), tmp_path / "a", jobs=1)
    assert plan.shape == "2 sizes x 3 seeds" and not (tmp_path / "a").exists()
    assert plan.seconds is None


def test_the_longest_trials_come_first(tmp_path: Path) -> None:
    plan = plan_study(two_sizes(), tmp_path)
    assert [trial.trial.labels["size"] for trial in plan.to_do] == ["16"] * 3 + ["4"] * 3
    assert [trial.trial.labels["size"] for trial in plan.trials] == ["4"] * 3 + ["16"] * 3


def test_trials_take_what_others_of_their_group_took(tmp_path: Path) -> None:
    trials, _ = check_trials(two_sizes().trials())
    store = Store(tmp_path)
    store.put(trials[0].key, RECORD)
    store.put(trials[3].key, RECORD | {"wall_s": 40.0})
    store.put(trials[4].key, RECORD | {"wall_s": 20.0})
    plan = plan_study(two_sizes(), tmp_path, jobs=1)
    assert plan.finished == 3
    assert plan.seconds == (30.0, 7.0, 7.0) and plan.wall_s == 44.0


def test_trials_without_any_of_their_group_take_as_long_as_their_work_is(tmp_path: Path) -> None:
    trials, _ = check_trials(two_sizes().trials())
    assert estimate_s(trials[3:], trials[:1], {trials[0].key: 7.0}) == [28.0] * 3


def test_another_rule_takes_as_long_as_the_slowest_that_is_known() -> None:
    (trial, *_), _ = check_trials(two_sizes().trials())
    known = replace(trial, rule="sgp", key="known")
    assert estimate_s([trial], [known], {"known": 7.0}) == [7.0]
    assert estimate_s([trial], [], {}) is None


@pytest.mark.parametrize(
    ("free_gib", "cores", "jobs"), [(100.0, 8, 6), (100.0, 2, 2), (1.0, 8, 2), (0.1, 8, 1)]
)
def test_as_many_processes_as_cores_memory_and_trials_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_gib: float, cores: int, jobs: int
) -> None:
    monkeypatch.setattr(module, "free_gib", lambda: free_gib)
    monkeypatch.setattr(module, "usable_cores", lambda: cores)
    plan = plan_study(two_sizes(), tmp_path)
    assert plan.jobs == jobs


def test_processes_side_by_side_share_the_time_but_not_the_longest_trial(tmp_path: Path) -> None:
    plan = plan_study(two_sizes(), tmp_path, jobs=3)

    def lasts(*seconds: float) -> StudyPlan:
        return replace(plan, seconds=seconds)

    alone = replace(lasts(3.0, 3.0, 3.0, 3.0), jobs=1)
    assert alone.wall_s == 12.0
    one, other = lasts(9.0, 1.0).wall_s, lasts(4.0, 4.0, 4.0, 3.0).wall_s
    assert one is not None and other is not None and one - other == pytest.approx(9.0 - 5.0)
    assert plan.wall_s is None


def test_a_cluster_has_as_many_processes_as_it_has(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="distributed is not installed")
    plan = plan_study(small_study(), tmp_path, backend="dask:tcp://127.0.0.1:1")
    assert plan.jobs is None


def test_no_process_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="jobs is 0: it must be at least 1"):
        plan_study(small_study(), tmp_path, jobs=0)
