"""How far a connection comes: each obstacle is met for real, on the loopback interface."""

import errno
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from rumor.gossip.transport.zmq_transport import Transport
from rumor.train.observe.reach import Obstacle, Reach, mechanism_at, reach, reach_all

from ...gossip.transport.keyrings import Swarm
from ...waiting import LIMIT_S, until

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
    """The address of a server that does this with each who connects."""
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


def mechanism_in_time(address: str, why: str) -> Reach:
    """Ask one that says nothing at first, with more patience each time until it says why."""
    patience_s, found = SHORT_S, Reach()

    def is_told() -> bool:
        nonlocal patience_s, found
        patience_s *= 2
        found = mechanism_at(address, patience_s)
        return why in found.why

    until(is_told, lambda: found)
    return found


def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for ask in (reach, mechanism_at):
        found = ask("tcp://no-such-host.invalid:7700", LIMIT_S)
        assert found.obstacle is Obstacle.NAME
        assert found.why == (
            "the name no-such-host.invalid does not resolve (Name or service not known)"
        )


def test_a_port_at_which_nobody_listens(stack: ExitStack) -> None:
    with ExitStack() as closed:
        address = listener(closed)[1]
    for ask in (reach, mechanism_at):
        found = ask(address, LIMIT_S)
        assert (found.obstacle, found.place) == (Obstacle.CLOSED, "127.0.0.1")
        assert "nobody listens at port" in found.why


def test_one_from_which_nothing_comes_back(stack: ExitStack) -> None:
    # Who knocks when the queue is full gets no answer, as behind a firewall that drops.
    _, address = listener(stack, backlog=0)
    host, port = address.removeprefix("tcp://").split(":")
    for _ in range(4):
        waiting = stack.enter_context(socket.socket())
        waiting.setblocking(False)
        waiting.connect_ex((host, int(port)))
    found = reach(address, SHORT_S)
    assert found.obstacle is Obstacle.SILENT
    assert found.why == "nothing comes back from 127.0.0.1 within 0.3 s"


@pytest.mark.parametrize(
    ("error", "obstacle", "words"),
    [
        (
            OSError(errno.ENETUNREACH, "Network is unreachable"),
            Obstacle.UNREACHABLE,
            "there is no way to 10.1.2.3 from this machine (Network is unreachable)",
        ),
        (
            ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
            Obstacle.FOREIGN,
            "what listens there hangs up (Connection reset by peer)",
        ),
    ],
)
def test_what_the_system_says_of_the_way(
    error: OSError, obstacle: Obstacle, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*_: object) -> None:
        raise error

    monkeypatch.setattr(socket.socket, "connect", connect)
    found = reach("tcp://10.1.2.3:7700", LIMIT_S)
    assert (found.obstacle, found.why) == (obstacle, words)


def test_a_process_that_may_open_no_more_files(stack: ExitStack) -> None:
    _, address = listener(stack)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        found = reach(address, LIMIT_S)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found.obstacle is Obstacle.FILES and f"at most {free} files" in found.why


class _Page(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_a_web_server(stack: ExitStack) -> None:
    server = stack.enter_context(HTTPServer(("127.0.0.1", 0), _Page))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    stack.callback(thread.join, LIMIT_S)
    stack.callback(server.shutdown)
    address = f"tcp://127.0.0.1:{server.server_port}"
    found = mechanism_in_time(address, "an HTTP server listens there")
    assert found.obstacle is Obstacle.FOREIGN, found


@pytest.mark.parametrize(
    ("banner", "words"),
    [
        (b"HTTP/1.0 400 Bad request\r\n", "an HTTP server listens there, not a peer"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "an SSH server listens there"),
        (b"what?", "says b'what?', which no peer does"),
        (b"\xff" * 40, "which no peer does"),
    ],
)
def test_another_program(stack: ExitStack, banner: bytes, words: str) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(banner)
        connection.recv(64)

    found = mechanism_at(says(stack, answer), LIMIT_S)
    assert found.obstacle is Obstacle.FOREIGN and words in found.why


def test_one_that_only_answers_whole_lines(stack: ExitStack) -> None:
    def answer(connection: socket.socket) -> None:
        told = b""
        while b"\n" not in told:
            told += (more := connection.recv(64))
            if not more:
                return
        connection.sendall(b"HTTP/1.0 400 Bad request\r\n")

    mechanism_in_time(says(stack, answer), "an HTTP server listens there, not a peer")


def test_one_that_says_nothing_and_one_that_hangs_up(stack: ExitStack) -> None:
    _, address = listener(stack)
    assert "it is no peer, or one that stands still" in mechanism_at(address, SHORT_S).why

    def hang_up(connection: socket.socket) -> None:
        connection.recv(4)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    found = mechanism_at(says(stack, hang_up), LIMIT_S)
    assert found.obstacle is Obstacle.FOREIGN and "hangs up" in found.why


def test_a_peer_with_keys_is_told_from_one_without(stack: ExitStack, tmp_path: Path) -> None:
    bare, keyed = Transport(), Transport(keyring=Swarm(tmp_path).keyring("m1"))
    for transport, mechanism in ((bare, "NULL"), (keyed, "CURVE")):
        stack.callback(transport.close)
        assert transport.address is not None
        found = mechanism_at(transport.address, LIMIT_S)
        assert found == Reach(place="127.0.0.1", is_here=True, mechanism=mechanism)


def test_several_are_looked_at_together(stack: ExitStack) -> None:
    with ExitStack() as closed:
        dead = listener(closed)[1]
    _, alive = listener(stack)
    found = reach_all([dead, alive], LIMIT_S)
    assert [found[each].obstacle for each in (dead, alive)] == [Obstacle.CLOSED, None]
    assert reach_all([], LIMIT_S) == {}
