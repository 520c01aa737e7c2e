"""Real ZeroMQ on the loopback interface, ports chosen by the system."""

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
"""A way that has taken nothing for so long is full, even where others want the processor."""
MIB = 1 << 20

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")

# Takes in what comes and says nothing; its address is the first line it writes.
LISTENER = """
from rumor.gossip.transport.zmq_transport import Transport
transport = Transport()
print(transport.address, flush=True)
while True:
    for _ in transport.poll(0.1):
        pass
"""


def insist(transport: Transport, peer: str, parts: Sequence[Buffer], *, bulk: bool) -> None:
    """Send as soon as the connection is there."""
    until(lambda: transport.send(peer, parts, bulk=bulk))


class Came(NamedTuple):
    """A message that was read."""

    parts: list[Buffer]
    route: Route


def receive(transport: Transport, count: int = 1) -> list[Came]:
    """The next messages of one or two parts that come in; those of more are not read to the end."""
    received: list[Came] = []

    def have_come() -> bool:
        for message in transport.poll(0.05):
            frame = [message.frame()] if message.more else []
            if not message.more:
                received.append(Came([message.header, *frame], message.route))
        return len(received) >= count

    until(have_come, lambda: f"{len(received)} of {count} messages came", poll_s=0)
    return received


def contents(received: Sequence[Came]) -> list[list[bytes]]:
    return [[bytes(part) for part in message.parts] for message in received]


