"""Curves of several seeds, drawn as one band."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from rumor.sim.study.report.charts import Band, band
from rumor.sim.study.results import Result
from rumor.sim.study.statistics import interval

from ..made_up import results_of


def trials(*curves: Mapping[str, Sequence[float | None]]) -> list[Result]:
    """One result for each element, with these curves only."""
    made = results_of({"rule": ["gosgd"]}, seeds=max(1, len(curves))).results
    return [
        replace(result, series={name: tuple(values) for name, values in curve.items()})
        for result, curve in zip(made, curves, strict=False)
    ]


def known(found: Band | None) -> Band:
    assert found is not None
    return found


def test_curves_evaluated_together_are_averaged_at_each_evaluation() -> None:
    results = results_of({"rule": ["gosgd"]}).results
    found = known(band(results, "accuracy"))
    assert tuple(found.x) == results[0].series["time_s"]
    rows = np.array([result.series["accuracy"] for result in results], float)
    assert found.mean == pytest.approx(rows.mean(axis=0))
    middle = interval(rows[:, 20])
    assert (found.low[20], found.high[20]) == pytest.approx((middle.low, middle.high))
    assert found.n == 3


def test_curves_are_interpolated_over_the_range_that_all_seeds_cover() -> None:
    often = {"time_s": (0, 1, 2, 3, 4), "loss": (0, 2, 4, 6, 8)}
    found = known(band(trials(often, {"time_s": (0, 4), "loss": (0, 16)}), "loss"))
    assert found.x.tolist() == [0, 1, 2, 3, 4]
    assert found.mean == pytest.approx((0, 3, 6, 9, 12))
    one, other = (
        {"time_s": times, "loss": (n, n, n)} for n, times in ((1, (1, 2, 5)), (2, (0, 2, 3)))
    )
    found = known(band(trials(one, other), "loss"))
    assert (found.x[0], found.x[-1]) == (1, 3)


def test_two_seeds_have_a_range_and_one_seed_has_none() -> None:
    a, b = {"time_s": (0, 1), "loss": (1, 2)}, {"time_s": (0, 1), "loss": (3, 6)}
    two = known(band(trials(a, b), "loss"))
    rows = [found.tolist() for found in (two.low, two.mean, two.high)]
    assert (two.n, rows) == (2, [[1, 2], [2, 4], [3, 6]])
    one = known(band(trials(a), "loss"))
    assert one.n == 1 and (one.low == one.mean).all() and (one.high == one.mean).all()


def test_a_band_of_accuracies_stays_between_0_and_1() -> None:
    results = trials(*({"time_s": (0, 1), "accuracy": (at, 1 - at)} for at in (0.0, 0.01, 0.2)))
    found = known(band(results, "accuracy"))
    assert min(found.low) == 0.0
    assert max(found.high) == 1.0


@pytest.mark.parametrize(
    "curves",
    [
        [],
        [{"time_s": (0, 1)}],
        [{"time_s": (0, 1), "loss": (None, None)}],
        [{"time_s": (0, 1), "loss": (1, 1)}, {"time_s": (2, 3), "loss": (1, 1)}],
    ],
    ids=["no results", "no such curve", "no values", "no range in common"],
)
def test_curves_without_a_mean_have_no_band(
    curves: list[Mapping[str, Sequence[float | None]]],
) -> None:
    assert band(trials(*curves), "loss") is None
