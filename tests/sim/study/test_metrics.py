"""Metrics: their values for a trial, and the use of their declarations everywhere."""

import csv
from pathlib import Path

import pytest

from rumor.sim.study.analysis.ranking import compare, comparisons
from rumor.sim.study.analysis.verdicts import headlines
from rumor.sim.study.metrics import METRICS, Metric
from rumor.sim.study.report.charts import curves_of, response
from rumor.sim.study.report.page import page
from rumor.sim.study.results import Result
from rumor.sim.study.study import Trial
from rumor.sim.study.tables import write_tables

from .made_up import Course, results_of


def area(result: Result, target: float) -> float:
    """The error summed over all evaluations: a figure without a declaration so far."""
    accuracy = [value or 0.0 for value in result.series["accuracy"]]
    return sum(1 - value for value in accuracy)


@pytest.mark.extended
def test_a_custom_metric_is_compared_drawn_and_written_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Metric(name="regret", words="regret of learning", source=area, unit="s", preference=-1)
    monkeypatch.setitem(METRICS, own.name, own)
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


def test_a_custom_metric_with_a_curve_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = Metric(
        name="idle", words="final idleness", source=area, curve="of all workers", preference=9
    )
    monkeypatch.setitem(METRICS, "idle", metric)
    assert curves_of(results_of({"rule": ["gosgd"]}).results)[-1] is metric


def test_no_two_metrics_have_the_same_title() -> None:
    assert len({metric.title for metric in METRICS.values()}) == len(METRICS)


def result(loss: tuple[float | None, ...], **summary: float) -> Result:
    series = {"loss": loss, "time_s": (0.0, 1.0, 2.0, 3.0), "bytes_sent": (0.0, 5.0, 7.0, 9.0)}
    trial = Trial(labels={}, settings={"seed": 0})
    return Result(trial=trial, key="", summary=summary, series=series, facts={}, wall_s=0)


def test_a_loss_is_reached_from_above() -> None:
    found = result((4.0, None, 2.5, 2.0))
    assert METRICS["time_to_loss_s"].of(found, 2.5) == 2.0
    assert METRICS["bytes_to_loss"].of(found, 2.0) == 9.0
    assert METRICS["time_to_loss_s"].of(found, 1.9) is None


def test_bytes_per_token_and_recovery_times_come_from_the_summary() -> None:
    found = result((), bytes_sent=900.0, tokens=300.0, restart_s_median=4.0)
    assert METRICS["bytes_per_token"].of(found, 1.0) == 3.0
    assert METRICS["back_s"].of(found, 1.0) == 4.0
    assert METRICS["back_s"].of(result((), join_s_median=6.0), 1.0) == 6.0
    assert METRICS["back_s"].of(result(()), 1.0) is None
    assert METRICS["bytes_per_token"].of(result((), bytes_sent=9.0), 1.0) is None
