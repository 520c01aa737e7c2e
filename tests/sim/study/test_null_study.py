"""Studies of points that are all alike, really simulated: how often some is called worse."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from scipy import stats

from rumor.sim.study.analysis.ranking import Verdict, compare
from rumor.sim.study.execution.trial import compute, config_of
from rumor.sim.study.results import Result, Results
from rumor.sim.study.study import Study

from .small import grid_of

POINTS, SEEDS = 5, 3
SETTINGS = {
    "task": "digits",
    "workers": 4,
    "topology": "complete",
    "rule": "gosgd",
    "p": 0.5,
    "lr": 0.05,
    "steps": 40,
    "eval_every": 4,
    "partition": "dirichlet:0.5",
    "engine": "dense",
}

# About one trial in ten does not get there within its steps.
TARGET = 0.40

REPETITIONS = 40
LEVEL = 0.05
"""Part of the studies that may be wrong."""


def repetition(number: int) -> Results:
    """A study whose points differ in a setting on which no result depends; each trial has a seed
    of its own."""
    points = {f"way {n}": {"memory_gib": 64.0 + n} for n in range(POINTS)}
    study = replace(grid_of({"way": points}, settings=SETTINGS, seeds=SEEDS), target=TARGET)
    return Results(study=study, results=tuple(computed(study, number)), failures={})


def computed(study: Study, number: int) -> Iterator[Result]:
    for index, trial in enumerate(study.trials()):
        seed = (number * POINTS * SEEDS) + index
        record = compute(config_of({**trial.settings, "seed": seed, "memory_gib": None}))
        series = {name: tuple(values) for name, values in record["series"].items()}
        yield Result(trial=trial, key=str(seed), **record | {"series": series})


def told(repetitions: range) -> tuple[int, int, int]:
    """Of so many studies: how many are wrong, how many were wrong before arrivals were tested (they
    had somebody who arrives with every seed, and somebody who does not), and trials that miss."""
    wrong = before = missed = 0
    for number in repetitions:
        found = compare(repetition(number))
        wrong += any(row.verdict is Verdict.WORSE for row in found.rows)
        arrived = [found.reached(row) for row in found.rows]
        before += max(arrived) == SEEDS and min(arrived) < SEEDS
        missed += sum(SEEDS - count for count in arrived)
    return wrong, before, missed


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_null_study_is_wrong_no_more_often_than_its_level() -> None:
    wrong, before, missed = told(range(REPETITIONS))
    print(f"\nof {REPETITIONS} null studies {wrong} are wrong, {before} were before; {missed} of "
          f"{REPETITIONS * POINTS * SEEDS} trials do not arrive")  # fmt: skip
    trials = REPETITIONS * POINTS * SEEDS
    # Trials must miss now and then, or else the study says nothing about them.
    assert 0.04 < missed / trials < 0.2
    # So many wrong ones come once in a hundred times where the rate is the level.
    assert wrong <= stats.binom.ppf(0.99, REPETITIONS, LEVEL)
    assert before > REPETITIONS / 2
