"""Real ZeroMQ between peers that dial through proxies, ports chosen by the system."""

import gc
import resource
import socket as sockets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rumor.cli.launch.proxy.proxies import Proxies
from rumor.gossip.errors import TransportError
from rumor.gossip.transport.zmq_transport import Transport
from rumor.gossip.wire.codec import Buffer

pytestmark = pytest.mark.live

TIMEOUT_S = 20.0
MIB = 1 << 20


def until(condition: Callable[[], object]) -> None:
    give_up_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < give_up_s, "it never came"
        time.sleep(0.002)


@contextmanager
def swarm(network: Proxies, peers: str) -> Iterator[list[Transport]]:
    """Peers that dial through the network, each of which has met all others."""
    transports = []
    try:
        for peer in peers:
            transports.append(Transport(socks_proxy=network.socks_proxy(peer)))
            network.listens(peer, str(transports[-1].address))
        for peer, transport in zip(peers, transports, strict=True):
            for other, its in zip(peers, transports, strict=True):
                if peer != other:
                    transport.meet(other, its.addresses)
                    insist(transport, other, [b"hello"], bulk=True)
        for transport in transports:
            assert len(collect(transport, len(peers) - 1)) == len(peers) - 1
        yield transports
    finally:
        for transport in transports:
            transport.close()


@pytest.fixture
def network() -> Iterator[Proxies]:
    with Proxies("abc") as proxies:
        yield proxies


@pytest.fixture
def pair(network: Proxies) -> Iterator[list[Transport]]:
    with swarm(network, "ab") as transports:
        yield transports


def insist(transport: Transport, to: str, parts: Sequence[Buffer], *, bulk: bool) -> None:
    """Send as soon as the connection is there."""
    until(lambda: transport.send(to, parts, bulk=bulk))


def take(transport: Transport, timeout_s: float = 0.01) -> list[bytes]:
    """The headers that have come."""
    return [message.header for message in transport.poll(timeout_s)]


def collect(transport: Transport, count: int) -> list[bytes]:
    """The next headers, so many or more."""
    came: list[bytes] = []
    give_up_s = time.monotonic() + TIMEOUT_S
    while len(came) < count:
        assert time.monotonic() < give_up_s, f"{len(came)} of {count} messages came"
        came += take(transport)
    return came


def arrives(sender: Transport, to: str, receiver: Transport) -> None:
    """What is sent arrives, in the end; what came before it is passed over.

    It is sent again and again: a connection that was reset takes messages until it is noticed.
    """
    until(lambda: sender.send(to, [b"arrives"], bulk=True) and b"arrives" in take(receiver))


@contextmanager
def nobody() -> Iterator[str]:
    """An address at which nobody can listen."""
    with sockets.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{reserved.getsockname()[1]}"


@pytest.fixture
def hidden(network: Proxies) -> Iterator[Transport]:
    """Peer a, which only dials out."""
    with closing(Transport(None, socks_proxy=network.socks_proxy("a"))) as transport:
        yield transport


@pytest.fixture
def b(network: Proxies) -> Iterator[Transport]:
    """Peer b, which dials nobody."""
    with closing(Transport()) as transport:
        network.listens("b", str(transport.address))
        yield transport


def test_messages_pass_through_proxies_whole(pair: list[Transport], network: Proxies) -> None:
    a, b = pair
    frame = bytes(range(256)) * 4096
    for _ in range(20):
        insist(a, "b", [b"header", frame], bulk=True)
    frames: list[bytes] = []
    while len(frames) < 20:
        frames += [bytes(message.frame()) for message in b.poll(0.05) if message.more]
    assert frames == [frame] * 20
    counts = network.counts("a", "b")
    assert counts.messages == 21 and counts.passed_bytes > 20 * MIB
    assert counts.lost == counts.doubled == 0


def test_a_cut_one_way_holds_up_that_way_alone_and_heals(
    pair: list[Transport], network: Proxies
) -> None:
    a, b = pair
    cut = network.cut("a", "b", one_way=True)
    assert a.send("b", [b"held up"], bulk=True)
    arrives(b, "a", a)
    assert take(b, 0.2) == []
    network.lift(cut)
    until(lambda: b"held up" in take(b))


