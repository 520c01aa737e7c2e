"""Deliveries: messages from several senders at once wait for their turn at a port."""

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
"""Time of sending, sender, receiver and size."""


def arrivals(config: NetworkConfig, messages: Sequence[Message], n: int = 5) -> list[float]:
    """Arrival time of each message, in the given order."""
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


FROM_ALL = [(0.0, source, 4, MB) for source in range(4)]
LINE = Link(source=("0", "1"), to=("2", "3"), bandwidth_mbit=ONE_MB_S / 4, shared=True)
SHARED = {"latency_s": 0.5, "links": (LINE,)}
OVER = [(0.0, 0, 2, MB), (0.0, 1, 3, MB)]
HALF = {"hosts": (Host(workers=("3", "4"), downlink_mbit=ONE_MB_S / 2),)}


@pytest.mark.parametrize(
    ("changes", "sent", "expected"),
    [
        # A downlink as fast as the uplink does not delay a single message.
        ({"latency_s": 0.25}, [(0.0, 0, 1, MB)], [1.25]),
        # Messages from several senders share it; messages to other workers do not.
        ({"latency_s": 0.25}, FROM_ALL, [1.25, 2.25, 3.25, 4.25]),
        ({"latency_s": 0.25}, [*FROM_ALL[:2], (0.0, 2, 3, MB)], [1.25, 2.25, 1.25]),
        ({"downlink_mbit": float("inf")}, FROM_ALL, [1.0] * 4),
        # Bytes are forwarded as they arrive, so the slower end decides.
        ({"downlink_mbit": ONE_MB_S / 2}, [(0.0, 0, 1, MB)], [2.0]),
        ({"downlink_mbit": ONE_MB_S / 2, "jitter": 1e-12}, [(0.0, 0, 1, MB)], [2.0]),
        ({"downlink_mbit": ONE_MB_S * 2}, [(0.0, 0, 2, MB), (0.0, 1, 2, MB)], [1.0, 1.5]),
        (
            {"downlink_mbit": ONE_MB_S * 2, "jitter": 1e-12},
            [(0.0, 0, 2, MB), (0.0, 1, 2, MB)],
            [1.0, 1.5],
        ),
        # A short message overtakes a long message that is still arriving, and delays it.
        ({}, [(0.0, 0, 2, MB), (0.1, 1, 2, MB // 10)], [1.1, 0.2]),
        ({}, [(0.0, 0, 2, MB), (0.98, 1, 2, MB // 100)], [1.01, 0.99]),
        # Workers of a host share its downlink, but not for messages among themselves.
        (HALF, [(0.0, 0, 3, MB), (0.0, 1, 4, MB), (0.0, 3, 4, MB)], [2.0, 4.0, 0.0]),
        # A shared link is one line for all; the reverse direction and other links are separate.
        (SHARED, OVER, [4.5, 8.5]),
        (SHARED, [*OVER, (0.0, 2, 1, MB), (0.0, 3, 4, MB)], [4.5, 8.5, 1.5, 1.5]),
        # A message queues at its own port only after the line has carried it.
        (SHARED, [*OVER, (6.0, 4, 3, MB)], [4.5, 8.5, 7.5]),
    ],
)
def test_each_message_arrives_once_its_ports_and_lines_have_carried_it(
    changes: dict[str, Any], sent: list[Message], expected: list[float]
) -> None:
    config = NetworkConfig(bandwidth_mbit=ONE_MB_S, **changes)
    assert arrivals(config, sent) == pytest.approx(expected, rel=1e-12)


@given(
    st.lists(
        st.tuples(st.floats(0, 10), st.integers(0, 3), st.just(4), st.integers(1, 3 * MB)),
        max_size=20,
    )
)
def test_a_downlink_keeps_to_its_rate_and_is_never_needlessly_idle(
    sent: list[Message],
) -> None:
    config = NetworkConfig(bandwidth_mbit=ONE_MB_S)
    alone = arrivals(NetworkConfig(bandwidth_mbit=ONE_MB_S, downlink_mbit=float("inf")), sent)
    found = arrivals(config, sent)
    order = sorted(range(len(sent)), key=lambda number: alone[number])
    busy: list[tuple[float, float]] = []
    for number in order:
        # The message whose last byte would arrive first goes first, and may use all gaps so far.
        start_s = alone[number] - sent[number][3] / MB
        taken_s = sum(stop - max(start, start_s) for start, stop in busy if stop > start_s)
        through_s = alone[number] + taken_s
        busy = [(start, min(stop, start_s)) for start, stop in busy if start < start_s]
        busy.append((start_s, through_s))
        assert found[number] == pytest.approx(through_s, abs=1e-6)
