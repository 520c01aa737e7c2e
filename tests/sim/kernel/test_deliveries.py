"""Deliveries: what comes from several sides at once waits for its turn at a port."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.sim.kernel.clock import Clock
from rumor.sim.kernel.deliveries import Deliveries
from rumor.sim.models.cables import Cable, Connection, FairSharing
from rumor.sim.models.links import Links
from rumor.sim.models.network import Cut, Host, Link, NetworkConfig

# 10^6 bytes a second.
ONE_MB_S = 8.0
MB = 1_000_000

Message = tuple[float, int, int, int]
"""When it is sent, by whom, to whom, its size."""


def arrivals(config: NetworkConfig, messages: Sequence[Message], n: int = 5) -> list[float]:
    """When each message arrives, in the order in which they are given."""
    clock = Clock()
    links = Links(config, [str(index) for index in range(n)], seed=0)
    deliveries = Deliveries(clock, links)
    found = [float("nan")] * len(messages)

    def arrive(number: int) -> None:
        found[number] = clock.now

    def send(number: int, source: int, to: int, size_bytes: int) -> None:
        given = number, clock.now, source, to
        if deliveries.links.are_fair:
            connection = links.connection(source, to)
            deliveries.sharing.send(connection, size_bytes, leave, *given, 0)
        else:
            leave(*given, size_bytes)

    def leave(number: int, sent_s: float, source: int, to: int, size_bytes: int) -> None:
        for time_s in links.deliveries(clock.now, source, to, size_bytes, sent_s):
            deliveries.expect(time_s, (source, to), size_bytes, arrive, number)

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


FAIR = NetworkConfig(latency_s=0.25, bandwidth_mbit=ONE_MB_S, fair_sharing=True)


def test_a_message_alone_takes_as_long_as_in_a_queue() -> None:
    assert arrivals(FAIR, [(0.0, 0, 1, MB)]) == [1.25]
    assert arrivals(FAIR, [(0.0, 0, 1, MB), (5.0, 0, 2, MB)]) == [1.25, 6.25]


def test_what_goes_to_several_at_once_shares_the_uplink() -> None:
    sent = [(0.0, 0, to, MB) for to in (1, 2, 3)]
    assert arrivals(FAIR, sent) == pytest.approx([3.25] * 3)
    # In a queue, the first is there after a third of that time.
    queue = NetworkConfig(latency_s=0.25, bandwidth_mbit=ONE_MB_S)
    assert arrivals(queue, sent) == [1.25, 2.25, 3.25]


def test_one_that_begins_later_takes_its_part_from_then_on_and_gives_it_back() -> None:
    first, second = arrivals(FAIR, [(0.0, 0, 1, MB), (0.5, 0, 2, MB // 4)])
    # From 0.5 s on at half the rate each: a quarter takes 0.5 s, and so does what is left.
    assert second == pytest.approx(1.25) and first == pytest.approx(1.5)


def test_messages_of_one_connection_come_one_after_another() -> None:
    assert arrivals(FAIR, [(0.0, 0, 1, MB), (0.0, 0, 1, MB)]) == pytest.approx([1.25, 2.25])
    small = arrivals(FAIR, [(0.0, 0, 1, MB), (0.1, 0, 1, 1000)])
    assert small[0] < small[1]


def test_both_ends_and_lines_between_them_are_shared() -> None:
    assert arrivals(FAIR, [(0.0, source, 4, MB) for source in range(4)]) == pytest.approx(
        [4.25] * 4
    )
    line = Link(source=("0", "1"), to=("2", "3"), bandwidth_mbit=ONE_MB_S / 4, shared=True)
    config = replace(FAIR, links=(line,))
    assert arrivals(config, [(0.0, 0, 2, MB), (0.0, 1, 3, MB)]) == pytest.approx([8.25] * 2)
    slow = Link(source=("0",), to=("2",), bandwidth_mbit=ONE_MB_S / 10)
    assert arrivals(replace(FAIR, links=(slow,)), [(0.0, 0, 2, MB)]) == pytest.approx([10.25])
    host = Host(workers=("3", "4"), downlink_mbit=ONE_MB_S / 2)
    shared = replace(FAIR, hosts=(host,))
    sent = [(0.0, 0, 3, MB), (0.0, 1, 4, MB), (0.0, 3, 4, MB)]
    assert arrivals(shared, sent) == pytest.approx([4.25, 4.25, 0.0])


def test_without_limits_there_is_nothing_to_share() -> None:
    config = NetworkConfig(latency_s=0.5, fair_sharing=True)
    assert arrivals(config, [(0.0, 0, to, MB) for to in (1, 2)]) == [0.5, 0.5]
    links = Links(config, ["a", "b"], seed=0)
    assert not links.are_fair and links.uniform is not None


def test_a_message_that_is_lost_keeps_cables_busy_too() -> None:
    lossy = Link(source=("0",), to=("1",), loss=1.0)
    found = arrivals(replace(FAIR, links=(lossy,)), [(0.0, 0, 1, MB), (0.0, 0, 2, MB)])
    assert found[1] == pytest.approx(2.25) and found[0] != found[0]


def test_a_cut_hits_what_is_on_a_cable_at_any_time_of_it() -> None:
    cut = Cut(source=("0",), to=("1",), start_s=1.0, stop_s=2.0)
    sent = [(0.5, 0, 1, 3 * MB), (1.5, 0, 1, MB), (1.6, 0, 1, 1000), (2.1, 0, 1, 1000)]
    found = arrivals(replace(FAIR, cuts=(cut,)), sent)
    assert [time_s == time_s for time_s in found] == [False, False, False, True]


def test_what_one_cannot_use_others_get() -> None:
    """Of an uplink of 10 MB/s, a slow receiver takes 1, and one as fast as that the rest."""
    fast, slow = Host(workers=("0",), bandwidth_mbit=80.0), Host(workers=("1",), downlink_mbit=8.0)
    hosts = (fast, slow, Host(workers=("2",), downlink_mbit=80.0))
    config = replace(FAIR, hosts=hosts, latency_s=0.0)
    sent = [(0.0, 0, 1, MB), (0.0, 0, 2, 9 * MB)]
    assert arrivals(config, sent) == pytest.approx([1.0, 1.0])


def max_min(ends: Sequence[tuple[int, int]], rates: Sequence[float]) -> list[float]:
    """Rates of connections between cables by progressive filling."""
    left, found = dict(enumerate(rates)), dict[int, float]()
    while len(found) < len(ends):
        users = {c: [f for f, e in enumerate(ends) if c in e and f not in found] for c in left}
        level, cable = min((left[c] / len(f), c) for c, f in users.items() if f)
        for flow in users[cable]:
            found[flow] = level
            for end in ends[flow]:
                left[end] -= level
    return [found[flow] for flow in range(len(ends))]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(5, 9)), min_size=1, max_size=14, unique=True),
    st.lists(st.integers(1, 20), min_size=10, max_size=10),
    st.randoms(use_true_random=False),
)
def test_rates_are_max_min_fair_whoever_comes_and_goes(
    ends: list[tuple[int, int]], rates: list[int], random: Random
) -> None:
    cables = [Cable(float(rate)) for rate in rates]
    connections = [Connection([cables[end] for end in each]) for each in ends]
    clock = Clock()
    sharing = FairSharing(lambda: clock.now, lambda *given: clock.at(given[0], 0, *given[1:]))
    for connection in random.sample(connections, len(connections)):
        sharing.send(connection, random.choice([1.0, 1e9]), lambda: None)
    clock.run(100.0)
    left = [at for at, connection in enumerate(connections) if connection.messages]
    expected = max_min([ends[at] for at in left], [float(rate) for rate in rates])
    assert [connections[at].rate for at in left] == pytest.approx(expected, rel=1e-4)


MESSAGES = st.lists(
    st.tuples(st.floats(0, 10), st.integers(0, 2), st.integers(3, 4), st.integers(1, 3 * MB)),
    min_size=1,
    max_size=20,
)


@given(MESSAGES)
def test_fair_cables_carry_no_more_than_their_rate_and_rest_when_all_is_sent(
    sent: list[Message],
) -> None:
    config = replace(FAIR, latency_s=0.0)
    found = arrivals(config, sent)
    for end, cable in [(1, 0), (1, 1), (1, 2), (2, 3), (2, 4)]:
        through = sorted(
            (found[at], message) for at, message in enumerate(sent) if message[end] == cable
        )
        for at, (time_s, _) in enumerate(through):
            done = [message for _, message in through[: at + 1]]
            # Whatever has come by then began after the first of it was sent.
            begun_s = min(message[0] for message in done)
            assert sum(message[3] for message in done) <= MB * (time_s - begun_s) * (1 + 1e-5) + 1
    # Somebody always goes at a rate that is shared by no more than all of them.
    assert max(found) <= max(message[0] for message in sent) + sum(m[3] for m in sent) / MB + 1e-6
