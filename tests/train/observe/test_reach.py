"""How far a connection gets: each obstacle is met for real, on the loopback interface."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from rumor.train.observe import diagnosis

from ...waiting import LIMIT_S

pytestmark = pytest.mark.live

SHORT_S = 0.3


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def listener(stack: ExitStack, backlog: int = 8) -> tuple[socket.socket, str]:
    opened = stack.enter_context(socket.socket())
    opened.bind(("127.0.0.1", 0))
    opened.listen(backlog)
    return opened, f"tcp://127.0.0.1:{opened.getsockname()[1]}"


def says(stack: ExitStack, act: Callable[[socket.socket], object]) -> str:
    """The address of a server that does this with each connection."""
    opened, address = listener(stack)

    def serve() -> None:
        with suppress(OSError):  # at the end
            while True:
                with closing(opened.accept()[0]) as connection, suppress(OSError):
                    act(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    stack.callback(thread.join, LIMIT_S)
    stack.callback(opened.shutdown, socket.SHUT_RDWR)
    return address


def obstacle(address: str, timeout_s: float = LIMIT_S) -> tuple[str, str]:
    finding = diagnosis._obstacle(address, None, timeout_s)
    assert finding is not None
    return finding.cause, finding.why


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    cause, why = obstacle("tcp://no-such-host.invalid:7700")
    assert cause == "name"
    assert why == "the name no-such-host.invalid does not resolve (Name or service not known)"


def test_one_from_which_nothing_comes_back(stack: ExitStack) -> None:
    # When the queue is full, a connection gets no answer, as behind a firewall that drops.
    _, address = listener(stack, backlog=0)
    host, port = address.removeprefix("tcp://").split(":")
    for _ in range(4):
        waiting = stack.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex((host, int(port)))
    told = ("silent", "nothing comes back from 127.0.0.1 within 0.3 s")
    assert obstacle(address, SHORT_S) == told


def test_a_network_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", connect)
    told = "10.1.2.3 cannot be reached from this machine (Network is unreachable)"
    assert obstacle("tcp://10.1.2.3:7700") == ("unreachable", told)


@pytest.mark.parametrize("banner", [b"HTTP/1.0 400 Bad request\r\n", b"\xff" * 40, b""])
def test_another_program(stack: ExitStack, banner: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(banner)
        connection.recv(64)

    told = ("foreign", "what listens there is no peer, or one that is stopped")
    assert obstacle(says(stack, answer)) == told