def test_a_cut_both_ways_lets_nothing_pass_until_all_cuts_heal(
    pair: list[Transport], network: Proxies
) -> None:
    a, b = pair
    network.cut("a")
    network.partition([["a"], ["b"]])
    assert a.send("b", [b"there"], bulk=True) and b.send("a", [b"back"], bulk=True)
    assert take(a, 0.2) + take(b, 0.2) == []
    network.heal()
    until(lambda: b"there" in take(b))
    until(lambda: b"back" in take(a))


def test_nobody_is_reached_across_a_cut_before_it_heals(
    network: Proxies, hidden: Transport, b: Transport
) -> None:
    cut = network.cut("b", "a", one_way=True)
    give_up_s = time.monotonic() + 0.3
    while time.monotonic() < give_up_s:
        assert not hidden.greet(str(b.address), [b"x"])
    network.lift(cut)
    until(lambda: hidden.greet(str(b.address), [b"x"]))


def test_a_peer_that_only_dials_out_is_answered_and_cut_off_like_any(
    network: Proxies, hidden: Transport, b: Transport
) -> None:
    until(lambda: hidden.greet(str(b.address), [b"x"]))
    (message,) = b.poll(TIMEOUT_S)
    b.learn("a", message.route, bulk=False)
    cut = network.cut("b", "a", one_way=True)
    assert b.send("a", [b"answer"], bulk=False)
    assert take(hidden, 0.2) == []
    network.lift(cut)
    until(lambda: take(hidden) == [b"answer"])


def test_messages_are_lost_and_doubled_whole(pair: list[Transport], network: Proxies) -> None:
    a, b = pair
    lost, doubled = network.lose(0.3), network.duplicate(0.3)
    before = network.counts("a", "b").messages
    for index in range(200):
        insist(a, "b", [b"%d" % index, bytes(5000)], bulk=True)
    until(lambda: network.counts("a", "b").messages == before + 200)
    network.lift(lost)
    network.lift(doubled)
    insist(a, "b", [b"last", bytes(5000)], bulk=True)
    came: list[bytes] = []
    while b"last" not in came:
        for message in b.poll(0.05):
            assert len(message.frame()) == 5000 and not message.more
            came.append(message.header)
    counts = network.counts("a", "b")
    assert 20 < counts.lost < 110 and 10 < counts.doubled < 100
    assert len(set(came)) == 201 - counts.lost
    assert len(came) == 201 - counts.lost + counts.doubled
    # A second copy comes right after the first, and nothing else changes its place.
    assert came[:-1] == sorted(came[:-1], key=int)


def test_all_can_be_lost_without_a_word(pair: list[Transport], network: Proxies) -> None:
    a, b = pair
    lost = network.lose(1.0, "a")
    before = network.counts("a", "b").messages
    insist(a, "b", [b"x"], bulk=True)
    until(lambda: network.counts("a", "b").messages > before)
    network.lift(lost)
    insist(a, "b", [b"y"], bulk=True)
    assert collect(b, 1) == [b"y"]


def test_a_delay_holds_up_each_message_and_keeps_the_order(
    pair: list[Transport], network: Proxies
) -> None:
    a, b = pair
    network.delay(0.25, "a")
    began_s = time.monotonic()
    for index in range(5):
        insist(a, "b", [b"%d" % index], bulk=True)
    came = collect(b, 5)
    assert came == [b"0", b"1", b"2", b"3", b"4"]
    assert time.monotonic() - began_s >= 0.25


def test_a_limit_holds_for_all_connections_together(
    pair: list[Transport], network: Proxies
) -> None:
    a, b = pair
    network.limit(4e6, "b")
    began_s = time.monotonic()
    for bulk in (True, False):
        insist(a, "b", [b"x", bytes(500_000)], bulk=bulk)
    collect(b, 2)
    assert time.monotonic() - began_s >= 0.2


