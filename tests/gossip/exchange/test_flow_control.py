"""Frame sizes follow a link's throughput, stall timeouts its pauses, timeouts its round trips."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.exchange.flow_control import (
    FRAMES_MAX,
    LinkEstimator,
    messages_max,
    patience_s,
    window_bytes,
)

CONFIG = ProtocolConfig()
KIB, MIB = 1 << 10, 1 << 20


def frame_of(*carried: tuple[float, float], size_mib: int = 100, **config: Any) -> int:
    """Return the size of the next frame after transfers of (bytes, seconds)."""
    link = LinkEstimator(replace(CONFIG, **config), 1)
    for size_bytes, seconds in carried:
        link.carried(round(size_bytes), seconds)
    return link.frame_bytes(size_mib * MIB)


@pytest.mark.parametrize(
    ("bytes_s", "frame_bytes"),
    [
        (1e3, 64 * KIB),
        (64 * KIB / 0.02, 64 * KIB),
        (20e6, 256 * KIB),  # 0.013 s each; twice as large would take 0.026 s
        (100e6, 1 * MIB),
        (2 * MIB / 0.02, 2 * MIB),
        (10e9, 2 * MIB),
    ],
)
def test_a_frame_takes_at_most_its_target_time_or_has_the_minimum_size(
    bytes_s: float, frame_bytes: int
) -> None:
    assert frame_of((bytes_s * 7, 7.0)) == frame_bytes
    # A new measurement counts as much as all earlier ones: 8, then 24, then 56 MB/s.
    assert frame_of((8e6, 1.0), (40e6, 1.0), (88e6, 1.0)) == MIB


@pytest.mark.parametrize(("size_mib", "frame_mib"), [(2, 1), (8, 1), (16, 2), (400, 2)])
def test_a_share_is_cut_into_several_frames_on_any_link(size_mib: int, frame_mib: int) -> None:
    assert frame_of((1 << 40, 1.0), size_mib=size_mib) == frame_mib * MIB


@pytest.mark.parametrize("no_measurement", [(0, 1.0), (100, 0.0), (100, -1.0)])
def test_frames_to_an_unmeasured_neighbor_have_the_configured_size(
    no_measurement: tuple[float, float],
) -> None:
    assert frame_of() == frame_of(no_measurement) == CONFIG.frame_bytes


def test_frames_get_smaller_after_a_late_frame() -> None:
    link = LinkEstimator(CONFIG, 1)
    link.carried_none(CONFIG.frame_bytes, 10.0)
    assert link.frame_bytes(100 * MIB) == CONFIG.frame_bytes_min
    # This holds for any earlier estimate, and later measurements count as usual.
    link.carried(100 * MIB, 1.0)
    link.carried_none(CONFIG.frame_bytes, 1.0)
    assert link.frame_bytes(100 * MIB) == CONFIG.frame_bytes_min
    for _ in range(8):
        link.carried(100 * MIB, 1.0)
    assert link.frame_bytes(100 * MIB) == 1 * MIB


def test_no_share_takes_more_than_the_maximum_number_of_frames() -> None:
    size = FRAMES_MAX * CONFIG.frame_bytes_min * 3 + 1
    link = LinkEstimator(replace(CONFIG, frame_bytes=64 * KIB, frame_bytes_max=64 * KIB), 1)
    frame = link.frame_bytes(size)
    assert frame * FRAMES_MAX >= size and (frame - 1) * FRAMES_MAX < size


def test_a_window_holds_at_least_one_frame_and_limits_small_frames() -> None:
    assert window_bytes(CONFIG, 64 * KIB, 1) == 64 * 64 * KIB
    assert window_bytes(CONFIG, 1 * MIB, 1) == CONFIG.window_bytes
    assert window_bytes(CONFIG, 64 * MIB, 1) == 64 * MIB


@pytest.mark.parametrize("shards", [1, 2, 7, 32, 100])
def test_the_windows_of_all_shards_fit_into_socket_queues(shards: int) -> None:
    frames = shards * (window_bytes(CONFIG, 64 * KIB, shards) // (64 * KIB))
    offers, ends = shards, shards
    assert frames + offers + ends < messages_max(shards)


@pytest.mark.parametrize(
    ("gap_s", "seconds", "hasty_s"),
    [
        (0.0, 10.0, 1.0),
        (1e-6, 2.0, 0.2),
        (0.1, 2.0, 2.0),
        (0.2, 4.0, 4.0),
        (6.0, 120.0, 12.0),
        (1e9, 120.0, 12.0),
    ],
)
def test_the_stall_timeout_is_twenty_times_the_longest_pause(
    gap_s: float, seconds: float, hasty_s: float
) -> None:
    assert patience_s(CONFIG, gap_s) == pytest.approx(seconds)
    assert patience_s(replace(CONFIG, stall_s=1.0), gap_s) == pytest.approx(hasty_s)


def test_the_timeout_follows_round_trips() -> None:
    link = LinkEstimator(CONFIG, 1)
    assert link.timeout_s == 1.0
    link.answered(0.1)
    assert link.timeout_s == 0.1 + 4 * 0.05, "the first measurement counts three times"
    for _ in range(200):
        link.answered(0.1)
    assert 0.1 <= link.timeout_s < 0.101
    link.answered(0.9)
    assert link.roundtrip_s == pytest.approx(0.1 + 0.8 / 8)
    assert link.timeout_s == pytest.approx(0.2 + 4 * 0.8 / 4, abs=1e-3)


@pytest.mark.extended
@given(st.lists(st.floats(0.0, 1e3), min_size=1))
def test_the_timeout_is_never_below_the_smallest_round_trip(trips_s: list[float]) -> None:
    link = LinkEstimator(CONFIG, 1)
    for seconds in trips_s:
        link.answered(seconds)
    assert link.timeout_s >= min(trips_s) * (1 - 1e-9)
