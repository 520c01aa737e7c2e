"""Figures over two axes, and why some are missing."""

from dataclasses import replace

import pytest

from rumor.sim.study.analysis.heatmap import Heatmap, heatmap
from rumor.sim.study.results import Results
from rumor.sim.study.study import Condition

from ..made_up import Course, results_of

GRID = {"rule": ["gosgd", "sgp"], "partition": ["shared", "dirichlet:0.1", "dirichlet:0.01"]}


def known(found: Heatmap | None) -> Heatmap:
    assert found is not None
    return found


def test_a_study_with_one_axis_has_no_heat() -> None:
    assert heatmap(results_of({"rule": ["gosgd", "sgp"]}), "accuracy") is None


def test_each_field_is_a_mean_over_seeds() -> None:
    results = results_of(GRID)
    found = known(heatmap(results, "accuracy"))
    assert (found.row_axis, found.column_axis) == ("rule", "partition")
    assert found.rows == ("gosgd", "sgp")
    assert found.columns == ("shared", "dirichlet:0.1", "dirichlet:0.01")
    group = results.groups()["sgp", "dirichlet:0.1"]
    mean = sum(result.summary["accuracy"] for result in group) / 3
    assert found.values[1][1] == pytest.approx(mean)
    assert found.missing == (("",) * 3,) * 2
    assert found.metric.words == "final accuracy"


def test_axes_can_be_swapped() -> None:
    results = results_of(GRID)
    upright = known(heatmap(results, "accuracy"))
    turned = known(heatmap(results, "accuracy", rows="partition", columns="rule"))
    assert turned.values == tuple(zip(*upright.values, strict=True))


def test_further_axes_stand_still() -> None:
    results = results_of(
        {**GRID, "p": [0.1, 1.0]},
        lambda labels: Course(ceiling=0.9 if labels["p"] == "0.1" else 0.5, noise=0.0),
    )
    found = known(heatmap(results, "accuracy", at={"p": "1.0"}))
    assert found.values[0][0] == pytest.approx(0.5, abs=0.01)


def test_what_never_or_not_always_arrives_has_no_time_and_says_so() -> None:
    results = results_of(
        GRID,
        lambda labels: Course(ceiling=0.97 if labels["rule"] == "gosgd" else 0.5),
    )
    late = tuple(
        replace(result, series={**result.series, "accuracy": (0.1,) * 41})
        if result.trial.group == ("gosgd", "shared") and result.trial.seed == 1
        else result
        for result in results.results
    )
    found = known(heatmap(replace(results, results=late), "time_to_target_s"))
    assert found.values[0][0] is None and found.missing[0][0] == "2 of 3 seeds reached it"
    assert found.values[1][0] is None and found.missing[1][0] == "never reached"
    assert found.values[0][1] is not None and found.missing[0][1] == ""


def test_what_was_left_out_or_failed_says_so() -> None:
    full = results_of(GRID, lambda labels: None if labels["rule"] == "sgp" else Course())
    study = replace(full.study, skip=(Condition({"partition": "shared"}),))
    kept = tuple(r for r in full.results if r.trial.labels["partition"] != "shared")
    found = known(heatmap(Results(study=study, results=kept, failures={}), "accuracy"))
    assert [row[0] for row in found.missing] == ["left out", "left out"]
    assert found.missing[1][1] == "no result"
    assert found.values[1] == (None, None, None)


def test_survivors_of_seeds_that_failed_have_no_time() -> None:
    results = results_of(
        {"rule": ["gosgd", "sgp"], "p": [0.1, 1.0]},
        lambda labels: Course(),
        leave_out=lambda trial: trial.group == ("sgp", "1.0") and trial.seed > 0,
    )
    found = heatmap(results, "time_to_target_s")
    assert found is not None
    assert found.missing == (("", ""), ("", "1 of 3 seeds have a result"))
    assert found.values[1][1] is None and found.values[1][0] is not None


def test_a_figure_that_a_task_does_not_have_is_none() -> None:
    found = known(heatmap(results_of(GRID), "disagreement"))
    assert found.values[0][0] is None
    assert found.missing[0][0] == "none"
