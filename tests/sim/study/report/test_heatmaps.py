"""Figures over two axes, and why some are missing."""

from dataclasses import replace

from rumor.sim.study.metrics import METRICS
from rumor.sim.study.report.charts import heatmaps
from rumor.sim.study.results import Results
from rumor.sim.study.study import Condition

from ..made_up import Course, results_of

GRID = {"rule": ["gosgd", "sgp"], "partition": ["shared", "dirichlet:0.1", "dirichlet:0.01"]}


def test_a_study_with_one_axis_has_no_heatmap() -> None:
    assert heatmaps(results_of({"rule": ["gosgd", "sgp"]}), {}) == {}


def test_each_field_is_a_mean_over_seeds() -> None:
    results = results_of(GRID)
    found = heatmaps(results, {})["accuracy"]
    assert found.rows == ("gosgd", "sgp")
    assert found.columns == ("shared", "dirichlet:0.1", "dirichlet:0.01")
    group = results.groups()["sgp", "dirichlet:0.1"]
    mean = sum(result.summary["accuracy"] for result in group) / 3
    assert found.texts[1][1] == METRICS["accuracy"].shown(mean)
    assert found.title == "Final accuracy"


def test_further_axes_stand_still() -> None:
    results = results_of(
        {**GRID, "p": [0.1, 1.0]},
        lambda labels: Course(ceiling=0.9 if labels["p"] == "0.1" else 0.5, noise=0.0),
    )
    assert heatmaps(results, {"p": "1.0"})["accuracy"].texts[0][0] == "50 %"
    assert heatmaps(results, {"p": "0.1"})["accuracy"].texts[0][0] == "90 %"


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
    found = heatmaps(replace(results, results=late), {})["time_to_target_s"]
    assert found.shades[0][0] is None and found.texts[0][0] == "2 of 3 seeds reached it"
    assert found.shades[1][0] is None and found.texts[1][0] == "never reached"
    assert found.shades[0][1] is not None and found.texts[0][1].endswith(" s")


def test_what_was_left_out_or_failed_says_so() -> None:
    full = results_of(GRID, lambda labels: None if labels["rule"] == "sgp" else Course())
    study = replace(full.study, skip=(Condition({"partition": "shared"}),))
    kept = tuple(r for r in full.results if r.trial.labels["partition"] != "shared")
    found = heatmaps(Results(study=study, results=kept, failures={}), {})["accuracy"]
    assert [row[0] for row in found.texts] == ["left out", "left out"]
    assert found.texts[1][1] == "no result"
    assert found.shades[1] == (None, None, None)


def test_survivors_of_seeds_that_failed_have_no_time() -> None:
    results = results_of(
        {"rule": ["gosgd", "sgp"], "p": [0.1, 1.0]},
        lambda labels: Course(),
        leave_out=lambda trial: trial.group == ("sgp", "1.0") and trial.seed > 0,
    )
    found = heatmaps(results, {})["time_to_target_s"]
    assert found.texts[1][1] == "1 of 3 seeds have a result"
    assert found.shades[1][1] is None and found.shades[1][0] is not None


def test_a_place_that_has_fewer_seeds_than_another_shows_the_mean_of_its_own() -> None:
    results = results_of(
        {"rule": ["gosgd", "sgp"], "p": [0.1, 1.0]},
        lambda labels: Course(),
        leave_out=lambda trial: trial.labels["p"] == "1.0" and trial.seed > 0,
    )
    found = heatmaps(results, {})["time_to_target_s"]
    assert all(text.endswith(" s") for row in found.texts for text in row)


def test_a_figure_that_some_trial_does_not_have_has_no_mean() -> None:
    results = results_of(GRID)
    first = replace(results.results[0], summary={**results.results[0].summary, "accuracy": None})
    found = heatmaps(replace(results, results=(first, *results.results[1:])), {})["accuracy"]
    assert found.texts[0][0] == "none" and found.shades[0][0] is None


def test_a_figure_that_a_task_does_not_have_has_no_heatmap() -> None:
    assert "disagreement" not in heatmaps(results_of(GRID), {})
