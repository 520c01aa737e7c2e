"""Patience and leave to send follow the pace at which a share comes: slow links carry it."""

from dataclasses import replace

import pytest

from rumor.gossip.effects.events import ShareRefused
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Body, Chunk, Grant, Hello, Offer, Pending, Query
from rumor.sim.fuzz.vector import schema_of

from ..scene import WIDE, Scene, an_offer

OFFER = an_offer(escrow=ONE // 2)


WIDER = replace(WIDE, window_bytes=128)


LONG = schema_of(64)
"""Shares of 512 bytes: 32 frames, eight of which may be under way."""


def long_scene() -> Scene:
    made = Scene(WIDER)
    made.enter("b", schema=LONG)
    made.join("b")
    made.introduce("a", "b", schema=LONG)
    return made


def frame(made: Scene, index: int, after_s: float) -> list[int]:
    """Give b a frame after a while, and return up to where it grants more."""
    made.wait(after_s)
    envelope = made.letter("a", "b", Chunk(1, index, 16 * index), frame_bytes=16, schema=LONG.hash)
    return [grant.credit_bytes for grant in made.sent(made.receive(envelope), Grant)]


def offered(made: Scene) -> list[Body]:
    offer = replace(OFFER, size_bytes=512)
    bodies: list[Body] = made.sent(
        made.receive(made.letter("a", "b", offer, schema=LONG.hash)), Grant
    )
    return bodies


def test_what_was_granted_once_stays_granted_when_the_pace_falls() -> None:
    made = long_scene()
    assert offered(made) == [Grant(1, 128)]
    granted = [g for index in range(8) for g in frame(made, index, 0.01)]
    granted += [g for index in range(8, 12) for g in frame(made, index, 3.0)]
    assert granted == sorted(granted) and granted[-1] >= 256
    # Frames 12 to 14 were lost, or are late: this one was granted all the same.
    frame(made, 15, 0.0)


def test_from_a_slow_sender_no_more_is_let_in_than_comes_in_two_seconds() -> None:
    made = long_scene()
    offered(made)
    # Two frames a second: four of them are as many as two seconds carry.
    granted = [(index, g) for index in range(20) for g in frame(made, index, 0.5)]
    later = [g - 16 * (index + 1) for index, g in granted if index >= 8]
    assert later and max(later) <= 5 * 16
    assert min(later) >= 2 * 16, "but never less than two frames"


def test_the_slowest_sender_always_has_leave_for_a_frame() -> None:
    made = long_scene()
    offered(made)
    granted = 128
    for index in range(32):
        assert granted >= 16 * (index + 1), "else it would wait for ever"
        granted = max([granted, *frame(made, index, 100.0)])
    assert made.peers["b"].staged == 1 and made.mix_all("b")


def test_a_slow_sender_costs_no_grant_for_every_frame() -> None:
    made = long_scene()
    offered(made)
    grants = sum(len(frame(made, index, 0.1)) for index in range(30))
    assert grants <= 12


def test_an_offer_that_comes_again_is_granted_as_much_as_before() -> None:
    made = long_scene()
    offered(made)
    for index in range(12):
        frame(made, index, 0.01 if index < 8 else 3.0)
    (grant,) = offered(made)
    assert isinstance(grant, Grant) and grant.credit_bytes >= 256


@pytest.mark.parametrize(
    ("gap_s", "patience_s"), [(0.05, 2.0), (0.25, 5.0), (1.0, 20.0), (5.0, 100.0), (9.0, 120.0)]
)
def test_how_long_a_share_may_stand_still_follows_from_its_own_pace(
    gap_s: float, patience_s: float
) -> None:
    made = long_scene()
    offered(made)
    for index in range(6):
        frame(made, index, gap_s)
    b, last_s = made.peers["b"], made.now
    assert b.deadline() <= last_s + 1.0, "it gossips meanwhile"
    made.now = last_s + patience_s - 0.01
    assert ShareRefused("a", "stalled") not in made.wake("b")
    made.now = last_s + patience_s + 0.01
    assert ShareRefused("a", "stalled") in made.wake("b")


def test_before_a_second_frame_nothing_is_known_of_a_pace() -> None:
    made = long_scene()
    offered(made)
    frame(made, 0, 9.0)
    made.wait(WIDER.stall_s - 0.01)
    assert ShareRefused("a", "stalled") not in made.wake("b")
    made.wait(0.02)
    assert ShareRefused("a", "stalled") in made.wake("b")


def test_a_share_without_the_last_frames_is_given_up_in_time() -> None:
    made = long_scene()
    offered(made)
    for index in range(6):
        frame(made, index, 0.25)
    made.wait(4.9)
    assert ShareRefused("a", "stalled") not in made.wake("b")
    made.wait(0.2)
    assert ShareRefused("a", "stalled") in made.wake("b")


def test_a_question_about_a_slow_share_does_not_end_it() -> None:
    made = long_scene()
    offered(made)
    for index in range(4):
        frame(made, index, 5.0)
    made.wait(60.0)
    question = made.letter("a", "b", Query(1), schema=LONG.hash)
    assert made.sent(made.receive(question), object) == [Pending(1)]
    made.wait(60.0)
    assert made.sent(made.receive(question), Ack) == [Ack(1, 0, bytes_s=3)]


@pytest.mark.parametrize("frame_s", [0.5, 2.0, 5.0])
def test_a_share_gets_through_however_slowly_its_frames_come(frame_s: float) -> None:
    """Half a window may take longer than a sender waits that knows nothing of the link."""
    made = Scene(WIDER)
    for id in "ab":
        made.enter(id, schema=LONG)
    for id, other in ("ab", "ba"):
        made.join(id, other, founders=2)
    for _ in range(4):
        made.deliver()
        made.wait(1.0)
        for id in "ab":
            made.wake(id)
    made.deliver()
    made.push("a", "b", ONE // 2)
    since_s = made.now
    while made.peers["a"].account.outstanding and made.now < since_s + 40 * frame_s:
        made.deliver(Hello, Offer, Grant, Ack, Query, Pending)
        frames = [letter for letter in made.mail if isinstance(letter.body, Chunk)]
        made.mail = type(made.mail)(frames[1:])
        made.wait(frame_s)
        for letter in frames[:1]:
            made.receive(letter)
        for id in "ab":
            made.wake(id)
        made.mix_all("b")
    assert made.peers["b"].account.weight == ONE + ONE // 2


def test_where_the_pace_has_fallen_nothing_is_granted_that_was_granted_before() -> None:
    patient = replace(WIDER, stall_s=100.0)
    made = Scene(patient)
    made.enter("b", schema=LONG)
    made.join("b")
    made.introduce("a", "b", schema=LONG)
    offered(made)
    granted = [g for index in range(8) for g in frame(made, index, 0.01)]
    assert granted[-1] == 256
    assert [frame(made, index, 2.4) for index in range(8, 12)] == [[]] * 4
