"""Ways through a SOCKS proxy: whatever the proxy does, nothing but its connections ends."""

import socket as sockets
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from rumor.gossip.transport import socks_bridge as transport_bridge
from rumor.gossip.transport.socks_bridge import SocksBridge
from rumor.gossip.transport.zmq_transport import Transport

pytestmark = pytest.mark.live

TIMEOUT_S = 20.0
ADDRESS = "tcp://node-a:7700"
REQUEST = b"\5\1\0\3\6node-a" + (7700).to_bytes(2, "big")

Answer = Callable[[sockets.socket], None]


def granting(kind: bytes) -> Answer:
    """A proxy that grants, and then says back what it is told."""

    def answer(client: sockets.socket) -> None:
        assert client.recv(3) == b"\5\1\0"
        client.sendall(b"\5\0")
        assert client.recv(100) == REQUEST
        client.sendall(b"\5\0\0" + kind)
        while data := client.recv(1 << 16):
            client.sendall(data)

    return answer


def saying(*words: bytes) -> Answer:
    """A proxy that says this, whatever it is told, and goes."""

    def answer(client: sockets.socket) -> None:
        for word in words:
            client.recv(100)
            client.sendall(word)

    return answer


class Proxy:
    """Answers every connection in the same way, one after the other."""

    def __init__(self, answer: Answer) -> None:
        self.served = 0
        self._answer = answer
        self._listener = sockets.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(TIMEOUT_S)
                self.served += 1
                try:
                    self._answer(client)
                except OSError:
                    pass

    def close(self) -> None:
        self._listener.shutdown(sockets.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def dial(bridge: SocksBridge) -> sockets.socket:
    (place,) = bridge.places(ADDRESS)
    host, port = place.removeprefix("tcp://").split(":")
    return sockets.create_connection((host, int(port)), timeout=TIMEOUT_S)


@pytest.fixture(params=[b"\1" + bytes(6), b"\4" + bytes(18)], ids=["IPv4", "IPv6"])
def proxy(request: pytest.FixtureRequest) -> Iterator[Proxy]:
    made = Proxy(granting(request.param))
    yield made
    made.close()


def test_what_is_said_at_a_place_goes_to_the_address_and_back(proxy: Proxy) -> None:
    with closing(SocksBridge(proxy.address)) as bridge:
        assert bridge.places(ADDRESS) == bridge.places(ADDRESS)
        with dial(bridge) as client:
            said = bytes(range(256)) * 4096
            threading.Thread(target=client.sendall, args=(said,)).start()
            heard = b""
            while len(heard) < len(said):
                heard += client.recv(1 << 16)
            assert heard == said


def test_a_place_that_is_forgotten_ends_its_connections(proxy: Proxy) -> None:
    with closing(SocksBridge(proxy.address)) as bridge:
        with dial(bridge) as client:
            client.sendall(b"x")
            assert client.recv(1) == b"x"
            bridge.forget(ADDRESS)
            bridge.forget(ADDRESS)
            with pytest.raises(ConnectionResetError):
                client.recv(1)


@pytest.mark.parametrize(
    "answer",
    [
        saying(b"\5\xff"),  # it wants a password
        saying(b"\5\0", b"\5\5\0\1" + bytes(6)),  # it refuses
        saying(b"\5\0", b"\5\0\0\7" + bytes(6)),  # there is no such kind of address
        saying(b"\5"),
        saying(),
    ],
)
def test_a_proxy_that_does_not_grant_ends_that_connection_alone(answer: Answer) -> None:
    proxy = Proxy(answer)
    with closing(proxy), closing(SocksBridge(proxy.address)) as bridge:
        for _ in range(3):
            with dial(bridge) as client:
                try:
                    assert client.recv(1) == b""
                except ConnectionResetError:
                    pass
        assert proxy.served >= 3


def test_more_places_than_are_kept_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_bridge, "_PLACES_MAX", 2)
    with closing(SocksBridge("tcp://127.0.0.1:9")) as bridge:
        assert [len(bridge.places(f"tcp://node-{n}:7700")) for n in range(3)] == [1, 1, 0]
        bridge.forget("tcp://node-0:7700")
        assert len(bridge.places("tcp://node-2:7700")) == 1


def test_a_proxy_that_refuses_or_is_gone_harms_no_transport_that_closes() -> None:
    """With ZeroMQ's own SOCKS this ended the process."""
    proxy = Proxy(saying(b"\5\xff"))
    place = proxy.address.removeprefix("tcp://")
    for gone in (False, True):
        if gone:
            proxy.close()
        for _ in range(10):
            with closing(Transport(None, socks_proxy=place)) as transport:
                transport.meet("b", [ADDRESS])
                assert not transport.greet(ADDRESS, [b"x"])
                list(transport.poll(0.02))


def test_who_dials_a_place_just_as_it_is_closed_is_let_go() -> None:
    with warnings.catch_warnings(), closing(SocksBridge("127.0.0.1:1")) as bridge:
        warnings.simplefilter("error", ResourceWarning)
        for _ in range(200):
            (place,) = bridge.places(ADDRESS)
            port = int(place.rpartition(":")[2])
            with sockets.create_connection(("127.0.0.1", port), TIMEOUT_S) as client:
                bridge.forget(ADDRESS)
                with suppress(ConnectionError):
                    assert client.recv(1) == b""