def test_after_a_reset_in_the_middle_of_a_transfer_sockets_reconnect_by_themselves(
    pair: list[Transport], network: Proxies
) -> None:
    a, b = pair
    limit = network.limit(2e6)
    for index in range(8):
        insist(a, "b", [b"%d" % index, bytes(MIB)], bulk=True)
    passed = network.counts("a", "b").passed_bytes
    until(lambda: network.counts("a", "b").passed_bytes > passed + MIB // 4)
    assert network.reset("b") > 0
    network.lift(limit)
    arrives(a, "b", b)
    arrives(b, "a", a)
    # What was on its way is lost, and nobody was told.
    assert b"7" not in take(b)


def test_resets_one_after_the_other_are_survived(pair: list[Transport], network: Proxies) -> None:
    a, b = pair
    broken = 0
    for _ in range(10):
        broken += network.reset("a", "b")
        arrives(a, "b", b)
    assert broken >= 10


def test_only_the_connections_of_the_peers_that_are_named_are_reset(network: Proxies) -> None:
    with swarm(network, "abc"):
        there = network.connections("b", "c")
        assert there > 0
        assert network.reset("a") > 0
        assert network.connections("b", "c") == there
        assert network.reset("b", "c") >= there


def test_whoever_listens_at_a_port_may_be_asked_for() -> None:
    asked: list[int] = []

    def who(port: int) -> str:
        asked.append(port)
        return "b"

    with Proxies(["a", "b"], who_listens=who) as network, closing(Transport()) as b:
        with closing(Transport(None, socks_proxy=network.socks_proxy("a"))) as a:
            until(lambda: a.greet(str(b.address), [b"x"]))
            assert str(asked[0]) in str(b.address)
            assert network.connections("a", "b") == 1


def test_where_nobody_listens_nobody_is_reached_and_closing_harms_nobody(
    network: Proxies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rumor.cli.launch.proxy.connection._DIAL_S", 0.05)
    with nobody() as address:
        with closing(Transport(None, socks_proxy=network.socks_proxy("a"))) as a:
            for _ in range(50):
                assert not a.greet(address, [b"x"])
                time.sleep(0.01)


@pytest.mark.parametrize(("bind", "host"), [("127.0.0.1", "localhost"), ("[::1]", "[::1]")])
def test_names_and_ipv6_are_dialled_for_whoever_asks(
    network: Proxies, hidden: Transport, bind: str, host: str
) -> None:
    try:
        b = Transport(f"tcp://{bind}:*")
    except TransportError as error:
        pytest.skip(str(error))
    with closing(b):
        network.listens("b", str(b.address))
        until(lambda: hidden.greet(f"tcp://{host}:{str(b.address).rpartition(':')[2]}", [b"x"]))
        assert collect(b, 1) == [b"x"]
        assert network.connections("a", "b") == 1


def test_more_files_may_be_opened_than_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 20_000))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    Proxies().close()
    assert limits == [(20_000, 20_000)]


@pytest.mark.parametrize("said", [b"", b"\4\1", b"\5\1\0\5\2\0\1" + bytes(6), b"\5\1\0\5\1\0\7ab"])
def test_what_is_no_request_ends_its_connection_alone(network: Proxies, said: bytes) -> None:
    host, port = network.socks_proxy("a").split(":")
    with sockets.create_connection((host, int(port))) as client:
        client.settimeout(TIMEOUT_S)
        client.sendall(said)
        try:
            client.shutdown(sockets.SHUT_WR)
            while client.recv(100):
                pass
        except OSError:
            pass  # it was reset: something of what was said was not even read
    with closing(Transport()) as b, closing(Transport(None, socks_proxy=f"{host}:{port}")) as a:
        until(lambda: a.greet(str(b.address), [b"x"]))


def test_closing_ends_all_and_leaves_nothing_open() -> None:
    before, threads = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    with Proxies("ab") as network, swarm(network, "ab"):
        network.cut("a", "b")
    network.close()
    gc.collect()
    assert threading.active_count() == threads
    until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before)
