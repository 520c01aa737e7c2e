"""Addresses that lead elsewhere from here are believed of this machine's own peers alone."""

import socket as sockets
from collections.abc import Sequence

import pytest
import zmq

from rumor.gossip.transport.received import Received, as_heard, is_here
from rumor.gossip.transport.zmq_transport import Transport
from rumor.gossip.wire.codec import Buffer, decode_header, encode
from rumor.gossip.wire.messages import Ask, Body, Envelope, Hello, Member, Phase, Refer

from ...waiting import until

NEAR = ("tcp://127.0.0.1:22", "tcp://localhost:1", "tcp://[::1]:9", "tcp://169.254.169.254:80")
FAR = ("tcp://10.0.0.5:7700", "tcp://node-a:7700")


class Heard:
    """A message of one part."""

    route, key, place, more = b"route", b"", "", False

    def __init__(self, header: Buffer, *, here: bool) -> None:
        self.header = bytes(header)
        self.is_here = here

    def frame_into(self, room: memoryview) -> int:
        return 0

    def frame(self) -> Buffer:
        return b""

    def finish(self) -> bool:
        return False


def member(id: str, addresses: Sequence[str]) -> Member:
    return Member(
        id=id,
        incarnation=1,
        heartbeat=1,
        phase=Phase.TRAINING,
        step=0,
        addresses=tuple(addresses),
    )


def taken(body: Body, *, here: bool) -> Body:
    """What is made of a message; its header says the same."""
    envelope = Envelope(b"", bytes(16), "s", 1, "a", 1, body)
    heard: Received = Heard(encode(envelope)[0], here=here)
    fit, header = as_heard(envelope, heard)
    assert decode_header(header)[0] == fit
    return fit.body


def hello(addresses: Sequence[str]) -> Hello:
    own = member("s", FAR)
    return Hello(members=(own, member("x", addresses)), rooted=True, reply=False)


def test_of_another_machine_no_address_is_learnt_that_leads_here() -> None:
    assert taken(hello([*NEAR, *FAR]), here=False) == hello(FAR)
    assert taken(Refer((member("x", NEAR),)), here=False) == Refer((member("x", ()),))


def test_of_this_machine_all_are() -> None:
    assert taken(hello(NEAR), here=True) == hello(NEAR)


@pytest.mark.parametrize("body", [hello(FAR), hello(["junk", "ipc:///tmp/x"]), Ask()])
def test_what_leads_elsewhere_or_nowhere_stays(body: Body) -> None:
    assert taken(body, here=False) is body


@pytest.mark.live
def test_a_connection_from_this_machine_is_known_on_either_end() -> None:
    one, two = Transport("tcp://127.0.0.1:*"), Transport(None)
    try:
        two.meet("one", [one.address or ""])
        came: list[bool] = []

        def have_come() -> bool:
            two.send("one", [b"hi"], bulk=False)
            for received in one.poll(0.01):
                came.append(received.is_here)
                one.learn("two", received.route, bulk=False)
            return len(came) >= 2

        until(have_come, poll_s=0)
        one.send("two", [b"ho"], bulk=False)
        back: list[bool] = []
        while not back:
            back += [received.is_here for received in two.poll(0.01)]
        assert all(came) and all(back)
    finally:
        one.close(0)
        two.close(0)


@pytest.mark.live
def test_of_a_connection_that_is_closed_nobody_can_say() -> None:
    class Part:
        def __init__(self, number: int) -> None:
            self.number = number

        def get(self, option: int) -> int:
            assert option == zmq.SRCFD
            return self.number

    with sockets.create_server(("127.0.0.1", 0)) as server:
        with sockets.create_connection(server.getsockname()) as near:
            far, _ = server.accept()
            with far:
                assert is_here(Part(near.fileno()))  # type: ignore[arg-type]
        assert not is_here(Part(server.fileno()))  # type: ignore[arg-type]
        assert not is_here(Part(10**6))  # type: ignore[arg-type]
