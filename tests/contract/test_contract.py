"""One contract for every network: the simulated ones promise no more than ZeroMQ provides.

The first half states what every network guarantees. The second half states what every network *may*
do to a message, so that a protocol which survives the simulated networks survives the real one.
"""

import itertools
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from rumor.sim.models.network import NetworkConfig

from . import fleet_post, zeromq_post
from .fleet_post import FleetPost
from .post import CONNECTS, letter, numbers
from .zeromq_post import ZeroMQPost

Post = FleetPost | ZeroMQPost
End = fleet_post.End | zeromq_post.End

FRAME = 256 * 1024
NAMES = ("here", "there")


def networks(config: NetworkConfig) -> list[Any]:
    fleet = pytest.param(partial(FleetPost, NAMES, config), id="fleet")
    return [pytest.param(ZeroMQPost, id="zeromq", marks=pytest.mark.live), fleet]


@pytest.fixture(params=networks(fleet_post.CALM))
def post(request: pytest.FixtureRequest) -> Iterator[Post]:
    with closing(request.param()) as made:
        yield made


@pytest.fixture(params=networks(fleet_post.WORST))
def faulty(request: pytest.FixtureRequest) -> Iterator[Post]:
    with closing(request.param()) as made:
        yield made


@pytest.fixture
def sockets() -> Iterator[ZeroMQPost]:
    """A ZeroMQ network, for peers that only dial out: simulated workers all listen."""
    with closing(ZeroMQPost()) as made:
        yield made


def pair(post: Post) -> tuple[End, End]:
    """Two listening ends that know each other, ``here`` and ``there``."""
    here, there = post.open("here"), post.open("there")
    post.meet("here", "there")
    post.meet("there", "here")
    return here, there


