"""A search by successive halving, and a study that ends when its time is over."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from rumor.gossip import ConfigError, RumorError
from rumor.sim.study import Results, load_results, run_study
from rumor.sim.study.execution.halving import halve, load_rungs, rung_study
from rumor.sim.study.study import Axis, Halving, Point, Study, Trial

from ..small import small_study

RATES = ("0.02", "0.1", "0.2", "50000.0")
"""The last of them diverges at once."""


def searching(**changes: object) -> Study:
    """Two rules with a rate to be found where all are alike, under two conditions."""
    search = Halving(
        axis=Axis("lr", tuple(Point(rate, {"lr": float(rate)}) for rate in RATES)),
        at={"machines": "alike"},
        parts=(0.25, 0.5),
        seed=100,
    )
    study = Study(
        name="found",
        title="Found",
        question="Who?",
        settings={"task": "quadratic", "workers": 4, "total_steps": 64, "threads": 1},
        axes=(
            Axis("rule", tuple(Point(rule, {"rule": rule}) for rule in ("gosgd", "allreduce"))),
            Axis("machines", (Point("alike", {}), Point("one slow", {"slow": ("0:5",)}))),
        ),
        seeds=(0, 1),
        search=search,
        metrics=("loss",),
    )
    settings = {name: value for name, value in study.settings.items() if name != "threads"}
    return replace(study, settings=settings, **changes)  # type: ignore[arg-type]


def compute(study: Study, folder: Path) -> Results:
    return run_study(study, folder, resume=True, jobs=1)


def test_the_better_half_goes_on_and_the_best_is_taken(tmp_path: Path) -> None:
    asked = searching()
    found, rungs = halve(asked, tmp_path, compute)
    assert [rung.part for rung in rungs] == [0.25, 0.5]
    for rule in ("gosgd", "allreduce"):
        first, last = (rung.found[rule] for rung in rungs)
        assert set(first) == set(RATES) and first["50000.0"] is None
        ranked = sorted((v, rate) for rate, v in first.items() if v is not None)
        # Of each rule the same number of trials, whatever they gave.
        assert set(last) == {rate for _, rate in ranked[:2]} == set(rungs[0].kept[rule])
        best = min(last, key=lambda rate: last[rate] or 0.0)
        assert rungs[1].kept[rule] == (best,)
        (point,) = [point for point in found.axes[0].points if point.label == rule]
        assert point.settings == {"rule": rule, "lr": float(best)}
    assert found.search is None
    assert load_rungs(tmp_path, asked.search) == rungs  # type: ignore[arg-type]


def test_rounds_have_a_part_of_the_steps_one_place_and_a_seed_of_their_own(tmp_path: Path) -> None:
    asked = searching()
    assert asked.search is not None
    kept = {"gosgd": ("0.1",), "allreduce": RATES}
    study = rung_study(asked, asked.search, kept, 0)
    trials = list(study.trials())
    assert len(trials) == 1 + len(RATES)
    assert {trial.settings["total_steps"] for trial in trials} == {16}
    assert {trial.labels["machines"] for trial in trials} == {"alike"}
    assert {trial.seed for trial in trials} == {100}


def test_a_search_that_was_finished_is_not_computed_again(tmp_path: Path) -> None:
    found, rungs = halve(searching(), tmp_path, compute)

    def refused(study: Study, folder: Path) -> Results:
        results = load_results(folder)
        assert len(results.results) + len(results.failures) == len(list(study.trials()))
        return results

    assert halve(searching(), tmp_path, refused) == (found, rungs)


def test_an_unfinished_round_decides_nothing(tmp_path: Path) -> None:
    def late(study: Study, folder: Path) -> Results:
        return run_study(study, folder, resume=True, jobs=1, stop_s=time.monotonic() - 1)

    with pytest.raises(RumorError, match="8 trials of the search for lr are missing"):
        halve(searching(), tmp_path, late)


def test_values_that_all_diverge_are_told(tmp_path: Path) -> None:
    asked = searching()
    assert asked.search is not None
    axis = Axis("lr", tuple(Point(rate, {"lr": float(rate)}) for rate in ("60000.0", "50000.0")))
    with pytest.raises(RumorError, match="no value of lr gives a final loss for gosgd"):
        halve(replace(asked, search=replace(asked.search, axis=axis)), tmp_path, compute)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"parts": (0.5, 0.2)}, "search.parts is"),
        ({"parts": (0.5, 1.5)}, "search.parts is"),
        ({"at": {}}, "search.at must say which machines"),
        ({"at": {"machines": "alike", "moon": "full"}}, "search.at has moon"),
        ({"axis": Axis("rule", (Point("gosgd", {"rule": "gosgd"}),))}, "rule is set by"),
    ],
)
def test_a_search_that_cannot_be_is_refused(changes: dict[str, object], why: str) -> None:
    asked = searching()
    assert asked.search is not None
    with pytest.raises(ConfigError, match=why):
        replace(asked, search=replace(asked.search, **changes))  # type: ignore[arg-type]


def test_when_time_is_over_seeds_are_missing_then_places_never_a_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study(seeds=2)
    places = Axis("steps", (Point("few", {"steps": 4}), Point("many", {"steps": 20})))
    settings = {name: value for name, value in study.settings.items() if name != "steps"}
    study = replace(study, axes=(study.axes[0], places), settings=settings)
    done: list[Trial] = []
    # A clock that moves by a second with each trial: five of eight fit.
    monkeypatch.setattr(time, "monotonic", lambda: float(len(done)))

    def note(progress: object) -> None:
        trial = progress.trial  # type: ignore[attr-defined]
        if trial is not None:
            done.append(trial)

    results = run_study(study, tmp_path, jobs=1, progress=note, stop_s=5.0)
    assert [(t.seed, t.labels["steps"], t.labels["topology"]) for t in done] == [
        (0, "few", "ring"),
        (0, "few", "complete"),
        (0, "many", "ring"),
        (0, "many", "complete"),
        (1, "few", "ring"),
    ]
    assert len(results.results) == 5 and not results.failures
    again = run_study(study, tmp_path, jobs=1, resume=True)
    assert len(again.results) == 8


def test_nothing_is_begun_when_time_was_over_before(tmp_path: Path) -> None:
    results = run_study(small_study(), tmp_path, jobs=1, stop_s=time.monotonic() - 1)
    assert not results.results and not results.failures
