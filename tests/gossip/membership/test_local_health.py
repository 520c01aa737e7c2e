"""A peer that is late itself gives others more time, and a stall of its own counts for nobody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.membership.table import FACTOR_MAX, LocalHealth


def late(*times: float, interval_s: float = 1.0) -> tuple[LocalHealth, list[float]]:
    health = LocalHealth(interval_s)
    return health, [health.ticked(now) for now in times]


def test_lateness_is_forgotten_once_a_tick_is_in_time_again() -> None:
    health, _ = late(*(2.0 * n for n in range(60)))
    for n in range(40):
        health.ticked(118.0 + 1.0 + n)
    assert health.factor == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("gap_s", "stalled_s"), [(2.5, 0.0), (3.0, 0.0), (3.5, 2.5), (60.0, 59.0)])
def test_more_than_lateness_is_a_stall(gap_s: float, stalled_s: float) -> None:
    _, stalls = late(0.0, 1.0, 1.0 + gap_s)
    assert stalls == [0.0, 0.0, stalled_s]


@given(st.lists(st.floats(0.0, 100.0), max_size=50), st.sampled_from([0.5, 1.0, 7.0]))
def test_patience_grows_within_bounds(gaps: list[float], interval_s: float) -> None:
    health, now = LocalHealth(interval_s), 0.0
    for gap_s in gaps:
        now += gap_s
        assert 0.0 <= health.ticked(now) <= gap_s
        assert 1.0 <= health.factor <= FACTOR_MAX
