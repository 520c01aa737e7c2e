"""Time-outs are learnt from measured round trips."""

from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.exchange.flow_control import RttEstimator


def test_nothing_is_known_at_first() -> None:
    assert RttEstimator().timeout_s == 1.0


def test_the_first_measurement_counts_three_times() -> None:
    trip = RttEstimator()
    trip.measured(0.1)
    assert trip.timeout_s == 0.1 + 4 * 0.05


def test_a_steady_link_needs_hardly_more_than_its_round_trip() -> None:
    trip = RttEstimator()
    for _ in range(200):
        trip.measured(0.1)
    assert 0.1 <= trip.timeout_s < 0.101


@given(st.lists(st.floats(0.0, 1e3), min_size=1))
def test_the_timeout_is_never_below_the_smallest_round_trip(trips_s: list[float]) -> None:
    trip = RttEstimator()
    for seconds in trips_s:
        trip.measured(seconds)
    assert trip.timeout_s >= min(trips_s) * (1 - 1e-9)
