"""Real sockets with keys: admission of machines, their names, and revocations."""

import socket as sockets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import zmq

from rumor.gossip.transport.keys.key import key_text
from rumor.gossip.transport.keys.keyring import Keyring
from rumor.gossip.transport.zmq_transport import Transport

from .... import waiting
from ..keyrings import Swarm, address_of

pytestmark = pytest.mark.live


@pytest.fixture
def swarm(tmp_path: Path) -> Swarm:
    made = Swarm(tmp_path)
    for name in ("m1", "m2", "m3"):
        made.machine(name)
    return made


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def open_transport(
    stack: ExitStack, keyring: Keyring | None, bind: str | None = "tcp://127.0.0.1:*"
) -> Transport:
    transport = Transport(bind, keyring=keyring)
    stack.callback(transport.close, 0)
    return transport


def pair(swarm: Swarm, stack: ExitStack, *names: str) -> tuple[Transport, Transport]:
    one, two = (open_transport(stack, swarm.keyring(name)) for name in names or ("m1", "m2"))
    return one, two


def keyed_address(transport: Transport) -> str:
    assert transport.keyring is not None and transport.address is not None
    return address_of(transport.keyring, transport.address)


def run(*transports: Transport, until: Callable[[], bool]) -> list[tuple[bytes, bytes]]:
    """Poll in turn until a condition holds; return the header and key of each message."""
    received: list[tuple[bytes, bytes]] = []

    def holds() -> bool:
        if until():
            return True
        for transport in transports:
            received.extend((each.header, each.key) for each in transport.poll(0.005))
        return False

    waiting.until(holds, poll_s=0)
    return received


def receive_message(
    receiver: Transport, *others: Transport, send: Callable[[], object], header: bytes = b""
) -> tuple[bytes, bytes]:
    """Send until *receiver* gets a message, and return it.

    With *header* earlier messages, which may still be in flight, are ignored.
    """
    received: list[tuple[bytes, bytes]] = []

    def has_arrived() -> bool:
        send()
        polled = [(each.header, each.key) for each in receiver.poll(0.005)]
        received.extend(each for each in polled if header in (b"", each[0]))
        return bool(received)

    run(*others, until=has_arrived)
    return received[0]


def refusal_reason(one: Transport, other: Transport, place: str, text: str = "") -> str:
    """Return the reason for which *other* is refused; check that none of its messages arrives."""
    received = run(
        one, other, until=lambda: not other.greet(place, [b"hi"]) and text in other.refusal(place)
    )
    assert not received
    return other.refusal(place)


def test_members_receive_messages_and_identify_the_senders(swarm: Swarm, stack: ExitStack) -> None:
    one, two = pair(swarm, stack)
    header, key = receive_message(one, two, send=lambda: two.greet(keyed_address(one), [b"hi"]))
    assert two.keyring is not None and (header, key) == (b"hi", two.keyring.public)
    assert one.may_speak_as(key, "m2") and one.may_speak_as(key, "m2.sounder")
    assert not one.may_speak_as(key, "m1")
    assert any("in the name of m1" in why for why in one.refused)


