"""Search: the best value of an axis for every point of the others, and marks for edge values."""

from collections.abc import Mapping
from dataclasses import replace

from rumor.sim.study.analysis.ranking import comparisons
from rumor.sim.study.analysis.search import searched
from rumor.sim.study.metrics import METRICS, values_of
from rumor.sim.study.results import Results
from rumor.sim.study.study import Point

from ..made_up import Course, results_of

RATES = {("gosgd", "0.1"): 6.0, ("gosgd", "0.2"): 2.0, ("gosgd", "0.4"): 4.0,
         ("sgp", "0.1"): 5.0, ("sgp", "0.2"): 4.0, ("sgp", "0.4"): 1.0}  # fmt: skip


def by_rates(labels: Mapping[str, str]) -> Course:
    return Course(rate_s=RATES[labels["rule"], labels["lr"]], noise=0.02)


def tuned(seeds: int = 3, **more: object) -> Results:
    results = results_of(
        {"rule": ["gosgd", "sgp"], "lr": [0.1, 0.2, 0.4]}, by_rates, seeds=seeds, points=401
    )
    return replace(results, study=replace(results.study, tune="lr", **more))  # type: ignore[arg-type]


def test_every_point_is_shown_at_its_best_value_and_edges_are_marked() -> None:
    best, search = searched(tuned())
    assert search is not None
    assert [axis.name for axis in best.study.axes] == ["rule"] and not best.study.tune
    assert [one.trial.settings["lr"] for one in best.results] == [0.2] * 3 + [0.4] * 3
    (found,) = comparisons(best)
    assert [row.label for row in found.rows] == ["sgp", "gosgd"]
    assert found.rows[0].n == 3
    assert search.taken == {("gosgd",): "0.2", ("sgp",): "0.4, the largest tried"}


def test_a_seed_does_not_influence_its_own_value() -> None:
    """A value that was lucky with one seed is chosen for the other seeds only."""
    results = tuned()
    lucky = tuple(
        replace(one, series={**one.series, "accuracy": (0.95,) * len(one.series["accuracy"])})
        if one.trial.group == ("gosgd", "0.1") and one.trial.seed == 0
        else one
        for one in results.results
    )
    best, search = searched(replace(results, results=lucky))
    assert search is not None
    shown = {one.trial.seed: one.trial.settings["lr"] for one in best.results[:3]}
    assert shown[0] == 0.2
    time = METRICS["time_to_target_s"]
    assert values_of(best.results[:3], time, 0.9)[0] > 3.0


def test_a_single_seed_is_shown_at_its_own_best_with_a_note() -> None:
    best, search = searched(tuned(seeds=1))
    assert search is not None and search.words.endswith("with the only seed.")
    assert len(best.results) == 2


def test_a_failed_value_is_not_chosen_and_a_later_failure_counts() -> None:
    results = tuned()
    kept = tuple(
        one
        for one in results.results
        if not (one.trial.labels["lr"] == "0.2" and one.trial.seed == 1)
        and not (one.trial.group == ("sgp", "0.4") and one.trial.seed == 2)
    )
    failed = {"gosgd, 0.2, seed 1": "diverged", "sgp, 0.2, seed 1": "diverged",
              "sgp, 0.4, seed 2": "diverged"}  # fmt: skip
    best, search = searched(replace(results, results=kept, failures=failed))
    assert search is not None
    # On the other seeds of sgp, 0.2 was the best value for seed 1, and 0.4 for seed 2.
    assert best.failures == {
        "gosgd, seed 1": "lr = 0.2: diverged",
        "sgp, seed 1": "lr = 0.2: diverged",
        "sgp, seed 2": "lr = 0.4: diverged",
    }
    (found,) = comparisons(best)
    assert {row.label: row.missing for row in found.rows} == {"gosgd": 1, "sgp": 2}


def test_values_without_a_result_or_an_arrival_are_not_chosen() -> None:
    def course(labels: Mapping[str, str]) -> Course | None:
        if labels["lr"] == "0.1":
            return None
        return Course(ceiling=0.6 if labels["lr"] == "0.4" else 0.97, noise=0.02)

    results = results_of({"rule": ["gosgd", "sgp"], "lr": [0.1, 0.2, 0.4]}, course)
    _, search = searched(replace(results, study=replace(results.study, tune="lr")))
    assert search is not None and set(search.taken.values()) == {"0.2"}


def test_skipped_points_stay_out() -> None:
    results = tuned()
    points = (Point("all", {"partition": "shared"}), Point("few", {"partition": "shards:1"}))
    three = results_of(
        {"rule": ["gosgd", "sgp"], "data": points, "lr": [0.1, 0.2, 0.4]}, by_rates, points=401
    )
    skip = ({"rule": "sgp", "data": "few"}, {"data": "few", "lr": 0.4})
    study = replace(three.study, tune="lr", skip=skip)
    kept = {(trial.group, trial.seed) for trial in study.trials()}
    there = tuple(one for one in three.results if (one.trial.group, one.trial.seed) in kept)
    best, search = searched(replace(three, study=study, results=there))
    assert search is not None and len(search.taken) == 3
    assert {trial.group for trial in best.study.trials()} == {
        ("gosgd", "all"),
        ("gosgd", "few"),
        ("sgp", "all"),
    }
    assert searched(replace(results, study=replace(results.study, tune="")))[1] is None


def test_an_incomplete_seed_is_omitted_if_another_is_complete() -> None:
    grid = {"topology": ("ring", "star"), "rule": ("gosgd", "sgp")}
    kept = [("ring", "gosgd", 0), ("star", "gosgd", 0), ("ring", "gosgd", 1), ("ring", "sgp", 0)]
    stopped = results_of(
        grid, seeds=2, leave_out=lambda trial: (*trial.group, trial.seed) not in kept
    )
    first, second = comparisons(stopped)
    # gosgd has a complete seed, so its incomplete seed is omitted; sgp has only an incomplete seed.
    assert {(row.label, row.n, row.missing) for row in first.rows} == {
        ("ring", 1, 0),
        ("star", 1, 0),
    }
    assert [(row.label, row.n, row.missing) for row in second.rows] == [("ring", 1, 0)]
    assert second.missing == ("star",)
