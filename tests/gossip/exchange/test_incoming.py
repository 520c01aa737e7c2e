"""A share is let in, comes whole and is decided exactly once; what is not a share is refused."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Drop, Mix, Stage
from rumor.gossip.effects.events import ShareRefused
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.exchange.flow_control import FRAMES_MAX
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE, WEIGHT_MAX
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import Ack, Body, Chunk, Grant, Pending, Phase, Push, Query
from rumor.sim.fuzz.vector import schema_of

from ..scene import OTHER_ANCHOR, SMALL, WIDE, Scene, a_push, an_offer, of

OFFER = an_offer(escrow=ONE // 2)
SHARE = ShareId("a", 1, 1)
PUSH = a_push(escrow=ONE // 2)


def scene(config: ProtocolConfig = WIDE) -> Scene:
    """A peer b that holds weight, and somebody called a who writes what the test likes."""
    made = Scene(config)
    made.enter("b")
    made.join("b")
    made.introduce("a", "b")
    return made


def get(made: Scene, body: Body, *, frame_bytes: int = 0, finite: bool = True) -> list[Body]:
    """Give b a message of a, and return what b answers."""
    envelope = made.letter("a", "b", body, frame_bytes=frame_bytes)
    answers: list[Body] = made.sent(made.receive(envelope, finite=finite), object)
    return answers


def test_an_offer_is_granted_a_window_and_then_half_a_window_at_a_time() -> None:
    made = scene()
    assert get(made, OFFER) == [Grant(1, 32)]
    assert get(made, Chunk(1, 0, 0), frame_bytes=16) == [Grant(1, 48)]
    assert get(made, Chunk(1, 1, 16), frame_bytes=16) == [Grant(1, 64)]
    assert get(made, Chunk(1, 2, 32), frame_bytes=16) == []


def test_an_offer_that_comes_twice_is_granted_the_same_again() -> None:
    made = scene()
    assert get(made, OFFER) == get(made, OFFER) == [Grant(1, 32)]
    get(made, replace(OFFER, escrow=5))
    assert made.peers["b"].staged == 1


@pytest.mark.parametrize(
    ("body", "frame_bytes", "reason"),
    [
        (replace(PUSH, size_bytes=32), 32, "a share of 32 bytes, not 64"),
        (PUSH, 63, "not as long as it says"),
        (replace(OFFER, seq=2, escrow=0), 0, "without weight"),
        (Chunk(1, 0, 0), 15, "not a frame of its share"),
        (Chunk(1, 0, 16), 16, "not a frame of its share"),
        (Chunk(1, -1, -16), 16, "not a frame of its share"),
        (Chunk(1, 4, 64), 0, "not a frame of its share"),
        (Chunk(1, 5, 80), 1, "not a frame of its share"),
        (Chunk(1, 2, 32), 16, "not granted"),
    ],
)
def test_what_breaks_the_protocol_changes_nothing(
    body: Body, frame_bytes: int, reason: str
) -> None:
    made = scene()
    get(made, OFFER)
    with pytest.raises(RemoteProtocolError, match=reason) as caught:
        get(made, body, frame_bytes=frame_bytes)
    assert caught.value.sender == "a"
    assert made.peers["b"].staged == 1 and not made.wake("b")[1:]


def test_frames_that_belong_to_nothing_are_dropped() -> None:
    made = scene()
    assert get(made, Chunk(1, 0, 0), frame_bytes=16) == []
    get(made, OFFER)
    get(made, Chunk(1, 0, 0), frame_bytes=16)
    again = made.receive(made.letter("a", "b", Chunk(1, 0, 0), frame_bytes=16))
    assert not of(again, Stage)


def test_a_share_is_whole_with_whichever_frame_comes_last() -> None:
    made = scene(replace(WIDE, window_bytes=64))
    get(made, OFFER)
    for index in (0, 3, 1):
        get(made, Chunk(1, index, 16 * index), frame_bytes=16)
    assert not made.mix_all("b")
    get(made, Chunk(1, 2, 32), frame_bytes=16)
    assert Mix(SHARE, 1 / 3) in made.mix_all("b")


def test_a_question_about_a_share_that_is_there_is_answered_pending() -> None:
    made = scene()
    get(made, OFFER)
    assert get(made, Query(1)) == [Pending(1)]


def test_a_question_about_a_stalled_share_decides_it() -> None:
    made = scene()
    get(made, OFFER)
    made.wait(WIDE.stall_s)
    assert get(made, Query(1)) == [Ack(1, 0)]
    assert made.peers["b"].staged == 0


def test_a_share_that_stops_in_the_middle_is_sent_back() -> None:
    made = scene()
    made.wait(0.3)
    get(made, OFFER)
    made.wait(WIDE.stall_s)
    assert ShareRefused("a", "stalled") in made.wake("b")


def test_a_frame_is_a_sign_of_life_though_others_are_missing() -> None:
    made = scene()
    get(made, OFFER)
    stall_s = made.config.stall_s
    made.wait(0.9 * stall_s)
    get(made, Chunk(1, 0, 0), frame_bytes=16)
    made.wait(0.9 * stall_s)
    assert ShareRefused("a", "stalled") not in made.wake("b")
    made.wait(0.2 * stall_s)
    assert ShareRefused("a", "stalled") in made.wake("b")


def test_a_question_fences_what_was_never_seen_and_ends_what_came_before() -> None:
    made = scene()
    get(made, OFFER)
    assert get(made, Query(2)) == [Ack(1, 0), Ack(2, 0)]
    assert get(made, replace(OFFER, seq=2)) == [Ack(2, 0)]
    assert get(made, OFFER) == get(made, Query(1)) == []
    assert made.peers["b"].staged == 0


def test_a_question_about_a_share_before_the_one_at_hand_needs_no_answer() -> None:
    made = scene()
    get(made, replace(OFFER, seq=2))
    assert get(made, Query(1)) == []


def test_a_later_offer_ends_one_that_was_given_up() -> None:
    made = scene()
    get(made, OFFER)
    assert get(made, replace(OFFER, seq=2)) == [Ack(1, 0), Grant(2, 32)]


@pytest.mark.parametrize("body", [replace(PUSH, seq=2), Query(2)])
def test_nobody_may_go_on_before_a_whole_share_is_settled(body: Body) -> None:
    made = scene(SMALL)
    get(made, PUSH, frame_bytes=64)
    with pytest.raises(RemoteProtocolError, match="before the last share was settled"):
        get(made, body, frame_bytes=64 if isinstance(body, Push) else 0)
    assert made.peers["b"].staged == 1


def test_a_share_that_is_not_finite_is_sent_back() -> None:
    made = scene(SMALL)
    assert get(made, PUSH, frame_bytes=64, finite=False) == [Ack(1, 0)]
    assert made.peers["b"].staged == 0


def test_the_vectors_word_on_a_decided_share_comes_too_late() -> None:
    made = scene(SMALL)
    made.receive(made.letter("a", "b", PUSH, frame_bytes=64))
    made.mix_all("b")
    assert made.peers["b"].inspected(SHARE, 0.0, finite=True) == []


def test_when_too_many_shares_lie_here_others_are_refused_before_their_bytes_move() -> None:
    made = scene(replace(WIDE, staged_max=1))
    made.introduce("c", "b")
    get(made, OFFER)
    refused = made.receive(made.letter("c", "b", OFFER))
    assert ShareRefused("c", "busy") in refused


def test_more_weight_than_there_can_be_is_refused() -> None:
    made = scene()
    refused = made.receive(made.letter("a", "b", replace(OFFER, escrow=WEIGHT_MAX)))
    assert ShareRefused("a", "more weight than there can be") in refused
    assert get(made, replace(OFFER, seq=2, escrow=WEIGHT_MAX - ONE)) == [Grant(2, 32)]
    made.introduce("c", "b")
    refused = made.receive(made.letter("c", "b", replace(OFFER, escrow=1)))
    assert ShareRefused("c", "more weight than there can be") in refused


def test_what_a_restarted_peer_can_no_longer_finish_is_sent_back() -> None:
    made = scene()
    get(made, OFFER)
    effects = made.receive(made.letter("a", "b", Query(1), incarnation=2))
    assert Drop(SHARE) in effects
    assert ShareRefused("a", "its sender restarted") in effects


def test_a_share_of_another_swarm_is_refused_but_not_one_that_was_let_in() -> None:
    made = scene()
    strange = made.letter("a", "b", OFFER, swarm=OTHER_ANCHOR)
    assert made.sent(made.receive(strange), Ack) == [Ack(1, 0)]
    get(made, replace(OFFER, seq=2))
    strange = made.letter("a", "b", replace(OFFER, seq=2), swarm=OTHER_ANCHOR)
    assert made.sent(made.receive(strange), Ack) == []
    assert made.peers["b"].staged == 1


def test_a_newcomer_takes_nothing_that_it_did_not_ask_for() -> None:
    made = Scene()
    made.enter("b")
    made.join("b", "a")
    made.introduce("a", "b", phase=Phase.SEEKING)
    copy = replace(PUSH, size_bytes=128, form=Form(copy=True))
    assert ShareRefused("a", "not asked for") in made.receive(
        made.letter("a", "b", copy, frame_bytes=128)
    )


def test_a_joining_peer_takes_a_copy_only() -> None:
    made = Scene()
    made.enter("a")
    made.join("a")
    made.enter("b")
    made.join("b", "a")
    made.deliver()
    made.wait(0.2)
    made.wake("b")
    assert made.peers["b"].phase is Phase.JOINING
    assert ShareRefused("a", "not a copy") in made.receive(
        made.letter("a", "b", PUSH, frame_bytes=64)
    )


def test_frames_are_as_large_as_the_offer_says() -> None:
    made = scene()
    offer = replace(OFFER, frame_bytes=24)
    assert get(made, offer) == [Grant(1, 32)]
    with pytest.raises(RemoteProtocolError, match="not a frame of its share"):
        get(made, Chunk(1, 0, 0), frame_bytes=16)
    assert get(made, Chunk(1, 0, 0), frame_bytes=24) == [Grant(1, 56)]
    assert get(made, Chunk(1, 1, 24), frame_bytes=24) == [Grant(1, 64)]
    assert get(made, Chunk(1, 2, 48), frame_bytes=16) == []
    assert Mix(SHARE, 1 / 3) in made.mix_all("b")


def test_a_frame_larger_than_the_window_is_let_in_all_the_same() -> None:
    made = scene()
    assert get(made, replace(OFFER, frame_bytes=40)) == [Grant(1, 40)]
    assert get(made, Chunk(1, 0, 0), frame_bytes=40) == [Grant(1, 64)]


def test_no_more_than_so_many_small_frames_are_let_in_at_once() -> None:
    made = scene(replace(WIDE, window_bytes=10_000))
    schema = schema_of(256)
    made.enter("c", schema=schema)
    made.join("c")
    made.introduce("a", "c", schema=schema)
    offer = replace(OFFER, size_bytes=schema.share_bytes, frame_bytes=16)
    effects = made.receive(made.letter("a", "c", offer, schema=schema.hash))
    assert made.sent(effects, Grant) == [Grant(1, 64 * 16)]


@pytest.mark.parametrize("frame_bytes", [0, 1])
def test_a_share_in_more_frames_than_are_counted_is_refused(frame_bytes: int) -> None:
    made = Scene()
    schema = schema_of(FRAMES_MAX // 8 + 1)
    made.enter("b", schema=schema)
    made.join("b")
    made.introduce("a", "b", schema=schema)
    offer = replace(OFFER, size_bytes=schema.share_bytes, frame_bytes=frame_bytes)
    with pytest.raises(RemoteProtocolError, match="more frames than are counted"):
        made.receive(made.letter("a", "b", offer, schema=schema.hash))
    effects = made.receive(made.letter("a", "b", replace(offer, frame_bytes=2), schema=schema.hash))
    assert made.sent(effects, Grant)


def test_a_frame_is_received_where_it_belongs_if_it_is_wanted() -> None:
    made = scene()
    b, chunk = made.peers["b"], made.letter("a", "b", Chunk(1, 1, 16), frame_bytes=16)
    assert b.place_of(chunk) is None
    get(made, OFFER)
    place = Stage(SHARE, 16, 64)
    assert b.place_of(chunk) == b.place_of(chunk) == place
    assert place in made.receive(chunk)
    assert b.place_of(chunk) is None, "it has come"
    others = [
        made.letter("a", "b", Chunk(1, 2, 32), frame_bytes=15),
        made.letter("a", "b", Chunk(2, 2, 32), frame_bytes=16),
        made.letter("a", "b", Chunk(1, 2, 32), frame_bytes=16, shard=1),
        made.letter("a", "b", Chunk(1, 2, 32), frame_bytes=16, incarnation=2),
        made.letter("a", "b", PUSH, frame_bytes=64),
    ]
    assert [b.place_of(other) for other in others] == [None] * len(others)


def test_a_share_is_found_to_be_finite_once() -> None:
    made = scene(SMALL)
    get(made, PUSH, frame_bytes=64)
    assert made.peers["b"].staged == 1
    assert made.peers["b"].inspected(SHARE, 0.0, finite=True) == []
    assert made.peers["b"].staged == 1
