"""Links: arrival times, and the independence of random faults."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.errors import ConfigError
from rumor.sim.models.links import Links
from rumor.sim.models.network import Host, Link, NetworkConfig

approx = pytest.approx

IDS = [f"peer-{index}" for index in range(4)]
BAD = NetworkConfig(
    latency_s=0.1, jitter=0.5, bandwidth_mbit=8, loss=0.3, duplicates=0.2, reorder=0.2
)
RATES = st.sampled_from([0.0, 0.3])


def links(config: NetworkConfig, ids: Sequence[str] = IDS, seed: int = 0) -> Links:
    return Links(config, ids, seed)


def sent(
    config: NetworkConfig, n: int, *, to: int = 1, every_s: float = 0.05, seed: int = 0
) -> list[tuple[float, ...]]:
    """Arrival times of *n* messages of 1,000 bytes on one link."""
    network = links(config, seed=seed)
    return [network.deliveries(number * every_s, 0, to, 1000) for number in range(n)]


LOST = Link(to=("1",), loss=1.0)
SLOW = Link(source=("0",), to=("1",), bandwidth_mbit=2)
FIRST = Link(source=("0",), latency_s=1.0, loss=1.0)
SECOND = Link(source=("0",), to=("1", "2"), loss=0.0)
HOST = Host(workers=("peer-0", "1"), bandwidth_mbit=4)
MB, HALF = 1_000_000, 500_000


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        # The bytes over the bandwidth, plus the latency: 8 Mbit/s are 10^6 bytes/s.
        ({"latency_s": 0.25, "bandwidth_mbit": 8}, [(1.0, 0, 1, HALF, [1.75])]),
        # All links of a worker share its uplink in order of sending, with and without randomness.
        (
            {"latency_s": 0.25, "bandwidth_mbit": 8, "jitter": 0.0},
            [
                (0.0, 0, 1, MB, [1.25]),
                (0.5, 0, 2, MB, [2.25]),
                (0.5, 3, 1, MB, [1.75]),
                (9.0, 0, 2, MB, [10.25]),
            ],
        ),
        (
            {"latency_s": 0.25, "bandwidth_mbit": 8, "jitter": 1e-12},
            [
                (0.0, 0, 1, MB, [1.25]),
                (0.5, 0, 2, MB, [2.25]),
                (0.5, 3, 1, MB, [1.75]),
                (9.0, 0, 2, MB, [10.25]),
            ],
        ),
        # Lost messages also keep the uplink busy.
        ({"bandwidth_mbit": 8, "links": (LOST,)}, [(0.0, 0, 1, MB, []), (0.0, 0, 2, MB, [2.0])]),
        # Workers of a host share its uplink, but not among themselves; its downlink is as slow.
        (
            {"latency_s": 0.25, "bandwidth_mbit": 8, "loss": 0.0, "hosts": (HOST,)},
            [
                (0.0, 0, 2, HALF, [1.25]),
                (0.0, 1, 3, HALF, [2.25]),
                (0.0, 1, 0, HALF, [0.0]),
                (0.0, 3, 1, HALF, [1.25]),
            ],
        ),
        # The uplink is free again after a second, a link with its own bandwidth after four.
        (
            {"bandwidth_mbit": 8, "links": (SLOW,)},
            [(0.0, 0, 1, MB, [4.0]), (0.0, 0, 2, MB, [2.0]), (0.0, 0, 1, MB, [8.0])],
        ),
        # The last matching exception of a link sets the values that it gives.
        (
            {"latency_s": 0.5, "links": (FIRST, SECOND)},
            [(0.0, 0, 1, 1, [1.0]), (0.0, 0, 3, 1, []), (0.0, 1, 0, 1, [0.5])],
        ),
    ],
)
def test_a_message_arrives_when_uplink_and_link_have_carried_it(
    changes: dict[str, Any], messages: list[tuple[float, int, int, int, list[float]]]
) -> None:
    network = links(NetworkConfig(**changes))
    for time_s, source, to, size_bytes, expected in messages:
        assert network.deliveries(time_s, source, to, size_bytes) == approx(expected)


def test_inside_a_host_nothing_is_lost_or_duplicated() -> None:
    config = replace(BAD, loss=1.0, duplicates=1.0, hosts=(Host(workers=("*",)),))
    assert sent(config, 3) == [(0.0,), (0.05,), (0.1,)]


@given(seed=st.integers(0, 99), loss=RATES, duplicates=RATES)
def test_with_jitter_a_link_stays_in_order(seed: int, loss: float, duplicates: float) -> None:
    config = replace(BAD, reorder=0.0, loss=loss, duplicates=duplicates)
    firsts = [times[0] for times in sent(config, 60, every_s=0.01, seed=seed) if times]
    assert firsts == sorted(firsts)


def test_reordering_lets_later_messages_overtake() -> None:
    config = NetworkConfig(latency_s=0.1, reorder=0.2)
    times = np.array(sent(config, 2000, every_s=0.01))[:, 0]
    late = times - np.arange(2000) * 0.01 - 0.1
    assert (np.diff(times) < 0).any() and -1e-9 < late.min() and late.max() < 0.4 + 1e-9
    assert (late > 1e-9).mean() == pytest.approx(0.2, abs=0.03)
    assert late[late > 1e-9].mean() == pytest.approx(0.2, abs=0.03)


def test_jitter_adds_its_fraction_of_the_latency_on_average() -> None:
    config = NetworkConfig(latency_s=0.1, jitter=0.5)
    late = np.array(sent(config, 5000, every_s=10.0))[:, 0] - np.arange(5000) * 10.0
    assert late.min() >= 0.1 - 1e-9
    assert late.mean() == pytest.approx(0.15, rel=0.02)
    assert late.std() == pytest.approx(0.05, rel=0.05)


def test_rates_of_loss_and_duplication_are_as_requested() -> None:
    counts = np.bincount([len(times) for times in sent(replace(BAD, reorder=0.0), 20_000)])
    assert counts[0] / 20_000 == pytest.approx(0.3, abs=0.01)
    assert counts[2] / 20_000 == pytest.approx(0.7 * 0.2, abs=0.01)


def test_a_copy_arrives_after_its_message_by_up_to_four_latencies() -> None:
    for first, second in sent(NetworkConfig(latency_s=0.1, duplicates=1.0), 500):
        assert 0 <= second - first < 0.4


@pytest.mark.parametrize("fault", ["jitter", "duplicates", "reorder"])
def test_removing_a_fault_does_not_change_which_messages_are_lost(fault: str) -> None:
    lost = [not times for times in sent(BAD, 300)]
    without = replace(BAD, **{fault: 0.0})  # type: ignore[arg-type]
    assert [not times for times in sent(without, 300)] == lost


def test_traffic_on_one_link_does_not_affect_draws_on_another() -> None:
    config = replace(BAD, bandwidth_mbit=None)
    busy = links(config)
    for number in range(100):
        busy.deliveries(0.0, 0, 2, 1000)
        busy.deliveries(0.0, 1, 0, 1000)
        assert busy.deliveries(number * 0.05, 0, 1, 1000) == sent(config, number + 1)[number]


def test_draws_depend_on_ids_and_not_on_other_workers() -> None:
    pair = links(BAD, ids=["peer-0", "peer-1"])
    assert [pair.deliveries(n * 0.05, 0, 1, 1000) for n in range(50)] == sent(BAD, 50)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (NetworkConfig(links=(Link(to=("4",)),)), "links"),
        (NetworkConfig(hosts=(Host(workers=("0", "4")),)), "hosts"),
    ],
)
def test_an_unknown_worker_is_refused(config: NetworkConfig, field: str) -> None:
    with pytest.raises(ConfigError, match=rf"{field} names worker '4': it must be .* 0 to 3"):
        links(config)
