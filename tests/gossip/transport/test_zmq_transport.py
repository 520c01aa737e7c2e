"""Real ZeroMQ on the loopback interface, with ports chosen by the system."""

import os
import resource
import signal
import socket as sockets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import zmq

from rumor.gossip.errors import TransportError
from rumor.gossip.transport.addresses import Resolver
from rumor.gossip.transport.zmq_transport import Received, Route, Transport, local_host
from rumor.gossip.wire.codec import FRAME_BYTES_MAX, Buffer

from ...waiting import LIMIT_S, until

pytestmark = pytest.mark.live

FULL_S = 0.4
"""A connection that accepts nothing for this time is full, even on a busy machine."""
MIB = 1 << 20

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")

# Reads messages and sends none; its first line of output is its address.
LISTENER = """
from rumor.gossip.transport.zmq_transport import Transport
transport = Transport()
print(transport.address, flush=True)
while True:
    for _ in transport.poll(0.1):
        pass
"""


def retry_send(transport: Transport, peer: str, parts: Sequence[Buffer], *, bulk: bool) -> None:
    """Send as soon as the connection exists."""
    until(lambda: transport.send(peer, parts, bulk=bulk))


class ReadMessage(NamedTuple):
    """A received message."""

    parts: list[Buffer]
    route: Route


def receive(transport: Transport, count: int = 1) -> list[ReadMessage]:
    """Return the next messages of one or two parts; further parts are not read."""
    received: list[ReadMessage] = []

    def have_arrived() -> bool:
        for message in transport.poll(0.05):
            frame = [message.frame()] if message.more else []
            if not message.more:
                received.append(ReadMessage([message.header, *frame], message.route))
        return len(received) >= count

    until(have_arrived, lambda: f"{len(received)} of {count} messages arrived", poll_s=0)
    return received


def contents(received: Sequence[ReadMessage]) -> list[list[bytes]]:
    return [[bytes(part) for part in message.parts] for message in received]


def address_of(transport: Transport) -> str:
    assert transport.address is not None
    return transport.address


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.fixture
def here() -> Iterator[Transport]:
    with closing(Transport()) as transport:
        yield transport


@pytest.fixture
def there() -> Iterator[Transport]:
    with closing(Transport()) as transport:
        yield transport


@pytest.fixture
def listener() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A listening process and its address."""
    command = [sys.executable, "-c", LISTENER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


@contextmanager
def raw_socket(transport: Transport) -> Iterator["zmq.Socket[bytes]"]:
    """A raw socket that need not follow the protocol."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(address_of(transport))
        yield socket


@pytest.mark.extended
def test_bulk_does_not_use_the_control_connection_when_full(
    here: Transport, there: Transport
) -> None:
    until(lambda: there.greet(address_of(here), [b"hello"]))
    (message,) = receive(here)
    here.meet("there", [address_of(there)])
    retry_send(here, "there", [b"first"], bulk=True)
    here.learn("there", message.route, bulk=False)
    queued = fill(here, "there", 80)
    received = receive(there, queued + 1)
    # A message on the connection that `there` dialled would have no route.
    assert all(message.route for message in received)


@pytest.mark.extended
def test_a_peer_that_cannot_be_dialled_gets_bulk_on_its_control_connection(
    here: Transport, there: Transport
) -> None:
    until(lambda: there.greet(address_of(here), [b"hello"]))
    (message,) = receive(here)
    here.learn("there", message.route, bulk=False)
    here.meet("there", ["tcp://127.0.0.1:9"])
    assert here.send("there", [b"x"], bulk=True)
    (answer,) = receive(there)
    assert contents([answer]) == [[b"x"]] and answer.route == b""


@pytest.mark.extended
def test_sending_to_a_closed_port_does_not_block() -> None:
    with sockets.socket() as reserved, closing(Transport(None)) as transport:
        reserved.bind(("127.0.0.1", 0))  # bound but not listening, so no connection can succeed
        address = f"tcp://127.0.0.1:{reserved.getsockname()[1]}"
        assert not transport.send("stranger", [b"x"], bulk=False)
        transport.meet("absent", [address])
        for _ in range(100):
            assert not transport.send("absent", [b"x"], bulk=True)
            assert not transport.send("absent", [b"x"], bulk=False)
            assert not transport.greet(address, [b"x"])
        assert list(transport.poll(0)) == []


