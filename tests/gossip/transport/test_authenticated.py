"""Bulk in the clear: what is genuine comes, and nothing else does."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import zmq

from rumor.gossip.errors import ConfigError, DecodeError, TransportError
from rumor.gossip.transport.authenticated import BulkPort, Seal, read_offer
from rumor.gossip.transport.zmq_transport import Transport

from ...waiting import LIMIT_S, until
from .keyrings import Swarm, address_of

pytestmark = pytest.mark.live

MACHINE = bytes(32)
FRAME = bytes(range(256)) * 4


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def port(stack: ExitStack) -> BulkPort:
    context = stack.enter_context(zmq.Context())
    opened = BulkPort(context, ["tcp://127.0.0.1", "tcp://127.0.0.1"], 0, 10)
    stack.callback(opened.socket.close, 0)
    return opened


class Sender:
    """The other end of a link, which need not be honest."""

    def __init__(self, port: BulkPort, stack: ExitStack) -> None:
        self.socket = stack.enter_context(zmq.Context()).socket(zmq.PUSH)
        stack.callback(self.socket.close, 0)
        told, self.seal = read_offer(port.offer(b"route", MACHINE))
        self.socket.connect(f"tcp://127.0.0.1:{told}")
        self._port = port

    def send(self, *parts: bytes) -> Any:
        """Send parts, the stamp among them; what the port makes of it."""
        self.socket.send_multipart(parts)
        assert self._port.socket.poll(int(LIMIT_S * 1000))
        return self._port.take()[0]


@pytest.fixture
def sender(port: BulkPort, stack: ExitStack) -> Sender:
    return Sender(port, stack)


def test_a_genuine_message_comes_whole(port: BulkPort, sender: Sender) -> None:
    for frame in (FRAME, b"", FRAME[:1]):
        parts = [b"header", frame][: 1 + bool(frame)]
        message = sender.send(sender.seal.stamp(parts), *parts)
        assert message is not None
        assert (message.header, message.key, message.route) == (b"header", MACHINE, b"")
        assert bytes(message.frame()) == frame
        assert not message.finish()
    assert port.refused == 0


def test_a_frame_can_be_received_where_it_belongs(sender: Sender) -> None:
    message = sender.send(sender.seal.stamp([b"header", FRAME]), b"header", FRAME)
    room = bytearray(len(FRAME))
    assert message.frame_into(memoryview(room)) == len(FRAME)
    assert room == FRAME


@pytest.mark.parametrize("into", [False, True])
def test_a_frame_that_was_changed_is_found_out(sender: Sender, into: bool) -> None:
    changed = bytes([FRAME[0] ^ 1]) + FRAME[1:]
    message = sender.send(sender.seal.stamp([b"header", FRAME]), b"header", changed)
    with pytest.raises(DecodeError, match="the frame was changed on its way"):
        message.frame_into(memoryview(bytearray(len(FRAME)))) if into else message.frame()


def test_what_is_not_genuine_is_thrown_away(port: BulkPort, sender: Sender) -> None:
    parts = [b"header", FRAME]
    genuine = sender.seal.stamp(parts)
    stranger = Seal(bytes(16), bytes(16)).stamp(parts)
    thief = Seal(sender.seal.id, bytes(16)).stamp(parts)
    for index, forged in enumerate(
        (
            [genuine, b"another header", FRAME],
            [stranger, *parts],
            [thief, *parts],
            [genuine[:-1], *parts],
            [genuine],
            [b""],
        )
    ):
        assert sender.send(*forged) is None
        assert port.refused == index + 1
    # None of it has used the genuine one up, which can be played once.
    assert sender.send(genuine, *parts) is not None
    assert sender.send(genuine, *parts) is None


def test_messages_of_the_expelled_are_thrown_away(port: BulkPort, sender: Sender) -> None:
    port.expel([MACHINE, b"nobody"])
    assert sender.send(sender.seal.stamp([b"header"]), b"header") is None
    assert read_offer(port.offer(b"route", MACHINE))[1].id != sender.seal.id


def test_a_machine_that_connects_again_and_again_has_its_oldest_link_forgotten(
    port: BulkPort, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rumor.gossip.transport.authenticated._LINKS_MAX", 2)
    assert port.offer(b"route", MACHINE) == port.offer(b"route", MACHINE)
    other = read_offer(port.offer(b"route", b"another machine"))[1]
    for route in (b"second", b"third"):
        port.offer(route, MACHINE)
    assert sender.send(sender.seal.stamp([b"x"]), b"x") is None
    assert sender.send(other.stamp([b"x"]), b"x") is not None


def test_an_offer_of_another_length_is_none() -> None:
    with pytest.raises(ValueError, match="another length"):
        read_offer(b"RMB\x01")


def test_a_port_that_is_taken_is_said(port: BulkPort, stack: ExitStack) -> None:
    context = stack.enter_context(zmq.Context())
    with pytest.raises(TransportError, match=f"cannot listen at port {port.port}"):
        BulkPort(context, ["tcp://127.0.0.1"], port.port, 10)


def test_without_keys_there_is_no_such_port() -> None:
    with pytest.raises(ConfigError, match="bulk_port is for peers with keys"):
        Transport(bulk_port=0)


@pytest.fixture
def swarm(tmp_path: Path) -> Swarm:
    made = Swarm(tmp_path)
    for name in ("m1", "m2"):
        made.machine(name)
    return made


def open_one(stack: ExitStack, swarm: Swarm, name: str, bulk_port: int | None) -> Transport:
    transport = Transport(keyring=swarm.keyring(name), bulk_port=bulk_port)
    stack.callback(transport.close, 0)
    return transport


def exchange(one: Transport, two: Transport) -> Callable[[bytes], bytes]:
    """Let *two* know *one*; what sends bulk from it, and returns what came."""
    assert one.keyring is not None and one.address is not None
    place = address_of(one.keyring, one.address)
    two.meet("m1", [place])

    def send(frame: bytes) -> bytes:
        came: list[bytes] = []

        def has_come() -> bool:
            two.send("m1", [b"header", frame], bulk=True)
            for each in one.poll(0.005):
                came.extend([bytes(each.frame())] if each.header == b"header" else [])
                assert two.keyring is not None and each.key == two.keyring.public
            [*two.poll(0.001)]
            return bool(came)

        until(has_come, poll_s=0)
        return came[-1]

    return send


def ways(transport: Transport) -> list[bool]:
    """Of each way in the clear, whether it was ever connected."""
    found = (way.clear for way in transport._ways._ways.values())
    return [clear.works for clear in found if clear is not None]


def test_bulk_goes_in_the_clear_between_two_that_say_so(swarm: Swarm, stack: ExitStack) -> None:
    one, two = (open_one(stack, swarm, name, 0) for name in ("m1", "m2"))
    send = exchange(one, two)
    until(lambda: send(FRAME) == FRAME and ways(two) == [True], poll_s=0)
    before = one._bulk._seals  # type: ignore[union-attr]
    counts = [seal.count for seal, _ in before.values()]
    assert send(FRAME) == FRAME
    assert [seal.count for seal, _ in before.values()] > counts


@pytest.mark.parametrize("ports", [(None, 0), (0, None)])
def test_all_is_encrypted_unless_both_say_so(
    swarm: Swarm, stack: ExitStack, ports: tuple[int | None, int | None]
) -> None:
    one, two = (
        open_one(stack, swarm, name, port) for name, port in zip(("m1", "m2"), ports, strict=True)
    )
    send = exchange(one, two)
    for _ in range(5):
        assert send(FRAME) == FRAME
    assert ways(two) == []


def test_bulk_is_encrypted_where_the_port_cannot_be_reached(swarm: Swarm, stack: ExitStack) -> None:
    one, two = (open_one(stack, swarm, name, 0) for name in ("m1", "m2"))
    assert one._bulk is not None
    one._bulk.port = 9
    send = exchange(one, two)
    until(lambda: send(FRAME) == FRAME and ways(two), poll_s=0)
    assert send(FRAME) == FRAME
    assert ways(two) == [False]


def test_who_connects_again_is_told_another_key(swarm: Swarm, stack: ExitStack) -> None:
    one, two = (open_one(stack, swarm, name, 0) for name in ("m1", "m2"))
    send = exchange(one, two)
    until(lambda: send(FRAME) == FRAME and ways(two) == [True], poll_s=0)
    two.reset(["m1"])
    assert ways(two) == []
    until(lambda: send(FRAME) == FRAME and ways(two) == [True], poll_s=0)
    assert one._bulk is not None and len(one._bulk._seals) >= 2


def test_an_offer_that_is_none_changes_nothing(
    swarm: Swarm, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (open_one(stack, swarm, name, 0) for name in ("m1", "m2"))
    assert one._bulk is not None
    monkeypatch.setattr(one._bulk, "offer", lambda *_: b"RMB\x01short")
    send = exchange(one, two)
    for _ in range(5):
        assert send(FRAME) == FRAME
    assert ways(two) == []