@pytest.mark.extended
def test_a_machine_is_admitted_as_soon_as_the_roster_lists_it(
    swarm: Swarm, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    one, late = pair(swarm, stack, "m1", "m4")
    place = keyed_address(one)
    assert refusal_reason(one, late, place, "refuses")
    assert "is not in version 4 of the roster: its owner has revoked it, or has not" in caplog.text
    swarm.file("m1.roster")
    receive_message(one, late, send=lambda: late.greet(place, [b"hi"]))
    assert not late.refusal(place)


def raw_socket(stack: ExitStack, kind: int) -> "zmq.Socket[bytes]":
    context = stack.enter_context(zmq.Context())
    socket = context.socket(kind)
    stack.callback(socket.close, 0)
    return socket


def test_messages_of_a_client_without_keys_do_not_arrive(swarm: Swarm, stack: ExitStack) -> None:
    one, two = pair(swarm, stack)
    assert one.address is not None
    client = raw_socket(stack, zmq.DEALER)
    client.connect(one.address)
    client.send(b"stranger")
    header, _ = receive_message(one, two, send=lambda: two.greet(keyed_address(one), [b"hi"]))
    assert header == b"hi"


@pytest.mark.extended
def test_messages_of_a_client_with_an_unlisted_key_do_not_arrive(
    swarm: Swarm, stack: ExitStack
) -> None:
    one = open_transport(stack, swarm.keyring("m1"))
    assert one.address is not None and one.keyring is not None
    client = raw_socket(stack, zmq.DEALER)
    client.curve_publickey, client.curve_secretkey = zmq.curve_keypair()
    client.setsockopt(zmq.CURVE_SERVERKEY, one.keyring.public)
    client.connect(one.address)
    client.send(b"hi")
    assert not run(one, until=lambda: any("is not in version 4" in why for why in one.refused))


@pytest.mark.extended
def test_bytes_that_are_no_handshake_do_not_disturb_members(swarm: Swarm, stack: ExitStack) -> None:
    one, two = pair(swarm, stack)
    port = int((one.address or "").rsplit(":", 1)[1])
    with sockets.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01CURVE" + bytes(4096))
        receive_message(one, two, send=lambda: two.greet(keyed_address(one), [b"hi"]))


@pytest.mark.extended
def test_a_machine_whose_key_differs_from_the_address_receives_nothing(
    swarm: Swarm, stack: ExitStack
) -> None:
    one, two = pair(swarm, stack)
    wrong = address_of(swarm.keyring("m3"), one.address or "")
    assert "another key" in refusal_reason(one, two, wrong, "another")


@pytest.mark.extended
def test_a_peer_without_keys_is_detected(swarm: Swarm, stack: ExitStack) -> None:
    plain, two = open_transport(stack, None), open_transport(stack, swarm.keyring("m2"))
    place = address_of(swarm.keyring("m1"), plain.address or "")
    assert "has no keys" in refusal_reason(plain, two, place, "keys")


@pytest.mark.extended
def test_addresses_without_a_members_key_are_not_dialled(swarm: Swarm, stack: ExitStack) -> None:
    one, two = pair(swarm, stack)
    plain = open_transport(stack, None, bind=None)
    assert one.address is not None
    unknown = f"tcp://{key_text(bytes(32))}@{one.address.removeprefix('tcp://')}"
    for _ in range(20):
        assert not two.greet(one.address, [b"hi"])
        assert not two.greet(unknown, [b"hi"])
        assert not plain.greet(keyed_address(one), [b"hi"])
        assert not [*one.poll(0.005), *two.poll(0.005), *plain.poll(0.005)]
    assert not one.refused


def test_a_revoked_machine_is_disconnected_and_the_others_continue(
    swarm: Swarm, stack: ExitStack
) -> None:
    one, two, three = (open_transport(stack, swarm.keyring(name)) for name in ("m1", "m2", "m3"))
    place = keyed_address(one)
    for each, name in ((two, "m2"), (three, "m3")):
        hi = name.encode()
        key = receive_message(one, each, send=partial(each.greet, place, [hi]), header=hi)[1]
        assert one.may_speak_as(key, name)
    before = one.address
    swarm.revoke("m2")
    swarm.file("m1.roster")
    expelled: set[str] = set()

    def has_expelled() -> bool:
        [*one.poll(0.005)]
        expelled.update(one.take_expelled())
        return bool(expelled)

    # The revoked machine is not polled: its expulsion does not depend on it.
    run(until=has_expelled)
    assert expelled == {"m2"} and one.address == before
    again = partial(three.greet, place, [b"again"])
    _, key = receive_message(one, three, send=again, header=b"again")
    assert three.keyring is not None and key == three.keyring.public
    send_more = partial(two.greet, place, [b"more"])
    messages = run(one, two, until=lambda: not send_more() and bool(two.refusal(place)))
    # The message of the third machine may have been sent twice.
    assert {sender for _, sender in messages} <= {key}


@pytest.mark.extended
def test_a_new_roster_reaches_machines_with_old_files(swarm: Swarm, stack: ExitStack) -> None:
    one, two, three = (open_transport(stack, swarm.keyring(name)) for name in ("m1", "m2", "m3"))
    for each in (one, two, three):
        for other in (one, two, three):
            if each is not other:
                each.meet(f"peer-{id(other)}", [keyed_address(other)])
    receive_message(two, one, three, send=lambda: one.greet(keyed_address(two), [b"hi"]))
    receive_message(three, one, two, send=lambda: two.greet(keyed_address(three), [b"hi"]))
    swarm.machine("m4")
    swarm.file("m1.roster")
    rings = [each.keyring for each in (one, two, three) if each.keyring is not None]
    run(one, two, three, until=lambda: all(len(ring.machines) == 5 for ring in rings))
    swarm.revoke("m4")
    swarm.file("m3.roster")
    run(one, two, three, until=lambda: all(ring.roster.version == 6 for ring in rings))
    assert all(len(ring.machines) == 4 for ring in rings)


@pytest.mark.extended
def test_an_unsigned_roster_is_refused_even_from_a_member(swarm: Swarm, stack: ExitStack) -> None:
    one, two = pair(swarm, stack)
    forged = b"RMK\x01" + swarm.roster.text.encode().replace(b"version 4", b"version 9")

    def is_refused() -> bool:
        sent = two.greet(keyed_address(one), [forged])
        return sent and any("signature does not match" in why for why in one.refused)

    assert not run(one, two, until=is_refused)
    assert one.keyring is not None and one.keyring.roster.version == 4


@pytest.mark.extended
def test_no_machine_is_admitted_without_the_key_handler(swarm: Swarm, stack: ExitStack) -> None:
    one, two = pair(swarm, stack)
    place = keyed_address(one)
    curve = one._curve
    assert curve is not None
    # Fail-closed: without a handler ZeroMQ refuses every machine, even a member.
    one._poller.unregister(curve.zap)
    curve.zap.close(0)
    curve.answer = lambda: None  # type: ignore[method-assign]
    for _ in range(100):
        two.greet(place, [b"hi"])
        assert not [*one.poll(0.005), *two.poll(0.005)]