def test_the_next_address_is_tried_if_the_first_is_silent(
    here: Transport, there: Transport
) -> None:
    here.meet("there", ["tcp://127.0.0.1:9", address_of(there)])
    retry_send(here, "there", [b"x"], bulk=True)
    assert contents(receive(there)) == [[b"x"]]


@pytest.mark.extended
@needs_proc
def test_messages_for_a_killed_peer_use_no_memory(
    here: Transport, listener: tuple[subprocess.Popen[str], str]
) -> None:
    process, address = listener
    here.meet("victim", [address])
    retry_send(here, "victim", [b"x", bytearray(4 * MIB)], bulk=True)
    before = resident_bytes()
    process.kill()
    process.wait()
    # A new frame each time, so that each queued frame has its own memory.
    sent = sum(here.send("victim", [b"x", b"\xff" * (4 * MIB)], bulk=True) for _ in range(1000))
    # At most the queue of one peer, if this process notices the disconnection late.
    assert sent <= 100
    assert not here.send("victim", [b"x"], bulk=True)
    until(lambda: resident_bytes() - before < 40e6)


def fill(transport: Transport, peer: str, least: int) -> int:
    """Send bulk until no message is accepted for a while; return the number of messages."""
    sent, last_s = 0, time.monotonic()
    give_up_s = last_s + LIMIT_S
    # On a busy machine no message may be accepted for a while although there is room.
    while time.monotonic() - last_s < FULL_S or (sent < least and time.monotonic() < give_up_s):
        if transport.send(peer, [b"bulk", bytes(MIB // 2)], bulk=True):
            sent, last_s = sent + 1, time.monotonic()
        else:
            time.sleep(0.002)
    return sent


@pytest.mark.extended
@pytest.mark.parametrize("n_parts", [3, 4, 1000])
def test_a_message_of_too_many_parts_is_dropped_and_counted(there: Transport, n_parts: int) -> None:
    with raw_socket(there) as socket:
        socket.send_multipart([b"x"] * n_parts)
        socket.send_multipart([b"header", b"frame"])
        assert contents(receive(there)) == [[b"header", b"frame"]]
    assert there.malformed == 1


@pytest.mark.extended
def test_an_answer_of_too_many_parts_is_dropped_and_counted(here: Transport) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.linger = 0
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        until(lambda: here.greet(f"tcp://127.0.0.1:{port}", [b"hello"]))
        route, _ = socket.recv_multipart()
        socket.send_multipart([route, *[b"x"] * 50])
        socket.send_multipart([route, b"answer"])
        assert contents(receive(here)) == [[b"answer"]]
    assert here.malformed == 1


@pytest.mark.extended
def test_an_unread_frame_is_discarded(here: Transport, there: Transport) -> None:
    here.meet("there", [address_of(there)])
    retry_send(here, "there", [b"first", b"frame"], bulk=True)
    retry_send(here, "there", [b"second"], bulk=True)
    headers: list[bytes] = []
    while len(headers) < 2:
        headers += [message.header for message in there.poll(0.05)]
    assert headers == [b"first", b"second"] and there.malformed == 1


def test_an_oversized_part_disconnects_only_its_sender(there: Transport) -> None:
    with raw_socket(there) as offender, raw_socket(there) as other:
        monitor = offender.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        for socket in (offender, other):
            socket.send(b"before")
        assert contents(receive(there, 2)) == [[b"before"]] * 2
        offender.send(bytes(FRAME_BYTES_MAX + 2 * 4096))
        assert monitor.poll(int(LIMIT_S * 1000)) == zmq.POLLIN
        other.send_multipart([b"largest", bytes(FRAME_BYTES_MAX)])
        (message,) = receive(there)
        assert [len(part) for part in message.parts] == [7, FRAME_BYTES_MAX]
        offender.disable_monitor()
        monitor.close()


def test_bytes_that_are_not_zeromq_do_not_disturb_the_transport(
    here: Transport, there: Transport
) -> None:
    port = int(address_of(there).rsplit(":", 1)[1])
    with sockets.create_connection(("127.0.0.1", port)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n" + os.urandom(5000))
        until(lambda: here.greet(address_of(there), [b"hello"]))
        # ZeroMQ may read some of it as messages of its first version, which are discarded later.
        until(lambda: [b"hello"] in contents(receive(there)))


def test_wake_ends_a_poll_from_another_thread(there: Transport) -> None:
    received: list[Received] = []
    poller = threading.Thread(target=lambda: received.extend(there.poll(600)), daemon=True)
    poller.start()
    there.wake()
    poller.join(LIMIT_S)
    assert not poller.is_alive() and received == []


def test_several_wakes_end_one_poll(there: Transport) -> None:
    for _ in range(100_000):
        there.wake()
    assert list(there.poll(600)) == []
    until(lambda: list(there.poll(0)) == [])


def test_a_wake_after_close_does_nothing(tmp_path: Path) -> None:
    transport = Transport()
    transport.close()
    transport.close()
    # Files opened now reuse the descriptors of the transport.
    opened = [open(tmp_path / f"{number}", "wb") for number in range(20)]
    transport.wake()
    for file in opened:
        file.close()
        assert Path(file.name).read_bytes() == b""


@needs_proc
def test_an_address_in_use_is_named_and_no_file_stays_open(there: Transport) -> None:
    before = files()
    advice = f"port {str(there.address).rpartition(':')[2]} is in use: free it"
    with pytest.raises(TransportError, match=f"cannot listen at {address_of(there)}: .*{advice}"):
        Transport(there.address)
    until(lambda: files() == before)


@pytest.mark.parametrize(
    ("bind", "advice"),
    [
        ("tcp://no.such.host.invalid:*", "nor a name that resolves"),
        ("tcp://192.0.2.1:*", "192.0.2.1 is not an address of this machine"),
    ],
)
def test_advice_about_a_bind_address_depends_on_the_error(bind: str, advice: str) -> None:
    with pytest.raises(TransportError, match=advice):
        Transport(bind)


@pytest.mark.extended
def test_close_does_not_wait_for_a_stopped_peer(
    listener: tuple[subprocess.Popen[str], str],
) -> None:
    process, address = listener
    transport = Transport()
    transport.meet("victim", [address])
    retry_send(transport, "victim", [b"x"], bulk=True)
    process.send_signal(signal.SIGSTOP)
    assert fill(transport, "victim", 1) > 0
    assert transport.send("victim", [b"x"], bulk=False)
    closer = threading.Thread(target=transport.close, daemon=True)
    closer.start()
    closer.join(LIMIT_S)
    assert not closer.is_alive()


INVALID_ADDRESSES = [
    "",
    "junk",
    "tcp://",
    "tcp://127.0.0.1",
    "127.0.0.1:7700",
    "TCP://127.0.0.1:7700",
    "ipc:///tmp/rumor-test.sock",
    "inproc://here",
    "pgm://239.0.0.1:5",
    "udp://127.0.0.1:7700",
    "tcp://127.0.0.1:7700/path",
    "tcp://127.0.0.1:0",
    "tcp://127.0.0.1:*",
    "tcp://*:7700",
    "tcp://127.0.0.1:99999",
    "tcp://127.0.0.1:-1",
    "tcp://127.0.0.1:7700 ",
    "tcp://a b:7700",
    "tcp://eth0;127.0.0.1:7700",
    "tcp://127.0.0.1:\u0667\u0667",
    "tcp://\u00e4:7700",
    "tcp://[::1:7700",
    "tcp://a\0b:7700",
    "tcp://" + "a:" * 100 + "1",
]


@needs_proc
def test_invalid_addresses_are_never_dialled(here: Transport) -> None:
    before = files()
    here.meet("stranger", INVALID_ADDRESSES)
    for address in INVALID_ADDRESSES:
        assert not here.greet(address, [b"x"])
    assert not here.send("stranger", [b"x"], bulk=False)
    assert files() == before
    assert not Path("/tmp/rumor-test.sock").exists()


@pytest.mark.extended
@pytest.mark.parametrize("host", ["-", "_", ".", "[:::::]", "[.]", "999.1.1.1"])
def test_an_address_that_zeromq_cannot_use_is_unreachable(
    here: Transport, there: Transport, host: str
) -> None:
    here.meet("stranger", [f"tcp://{host}:7700", address_of(there)])
    assert not here.greet(f"tcp://{host}:7700", [b"x"])
    retry_send(here, "stranger", [b"x"], bulk=True)
    assert contents(receive(there)) == [[b"x"]]


@pytest.mark.extended
def test_a_peer_does_not_dial_itself(here: Transport) -> None:
    here.meet("mirror", [address_of(here)])
    assert not here.greet(address_of(here), [b"x"])
    assert not here.send("mirror", [b"x"], bulk=False)


@needs_proc
def test_disconnecting_closes_the_sockets_of_a_peer(here: Transport, there: Transport) -> None:
    before = files()
    here.meet("there", [address_of(there)])
    retry_send(here, "there", [b"x"], bulk=True)
    assert files() > before
    here.part("there")
    here.part("there")
    until(lambda: files() == before)
    assert not here.send("there", [b"x"], bulk=True)


@pytest.mark.extended
@needs_proc
def test_a_connection_that_another_peer_uses_stays_open(here: Transport, there: Transport) -> None:
    before = files()
    here.meet("one", [address_of(there)])
    here.meet("other", [address_of(there)])
    here.part("one")
    retry_send(here, "other", [b"x"], bulk=True)
    here.meet("other", [])
    until(lambda: files() == before)


def test_a_peer_that_moved_is_found_at_its_new_address(here: Transport, there: Transport) -> None:
    with closing(Transport()) as old:
        here.meet("mover", [address_of(old)])
        retry_send(here, "mover", [b"x"], bulk=False)
        here.meet("mover", [address_of(there)])
        retry_send(here, "mover", [b"y"], bulk=False)
        assert contents(receive(there)) == [[b"y"]]
        assert contents(receive(old)) == [[b"x"]]


@pytest.mark.extended
def test_a_peer_can_be_disconnected_while_its_messages_are_read(there: Transport) -> None:
    """A socket that is closed between two messages of one poll is no longer read."""
    with closing(Transport()) as one, closing(Transport(None)) as hidden:
        routes: list[tuple[Transport, bytes]] = []
        for transport, name in ((one, "one"), (there, "there")):
            hidden.meet(name, [address_of(transport)])
            retry_send(hidden, name, [b"x"], bulk=False)
            (message,) = receive(transport)
            routes.append((transport, message.route))
        for transport, route in routes:
            transport.learn("hidden", route, bulk=False)
            for _ in range(10):
                assert transport.send("hidden", [b"bye"], bulk=False)
        read = 0
        while read == 0:
            time.sleep(0.1)  # both sockets then have a message to read
            for _ in hidden.poll(1.0):
                read += 1
                hidden.part("one")
                hidden.part("there")
        assert read == 1
        assert list(hidden.poll(0.1)) == []


def test_a_transport_listens_on_ipv4_and_ipv6(here: Transport) -> None:
    try:
        both = Transport(("tcp://127.0.0.1:*", "tcp://[::1]:*"))
    except TransportError as error:
        pytest.skip(str(error))
    with closing(both):
        first, second = both.addresses
        assert first.startswith("tcp://127.0.0.1:") and second.startswith("tcp://[::1]:")
        assert both.address == first
        for address in both.addresses:
            here.meet("both", [address])
            retry_send(here, "both", [address.encode()], bulk=False)
        received = contents(receive(both, 2))
        assert sorted(received) == sorted([[first.encode()], [second.encode()]])
        until(lambda: here.greet(second, [b"hello"]))
        assert contents(receive(both)) == [[b"hello"]]
        assert not both.greet(second, [b"to itself"])


@pytest.mark.extended
def test_the_last_working_address_is_used_again(here: Transport, there: Transport) -> None:
    closed = Transport()
    closed.close()
    here.meet("there", [address_of(closed), address_of(there)])
    retry_send(here, "there", [b"first"], bulk=False)
    with closing(Transport(closed.address)) as other:
        until(lambda: here.greet(address_of(other), [b"also dialled"]))
        for index in range(5):
            retry_send(here, "there", [bytes([index])], bulk=False)
        received = contents(receive(there, 6))
    assert received == [[b"first"], *([bytes([index])] for index in range(5))]


@pytest.mark.extended
def test_a_peer_gets_no_messages_for_the_former_peer_at_its_address(
    here: Transport, there: Transport
) -> None:
    here.meet("first", [address_of(there)])
    retry_send(here, "first", [b"x"], bulk=False)
    with closing(Transport()) as elsewhere:
        here.meet("second", [address_of(there)])
        here.meet("first", [address_of(elsewhere)])
        retry_send(here, "first", [b"y"], bulk=False)
        assert contents(receive(elsewhere)) == [[b"y"]]
        assert contents(receive(there)) == [[b"x"]]


def port_of(transport: Transport) -> str:
    return address_of(transport).rsplit(":", 1)[1]


LookupResult = list[tuple[object, ...]]


def ipv4_result(host: str, port: int) -> LookupResult:
    """Return the answer of a name server for an IPv4 host."""
    return [(sockets.AF_INET, sockets.SOCK_STREAM, 6, "", (host, port))]


def test_a_host_is_reached_by_name(
    here: Transport, there: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(host: str, port: int, **_: object) -> LookupResult:
        assert host == "node-a"
        # The first address is outdated.
        return [*ipv4_result("127.0.0.9", port), *ipv4_result("127.0.0.1", port)]

    monkeypatch.setattr(sockets, "getaddrinfo", look_up)
    address = f"tcp://node-a:{port_of(there)}"
    here.meet("there", [address])
    retry_send(here, "there", [b"x"], bulk=True)
    until(lambda: here.greet(address, [b"y"]))
    assert sorted(contents(receive(there, 2))) == [[b"x"], [b"y"]]


@pytest.mark.extended
def test_a_name_server_that_never_answers_blocks_nothing(
    here: Transport, there: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def look_up(host: str, port: int, **_: object) -> LookupResult:
        assert answers.wait(LIMIT_S)
        return ipv4_result("127.0.0.1", port)

    monkeypatch.setattr(sockets, "getaddrinfo", look_up)
    names = [f"tcp://node-{index}:{port_of(there)}" for index in range(40)]
    here.meet("there", [*names, address_of(there)])
    threads = threading.active_count()
    for index in range(50):
        retry_send(here, "there", [bytes([index])], bulk=True)
        assert not here.greet(names[0], [b"x"])
    # There is no thread for each name or each call.
    assert threading.active_count() == threads < 40
    assert contents(receive(there, 50)) == [[bytes([index])] for index in range(50)]
    answers.set()
    until(lambda: here.greet(names[0], [b"found"]))
    assert contents(receive(there)) == [[b"found"]]


@pytest.mark.extended
def test_a_moved_host_is_found_again_and_an_unknown_name_is_reported(
    here: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: str | Exception = OSError(0, "no such host")

    def look_up(_: str, port: int, **__: object) -> LookupResult:
        if isinstance(answer, Exception):
            raise answer
        return ipv4_result(answer, port)

    monkeypatch.setattr(sockets, "getaddrinfo", look_up)
    monkeypatch.setattr("rumor.gossip.transport.addresses._BELIEVED_S", 0.0)
    names, address = here._names, "tcp://node-a:7700"
    assert here.refusal(address) == "", "the name is not resolved yet"
    assert not here.greet(address, [b""])
    until(lambda: here.refusal(address) == "has a name that does not resolve (no such host)")
    answer = "10.0.0.5"
    until(lambda: names.places(address) == ("tcp://10.0.0.5:7700",))
    answer = "10.0.0.6"
    until(lambda: names.places(address) == ("tcp://10.0.0.6:7700",))
    # A name that no longer resolves keeps its last addresses.
    answer = UnicodeError("label too long")
    failed = names._found[address]
    until(lambda: bool(names.places(address)) and failed.why == "label too long")
    assert names.places(address) == ("tcp://10.0.0.6:7700",) and here.refusal(address) == ""


def test_numeric_addresses_are_never_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sockets, "getaddrinfo")
    for address in ("tcp://10.0.0.5:1", "tcp://[::1]:1", "tcp://[fe80::1%eth0]:1"):
        assert Resolver().places(address) == (address,)


@pytest.mark.extended
def test_the_route_to_a_host_determines_the_local_address() -> None:
    assert local_host("127.0.0.1") == "127.0.0.1"
    assert local_host()
    assert local_host("a" * 300) == sockets.gethostname()


@pytest.mark.extended
def test_the_route_to_an_ipv6_host_gives_an_ipv6_address() -> None:
    found = local_host("::1")
    assert found == "::1" or found == local_host("a" * 300)
