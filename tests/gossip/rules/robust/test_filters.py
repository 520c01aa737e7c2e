"""Coefficients of robust filters, compared with the equations in plain numpy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.errors import ConfigError
from rumor.gossip.rules.registry import make_rule
from rumor.gossip.rules.robust.filters import (
    ROBUST,
    clip,
    cs_plus,
    median_clip,
    nna,
    parse_robust,
    scc,
)

numbers = st.floats(1e-3, 1e3)
neighbors = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12)


def moved(values: np.ndarray, parts: list[float], weights: list[float]) -> np.ndarray:
    """Return the partial sums of ``w_j c_j d_j`` for one-dimensional models at distances d."""
    return np.cumsum(np.array(weights) * np.array(parts) * values)


@given(neighbors, numbers)
def test_clip_matches_the_published_update(drawn: list[tuple[float, float]], tau: float) -> None:
    distances, weights = np.array(drawn).T
    parts = clip(distances.tolist(), weights.tolist(), tau)
    expected = np.cumsum(weights * np.minimum(distances, tau))
    np.testing.assert_allclose(moved(distances, parts, weights.tolist()), expected, rtol=1e-12)


def nearest(
    drawn: list[tuple[float, float]], left_out: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return sorted distances, weights, and a mask of the nearest except *left_out* weight."""
    distances, weights = np.array(sorted(drawn)).T
    near = np.cumsum(weights) <= (1 - left_out) * weights.sum() * (1 + 1e-12)
    return distances, weights, near


@given(neighbors, st.floats(0.05, 0.95))
def test_scc_has_the_radius_of_the_theorem(drawn: list[tuple[float, float]], part: float) -> None:
    distances, weights, near = nearest(drawn, part)
    b = part * weights.sum()
    tau = math.sqrt((weights[near] * distances[near] ** 2).sum() / b)
    parts = scc(distances.tolist(), weights.tolist(), b)
    np.testing.assert_allclose(parts, np.minimum(1, tau / distances), rtol=0, atol=1e-12)
    # Without Byzantine peers the radius is the second largest distance, as in the authors' code.
    assert scc([4.0, 1.0, 2.0], [1.0] * 3, 0.0) == [0.5, 1.0, 1.0]
    assert scc([4.0], [1.0], 0.0) == [1.0]


@given(neighbors, st.floats(0.05, 0.95))
def test_cs_plus_clips_at_the_farthest_kept_neighbor(
    drawn: list[tuple[float, float]], part: float
) -> None:
    distances, weights, near = nearest(drawn, 2 * part)
    tau = distances[near].max(initial=0.0)
    parts = cs_plus(distances.tolist(), weights.tolist(), part * weights.sum())
    np.testing.assert_allclose(parts, np.minimum(1, tau / distances), rtol=0, atol=1e-12)


@given(neighbors, st.floats(0.05, 0.95))
def test_nna_leaves_out_the_weight_of_byzantine_peers(
    drawn: list[tuple[float, float]], part: float
) -> None:
    distances, weights = np.array(sorted(drawn)).T
    b = part * weights.sum()
    ends = np.cumsum(weights)
    expected = np.clip((weights.sum() - b - (ends - weights)) / weights, 0, 1)
    parts = nna(distances.tolist(), weights.tolist(), b)
    np.testing.assert_allclose(parts, expected, rtol=0, atol=1e-9)
    assert float(weights @ parts) == pytest.approx(weights.sum() - b)
    assert nna([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], 1.5) == [1.0, 0.5, 0.0], "a neighbor on the border"


@given(st.lists(numbers, min_size=1, max_size=15))
def test_shares_are_clipped_by_the_median_and_far_shares_fade(distances: list[float]) -> None:
    values = np.array(distances)
    middle = np.sort(values)[(len(distances) - 1) // 2]
    near = np.minimum(1, 1.5 * middle / values)
    expected = np.where(values > 2.5 * middle, near * 2.5 * middle / values, near)
    found = median_clip(distances, [1.0] * len(distances))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["clip", "scc", "cs+", "nna"])
@pytest.mark.parametrize("value", [0.0, 1.0, 40.0])
def test_an_infinite_distance_gets_no_weight_and_parts_are_in_range(
    name: str, value: float
) -> None:
    method, weights = ROBUST[name](value), [1.0, 1.0, 2.0, 0.5]
    assert method is not None
    parts = method.coefficients([1.0, math.inf, 2.0, 0.0], weights)
    assert parts[1] == 0 and all(0 <= part <= 1 for part in parts)
    assert method.coefficients([], []) == []


def test_a_filter_is_parsed_with_or_without_its_parameter() -> None:
    assert parse_robust("none") is None
    by_median, fixed = parse_robust("clip"), parse_robust("clip:tau=0.5")
    assert by_median is not None and by_median.is_relative and by_median.by_median
    assert fixed is not None and not (fixed.is_relative or fixed.by_median)
    assert fixed.coefficients([1.0], [1.0]) == [0.5]
    assert make_rule("gosgd:robust=nna:byzantine=2,p=0.5").name == "gosgd"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("krum", "Valid names: none, clip"),
        ("none:tau=1", "it takes no parameters: write 'none'"),
        ("clip:byzantine=1", "it takes tau="),
        ("nna:byzantine=-1", "byzantine=-1: it must be at least 0"),
        ("nna:byzantine=nan", "it must be at least 0"),
    ],
)
def test_an_unknown_filter_is_refused_with_the_known_names(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_robust(spec)
