"""Metrics are declared once: whatever shows one uses that."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from rumor.sim.study.analysis.ranking import compare, comparisons
from rumor.sim.study.analysis.verdicts import headlines
from rumor.sim.study.metrics import METRICS, Metric
from rumor.sim.study.report.charts import curves_of, response
from rumor.sim.study.report.page import page
from rumor.sim.study.results import Result
from rumor.sim.study.tables import write_tables

from .made_up import Course, results_of


def area(result: Result, target: float) -> float:
    """Seconds that the model was wrong on average: a figure that nobody has declared yet."""
    accuracy = [value or 0.0 for value in result.series["accuracy"]]
    return sum(1 - value for value in accuracy)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Metric:
    metric = Metric(name="regret", words="regret of learning", source=area, unit="s", preference=-1)
    monkeypatch.setitem(METRICS, metric.name, metric)
    return metric


@pytest.mark.extended
@pytest.mark.usefixtures("own")
def test_a_metric_from_outside_is_compared_drawn_and_written_everywhere(
    tmp_path: Path, own: Metric
) -> None:
    results = results_of(
        {"p": [0.1, 0.5, 1.0], "rule": ["gosgd", "sgp"]},
        lambda labels: Course(rate_s=2 + float(labels["p"])),
    )
    write_tables(results, tmp_path)
    with open(tmp_path / "summary.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["regret"]) == area(results.results[0], 0.9)
    found = compare(results, at={"rule": "sgp"})
    assert found.metric is own and [row.label for row in found.rows] == ["0.1", "0.5", "1.0"]
    assert "the lowest mean regret of learning is that of p = 0.1: " in headlines(results)[0]
    assert response(results, [own]).axes[0].get_title("left") == "Regret of learning"
    assert page(results).count("<th>Regret of learning</th>") == len(comparisons(results))


def test_a_metric_with_a_curve_from_outside_has_a_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = Metric(
        name="idle", words="final idleness", source=area, curve="of all workers", preference=9
    )
    monkeypatch.setitem(METRICS, "idle", metric)
    assert curves_of(results_of({"rule": ["gosgd"]}).results)[-1] is metric


@pytest.mark.parametrize("key", [lambda one: one.name, lambda one: one.words])
def test_no_two_metrics_have_one_name(key: Callable[[Metric], str]) -> None:
    found = [key(metric) for metric in METRICS.values()]
    assert len(set(found)) == len(found)
