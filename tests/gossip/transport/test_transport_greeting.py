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
"""Where nobody listens."""


def came(transport: Transport) -> list[bytes]:
    """Return all arrived messages; the sender of an answer is named after its bytes."""
    found = []
    for received in transport.poll(0.02):
        word = bytes(received.header)
        transport.learn(word.decode(), received.route, bulk=False)
        found.append(word)
    return found


@pytest.fixture
def there() -> Iterator[Transport]:
    with closing(Transport()) as transport:
        yield transport


@pytest.fixture
def hidden() -> Iterator[Transport]:
    """A transport that only dials out."""
    with closing(Transport(None)) as transport:
        yield transport


def connection(hidden: Transport, there: Transport, address: str) -> Route:
    """Greet the listener at an address; return its route for answers, one for each connection."""
    until(lambda: hidden.greet(address, [b"hidden"]))
    routes: list[Route] = []

    def listen() -> bool:
        for received in there.poll(0.02):
            there.learn("hidden", received.route, bulk=False)
            routes.append(received.route)
        return bool(routes)

    until(listen)
    (route,) = routes
    return route


@pytest.mark.live
@needs_proc
def test_addresses_that_do_not_answer_keep_no_files_open(hidden: Transport) -> None:
    assert not hidden.greet(GHOSTS[0], [b"x"])  # ZeroMQ's threads have files of their own
    before = files()
    for address in GHOSTS[1:]:
        assert not hidden.greet(address, [b"x"])
    refused = 1  # the connection to the first, which may still have been open when counted
    assert files() >= before + len(GHOSTS) - 1 - refused
    for address in GHOSTS:
        hidden.dismiss(address)
    until(lambda: files() < before)
    hidden.dismiss(GHOSTS[0])
    hidden.dismiss("no address at all")


@pytest.mark.live
def test_a_place_that_answered_stays_open_while_it_speaks(
    hidden: Transport, there: Transport
) -> None:
    """A peer may be there under another address, and have no other connection."""
    address = str(there.address)
    first = connection(hidden, there, address)
    for _ in range(3):
        assert there.send("hidden", [b"yes"], bulk=False)
        until(lambda: came(hidden) == [b"yes"])
        hidden.dismiss(address)
    assert connection(hidden, there, address) == first
    hidden.dismiss(address)  # it has said nothing since
    assert connection(hidden, there, address) != first


@pytest.mark.extended
@pytest.mark.live
def test_a_place_that_turns_out_to_be_a_members_stays_open(
    hidden: Transport, there: Transport
) -> None:
    address = str(there.address)
    first = connection(hidden, there, address)
    hidden.meet("there", [address])
    hidden.dismiss(address)
    assert hidden.send("there", [b"y"], bulk=False)
    until(lambda: came(there) == [b"y"])
    assert connection(hidden, there, address) == first
    hidden.part("there")
    assert connection(hidden, there, address) != first


@pytest.mark.extended
@pytest.mark.live
def test_a_peer_is_reached_where_it_answered_if_not_at_its_own_address(
    hidden: Transport, there: Transport
) -> None:
    address = str(there.address)
    connection(hidden, there, address)
    hidden.meet("there", ["tcp://127.0.0.1:9"])
    assert not hidden.send("there", [b"x"], bulk=True)
    assert there.send("hidden", [b"yes"], bulk=False)
    places: list[str] = []

    def hear() -> bool:
        for received in hidden.poll(0.02):
            hidden.learn("there", received.route, bulk=False, place=received.place)
            places.append(received.place)
        return bool(places)

    until(hear)
    assert places == [address]
    for bulk in (False, True):
        until(lambda bulk=bulk: hidden.send("there", [b"x"], bulk=bulk))  # type: ignore[misc]
        until(lambda: came(there) == [b"x"])
    hidden.dismiss(address)
    hidden.dismiss(address)  # it has said nothing since
    assert not hidden.send("there", [b"x"], bulk=True)


@pytest.mark.extended
@pytest.mark.live
def test_all_places_of_a_host_name_are_closed(hidden: Transport, there: Transport) -> None:
    address = str(there.address).replace("127.0.0.1", "localhost")
    first = connection(hidden, there, address)
    hidden.dismiss(address)
    assert connection(hidden, there, address) != first


@pytest.mark.extended
@pytest.mark.live
def test_a_lack_of_files_for_all_neighbors_is_logged_once(
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
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: asked.append(wanted))
    allow_more_files()
    assert asked == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("files_max", "sockets"), [(1024, 256), (65_536, 8192), (resource.RLIM_INFINITY, 8192)]
)
def test_sockets_take_half_of_the_files(
    files_max: int, sockets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files_max, files_max))
    assert sockets_max() == sockets