def listens_at(transport: Transport) -> str:
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
    """Another process that listens, and its address."""
    command = [sys.executable, "-c", LISTENER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


@contextmanager
def stranger(toward: Transport) -> Iterator["zmq.Socket[bytes]"]:
    """A socket of somebody who keeps to no rules."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(listens_at(toward))
        yield socket


@pytest.mark.extended
def test_full_bulk_does_not_take_the_way_of_control(here: Transport, there: Transport) -> None:
    until(lambda: there.greet(listens_at(here), [b"hello"]))
    (message,) = receive(here)
    here.meet("there", [listens_at(there)])
    insist(here, "there", [b"first"], bulk=True)
    here.learn("there", message.route, bulk=False)
    queued = fill(here, "there", 80)
    came = receive(there, queued + 1)
    # What came back on the connection that it dialled itself would have no route.
    assert all(message.route for message in came)


@pytest.mark.extended
def test_a_peer_that_cannot_be_dialled_where_it_says_gets_bulk_on_the_way_of_control(
    here: Transport, there: Transport
) -> None:
    until(lambda: there.greet(listens_at(here), [b"hello"]))
    (message,) = receive(here)
    here.learn("there", message.route, bulk=False)
    here.meet("there", ["tcp://127.0.0.1:9"])
    assert here.send("there", [b"x"], bulk=True)
    (answer,) = receive(there)
    assert contents([answer]) == [[b"x"]] and answer.route == b""


@pytest.mark.extended
def test_nobody_listens_and_nothing_waits() -> None:
    with sockets.socket() as reserved, closing(Transport(None)) as transport:
        reserved.bind(("127.0.0.1", 0))  # bound and not listening: nobody can be there
        address = f"tcp://127.0.0.1:{reserved.getsockname()[1]}"
        assert not transport.send("stranger", [b"x"], bulk=False)
        transport.meet("nobody", [address])
        for _ in range(100):
            assert not transport.send("nobody", [b"x"], bulk=True)
            assert not transport.send("nobody", [b"x"], bulk=False)
            assert not transport.greet(address, [b"x"])
        assert list(transport.poll(0)) == []


def test_the_next_address_is_tried_where_one_is_silent(here: Transport, there: Transport) -> None:
    here.meet("there", ["tcp://127.0.0.1:9", listens_at(there)])
    insist(here, "there", [b"x"], bulk=True)
    assert contents(receive(there)) == [[b"x"]]


@pytest.mark.extended
@needs_proc
def test_a_peer_that_was_killed_costs_no_memory(
    here: Transport, listener: tuple[subprocess.Popen[str], str]
) -> None:
    process, address = listener
    here.meet("victim", [address])
    insist(here, "victim", [b"x", bytearray(4 * MIB)], bulk=True)
    before = resident_bytes()
    process.kill()
    process.wait()
    # A fresh frame each time: one that is queued anywhere takes memory of its own.
    sent = sum(here.send("victim", [b"x", b"\xff" * (4 * MIB)], bulk=True) for _ in range(1000))
    # As many as wait for one peer at most, where this process is slow to hear of its end.
    assert sent <= 100
    assert not here.send("victim", [b"x"], bulk=True)
    until(lambda: resident_bytes() - before < 40e6)


def fill(transport: Transport, peer: str, least: int) -> int:
    """Send so much bulk, and more until none goes for a while; how many messages went."""
    sent, last_s = 0, time.monotonic()
    give_up_s = last_s + LIMIT_S
    # On a busy machine nothing may go for a while, though there is room.
    while time.monotonic() - last_s < FULL_S or (sent < least and time.monotonic() < give_up_s):
        if transport.send(peer, [b"bulk", bytes(MIB // 2)], bulk=True):
            sent, last_s = sent + 1, time.monotonic()
        else:
            time.sleep(0.002)
    return sent


@pytest.mark.extended
@pytest.mark.parametrize("n_parts", [3, 4, 1000])
def test_a_message_of_too_many_parts_is_dropped_and_counted(there: Transport, n_parts: int) -> None:
    with stranger(there) as socket:
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
def test_a_frame_that_nobody_asks_for_is_thrown_away(here: Transport, there: Transport) -> None:
    here.meet("there", [listens_at(there)])
    insist(here, "there", [b"first", b"frame"], bulk=True)
    insist(here, "there", [b"second"], bulk=True)
    headers: list[bytes] = []
    while len(headers) < 2:
        headers += [message.header for message in there.poll(0.05)]
    assert headers == [b"first", b"second"] and there.malformed == 1


def test_an_oversized_part_disconnects_only_who_sent_it(there: Transport) -> None:
    with stranger(there) as offender, stranger(there) as other:
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


def test_what_is_no_zeromq_at_all_harms_nobody(here: Transport, there: Transport) -> None:
    port = int(listens_at(there).rsplit(":", 1)[1])
    with sockets.create_connection(("127.0.0.1", port)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n" + os.urandom(5000))
        until(lambda: here.greet(listens_at(there), [b"hello"]))
        # ZeroMQ may take some of it for messages of its first version; it is told apart later.
        until(lambda: [b"hello"] in contents(receive(there)))


def test_wake_ends_a_poll_from_another_thread(there: Transport) -> None:
    came: list[Received] = []
    poller = threading.Thread(target=lambda: came.extend(there.poll(600)), daemon=True)
    poller.start()
    there.wake()
    poller.join(LIMIT_S)
    assert not poller.is_alive() and came == []


def test_any_number_of_wakes_are_one(there: Transport) -> None:
    for _ in range(100_000):
        there.wake()
    assert list(there.poll(600)) == []
    until(lambda: list(there.poll(0)) == [])


def test_a_wake_after_the_end_does_nothing(tmp_path: Path) -> None:
    transport = Transport()
    transport.close()
    transport.close()
    # Files that are opened now get the numbers that were the transport's.
    opened = [open(tmp_path / f"{number}", "wb") for number in range(20)]
    transport.wake()
    for file in opened:
        file.close()
        assert Path(file.name).read_bytes() == b""


@needs_proc
def test_an_address_in_use_is_named_and_nothing_stays_open(there: Transport) -> None:
    before = files()
    advice = f"port {str(there.address).rpartition(':')[2]} is in use: free it"
    with pytest.raises(TransportError, match=f"cannot listen at {listens_at(there)}: .*{advice}"):
        Transport(there.address)
    until(lambda: files() == before)


@pytest.mark.parametrize(
    ("bind", "advice"),
    [
        ("tcp://no.such.host.invalid:*", "nor a name that resolves"),
        ("tcp://192.0.2.1:*", "192.0.2.1 is not an address of this machine"),
    ],
)
def test_what_to_do_about_a_bind_address_depends_on_what_is_wrong(bind: str, advice: str) -> None:
    with pytest.raises(TransportError, match=advice):
        Transport(bind)


@pytest.mark.extended
def test_closing_waits_for_no_stopped_peer(listener: tuple[subprocess.Popen[str], str]) -> None:
    process, address = listener
    transport = Transport()
    transport.meet("victim", [address])
    insist(transport, "victim", [b"x"], bulk=True)
    process.send_signal(signal.SIGSTOP)
    assert fill(transport, "victim", 1) > 0
    assert transport.send("victim", [b"x"], bulk=False)
    closer = threading.Thread(target=transport.close, daemon=True)
    closer.start()
    closer.join(LIMIT_S)
    assert not closer.is_alive()


NO_PLACE_TO_DIAL = [
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
def test_what_is_no_address_is_never_dialled(here: Transport) -> None:
    before = files()
    here.meet("stranger", NO_PLACE_TO_DIAL)
    for address in NO_PLACE_TO_DIAL:
        assert not here.greet(address, [b"x"])
    assert not here.send("stranger", [b"x"], bulk=False)
    assert files() == before
    assert not Path("/tmp/rumor-test.sock").exists()


@pytest.mark.extended
@pytest.mark.parametrize("host", ["-", "_", ".", "[:::::]", "[.]", "999.1.1.1"])
def test_an_address_that_zeromq_cannot_use_is_merely_out_of_reach(
    here: Transport, there: Transport, host: str
) -> None:
    here.meet("stranger", [f"tcp://{host}:7700", listens_at(there)])
    assert not here.greet(f"tcp://{host}:7700", [b"x"])
    insist(here, "stranger", [b"x"], bulk=True)
    assert contents(receive(there)) == [[b"x"]]


@pytest.mark.extended
def test_a_peer_does_not_dial_itself(here: Transport) -> None:
    here.meet("mirror", [listens_at(here)])
    assert not here.greet(listens_at(here), [b"x"])
    assert not here.send("mirror", [b"x"], bulk=False)


@needs_proc
def test_parting_closes_what_meeting_opened(here: Transport, there: Transport) -> None:
    before = files()
    here.meet("there", [listens_at(there)])
    insist(here, "there", [b"x"], bulk=True)
    assert files() > before
    here.part("there")
    here.part("there")
    until(lambda: files() == before)
    assert not here.send("there", [b"x"], bulk=True)


@pytest.mark.extended
@needs_proc
def test_a_way_that_another_peer_is_reached_by_stays(here: Transport, there: Transport) -> None:
    before = files()
    here.meet("one", [listens_at(there)])
    here.meet("other", [listens_at(there)])
    here.part("one")
    insist(here, "other", [b"x"], bulk=True)
    here.meet("other", [])
    until(lambda: files() == before)


def test_a_peer_that_moved_is_found_at_its_new_address(here: Transport, there: Transport) -> None:
    with closing(Transport()) as former:
        here.meet("mover", [listens_at(former)])
        insist(here, "mover", [b"x"], bulk=False)
        here.meet("mover", [listens_at(there)])
        insist(here, "mover", [b"y"], bulk=False)
        assert contents(receive(there)) == [[b"y"]]
        assert contents(receive(former)) == [[b"x"]]


@pytest.mark.extended
def test_a_peer_can_be_parted_from_while_its_messages_are_taken(there: Transport) -> None:
    """What is closed between two messages of one poll is not read any more."""
    with closing(Transport()) as one, closing(Transport(None)) as hidden:
        routes: list[tuple[Transport, bytes]] = []
        for transport, name in ((one, "one"), (there, "there")):
            hidden.meet(name, [listens_at(transport)])
            insist(hidden, name, [b"x"], bulk=False)
            (message,) = receive(transport)
            routes.append((transport, message.route))
        for transport, route in routes:
            transport.learn("hidden", route, bulk=False)
            for _ in range(10):
                assert transport.send("hidden", [b"bye"], bulk=False)
        taken = 0
        while taken == 0:
            time.sleep(0.1)  # so that both have something to read
            for _ in hidden.poll(1.0):
                taken += 1
                hidden.part("one")
                hidden.part("there")
        assert taken == 1
        assert list(hidden.poll(0.1)) == []


def test_ipv4_and_ipv6_are_listened_at_together(here: Transport) -> None:
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
            insist(here, "both", [address.encode()], bulk=False)
        came = contents(receive(both, 2))
        assert sorted(came) == sorted([[first.encode()], [second.encode()]])
        until(lambda: here.greet(second, [b"hello"]))
        assert contents(receive(both)) == [[b"hello"]]
        assert not both.greet(second, [b"to itself"])


@pytest.mark.extended
def test_what_reached_a_peer_last_is_used_again(here: Transport, there: Transport) -> None:
    closed = Transport()
    closed.close()
    here.meet("there", [listens_at(closed), listens_at(there)])
    insist(here, "there", [b"first"], bulk=False)
    with closing(Transport(closed.address)) as other:
        until(lambda: here.greet(listens_at(other), [b"it is dialled, too"]))
        for index in range(5):
            insist(here, "there", [bytes([index])], bulk=False)
        came = contents(receive(there, 6))
    assert came == [[b"first"], *([bytes([index])] for index in range(5))]


@pytest.mark.extended
def test_a_peer_is_not_sent_what_is_for_another_that_moved_to_its_place(
    here: Transport, there: Transport
) -> None:
    here.meet("first", [listens_at(there)])
    insist(here, "first", [b"x"], bulk=False)
    with closing(Transport()) as elsewhere:
        here.meet("second", [listens_at(there)])
        here.meet("first", [listens_at(elsewhere)])
        insist(here, "first", [b"y"], bulk=False)
        assert contents(receive(elsewhere)) == [[b"y"]]
        assert contents(receive(there)) == [[b"x"]]


def port_of(transport: Transport) -> str:
    return listens_at(transport).rsplit(":", 1)[1]


Answers = list[tuple[object, ...]]


def answering(host: str, port: int) -> Answers:
    """What a name server says of a host of IPv4."""
    return [(sockets.AF_INET, sockets.SOCK_STREAM, 6, "", (host, port))]


def test_a_name_is_looked_up_and_its_host_reached(
    here: Transport, there: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(host: str, port: int, **_: object) -> Answers:
        assert host == "node-a"
        # The first of its addresses is of another time.
        return [*answering("127.0.0.9", port), *answering("127.0.0.1", port)]

    monkeypatch.setattr(sockets, "getaddrinfo", look_up)
    address = f"tcp://node-a:{port_of(there)}"
    here.meet("there", [address])
    insist(here, "there", [b"x"], bulk=True)
    until(lambda: here.greet(address, [b"y"]))
    assert sorted(contents(receive(there, 2))) == [[b"x"], [b"y"]]


@pytest.mark.extended
def test_a_name_server_that_never_answers_holds_up_nobody(
    here: Transport, there: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def look_up(host: str, port: int, **_: object) -> Answers:
        assert answers.wait(LIMIT_S)
        return answering("127.0.0.1", port)

    monkeypatch.setattr(sockets, "getaddrinfo", look_up)
    names = [f"tcp://node-{index}:{port_of(there)}" for index in range(40)]
    here.meet("there", [*names, listens_at(there)])
    threads = threading.active_count()
    for index in range(50):
        insist(here, "there", [bytes([index])], bulk=True)
        assert not here.greet(names[0], [b"x"])
    # Not one for each name, nor one for each time that it is asked for.
    assert threading.active_count() == threads < 40
    assert contents(receive(there, 50)) == [[bytes([index])] for index in range(50)]
    answers.set()
    until(lambda: here.greet(names[0], [b"found"]))
    assert contents(receive(there)) == [[b"found"]]


@pytest.mark.extended
def test_a_host_that_has_moved_is_found_again_and_of_a_name_that_means_nothing_it_is_said(
    here: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer: str | Exception = OSError(0, "no such host")

    def look_up(_: str, port: int, **__: object) -> Answers:
        if isinstance(answer, Exception):
            raise answer
        return answering(answer, port)

    monkeypatch.setattr(sockets, "getaddrinfo", look_up)
    monkeypatch.setattr("rumor.gossip.transport.addresses._BELIEVED_S", 0.0)
    names, address = here._names, "tcp://node-a:7700"
    assert here.refusal(address) == "", "it was not looked up yet"
    assert not here.greet(address, [b""])
    until(lambda: here.refusal(address) == "has a name that does not resolve (no such host)")
    answer = "10.0.0.5"
    until(lambda: names.places(address) == ("tcp://10.0.0.5:7700",))
    answer = "10.0.0.6"
    until(lambda: names.places(address) == ("tcp://10.0.0.6:7700",))
    # What cannot be looked up any more means what it meant.
    answer = UnicodeError("label too long")
    failed = names._found[address]
    until(lambda: bool(names.places(address)) and failed.why == "label too long")
    assert names.places(address) == ("tcp://10.0.0.6:7700",) and here.refusal(address) == ""


def test_numbers_are_never_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sockets, "getaddrinfo")
    for address in ("tcp://10.0.0.5:1", "tcp://[::1]:1", "tcp://[fe80::1%eth0]:1"):
        assert Resolver().places(address) == (address,)


@pytest.mark.extended
def test_the_way_toward_a_host_says_which_address_is_ours() -> None:
    assert local_host("127.0.0.1") == "127.0.0.1"
    assert local_host()
    assert local_host("a" * 300) == sockets.gethostname()


@pytest.mark.extended
def test_the_way_toward_a_host_of_ipv6_is_of_ipv6() -> None:
    found = local_host("::1")
    assert found == "::1" or found == local_host("a" * 300)
