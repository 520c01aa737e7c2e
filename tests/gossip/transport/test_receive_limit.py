"""A bound on what is being received, with real connections and a clock of the test's."""

import os
import socket as sockets
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from rumor.gossip.transport import receive_limit
from rumor.gossip.transport.addresses import split_address
from rumor.gossip.transport.receive_limit import (
    GLANCE_S,
    LOOK_S,
    MESSAGE_BYTES_MAX,
    TOTAL_BYTES_MAX,
    ReceiveLimit,
)
from rumor.gossip.transport.zmq_transport import Transport

pytestmark = pytest.mark.live

PART = b"\0" * (1 << 20)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """What connections are said to have received, by number."""
    counts: dict[int, int] = {}
    monkeypatch.setattr(receive_limit, "_received", lambda numbers: dict(counts))
    return counts


@pytest.fixture
def pair() -> Iterator[tuple[sockets.socket, sockets.socket]]:
    """Both ends of a connection over TCP."""
    with sockets.create_server(("127.0.0.1", 0)) as server:
        with sockets.create_connection(server.getsockname()) as near:
            far, _ = server.accept()
            with far:
                yield near, far


def looks(limit: ReceiveLimit, clock: Clock, times: int = 1) -> None:
    for _ in range(times):
        clock.now_s += LOOK_S
        limit.watch()


def test_a_connection_without_a_message_is_shut_at_the_second_look(
    counted: dict[int, int], pair: tuple[sockets.socket, sockets.socket]
) -> None:
    near, far = pair
    clock = Clock()
    limit = ReceiveLimit(lambda here, there: here == near.getsockname(), clock)
    counted[near.fileno()] = MESSAGE_BYTES_MAX + 1
    looks(limit, clock)
    assert limit.cut == 0
    looks(limit, clock)
    assert limit.cut == 1
    assert far.recv(1) == b""
    limit.close()


def test_connections_of_others_are_left_alone(
    counted: dict[int, int], pair: tuple[sockets.socket, sockets.socket]
) -> None:
    near, far = pair
    clock = Clock()
    limit = ReceiveLimit(lambda here, there: False, clock)
    counted[near.fileno()] = MESSAGE_BYTES_MAX + 1
    looks(limit, clock, 3)
    far.send(b"x")
    assert (limit.cut, near.recv(1)) == (0, b"x")
    limit.close()


def test_all_together_may_receive_no_more_than_the_total(
    counted: dict[int, int], pair: tuple[sockets.socket, sockets.socket]
) -> None:
    clock = Clock()
    limit = ReceiveLimit(lambda here, there: True, clock)
    n = TOTAL_BYTES_MAX // MESSAGE_BYTES_MAX
    # Numbers of no file: only the last, and so the largest, can be shut.
    counted.update(dict.fromkeys(range(100_000, 100_000 + n), MESSAGE_BYTES_MAX - 1))
    counted[pair[0].fileno()] = MESSAGE_BYTES_MAX
    looks(limit, clock, 2)
    assert limit.cut == 1
    limit.close()


def test_whoever_is_heard_between_two_looks_begins_anew(counted: dict[int, int]) -> None:
    clock = Clock()
    limit = ReceiveLimit(lambda here, there: True, clock)
    for n in range(1, 5):
        counted[7] = n * MESSAGE_BYTES_MAX
        limit._alive.add(7)
        looks(limit, clock)
    counted[7] = 10  # another connection by the same number
    looks(limit, clock)
    assert (limit.cut, limit._suspects, limit._before) == (0, set(), {7: 0})
    limit.close()


def test_between_two_looks_only_growing_memory_is_a_reason_to_look(
    counted: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    limit = ReceiveLimit(lambda here, there: True, clock)
    limit.watch()
    counted[7] = 3
    limit.watch()  # too early even for a glance
    clock.now_s += GLANCE_S
    limit.watch()
    assert limit._before == {}
    monkeypatch.setattr(receive_limit, "_GROWTH_BYTES", -(1 << 40))
    clock.now_s += GLANCE_S
    limit.watch()
    assert limit._before == {7: 0}
    limit.close()
    limit.close()
    clock.now_s += LOOK_S
    limit.watch()


def test_a_system_without_proc_has_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(os, "open", refused)
    limit = ReceiveLimit(lambda here, there: True)
    limit.watch()
    limit.close()
    assert limit.cut == 0


def test_an_older_kernel_does_not_count(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[sockets.socket, sockets.socket]
) -> None:
    pair[1].send(b"four")
    assert pair[0].recv(4) == b"four"
    number = pair[0].fileno()
    assert receive_limit._received([number]) == {number: 4}
    monkeypatch.setattr(receive_limit, "_RECEIVED_AT", 1 << 20)
    assert receive_limit._received([number]) == {}


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


def endless(connection: sockets.socket, stop: threading.Event) -> None:
    """Send one message without an end in ZMTP 3.0: libzmq itself sends none that is not whole."""
    with suppress(OSError), connection:
        connection.settimeout(0.2)
        connection.sendall(GREETING + bytes([4, len(READY)]) + READY)
        frame = memoryview(b"\x03" + len(PART).to_bytes(8, "big") + PART)
        while not stop.is_set():
            rest = frame
            while rest and not stop.is_set():
                with suppress(TimeoutError):
                    rest = rest[connection.send(rest) :]


def test_an_endless_message_is_cut_off_and_others_are_heard() -> None:
    transport, context, stop = Transport("tcp://127.0.0.1:*"), zmq.Context(), threading.Event()
    host, port = split_address(transport.address or "")
    stranger = sockets.create_connection((host, int(port)))
    attacker = threading.Thread(target=endless, args=(stranger, stop))
    honest = context.socket(zmq.DEALER)
    try:
        honest.connect(transport.address or "")
        before, most, heard = resident_bytes(), 0, 0
        attacker.start()
        while transport.limit.cut == 0 or heard < 50:
            with suppress(zmq.Again):
                honest.send_multipart([b"header", PART], zmq.NOBLOCK)
            for message in transport.poll(0.01):
                heard += message.header == b"header"
                assert len(message.frame()) == len(PART)
            most = max(most, resident_bytes() - before)
        assert (transport.limit.cut, transport.malformed) == (1, 0)
        assert most < 1 << 30
    finally:
        stop.set()
        attacker.join()
        context.destroy(linger=0)
        transport.close()


def test_whoever_is_dialled_is_cut_off_as_well() -> None:
    transport, stop = Transport(None), threading.Event()
    with sockets.create_server(("127.0.0.1", 0)) as server:
        transport.meet("eve", [f"tcp://127.0.0.1:{server.getsockname()[1]}"])
        attackers = [
            threading.Thread(target=endless, args=(server.accept()[0], stop)) for _ in range(2)
        ]
        try:
            for each in attackers:
                each.start()
            while transport.limit.cut == 0:
                assert list(transport.poll(0.01)) == []
        finally:
            stop.set()
            transport.close()
            for each in attackers:
                each.join()


def resident_bytes() -> int:
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])
