"""Sockets of greeted addresses are closed, except those on which a peer answers."""

import logging
import resource
from collections.abc import Iterator
from contextlib import closing

import pytest

from rumor.gossip.transport.addresses import allow_more_files, sockets_max
from rumor.gossip.transport.zmq_transport import Route, Transport

from ...waiting import until
from .test_zmq_transport import files, needs_proc

GHOSTS = [f"tcp://127.0.0.1:{port}" for port in range(1, 41)]
"""Addresses without a listener."""


def receive_all(transport: Transport) -> list[bytes]:
    """Return all arrived messages; each message is the name of its sender."""
    found = []
    for received in transport.poll(0.02):
        message = bytes(received.header)
        transport.learn(message.decode(), received.route, bulk=False)
        found.append(message)
    return found


@pytest.fixture
def listener() -> Iterator[Transport]:
    with closing(Transport()) as transport:
        yield transport


@pytest.fixture
def dialer() -> Iterator[Transport]:
    """A transport that only dials out."""
    with closing(Transport(None)) as transport:
        yield transport


def connection(dialer: Transport, listener: Transport, address: str) -> Route:
    """Greet the listener at an address; return its answer route, which names the connection."""
    until(lambda: dialer.greet(address, [b"hidden"]))
    routes: list[Route] = []

    def has_arrived() -> bool:
        for received in listener.poll(0.02):
            listener.learn("dialer", received.route, bulk=False)
            routes.append(received.route)
        return bool(routes)

    until(has_arrived)
    (route,) = routes
    return route


@pytest.mark.live
@needs_proc
def test_silent_addresses_keep_no_files_open(dialer: Transport) -> None:
    assert not dialer.greet(GHOSTS[0], [b"x"])  # ZeroMQ's threads have files of their own
    before = files()
    for address in GHOSTS[1:]:
        assert not dialer.greet(address, [b"x"])
    refused = 1  # the connection to the first address may still have been open when counted
    assert files() >= before + len(GHOSTS) - 1 - refused
    for address in GHOSTS:
        dialer.dismiss(address)
    until(lambda: files() < before)
    dialer.dismiss(GHOSTS[0])
    dialer.dismiss("no address at all")


@pytest.mark.live
def test_an_address_that_answered_stays_open_while_it_sends(
    dialer: Transport, listener: Transport
) -> None:
    """Its peer may advertise another address and have no other connection."""
    address = str(listener.address)
    first = connection(dialer, listener, address)
    for _ in range(3):
        assert listener.send("dialer", [b"yes"], bulk=False)
        until(lambda: receive_all(dialer) == [b"yes"])
        dialer.dismiss(address)
    assert connection(dialer, listener, address) == first
    dialer.dismiss(address)  # no message since the last dismissal
    assert connection(dialer, listener, address) != first


@pytest.mark.extended
@pytest.mark.live
def test_the_address_of_a_member_stays_open(dialer: Transport, listener: Transport) -> None:
    address = str(listener.address)
    first = connection(dialer, listener, address)
    dialer.meet("listener", [address])
    dialer.dismiss(address)
    assert dialer.send("listener", [b"y"], bulk=False)
    until(lambda: receive_all(listener) == [b"y"])
    assert connection(dialer, listener, address) == first
    dialer.part("listener")
    assert connection(dialer, listener, address) != first


@pytest.mark.extended
@pytest.mark.live
def test_a_peer_is_reached_at_the_address_that_answered(
    dialer: Transport, listener: Transport
) -> None:
    address = str(listener.address)
    connection(dialer, listener, address)
    dialer.meet("listener", ["tcp://127.0.0.1:9"])
    assert not dialer.send("listener", [b"x"], bulk=True)
    assert listener.send("dialer", [b"yes"], bulk=False)
    places: list[str] = []

    def has_answer() -> bool:
        for received in dialer.poll(0.02):
            dialer.learn("listener", received.route, bulk=False, place=received.place)
            places.append(received.place)
        return bool(places)

    until(has_answer)
    assert places == [address]
    for bulk in (False, True):
        until(lambda bulk=bulk: dialer.send("listener", [b"x"], bulk=bulk))  # type: ignore[misc]
        until(lambda: receive_all(listener) == [b"x"])
    dialer.dismiss(address)
    dialer.dismiss(address)  # no message since the last dismissal
    assert not dialer.send("listener", [b"x"], bulk=True)


@pytest.mark.extended
@pytest.mark.live
def test_all_addresses_of_a_host_name_are_closed(dialer: Transport, listener: Transport) -> None:
    address = str(listener.address).replace("127.0.0.1", "localhost")
    first = connection(dialer, listener, address)
    dialer.dismiss(address)
    assert connection(dialer, listener, address) != first


@pytest.mark.extended
@pytest.mark.live
def test_too_few_files_for_all_neighbors_are_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (48, 48))
    with caplog.at_level(logging.WARNING, "rumor"), closing(Transport(None)) as crowded:
        for index, address in enumerate(GHOSTS[:5]):
            crowded.meet(f"p{index}", [address])
        assert not caplog.records
        for index, address in enumerate(GHOSTS):
            crowded.meet(f"q{index}", [address])
    (record,) = caplog.records
    assert "no further neighbor can be dialed" in record.getMessage()
    assert "ulimit -n" in record.getMessage()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((1024, 4096), (4096, 4096)),
        ((1024, 1_048_576), (65_536, 1_048_576)),
        ((1024, resource.RLIM_INFINITY), (65_536, resource.RLIM_INFINITY)),
        ((1024, 1024), None),
        ((100_000, 1_048_576), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_the_limit_on_open_files_is_raised_as_far_as_allowed(
    limits: tuple[int, int], expected: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: requested.append(wanted))
    allow_more_files()
    assert requested == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("files_max", "sockets"), [(1024, 256), (65_536, 8192), (resource.RLIM_INFINITY, 8192)]
)
def test_sockets_use_at_most_half_of_the_files(
    files_max: int, sockets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files_max, files_max))
    assert sockets_max() == sockets
