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
def harsh(request: pytest.FixtureRequest) -> Iterator[Post]:
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


def insist(post: Post, end: End, to: str, number: int, *, bulk: bool) -> None:
    message = letter(end.name, to, number, frame=frame(number) if bulk else None)
    post.until(lambda: end.send(to, message))


def bulk(end: End, to: str, first: int, count: int) -> list[int]:
    """Send *count* bulk messages at once; return the numbers of those taken."""
    messages = [letter(end.name, to, n, frame=frame(n)) for n in range(first, first + count)]
    return [message.number for message in messages if end.send(to, message)]


def flood(post: Post, end: End, to: str) -> list[int]:
    """Send bulk to an end that reads none until no more is taken; return the numbers taken."""
    taken = bulk(end, to, 2, 400)
    most = post.takes_unread_max
    if most is None:
        return taken
    more = taken
    while more and len(taken) <= most:
        # On a busy machine it takes a moment until the queues have moved up.
        post.settle()
        more = bulk(end, to, taken[-1] + 1, 400)
        taken += more
    assert len(taken) <= most
    return taken


def await_one(post: Post, end: End, number: int, *, bulk: bool) -> None:
    post.until(lambda: number in numbers(end.came, bulk=bulk))


def get_through(post: Post, end: End, other: End, first: int) -> None:
    """Send bulk with increasing numbers until some of it arrives.

    A reset is noticed a moment after it happened: messages taken until then are lost, too.
    """
    tries = itertools.count()

    def came() -> bool:
        at = next(tries)
        if at % 100 == 0:
            number = first + at // 100
            end.send(other.name, letter(end.name, other.name, number, frame=frame(number)))
        return any(number >= first for number in numbers(other.came, bulk=True))

    post.until(came)


def greet(post: Post, end: End, other: End) -> None:
    """Greet until a greeting arrives."""

    def greeted() -> bool:
        end.greet(other.name, letter(end.name, other.name, 1))
        return any(message.envelope.source == end.name for message in other.came)

    post.until(greeted)


def dials_out(post: ZeroMQPost, name: str, to: End) -> End:
    """Open an end that cannot be dialled, and that *to* has heard from."""
    end = post.open(name, listens=False)
    post.meet(name, to.name)
    greet(post, end, to)
    return end


def count(end: End) -> int:
    return len(numbers(end.came, bulk=True)) + len(numbers(end.came, bulk=False))


def assert_whole(end: End) -> None:
    for message in end.came:
        assert not message.bulk or message.frame == frame(message.number)


def connect(post: Post, *ends: End) -> None:
    """Wait until bulk and control get from every end to every other, on their final routes."""
    for one in ends:
        for other in ends:
            if one is not other:
                post.until(partial(reaches, one, other))
    # The very first messages may have used a connection that the other end dialled.
    post.settle()
    for one in ends:
        one.came.clear()


def reaches(one: End, other: End) -> bool:
    """Send one message of each class; return whether both classes have arrived."""
    one.send(other.name, letter(one.name, other.name, CONNECTS))
    one.send(other.name, letter(one.name, other.name, CONNECTS, frame=frame(CONNECTS)))
    return {message.bulk for message in other.came} == {False, True}


