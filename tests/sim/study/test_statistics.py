"""Intervals and differences, compared with closed forms, scipy and simulated noise."""

import math

import numpy as np
import pytest
from scipy import stats

from rumor.sim.study.statistics import Difference, differences, holm, interval


def difference(a: dict[int, float], b: dict[int, float]) -> Difference:
    return differences([a], b)[0]


def test_intervals_follow_students_t_and_are_unknown_for_one_value() -> None:
    values = [3.1, 2.7, 3.3, 3.0]
    found = interval(values)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (found.mean, found.low, found.high) == pytest.approx((np.mean(values), low, high))
    assert found.half == pytest.approx((high - low) / 2)
    found = interval([2.5])
    assert (found.mean, found.n) == (2.5, 1)
    assert math.isnan(found.low) and math.isnan(found.high) and math.isnan(found.half)


def test_a_difference_is_a_paired_t_test() -> None:
    a, b = {0: 5.0, 1: 6.2, 2: 7.1}, {0: 4.0, 1: 4.9, 2: 6.4}
    found = difference(a, b)
    wanted = stats.ttest_rel(list(a.values()), list(b.values()))
    bounds = wanted.confidence_interval(0.95)
    assert found.p == pytest.approx(wanted.pvalue)
    assert (found.low, found.high) == pytest.approx((bounds.low, bounds.high))


def test_only_common_seeds_are_compared_and_one_seed_has_no_p_value() -> None:
    found = difference({0: 5.0, 1: 6.0, 7: 100.0}, {1: 5.5, 0: 4.0, 8: -100.0})
    assert found.mean == pytest.approx(0.75)
    found = difference({0: 5.0}, {0: 4.0})
    assert found.mean == 1.0
    assert math.isnan(found.p) and math.isnan(found.low)
    # A difference that is equal for each seed is certain; differences of zero are noise.
    assert difference({0: 2.0, 1: 3.0}, {0: 1.0, 1: 2.0}).p == 0
    assert difference({0: 2.0, 1: 3.0}, {0: 2.0, 1: 3.0}).p == 1


def test_the_resolution_of_values_limits_the_certainty() -> None:
    a, b = {0: 5.5, 1: 5.5, 2: 5.5}, {0: 5.0, 1: 5.0, 2: 5.0}
    assert differences([a], b)[0].p == 0
    (found,) = differences([a], b, resolution=0.5)
    # On a grid of 0.5, each value has a uniform error.
    error = math.sqrt(2 * 0.5**2 / 12 / 3)
    assert found.p == pytest.approx(2 * stats.t.sf(0.5 / error, 2))
    assert found.p > 0.05


def test_many_similar_pairs_make_each_difference_more_certain() -> None:
    means = np.array([0.0] + [0.5] * 27)
    reference, *values = _groups(means, np.full(28, 0.1), seeds=3, draw=0)
    borrowed = sum(found.p < 0.05 / 27 for found in differences(values, reference))
    alone = sum(difference(group, reference).p < 0.05 / 27 for group in values)
    assert alone < 5
    assert borrowed > 20


def test_a_group_with_one_seed_is_judged_by_the_noise_of_other_groups() -> None:
    values = _groups(np.zeros(6), np.full(6, 0.1), seeds=4, draw=3)
    far, near = {0: values[0][0] + 5.0}, {0: values[0][0]}
    found = differences([*values[1:], far, near], values[0])
    assert found[-2].p < 1e-3
    assert found[-1].p == 1


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_best_of_many_equal_groups_is_rarely_called_better(seeds: int) -> None:
    draws, wrong = 150, 0
    for draw in range(draws):
        values = _groups(np.zeros(12), np.full(12, 0.1), seeds=seeds, draw=draw)
        means = [sum(group.values()) for group in values]
        best = values.pop(means.index(min(means)))
        found = differences(values, best)
        wrong += min(holm([one.p for one in found], family=12 * 11 // 2)) < 0.05
    # At 5 %, 8 of 150 are expected; 18 or more come up about once in a thousand times.
    assert wrong <= 18


def test_corrected_differences_are_still_found() -> None:
    draws, found = 50, 0
    means = np.array([0.0] * 14 + [math.log(1.5)] * 14)
    for draw in range(draws):
        groups = _groups(means, np.full(28, 0.1), seeds=3, draw=draw)
        best, *others = sorted(groups, key=lambda group: sum(group.values()))
        ps = holm([one.p for one in differences(others, best)], family=378)
        found += sum(p < 0.05 for p in ps)
    # 56 % are found, as measured; with four times the degrees of freedom of one pair, 30 %.
    assert found > 0.45 * draws * 14


def test_two_groups_with_one_reference_share_few_degrees_of_freedom() -> None:
    """By the closed form, two pairs of 2 degrees of freedom have 4 / (1 + 1/6) at most."""
    values = [{0: 1.0, 1: 1.1, 2: 1.4}, {0: 2.0, 1: 2.1, 2: 2.4}]
    first, _ = differences(values, dict.fromkeys(range(3), 0.0))
    error = math.sqrt(np.var([1.0, 1.1, 1.4], ddof=1) / 3)
    assert first.p == pytest.approx(2 * stats.t.sf(first.mean / error, 4 / (1 + 1 / 6)))


def test_holm_corrects_as_in_the_paper() -> None:
    assert holm([0.005, 0.011, 0.02, 0.04]) == pytest.approx((0.02, 0.033, 0.04, 0.04))
    # Unknown values are not counted, and a larger family corrects more.
    first, second, third = holm([0.01, math.nan, 0.02])
    assert (first, third) == pytest.approx((0.02, 0.02)) and math.isnan(second)
    assert holm([0.01, 0.02], family=10) == pytest.approx((0.1, 0.18))
    assert holm([]) == ()


def _groups(
    means: np.ndarray, spread: np.ndarray, *, seeds: int, draw: int
) -> list[dict[int, float]]:
    """Groups of given means and spreads, and a part of the noise that seeds have in common."""
    rng = np.random.default_rng(draw)
    shared = 0.3 * rng.standard_normal(seeds)
    noise = spread[:, None] * rng.standard_normal((len(means), seeds))
    values = means[:, None] + shared + noise
    return [dict(enumerate(row.tolist())) for row in values]
