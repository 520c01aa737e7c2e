"""Curves of several seeds, over the times that all cover."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from rumor.sim.study.report.charts import seeds_over_time
from rumor.sim.study.results import Result

from ..made_up import results_of


def trials(*curves: Mapping[str, Sequence[float | None]]) -> list[Result]:
    """One result for each element, with these curves only."""
    made = results_of({"rule": ["gosgd"]}, seeds=max(1, len(curves))).results
    return [
        replace(result, series={name: tuple(values) for name, values in curve.items()})
        for result, curve in zip(made, curves, strict=False)
    ]


def known(results: Sequence[Result], name: str) -> tuple[np.ndarray, np.ndarray]:
    found = seeds_over_time(results, name)
    assert found is not None
    return found


def test_curves_evaluated_together_keep_each_evaluation() -> None:
    results = results_of({"rule": ["gosgd"]}).results
    x, rows = known(results, "accuracy")
    assert tuple(x) == results[0].series["time_s"]
    assert rows.tolist() == [list(result.series["accuracy"]) for result in results]


def test_curves_are_interpolated_over_the_range_that_all_seeds_cover() -> None:
    often = {"time_s": (0, 1, 2, 3, 4), "loss": (0, 2, 4, 6, 8)}
    x, rows = known(trials(often, {"time_s": (0, 4), "loss": (0, 16)}), "loss")
    assert x.tolist() == [0, 1, 2, 3, 4]
    assert rows.mean(axis=0) == pytest.approx((0, 3, 6, 9, 12))
    one, other = (
        {"time_s": times, "loss": (n, n, n)} for n, times in ((1, (1, 2, 5)), (2, (0, 2, 3)))
    )
    x, _ = known(trials(one, other), "loss")
    assert (x[0], x[-1]) == (1, 3)


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
def test_curves_without_common_times_have_no_mean(
    curves: list[Mapping[str, Sequence[float | None]]],
) -> None:
    assert seeds_over_time(trials(*curves), "loss") is None