def test_without_faults_all_messages_arrive_once_and_bulk_in_order(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    for number in range(1, 61):
        insist(post, here, "there", number, bulk=number % 2 == 0)
        insist(post, there, "here", number, bulk=number % 2 == 1)
    post.until(lambda: count(here) == count(there) == 60)
    post.settle()
    even, odd = [*range(2, 61, 2)], [*range(1, 61, 2)]
    assert numbers(there.came, bulk=True) == even and numbers(here.came, bulk=True) == odd
    # The protocol does not rely on the order of control messages.
    assert sorted(numbers(there.came, bulk=False)) == odd
    assert sorted(numbers(here.came, bulk=False)) == even
    assert_whole(here)
    assert_whole(there)


@pytest.mark.extended
def test_greetings_arrive_only_once_the_peer_listens(post: Post) -> None:
    post.open("there")
    post.kill("there")
    here = post.open("here")
    for _ in range(20):
        here.greet("there", letter("here", "there", 1))
    post.settle()
    there = post.open("there")
    assert there.came == []
    greet(post, here, there)


@pytest.mark.extended
def test_messages_to_a_dead_peer_are_refused_or_vanish_without_blocking(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    post.kill("there")
    taken = 0
    for number in range(2, 202):
        taken += here.send("there", letter("here", "there", number))
        taken += len(bulk(here, "there", number, 1))
    # A refused message is known to be lost; the others vanish without notice.
    assert taken < 400
    post.settle()
    assert count(there) == count(here) == 0


def test_a_message_to_a_former_incarnation_reaches_the_next_one_at_its_address(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    post.kill("there")
    reborn = post.open("there")
    # `here` does not know of the new incarnation: it writes to the one it knows.
    post.until(lambda: reaches(here, reborn))
    assert {message.envelope.destination_incarnation for message in reborn.came} == {1}
    assert count(there) == 0


@pytest.mark.extended
def test_bulk_in_flight_to_a_dying_peer_arrives_whole_and_at_most_once(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    taken = bulk(here, "there", 2, 40)
    post.kill("there")
    reborn = post.open("there")
    post.settle()
    came = numbers([*there.came, *reborn.came], bulk=True)
    assert len(set(came)) == len(came) and set(came) <= set(taken)
    assert_whole(there)
    assert_whole(reborn)


@pytest.mark.extended
def test_each_reset_in_mid_transfer_loses_the_rest_and_damages_nothing(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    taken: list[int] = []

    def send(first: int) -> None:
        taken[:] = bulk(here, "there", first, 40)

    for first in (10_000, 20_000, 30_000):
        post.reset_in_transfer("here", "there", partial(send, first))
        get_through(post, here, there, first + 1000)
        get_through(post, there, here, first + 1000)
        came = numbers(there.came, bulk=True)
        assert came == sorted(set(came))
        came = [number for number in came if first <= number < first + 1000]
        assert set(came) <= set(taken)
        assert len(came) < len(taken), "nothing was lost"
        assert_whole(there)


@pytest.mark.live
@pytest.mark.extended
def test_a_peer_that_only_dials_out_is_answered_on_its_own_connection(
    sockets: ZeroMQPost,
) -> None:
    there = sockets.open("there")
    hidden = dials_out(sockets, "hidden", there)
    insist(sockets, there, "hidden", 2, bulk=True)
    insist(sockets, there, "hidden", 3, bulk=False)
    sockets.until(lambda: count(hidden) == 2)
    insist(sockets, hidden, "there", 4, bulk=True)
    await_one(sockets, there, 4, bulk=True)
    assert_whole(hidden)


@pytest.mark.live
@pytest.mark.extended
def test_after_a_reset_a_peer_that_only_dials_out_is_unreachable_until_it_dials(
    sockets: ZeroMQPost,
) -> None:
    there = sockets.open("there")
    hidden = dials_out(sockets, "hidden", there)
    # Both of its connections are known, and both are closed.
    insist(sockets, hidden, "there", 1, bulk=True)
    await_one(sockets, there, 1, bulk=True)
    sockets.reset("hidden", "there")
    sockets.settle()
    for number in range(2, 22):
        there.send("hidden", letter("there", "hidden", number))
    sockets.settle()
    assert count(hidden) == 0
    there.came.clear()
    greet(sockets, hidden, there)
    insist(sockets, there, "hidden", 30, bulk=True)
    sockets.until(lambda: numbers(hidden.came, bulk=True) == [30])


@pytest.mark.extended
def test_a_paused_peer_blocks_no_sender_and_gets_control_when_it_resumes(
    post: Post,
) -> None:
    here, there = pair(post)
    connect(post, here, there)
    post.stand_still("there")
    taken = flood(post, here, "there")
    insist(post, here, "there", 1000, bulk=False)
    post.settle()
    assert count(there) == 0
    post.go_on("there")
    await_one(post, there, 1000, bulk=False)
    # Bulk that does not fit one connection may use the other one: each keeps its own order.
    post.until(lambda: sorted(numbers(there.came, bulk=True)) == taken)
    assert_whole(there)


@pytest.mark.extended
def test_a_cut_link_delivers_nothing_and_a_healed_one_delivers_again(
    post: Post,
) -> None:
    here, there = pair(post)
    connect(post, here, there)
    post.cut("here", "there")
    for number in range(2, 12):
        here.send("there", letter("here", "there", number))
        bulk(here, "there", number, 1)
    post.settle()
    assert count(there) == 0
    # The other direction was not cut.
    insist(post, there, "here", 5, bulk=False)
    post.until(lambda: numbers(here.came, bulk=False) == [5])
    post.heal()
    insist(post, here, "there", 50, bulk=False)
    insist(post, here, "there", 51, bulk=True)
    await_one(post, there, 50, bulk=False)
    await_one(post, there, 51, bulk=True)
    came = numbers(there.came, bulk=True)
    assert came == sorted(set(came))


@pytest.mark.extended
def test_control_can_overtake_bulk(harsh: Post) -> None:
    here, there = pair(harsh)
    connect(harsh, here, there)
    for attempt in range(1, 21):
        harsh.stand_still("there")
        bulk(here, "there", 100 * attempt, 40)
        insist(harsh, here, "there", attempt, bulk=False)
        harsh.settle()
        harsh.go_on("there")
        harsh.settle()
        classes = [each.bulk for each in there.came if each.number != CONNECTS]
        if False in classes and True in classes[classes.index(False) :]:
            return
        there.came.clear()
    pytest.fail("control never overtook bulk")


@pytest.mark.extended
def test_the_network_can_take_a_message_to_a_dead_peer_without_an_error(harsh: Post) -> None:
    here, there = pair(harsh)
    connect(harsh, here, there)
    harsh.cut("here", "there")
    harsh.cut("there", "here")  # a machine without power sends nothing, either
    harsh.kill("there")
    assert bulk(here, "there", 2, 4)
    harsh.heal()
    reborn = harsh.open("there")
    harsh.settle()
    assert count(there) == 0
    assert_whole(reborn)
