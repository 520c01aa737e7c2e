"""Messages of other models, strangers and impossible incarnations have no effect."""

import pytest

from rumor.gossip.effects.events import PeerRefused, SwarmGivenUp
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.wire.messages import Ack, Ask, Body, Describe, Hello, Query
from rumor.gossip.wire.schema import Schema, TensorSpec
from rumor.sim.fuzz.vector import SCHEMA

from ..scene import ANCHOR, OTHER_ANCHOR, Scene, an_offer, hello, member, only

OFFER = an_offer(frame_bytes=64)
OTHER_SCHEMA = Schema((TensorSpec("x", (5,), "float64"),))
FAR = 10**9


def alone(incarnation: int = 1) -> Scene:
    """A peer a that founded alone and has accepted nothing yet."""
    scene = Scene()
    scene.enter("a", incarnation=incarnation)
    scene.join("a")
    return scene


def rooted() -> Scene:
    """A peer a that has accepted a share from b."""
    scene = Scene().founded()
    scene.push("b", "a")
    scene.deliver()
    scene.mix_all("a")
    scene.deliver()
    return scene


def test_a_message_with_the_receivers_own_name_is_an_error() -> None:
    scene = alone()
    with pytest.raises(RemoteProtocolError, match="own name"):
        scene.tell("a", "a", Ask())


def test_the_sender_to_an_earlier_incarnation_learns_the_current_one() -> None:
    scene = alone(incarnation=2)
    (answer,) = scene.sent(scene.tell("b", "a", Query(1)), Hello)
    assert answer.members[0].incarnation == 2
    assert not scene.peers["a"].account.decided


def test_a_peer_with_another_model_gets_the_schema_and_the_first_difference() -> None:
    scene = alone()
    letter = scene.letter("b", "a", hello(member("b")), schema=OTHER_SCHEMA.hash)
    assert scene.sent(scene.receive(letter), object) == [Describe(SCHEMA)]
    assert scene.live() == ["a"]
    letter = scene.letter("b", "a", Describe(OTHER_SCHEMA), schema=OTHER_SCHEMA.hash)
    assert [e.reason for e in only(scene.receive(letter), PeerRefused)] == [
        "it trains another model: tensor 0 is x (4,) float64 here and x (5,) float64 there"
    ]
    assert scene.tell("b", "a", Describe(SCHEMA)) == []


def test_a_stranger_of_another_swarm_gets_answers_only_about_pushed_shares() -> None:
    scene = rooted()
    scene.introduce("c", "a")
    assert scene.tell("c", "a", Ask(), swarm=OTHER_ANCHOR) == []
    effects = scene.tell("c", "a", Query(1), swarm=OTHER_ANCHOR)
    assert scene.sent(effects, Ack) == [Ack(1, 0)]


@pytest.mark.parametrize("swarm", [ANCHOR, OTHER_ANCHOR])
@pytest.mark.parametrize("body", [OFFER, Query(1)])
def test_a_sender_without_a_hello_leaves_no_trace_in_the_ledger(body: Body, swarm: bytes) -> None:
    scene = rooted()
    before = dict(scene.peers["a"].account.decided)
    (answer,) = scene.sent(scene.tell("c", "a", body, swarm=swarm), object)
    assert isinstance(answer, Hello) and answer.reply
    assert scene.peers["a"].account.decided == before
    scene.introduce("c", "a")
    scene.tell("c", "a", Query(1))
    assert scene.peers["a"].account.decided[("c", 1)] == (1, 0)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("body", [Ask(), OFFER, Query(1), Ack(1, 0)])
def test_messages_of_an_incarnation_from_the_far_future_are_ignored(
    body: Body, known: bool
) -> None:
    scene = rooted()
    if known:
        scene.push("a", "b")
    before = dict(scene.peers["a"].account.decided), dict(scene.peers["a"].account.outstanding)
    for swarm in (ANCHOR, OTHER_ANCHOR):
        assert scene.tell("b", "a", body, incarnation=FAR, swarm=swarm) == []
    account = scene.peers["a"].account
    assert (account.decided, account.outstanding) == before


def test_a_peer_with_a_clock_far_ahead_is_reported_by_name() -> None:
    scene = alone()
    body = hello(member("b"), rooted=False, reply=True)
    assert scene.tell("b", "a", body, incarnation=FAR) == [
        PeerRefused("b", "its clock is far ahead of this peer's: set both by the same time")
    ]
    assert scene.peers["a"].known() == ()
    letter = scene.letter("b", "a", hello(member("b")), swarm=OTHER_ANCHOR, incarnation=FAR)
    assert SwarmGivenUp() not in scene.receive(letter)
    assert scene.peers["a"].swarm == ANCHOR


def test_a_message_that_breaks_the_protocol_still_counts_as_a_heartbeat() -> None:
    scene = Scene().founded()
    scene.push("a", "b")
    scene.strand("a", "b")
    assert scene.live() == ["a"]
    with pytest.raises(RemoteProtocolError):
        scene.tell("b", "a", Ack(1, 6))
    assert scene.live() == ["a", "b"]
    assert scene.peers["a"].account.outstanding["b", 1].escrow == 5
