"""Frames follow what a link carries: about `frame_s` each, within bounds."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.exchange.flow_control import (
    FRAMES_MAX,
    LinkEstimator,
    LinkEstimators,
    messages_max,
    patience_s,
    window_bytes,
)

CONFIG = ProtocolConfig()
KIB, MIB = 1 << 10, 1 << 20


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
def test_a_frame_takes_at_most_its_time_or_is_the_smallest(
    bytes_s: float, frame_bytes: int
) -> None:
    link = LinkEstimator(CONFIG, 1)
    link.carried(round(bytes_s * 7), 7.0)
    assert link.frame_bytes(100 * MIB) == frame_bytes


@pytest.mark.parametrize(("size_mib", "frame_mib"), [(2, 1), (8, 1), (16, 2), (400, 2)])
def test_a_share_comes_in_some_frames_however_fast_the_link(size_mib: int, frame_mib: int) -> None:
    link = LinkEstimator(CONFIG, 1)
    link.carried(1 << 40, 1.0)
    assert link.frame_bytes(size_mib * MIB) == frame_mib * MIB


def test_toward_a_stranger_frames_are_as_configured() -> None:
    assert LinkEstimator(CONFIG, 1).frame_bytes(100 * MIB) == CONFIG.frame_bytes
    slow = LinkEstimator(replace(CONFIG, bandwidth_bytes_s=10e6), 1)
    assert slow.frame_bytes(100 * MIB) == 128 * KIB


def test_what_is_measured_cannot_be_more_than_what_may_be_sent() -> None:
    link = LinkEstimator(replace(CONFIG, bandwidth_bytes_s=10e6), 1)
    link.carried(100 * MIB, 0.1)
    assert link.frame_bytes(100 * MIB) == 128 * KIB


def test_a_new_measurement_counts_as_much_as_all_before() -> None:
    link = LinkEstimator(CONFIG, 1)
    for bytes_s in (8e6, 40e6, 88e6):  # 8, then 24, then 56 MB/s
        link.carried(int(bytes_s), 1.0)
    assert link.frame_bytes(100 * MIB) == 1 << (int(56e6 * 0.02).bit_length() - 1)


@pytest.mark.parametrize(("size_bytes", "seconds"), [(0, 1.0), (100, 0.0), (100, -1.0)])
def test_what_measures_nothing_is_passed_over(size_bytes: int, seconds: float) -> None:
    link = LinkEstimator(CONFIG, 1)
    link.carried(size_bytes, seconds)
    assert link.frame_bytes(100 * MIB) == CONFIG.frame_bytes


def test_where_no_frame_came_in_time_the_next_are_smaller() -> None:
    link = LinkEstimator(CONFIG, 1)
    link.carried_none(CONFIG.frame_bytes, 10.0)
    assert link.frame_bytes(100 * MIB) == CONFIG.frame_bytes_min
    # Whatever was thought of the link before; and what is measured later counts as ever.
    link.carried(100 * MIB, 1.0)
    link.carried_none(CONFIG.frame_bytes, 1.0)
    assert link.frame_bytes(100 * MIB) == CONFIG.frame_bytes_min
    for _ in range(8):
        link.carried(100 * MIB, 1.0)
    assert link.frame_bytes(100 * MIB) == 1 * MIB


def test_no_share_takes_more_frames_than_are_counted() -> None:
    size = FRAMES_MAX * CONFIG.frame_bytes_min * 3 + 1
    link = LinkEstimator(replace(CONFIG, frame_bytes=64 * KIB, frame_bytes_max=64 * KIB), 1)
    frame = link.frame_bytes(size)
    assert frame * FRAMES_MAX >= size and (frame - 1) * FRAMES_MAX < size


def test_a_window_holds_a_frame_and_not_too_many_small_ones() -> None:
    assert window_bytes(CONFIG, 64 * KIB, 1) == 64 * 64 * KIB
    assert window_bytes(CONFIG, 1 * MIB, 1) == CONFIG.window_bytes
    assert window_bytes(CONFIG, 64 * MIB, 1) == 64 * MIB


@pytest.mark.parametrize("shards", [1, 2, 7, 32, 100])
def test_the_windows_of_all_shards_together_fit_what_sockets_queue(shards: int) -> None:
    frames = shards * (window_bytes(CONFIG, 64 * KIB, shards) // (64 * KIB))
    offers, ends = shards, shards
    assert frames + offers + ends < messages_max(shards)


def test_memory_that_could_not_be_read_is_tried_again_a_minute_later() -> None:
    link = LinkEstimator(CONFIG, 1)
    link.did_not_read(5.0)
    assert not link.reads_memory(64.9) and link.reads_memory(65.0)


def test_what_is_known_of_a_neighbor_is_forgotten_with_its_next_life() -> None:
    links = LinkEstimators(CONFIG)
    first = links.to("b", 1)
    first.did_not_read(5.0)
    assert links.to("b", 1) is first
    assert links.to("b", 2) is not first and links.to("b", 2).reads_memory(5.0)
    assert links.to("b", 1) is links.to("b", 2), "an old life brings nothing back"
    assert links.to("c", 1) is not first


@pytest.mark.parametrize(
    ("gap_s", "seconds"),
    [(0.0, 10.0), (1e-6, 2.0), (0.1, 2.0), (0.2, 4.0), (6.0, 120.0), (1e9, 120.0)],
)
def test_patience_is_twenty_times_the_longest_pause_within_bounds(
    gap_s: float, seconds: float
) -> None:
    assert patience_s(CONFIG, gap_s) == pytest.approx(seconds)


def test_patience_is_measured_by_what_is_configured() -> None:
    hasty = replace(CONFIG, stall_s=1.0)
    assert [patience_s(hasty, gap_s) for gap_s in (0.0, 1e-6, 1e9)] == [1.0, 0.2, 12.0]


def anybody(peer: str) -> bool:
    return True


def test_before_any_answer_no_round_trip_is_known() -> None:
    links = LinkEstimators(CONFIG)
    assert links.roundtrip_s(anybody) is None
    links.to("b", 1)
    assert links.roundtrip_s(anybody) is None


def test_a_round_trip_is_that_of_the_mean_neighbor() -> None:
    links = LinkEstimators(CONFIG)
    for peer, seconds in (("b", 0.1), ("c", 0.3)):
        links.to(peer, 1).roundtrip.measured(seconds)
    links.to("d", 1)
    assert links.roundtrip_s(anybody) == pytest.approx(0.2)
    links.to("c", 2)
    assert links.roundtrip_s(anybody) == pytest.approx(0.1), "a later life is another way"


def test_a_slow_neighbor_counts_only_while_it_lives() -> None:
    links = LinkEstimators(CONFIG)
    for peer, seconds in (("b", 0.05), ("slow", 60.0)):
        links.to(peer, 1).roundtrip.measured(seconds)
    assert links.roundtrip_s(lambda peer: peer != "slow") == pytest.approx(0.05)
    assert links.roundtrip_s(lambda peer: False) is None
    assert links.roundtrip_s(anybody) == pytest.approx(30.025), "it may come back"
    links.forget("slow")
    links.forget("nobody")
    assert links.roundtrip_s(anybody) == pytest.approx(0.05)
