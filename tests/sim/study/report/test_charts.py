"""What the charts of a report are made of: scales, shades, colors, who stands out."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from rumor.sim.study.analysis.ranking import comparisons
from rumor.sim.study.metrics import METRICS
from rumor.sim.study.report.charts import (
    curve_panels,
    curves_of,
    heatmaps,
    number_axis,
    prediction_panels,
    ranking_panels,
    response_panel,
    standing,
)
from rumor.sim.study.report.page import page
from rumor.sim.study.report.panels import Matrix, Panel, log_ticks
from rumor.sim.study.results import Results
from rumor.sim.study.statistics import Interval
from rumor.sim.study.study import Axis, Point

from ..made_up import Course, results_of

GRAPHS = ["ring", "path", "star", "complete", "torus", "hypercube", "exponential", "base-k", "tree"]


def standing_in(results: Results) -> dict[str, str]:
    return standing(results.study, comparisons(results))


def between(low: float, high: float) -> Interval:
    return Interval(mean=(low + high) / 2, low=low, high=high, n=3)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.03, 0.6, [0.05, 0.1, 0.2, 0.5]),
        (0.2, 5000, [1, 10, 100, 1000]),
        (1.2, 4, [1.5, 2, 3]),
        (1e-12, 1, [1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1]),
    ],
)
def test_a_logarithmic_axis_has_round_ticks_neither_too_few_nor_too_many(
    low: float, high: float, ticks: list[float]
) -> None:
    assert log_ticks(low, high) == pytest.approx(ticks)


def test_a_few_lines_have_colors_of_their_own_and_numbers_have_shades_in_order() -> None:
    few = standing_in(results_of({"topology": GRAPHS[:7]}, seeds=1))
    assert len(set(few.values())) == 7
    ordered = standing_in(results_of({"p": [0.1, 0.2, 0.5, 0.7, 1.0]}, seeds=1))
    shades = [float(color.removeprefix("shade:")) for color in ordered.values()]
    assert shades == sorted(shades) and len(set(shades)) == 5


@pytest.mark.parametrize(
    ("name", "found", "text"),
    [
        ("time_to_target_s", between(4.0, 6.0), "5.0 ± 1.0 s"),
        ("time_to_target_s", between(200.0, 220.0), "3.50 ± 0.17 min"),
        ("bytes_sent", between(1.9e6, 2.1e6), "2.00 ± 0.10 MB"),
        ("bytes_sent", between(31_540_151.0, 31_540_187.0), "31.54 ± 0.00 MB"),
        ("accuracy", between(0.915, 0.945), "93.0 ± 1.5 %"),
        ("accuracy", between(0.925, 0.925 + 1e-16), "92.5 ± 0 %"),
        ("consensus_distance", between(0.0, 0.0), "0 ± 0"),
        ("loss", None, "–"),
        ("loss", Interval(mean=0.5, low=math.nan, high=math.nan, n=1), "0.5"),
    ],
)
def test_a_mean_has_a_unit_and_no_more_digits_than_it_is_sure_of(
    name: str, found: Interval | None, text: str
) -> None:
    assert METRICS[name].spread(found) == text


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
        *(([label], None) for label in ("1_0", "\u0661", "nan", "1e999", "0x10", "-", "")),
        *(([label], (value,)) for label, value in (("+2", 2.0), (".5", 0.5), (" 7 ", 7.0))),
    ],
)
def test_labels_are_numbers_where_all_are_and_have_one_unit(
    labels: list[str], numbers: tuple[float, ...] | None
) -> None:
    points = tuple(Point(label, {"p": index}) for index, label in enumerate(labels))
    assert Axis("p", points).numbers == numbers


def test_two_numbers_make_no_line() -> None:
    assert number_axis(results_of({"p": [0.1, 1.0]}, seeds=1).study) is None
    found = number_axis(results_of({"rule": ["gosgd"], "p": [0.1, 0.5, 1.0]}, seeds=1).study)
    assert found is not None
    assert found.name == "p"


def test_where_not_every_seed_reaches_the_target_a_line_has_no_point() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        return Course(ceiling=0.5 if labels["p"] == "0.1" else 0.97)

    results = results_of({"p": [0.1, 0.5, 1.0], "rule": ["gosgd", "sgp"]}, course)
    panel = response_panel(results, METRICS["time_to_target_s"])
    assert [one.label for one in panel.series] == ["gosgd", "sgp"]
    assert panel.series[0].x == (0.5, 1.0)
    assert response_panel(results, METRICS["accuracy"]).series[0].x == (0.1, 0.5, 1.0)
    # Every number is below, whether there is anything above it or not.
    assert [text for _, text in panel.x.ticks] == ["0.1", "0.5", "1.0"]


def test_entries_that_hardly_differ_have_hardly_different_colors() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        return Course(rate_s=2.0 if labels["rule"] == "sgp" else 2.05, noise=0.0)

    results = results_of(
        {"topology": ["ring", "star"], "rule": ["gosgd", "sgp"]}, course, points=401
    )
    strengths = [one for row in heatmaps(results, {})["time_to_target_s"].shades for one in row]
    assert all(one is not None for one in strengths)
    assert 0 < max(map(float, strengths)) - min(map(float, strengths)) < 0.2  # type: ignore[arg-type]


def test_entries_over_orders_of_magnitude_are_told_apart_by_their_logarithms() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        return Course(bytes_s={"0.01": 1e3, "0.1": 1e5, "1.0": 1e7}[labels["p"]])

    results = results_of({"p": [0.01, 0.1, 1.0], "rule": ["gosgd", "sgp"]}, course)
    found = heatmaps(results, {})["bytes_sent"]
    assert [row[0] for row in found.shades] == pytest.approx([0, 0.5, 1], abs=1e-3)


def test_all_of_a_few_lines_stand_out_and_of_many_the_best_and_the_last() -> None:
    assert list(standing_in(results_of({"topology": GRAPHS[:5]}, seeds=1))) == GRAPHS[:5]
    many = results_of({"topology": GRAPHS}, seeds=1)
    ranked = [row.label for row in comparisons(many)[0].rows]
    assert list(standing_in(many)) == [*ranked[:4], ranked[-1]]


def test_ten_numbers_stand_out_all_together() -> None:
    numbers = [round(0.1 * i, 1) for i in range(1, 11)]
    found = standing_in(results_of({"p": numbers}, seeds=1))
    assert list(found) == [str(number) for number in numbers]


def test_curves_are_of_what_the_task_has() -> None:
    digits = results_of({"rule": ["gosgd"]}, seeds=1)
    assert [one.name for one in curves_of(digits.results)] == ["accuracy", "consensus_distance"]
    noise = results_of({"rule": ["gosgd"]}, seeds=1, task="noise")
    assert [one.name for one in curves_of(noise.results)] == ["disagreement", "consensus_distance"]


def test_a_long_curve_is_thinned_out_and_keeps_its_end() -> None:
    results = results_of({"rule": ["gosgd"]}, points=1001)
    (place,) = comparisons(results)
    accuracy, _ = curve_panels(place, "time_s", {})
    (line,) = accuracy.series
    assert len(line.x) == len(line.y) == len(line.low) == len(line.high) <= 121
    assert line.x[-1] == 20.0


def test_a_loss_is_shown_around_its_target_and_not_from_where_it_starts() -> None:
    made = results_of({"rule": ["gosgd", "sgp"]}, target=0.3)
    study = replace(made.study, metrics=("time_to_loss_s", "loss"))
    (place,) = comparisons(replace(made, study=study))
    loss, _ = curve_panels(place, "time_s", {})
    assert loss.falls and loss.target == 0.3
    assert loss.series[0].y[0] == pytest.approx(2.3)
    ends = [line.y[-1] for line in loss.series]
    assert loss.y.low <= min(ends) < 0.3 < loss.y.high < 0.6
    _, final, *_ = ranking_panels(place)
    assert final.title == "Final loss" and final.x.low > 0
    accuracy, _ = curve_panels(comparisons(made)[0], "time_s", {})
    assert not accuracy.falls and accuracy.y.low < 10 < 98 < accuracy.y.high


def test_models_that_a_merge_makes_alike_leave_no_empty_decades() -> None:
    made = results_of({"rule": ["gosgd", "sgp"]}, seeds=1)
    first, *others = made.results
    merged = (*first.series["consensus_distance"][:-1], 1e-9)
    first = replace(first, series={**first.series, "consensus_distance": merged})
    (before,), (after,) = comparisons(made), comparisons(replace(made, results=(first, *others)))
    (_, plain), (_, distance) = (curve_panels(place, "time_s", {}) for place in (before, after))
    assert min(v for line in distance.series for v in line.y) < 1e-3 * plain.y.low
    assert distance.y.low == pytest.approx(plain.y.low, rel=0.5)


def test_lines_of_very_different_length_are_drawn_over_a_logarithmic_axis() -> None:
    def panels(longest_s: float) -> list[Panel]:
        def course(labels: Mapping[str, str]) -> Course:
            return Course(time_s=3.2 if labels["workers"] == "1024" else longest_s)

        (place,) = comparisons(results_of({"workers": [16, 1024]}, course))
        return curve_panels(place, "time_s", {})

    accuracy, distance = panels(205.0)
    for panel in (accuracy, distance):
        assert panel.x.is_log and panel.x.title == "virtual time, s, logarithmic"
        assert panel.x.low == pytest.approx(3.2 / 40) and panel.x.high == pytest.approx(205.0)
        assert min(one.x[0] for one in panel.series) > 0, "the start has no place there"
    accuracy, _ = panels(20.0)
    assert not accuracy.x.is_log and accuracy.x.title == "virtual time, s"
    assert accuracy.series[0].x[0] == 0.0


def test_workers_that_are_all_alike_have_a_word_in_place_of_a_line() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        return Course(consensus_distance=0.0 if labels["rule"] == "allreduce" else 0.1)

    results = results_of({"rule": ["gosgd", "allreduce"]}, course)
    (place,) = comparisons(results)
    _, distance = curve_panels(place, "time_s", standing_in(results))
    assert [one.label for one in distance.series] == ["gosgd"]
    assert distance.remarks == ((0.0, "0, all alike: allreduce"),)


def test_a_ranking_has_a_row_for_everybody_and_a_word_for_those_without_a_mean() -> None:
    def course(labels: Mapping[str, str]) -> Course | None:
        if labels["rule"] == "dpsgd":
            return None
        return Course(ceiling=0.6 if labels["rule"] == "sgp" else 0.97)

    results = results_of({"rule": ["sgp", "gosgd", "dpsgd"]}, course)
    (place,) = comparisons(results)
    time, sent = ranking_panels(place)
    assert [text for _, text in time.y.ticks] == ["gosgd", "sgp", "dpsgd"]
    assert [one.label for one in time.series] == ["gosgd"]
    assert time.series[0].color == "accent"
    assert [(at, text.split(",")[0]) for at, text in time.remarks] == [
        (1, "never"),
        (2, "no result"),
    ]
    assert sent.title == "Bytes to target" and sent.x.title == "MB"


def test_the_strongest_correlation_comes_first_with_a_point_for_every_graph() -> None:
    ((first, panel), *others) = prediction_panels(results_of({"topology": GRAPHS}), {})["all"]
    assert all(abs(first.rho) >= abs(one.rho) for one, _ in others if math.isfinite(one.rho))
    assert {one.label for one in panel.series} == {
        s.label for s in first.spots if s.found is not None
    }


def test_a_combination_without_a_mean_says_why() -> None:
    def course(labels: Mapping[str, str]) -> Course | None:
        return Course(ceiling=0.6) if labels["topology"] == "ring" else Course()

    results = results_of({"topology": ["ring", "star"], "p": [0.1, 0.5]}, course)
    found: Matrix = heatmaps(results, {})["time_to_target_s"]
    assert found.texts[0] == ("never reached", "never reached")
    assert found.shades[0] == (None, None)
    assert all(text.endswith(" s") for text in found.texts[1])


def test_combinations_without_results_are_known() -> None:
    def course(labels: Mapping[str, str]) -> Course | None:
        return None if labels["rule"] == "sgp" else Course()

    results = results_of({"topology": ["ring"], "rule": ["gosgd", "sgp", "dpsgd"]}, course)
    assert [one.at["rule"] for one in comparisons(results)] == ["gosgd", "dpsgd"]
    text = page(results)
    assert '<p class="gap" data-show="facet=1" hidden>' in text
    assert text.count('<p class="gap"') == 1
