"""Deliveries: what comes from several sides at once waits for its turn at a port."""

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.sim.kernel.clock import Clock
from rumor.sim.kernel.deliveries import Mailbox
from rumor.sim.models.links import Links
from rumor.sim.models.network import Host, Link, NetworkConfig

# 10^6 bytes a second.
ONE_MB_S = 8.0
MB = 1_000_000

Message = tuple[float, int, int, int]
"""When it is sent, by whom, to whom, its size."""


def arrivals(config: NetworkConfig, messages: Sequence[Message], n: int = 5) -> list[float]:
    """When each message arrives, in the order in which they are given."""
    clock = Clock()
    links = Links(config, [str(index) for index in range(n)], seed=0)
    fleet: Any = SimpleNamespace(clock=clock, index={}, harness=None)
    mail = Mailbox(fleet, links, None)
    found = [float("nan")] * len(messages)

    def arrive(number: int) -> None:
        found[number] = clock.now

    def send(number: int, source: int, to: int, size_bytes: int) -> None:
        for time_s in links.deliveries(clock.now, source, to, size_bytes):
            mail.expect(time_s, (source, to), size_bytes, arrive, number)

    for number, (time_s, source, to, size_bytes) in enumerate(messages):
        clock.at(time_s, 0, partial(send, number, source, to, size_bytes))
    clock.run(1e9)
    return found


def test_one_message_is_not_held_up_by_a_downlink_as_fast_as_its_uplink() -> None:
    config = NetworkConfig(latency_s=0.25, bandwidth_mbit=ONE_MB_S)
    assert arrivals(config, [(0.0, 0, 1, MB)]) == [1.25]


def test_what_comes_from_several_sides_at_once_shares_the_downlink() -> None:
    config = NetworkConfig(latency_s=0.25, bandwidth_mbit=ONE_MB_S)
    sent = [(0.0, source, 4, MB) for source in range(4)]
    assert arrivals(config, sent) == [1.25, 2.25, 3.25, 4.25]
    # Those to others are none of its business.
    assert arrivals(config, [*sent[:2], (0.0, 2, 3, MB)]) == [1.25, 2.25, 1.25]


def test_without_a_limit_they_all_come_at_once() -> None:
    config = NetworkConfig(bandwidth_mbit=ONE_MB_S, downlink_mbit=float("inf"))
    assert arrivals(config, [(0.0, source, 4, MB) for source in range(4)]) == [1.0] * 4


@pytest.mark.parametrize("jitter", [0.0, 1e-12], ids=["in constant time", "with a little chance"])
def test_bytes_go_on_as_they_come_and_the_slower_end_decides(jitter: float) -> None:
    slow_down = NetworkConfig(bandwidth_mbit=ONE_MB_S, downlink_mbit=ONE_MB_S / 2, jitter=jitter)
    assert arrivals(slow_down, [(0.0, 0, 1, MB)]) == pytest.approx([2.0])
    slow_up = NetworkConfig(bandwidth_mbit=ONE_MB_S, downlink_mbit=ONE_MB_S * 2, jitter=jitter)
    assert arrivals(slow_up, [(0.0, 0, 2, MB), (0.0, 1, 2, MB)]) == pytest.approx([1.0, 1.5])


def test_a_short_message_passes_a_long_one_that_still_comes_in() -> None:
    config = NetworkConfig(bandwidth_mbit=ONE_MB_S)
    long, short = arrivals(config, [(0.0, 0, 2, MB), (0.1, 1, 2, MB // 10)])
    assert short == pytest.approx(0.2) and long == pytest.approx(1.1)


def test_a_long_message_that_waits_for_a_short_one_waits_for_that_alone() -> None:
    config = NetworkConfig(bandwidth_mbit=ONE_MB_S)
    long, short = arrivals(config, [(0.0, 0, 2, MB), (0.98, 1, 2, MB // 100)])
    assert short == pytest.approx(0.99) and long == pytest.approx(1.01)


def test_workers_of_a_host_share_its_downlink_and_nothing_among_themselves() -> None:
    host = Host(workers=("3", "4"), downlink_mbit=ONE_MB_S / 2)
    config = NetworkConfig(bandwidth_mbit=ONE_MB_S, hosts=(host,))
    sent = [(0.0, 0, 3, MB), (0.0, 1, 4, MB), (0.0, 3, 4, MB)]
    assert arrivals(config, sent) == [2.0, 4.0, 0.0]


def test_links_that_are_shared_are_one_line_for_all() -> None:
    line = Link(source=("0", "1"), to=("2", "3"), bandwidth_mbit=ONE_MB_S / 4, shared=True)
    config = NetworkConfig(latency_s=0.5, bandwidth_mbit=ONE_MB_S, links=(line,))
    sent = [(0.0, 0, 2, MB), (0.0, 1, 3, MB)]
    assert arrivals(config, sent) == [4.5, 8.5]
    # The way back, and that to others, is another.
    assert arrivals(config, [*sent, (0.0, 2, 1, MB), (0.0, 3, 4, MB)])[2:] == [1.5, 1.5]
    # Nobody waits for a port of his own before the line has let him through.
    assert arrivals(config, [*sent, (6.0, 4, 3, MB)])[2] == 7.5


@given(
    st.lists(
        st.tuples(st.floats(0, 10), st.integers(0, 3), st.just(4), st.integers(1, 3 * MB)),
        max_size=20,
    )
)
def test_a_downlink_carries_no_more_than_its_rate_and_is_never_idle_in_vain(
    sent: list[Message],
) -> None:
    config = NetworkConfig(bandwidth_mbit=ONE_MB_S)
    alone = arrivals(NetworkConfig(bandwidth_mbit=ONE_MB_S, downlink_mbit=float("inf")), sent)
    found = arrivals(config, sent)
    order = sorted(range(len(sent)), key=lambda number: alone[number])
    busy: list[tuple[float, float]] = []
    for number in order:
        # Whoever's last byte would be there first comes first; all gaps since its first are its.
        start_s = alone[number] - sent[number][3] / MB
        taken_s = sum(stop - max(start, start_s) for start, stop in busy if stop > start_s)
        through_s = alone[number] + taken_s
        busy = [(start, min(stop, start_s)) for start, stop in busy if start < start_s]
        busy.append((start_s, through_s))
        assert found[number] == pytest.approx(through_s, abs=1e-6)