def frame(number: int) -> bytes:
    """The frame of message *number*, different from that of any other message."""
    return number.to_bytes(4) * (FRAME // 4)


def retry_send(post: Post, end: End, to: str, number: int, *, bulk: bool) -> None:
    message = letter(end.name, to, number, frame=frame(number) if bulk else None)
    post.until(lambda: end.send(to, message))


def send_bulk(end: End, to: str, first: int, count: int) -> list[int]:
    """Send *count* bulk messages at once; return the numbers of the accepted messages."""
    messages = [letter(end.name, to, n, frame=frame(n)) for n in range(first, first + count)]
    return [message.number for message in messages if end.send(to, message)]


def send_until_full(post: Post, end: End, to: str) -> list[int]:
    """Send bulk messages to a paused end until no more are accepted; return their numbers."""
    accepted = send_bulk(end, to, 2, 400)
    most = post.unread_max
    if most is None:
        return accepted
    more = accepted
    while more and len(accepted) <= most:
        # On a busy machine the queues need a moment to move up.
        post.settle()
        more = send_bulk(end, to, accepted[-1] + 1, 400)
        accepted += more
    assert len(accepted) <= most
    return accepted


def await_message(post: Post, end: End, number: int, *, bulk: bool) -> None:
    post.until(lambda: number in numbers(end.received, bulk=bulk))


def send_until_received(post: Post, end: End, other: End, first: int) -> None:
    """Send bulk messages with increasing numbers until one arrives.

    An end notices a reset with a delay: messages accepted in the meantime are also lost.
    """
    tries = itertools.count()

    def has_arrived() -> bool:
        at = next(tries)
        if at % 100 == 0:
            number = first + at // 100
            end.send(other.name, letter(end.name, other.name, number, frame=frame(number)))
        return any(number >= first for number in numbers(other.received, bulk=True))

    post.until(has_arrived)


def greet(post: Post, end: End, other: End) -> None:
    """Send greetings until one arrives."""

    def greeted() -> bool:
        end.greet(other.name, letter(end.name, other.name, 1))
        return any(message.envelope.source == end.name for message in other.received)

    post.until(greeted)


def open_dial_only(post: ZeroMQPost, name: str, to: End) -> End:
    """Open an end that cannot be dialled; a greeting from it reaches *to*."""
    end = post.open(name, listens=False)
    post.meet(name, to.name)
    greet(post, end, to)
    return end


def count(end: End) -> int:
    return len(numbers(end.received, bulk=True)) + len(numbers(end.received, bulk=False))


def assert_whole(end: End) -> None:
    for message in end.received:
        assert not message.bulk or message.frame == frame(message.number)


def connect(post: Post, *ends: End) -> None:
    """Wait until bulk and control reach every end from every other end, on their final routes."""
    for one in ends:
        for other in ends:
            if one is not other:
                post.until(partial(reaches, one, other))
    # The very first messages may have used a connection that the other end dialled.
    post.settle()
    for one in ends:
        one.received.clear()


def reaches(one: End, other: End) -> bool:
    """Send one message of each class; return whether both classes have arrived."""
    one.send(other.name, letter(one.name, other.name, CONNECTS))
    one.send(other.name, letter(one.name, other.name, CONNECTS, frame=frame(CONNECTS)))
    return {message.bulk for message in other.received} == {False, True}


def test_all_messages_arrive_once_and_bulk_in_order_without_faults(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    for number in range(1, 61):
        retry_send(post, here, "there", number, bulk=number % 2 == 0)
        retry_send(post, there, "here", number, bulk=number % 2 == 1)
    post.until(lambda: count(here) == count(there) == 60)
    post.settle()
    even, odd = [*range(2, 61, 2)], [*range(1, 61, 2)]
    assert numbers(there.received, bulk=True) == even and numbers(here.received, bulk=True) == odd
    # The protocol does not rely on the order of control messages.
    assert sorted(numbers(there.received, bulk=False)) == odd
    assert sorted(numbers(here.received, bulk=False)) == even
    assert_whole(here)
    assert_whole(there)


@pytest.mark.extended
def test_greetings_arrive_only_while_the_peer_listens(post: Post) -> None:
    post.open("there")
    post.kill("there")
    here = post.open("here")
    for _ in range(20):
        here.greet("there", letter("here", "there", 1))
    post.settle()
    there = post.open("there")
    assert there.received == []
    greet(post, here, there)


@pytest.mark.extended
def test_messages_to_a_dead_peer_are_refused_or_lost_without_blocking(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    post.kill("there")
    accepted = 0
    for number in range(2, 202):
        accepted += here.send("there", letter("here", "there", number))
        accepted += len(send_bulk(here, "there", number, 1))
    # The sender knows that a refused message is lost; the others are lost without notice.
    assert accepted < 400
    post.settle()
    assert count(there) == count(here) == 0


def test_a_message_to_an_old_incarnation_reaches_its_successor(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    post.kill("there")
    reborn = post.open("there")
    # `here` does not know the new incarnation and addresses the old one.
    post.until(lambda: reaches(here, reborn))
    assert {message.envelope.destination_incarnation for message in reborn.received} == {1}
    assert count(there) == 0


@pytest.mark.extended
def test_bulk_in_flight_to_a_dying_peer_arrives_whole_and_at_most_once(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    accepted = send_bulk(here, "there", 2, 40)
    post.kill("there")
    reborn = post.open("there")
    post.settle()
    received = numbers([*there.received, *reborn.received], bulk=True)
    assert len(set(received)) == len(received) and set(received) <= set(accepted)
    assert_whole(there)
    assert_whole(reborn)


@pytest.mark.extended
def test_a_reset_in_mid_transfer_loses_the_rest_and_corrupts_nothing(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    accepted: list[int] = []

    def send(first: int) -> None:
        accepted[:] = send_bulk(here, "there", first, 40)

    for first in (10_000, 20_000, 30_000):
        post.reset_in_transfer("here", "there", partial(send, first))
        send_until_received(post, here, there, first + 1000)
        send_until_received(post, there, here, first + 1000)
        received = numbers(there.received, bulk=True)
        assert received == sorted(set(received))
        received = [number for number in received if first <= number < first + 1000]
        assert set(received) <= set(accepted)
        assert len(received) < len(accepted), "nothing was lost"
        assert_whole(there)


@pytest.mark.live
@pytest.mark.extended
def test_a_dial_only_peer_is_answered_on_its_own_connection(
    sockets: ZeroMQPost,
) -> None:
    there = sockets.open("there")
    hidden = open_dial_only(sockets, "hidden", there)
    retry_send(sockets, there, "hidden", 2, bulk=True)
    retry_send(sockets, there, "hidden", 3, bulk=False)
    sockets.until(lambda: count(hidden) == 2)
    retry_send(sockets, hidden, "there", 4, bulk=True)
    await_message(sockets, there, 4, bulk=True)
    assert_whole(hidden)


@pytest.mark.live
@pytest.mark.extended
def test_a_dial_only_peer_is_unreachable_after_a_reset_until_it_redials(
    sockets: ZeroMQPost,
) -> None:
    there = sockets.open("there")
    hidden = open_dial_only(sockets, "hidden", there)
    # Both of its connections are known, and both are closed.
    retry_send(sockets, hidden, "there", 1, bulk=True)
    await_message(sockets, there, 1, bulk=True)
    sockets.reset("hidden", "there")
    sockets.settle()
    for number in range(2, 22):
        there.send("hidden", letter("there", "hidden", number))
    sockets.settle()
    assert count(hidden) == 0
    there.received.clear()
    greet(sockets, hidden, there)
    retry_send(sockets, there, "hidden", 30, bulk=True)
    sockets.until(lambda: numbers(hidden.received, bulk=True) == [30])


@pytest.mark.extended
def test_a_paused_peer_blocks_no_sender_and_gets_control_messages_on_resume(
    post: Post,
) -> None:
    here, there = pair(post)
    connect(post, here, there)
    post.pause("there")
    accepted = send_until_full(post, here, "there")
    retry_send(post, here, "there", 1000, bulk=False)
    post.settle()
    assert count(there) == 0
    post.resume("there")
    await_message(post, there, 1000, bulk=False)
    # Bulk that does not fit one connection may use the other one: each keeps its own order.
    post.until(lambda: sorted(numbers(there.received, bulk=True)) == accepted)
    assert_whole(there)


@pytest.mark.extended
def test_a_cut_link_delivers_nothing_until_it_is_healed(
    post: Post,
) -> None:
    here, there = pair(post)
    connect(post, here, there)
    post.cut("here", "there")
    for number in range(2, 12):
        here.send("there", letter("here", "there", number))
        send_bulk(here, "there", number, 1)
    post.settle()
    assert count(there) == 0
    # The other direction was not cut.
    retry_send(post, there, "here", 5, bulk=False)
    post.until(lambda: numbers(here.received, bulk=False) == [5])
    post.heal()
    retry_send(post, here, "there", 50, bulk=False)
    retry_send(post, here, "there", 51, bulk=True)
    await_message(post, there, 50, bulk=False)
    await_message(post, there, 51, bulk=True)
    received = numbers(there.received, bulk=True)
    assert received == sorted(set(received))


@pytest.mark.extended
def test_control_can_overtake_bulk(faulty: Post) -> None:
    here, there = pair(faulty)
    connect(faulty, here, there)
    for attempt in range(1, 21):
        faulty.pause("there")
        send_bulk(here, "there", 100 * attempt, 40)
        retry_send(faulty, here, "there", attempt, bulk=False)
        faulty.settle()
        faulty.resume("there")
        faulty.settle()
        classes = [each.bulk for each in there.received if each.number != CONNECTS]
        if False in classes and True in classes[classes.index(False) :]:
            return
        there.received.clear()
    pytest.fail("control never overtook bulk")


@pytest.mark.extended
def test_the_network_can_accept_a_message_to_a_dead_peer_without_an_error(faulty: Post) -> None:
    here, there = pair(faulty)
    connect(faulty, here, there)
    faulty.cut("here", "there")
    faulty.cut("there", "here")  # a machine without power sends nothing, either
    faulty.kill("there")
    assert send_bulk(here, "there", 2, 4)
    faulty.heal()
    reborn = faulty.open("there")
    faulty.settle()
    assert count(there) == 0
    assert_whole(reborn)
