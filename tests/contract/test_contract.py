"""One contract for every network: the simulated ones promise no more than ZeroMQ keeps.

The first half is what all of them keep. The second is what all of them *can* do to a message, so
that a protocol which stands the simulated ones stands the real one.
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
    """Workers of a simulated swarm all listen."""
    with closing(ZeroMQPost()) as made:
        yield made


def pair(post: Post) -> tuple[End, End]:
    """Two that listen and know each other, ``here`` and ``there``."""
    here, there = post.open("here"), post.open("there")
    post.meet("here", "there")
    post.meet("there", "here")
    return here, there


def frame(number: int) -> bytes:
    """What belongs to message *number*, and to no other."""
    return number.to_bytes(4) * (FRAME // 4)


def insist(post: Post, end: End, to: str, number: int, *, bulk: bool) -> None:
    message = letter(end.name, to, number, frame=frame(number) if bulk else None)
    post.until(lambda: end.send(to, message))


def bulk(end: End, to: str, first: int, count: int) -> list[int]:
    """Send so much bulk at once; the numbers of what was taken."""
    messages = [letter(end.name, to, n, frame=frame(n)) for n in range(first, first + count)]
    return [message.number for message in messages if end.send(to, message)]


def flood(post: Post, end: End, to: str) -> list[int]:
    """Send bulk to one that reads none, until no more is taken; the numbers of what was."""
    taken = bulk(end, to, 2, 400)
    most = post.takes_unread_max
    if most is None:
        return taken
    more = taken
    while more and len(taken) <= most:
        # Where others want the processor, it takes a moment until all has moved up.
        post.settle()
        more = bulk(end, to, taken[-1] + 1, 400)
        taken += more
    assert len(taken) <= most
    return taken


def await_one(post: Post, end: End, number: int, *, bulk: bool) -> None:
    post.until(lambda: number in numbers(end.came, bulk=bulk))


def get_through(post: Post, end: End, other: End, first: int) -> None:
    """Send bulk, with ever higher numbers, until some of it comes.

    A reset is noticed a moment after it happened: what is taken until then is lost, too.
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
    """Greet until it comes."""

    def greeted() -> bool:
        end.greet(other.name, letter(end.name, other.name, 1))
        return any(message.envelope.source == end.name for message in other.came)

    post.until(greeted)


def dials_out(post: ZeroMQPost, name: str, to: End) -> End:
    """One that nobody can dial, and that has been heard."""
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
    """Wait until both classes of messages get from each to each, on the ways they will go."""
    for one in ends:
        for other in ends:
            if one is not other:
                post.until(partial(reaches, one, other))
    # The very first may have gone back on a way that the other has dialled.
    post.settle()
    for one in ends:
        one.came.clear()


def reaches(one: End, other: End) -> bool:
    """Try again; whether both classes have come."""
    one.send(other.name, letter(one.name, other.name, CONNECTS))
    one.send(other.name, letter(one.name, other.name, CONNECTS, frame=frame(CONNECTS)))
    return {message.bulk for message in other.came} == {False, True}


def test_all_messages_arrive_once_and_bulk_in_order_while_nothing_fails(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    for number in range(1, 61):
        insist(post, here, "there", number, bulk=number % 2 == 0)
        insist(post, there, "here", number, bulk=number % 2 == 1)
    post.until(lambda: count(here) == count(there) == 60)
    post.settle()
    even, odd = [*range(2, 61, 2)], [*range(1, 61, 2)]
    assert numbers(there.came, bulk=True) == even and numbers(here.came, bulk=True) == odd
    # Nothing relies on the order of answers.
    assert sorted(numbers(there.came, bulk=False)) == odd
    assert sorted(numbers(here.came, bulk=False)) == even
    assert_whole(here)
    assert_whole(there)


@pytest.mark.extended
def test_nobody_is_greeted_until_somebody_listens(post: Post) -> None:
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
def test_what_is_sent_to_the_dead_is_refused_or_vanishes_and_nobody_waits(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    post.kill("there")
    taken = 0
    for number in range(2, 202):
        taken += here.send("there", letter("here", "there", number))
        taken += len(bulk(here, "there", number, 1))
    # What is refused from the start is known to be lost; of the rest nobody ever hears.
    assert taken < 400
    post.settle()
    assert count(there) == count(here) == 0


def test_what_is_sent_to_a_former_life_reaches_the_next_one_at_its_address(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    post.kill("there")
    reborn = post.open("there")
    # Nobody has told `here` that there is another life: it writes to the one it knows.
    post.until(lambda: reaches(here, reborn))
    assert {message.envelope.destination_incarnation for message in reborn.came} == {1}
    assert count(there) == 0


@pytest.mark.extended
def test_what_is_under_way_when_its_receiver_dies_comes_once_at_most_and_whole(post: Post) -> None:
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
def test_after_a_reset_in_mid_transfer_what_has_come_is_whole_and_the_rest_is_lost(
    post: Post,
) -> None:
    here, there = pair(post)
    connect(post, here, there)
    taken: list[int] = []
    post.reset_in_transfer("here", "there", lambda: taken.extend(bulk(here, "there", 2, 40)))
    get_through(post, here, there, 1000)
    get_through(post, there, here, 1000)
    came = numbers(there.came, bulk=True)
    assert came == sorted(set(came))
    came = [number for number in came if number < 1000]
    assert set(came) <= set(taken)
    assert len(came) < len(taken), "nothing was lost"
    assert_whole(there)


@pytest.mark.extended
def test_later_messages_go_through_after_many_resets(post: Post) -> None:
    here, there = pair(post)
    connect(post, here, there)
    for number in (100, 200, 300):
        post.reset_in_transfer("here", "there", partial(bulk, here, "there", number, 20))
        get_through(post, here, there, 1000 * number)
        get_through(post, there, here, 1000 * number)
    assert_whole(there)


@pytest.mark.live
@pytest.mark.extended
def test_one_that_only_dials_out_is_answered_on_the_way_its_message_came(
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
def test_after_a_reset_one_that_only_dials_out_is_out_of_reach_until_it_speaks(
    sockets: ZeroMQPost,
) -> None:
    there = sockets.open("there")
    hidden = dials_out(sockets, "hidden", there)
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


@pytest.mark.live
@pytest.mark.extended
def test_two_that_only_dial_out_do_not_reach_each_other(sockets: ZeroMQPost) -> None:
    there = sockets.open("there")
    one, other = (dials_out(sockets, name, there) for name in ("hidden", "other"))
    for number in range(2, 22):
        one.send("other", letter("hidden", "other", number))
        other.send("hidden", letter("other", "hidden", number, frame=frame(number)))
    sockets.settle()
    assert one.came == [] and other.came == []


@pytest.mark.extended
def test_one_that_stands_still_holds_nobody_up_and_control_comes_when_it_goes_on(
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
    # What the way there does not take may take the way back: then there are two orders.
    post.until(lambda: sorted(numbers(there.came, bulk=True)) == taken)
    assert_whole(there)


@pytest.mark.extended
def test_over_a_way_that_is_cut_nothing_comes_and_after_healing_what_is_sent_does(
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
def test_a_message_to_the_dead_can_be_taken_as_if_nothing_had_happened(harsh: Post) -> None:
    here, there = pair(harsh)
    connect(harsh, here, there)
    harsh.cut("here", "there")
    harsh.cut("there", "here")  # a machine without power says nothing, either
    harsh.kill("there")
    assert bulk(here, "there", 2, 4)
    harsh.heal()
    reborn = harsh.open("there")
    harsh.settle()
    assert count(there) == 0
    assert_whole(reborn)
