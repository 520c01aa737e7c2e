"""Charts of a study: highlighted lines, scales, and words in place of values."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from rumor.sim.study.analysis.ranking import comparisons
from rumor.sim.study.metrics import METRICS
from rumor.sim.study.report import charts
from rumor.sim.study.results import Results
from rumor.sim.study.study import Axis, Point

from ..made_up import Course, results_of

GRAPHS = ["ring", "path", "star", "complete", "torus", "hypercube", "exponential", "base-k", "tree"]


def standing_in(results: Results) -> dict[str, object]:
    return charts.standing(results.study, comparisons(results))


def curves(results: Results) -> list[Axes]:
    return charts.curves(comparisons(results), standing_in(results)).axes


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [
        (["0.01", "0.1", "1.0"], (0.01, 0.1, 1.0)),
        (["0 %", "5 %", "20%"], (0, 5, 20)),
        (["1x", "10x"], (1, 10)),
        (["1e-3", "2e3"], (0.001, 2000)),
        (["1", "2 %"], None),
        (["16", "many"], None),
        (["ring"], None),
        (["1_0"], None),
        (["\u0661"], None),
        (["nan"], None),
        (["1e999"], None),
        (["0x10"], None),
        (["-"], None),
        ([""], None),
        (["+2"], (2.0,)),
        ([".5"], (0.5,)),
        ([" 7 "], (7.0,)),
    ],
)
def test_labels_are_numbers_if_all_are_and_share_one_unit(
    labels: list[str], numbers: tuple[float, ...] | None
) -> None:
    points = tuple(Point(label, {"p": index}) for index, label in enumerate(labels))
    assert Axis("p", points).numbers == numbers


def test_few_lines_all_stand_out_and_of_many_the_best_and_last() -> None:
    few = standing_in(results_of({"topology": GRAPHS[:5]}, seeds=1))
    assert list(few) == GRAPHS[:5] and len(set(few.values())) == 5
    many = results_of({"topology": GRAPHS}, seeds=1)
    ranked = [row.label for row in comparisons(many)[0].rows]
    assert list(standing_in(many)) == [*ranked[:5], ranked[-1]]
    numbers = [round(0.1 * i, 1) for i in range(1, 11)]
    assert list(standing_in(results_of({"p": numbers}, seeds=1))) == [str(n) for n in numbers]


def test_curves_show_the_metrics_of_the_task() -> None:
    digits = results_of({"rule": ["gosgd"]}, seeds=1)
    assert [one.get_title("left") for one in curves(digits)] == ["Accuracy", "Consensus distance"]
    noise = results_of({"rule": ["gosgd"]}, seeds=1, task="noise")
    assert [one.get_title("left") for one in curves(noise)] == [
        "Disagreement",
        "Consensus distance",
    ]


def test_the_axis_of_a_loss_covers_its_target_and_not_its_start() -> None:
    made = results_of({"rule": ["gosgd", "sgp"]}, target=0.3)
    study = replace(made.study, metrics=("time_to_loss_s", "loss"))
    loss, _ = curves(replace(made, study=study))
    low, high = loss.get_ylim()
    assert low < 0.3 < high < 0.6 and "target 0.3" in texts(loss)
    final = charts.ranking(comparisons(replace(made, study=study))).axes[1]
    assert final.get_title("left") == "Final loss" and final.get_xlim()[0] > 0
    low, high = curves(made)[0].get_ylim()
    assert low < 10 < 98 > high - 5


def test_a_merge_to_identical_models_leaves_no_empty_decades() -> None:
    made = results_of({"rule": ["gosgd", "sgp"]}, seeds=1)
    first, *others = made.results
    merged = (*first.series["consensus_distance"][:-1], 1e-9)
    first = replace(first, series={**first.series, "consensus_distance": merged})
    plain, after = curves(made)[1], curves(replace(made, results=(first, *others)))[1]
    assert after.get_ylim()[0] == pytest.approx(plain.get_ylim()[0], rel=0.5)


def test_identical_workers_are_shown_by_a_word_and_no_line() -> None:
    apart = {"gosgd": 0.1, "allreduce": 0.0}
    _, distance = curves(
        results_of({"rule": [*apart]}, lambda at: Course(consensus_distance=apart[at["rule"]]))
    )
    assert len(distance.lines) == 1 and texts(distance) == ["0, all alike: allreduce"]


def test_a_ranking_has_a_row_for_every_point_even_without_a_mean() -> None:
    def course(labels: Mapping[str, str]) -> Course | None:
        if labels["rule"] == "dpsgd":
            return None
        return Course(ceiling=0.6 if labels["rule"] == "sgp" else 0.97)

    time, sent = charts.ranking(
        comparisons(results_of({"rule": ["sgp", "gosgd", "dpsgd"]}, course))
    ).axes
    assert [tick.get_text() for tick in time.get_yticklabels()] == ["gosgd", "sgp", "dpsgd"]
    assert texts(time) == ["0 of 3 seeds", "no result"]
    assert sent.get_title("left") == "Bytes to target" and sent.get_xlabel() == "MB"


def test_a_line_has_no_point_unless_every_seed_reaches_the_target() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        return Course(ceiling=0.5 if labels["p"] == "0.1" else 0.97)

    results = results_of({"p": [0.1, 0.5, 1.0], "rule": ["gosgd", "sgp"]}, course)
    names = ("time_to_target_s", "accuracy")
    time, accuracy = charts.response(results, [METRICS[name] for name in names]).axes
    assert np.asarray(time.lines[0].get_xdata()).tolist() == [0.5, 1.0]
    assert np.asarray(accuracy.lines[0].get_xdata()).tolist() == [0.1, 0.5, 1.0]
    # Every number has a tick, with or without a point above it.
    assert [tick.get_text() for tick in time.get_xticklabels()] == ["0.1", "0.5", "1.0"]


def test_each_panel_of_a_ranking_is_judged_by_its_own_metric() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        return Course(bytes_s=9e6 if "star" in str(labels) else 1e6, noise=0.1)

    place = comparisons(results_of({"topology": ["ring", "star"]}, course))
    time, traffic = charts.ranking(place).axes
    assert len({line.get_color() for line in time.lines}) == 1
    assert len({line.get_color() for line in traffic.lines}) == 2


def test_intervals_on_a_logarithmic_axis_end_above_0() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        return Course(rate_s=0.2 if "star" in str(labels) else 16.0, noise=0.5, time_s=400.0)

    results = results_of({"topology": ["ring", "star"]}, course, points=4001, target=0.7)
    (found,) = comparisons(results)
    assert any(row.figures["time_to_target_s"].low < 0 for row in found.rows)
    time, _ = charts.ranking([found]).axes
    assert time.get_xscale() == "log"
    bars = [one for one in time.collections if isinstance(one, LineCollection)]
    assert len(bars) == 2
    assert all((segment[:, 0] > 0).all() for one in bars for segment in one.get_segments())


def test_a_seed_that_starts_at_its_target_is_shown_on_a_logarithmic_axis() -> None:
    results = results_of({"topology": ["ring", "star"]}, lambda _: Course(rate_s=20, time_s=400))
    found = []
    for one in results.results:
        series = dict(one.series)
        if one.trial.labels["topology"] == "ring":
            series["time_s"] = tuple(1e4 * (at or 0.0) for at in series["time_s"])
        if one.trial.seed == 0:
            series["accuracy"] = (1.0, *series["accuracy"][1:])
        found.append(replace(one, series=series))
    time, _ = charts.ranking(comparisons(replace(results, results=tuple(found)))).axes
    assert time.get_xscale() == "log"
