"""Patience and grants follow the pace of a share, so that slow links can carry it."""

from collections import deque
from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.events import ShareRefused
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Body, Chunk, Grant, Hello, Offer, Pending, Query
from rumor.sim.fuzz.vector import schema_of

from ..scene import WIDE, Scene, an_offer

WIDER = replace(WIDE, window_bytes=128)

LONG = schema_of(64)
"""Shares of 512 bytes: 32 frames, eight of which may be under way."""

STALLED = ShareRefused("a", "stalled")


def offered(config: ProtocolConfig = WIDER) -> Scene:
    """A sender called a has offered b a share."""
    made = Scene(config)
    made.enter("b", schema=LONG)
    made.join("b")
    made.introduce("a", "b", schema=LONG)
    assert offer(made) == [Grant(1, 128)]
    return made


def get(made: Scene, body: Body, frame_bytes: int = 0) -> list[Body]:
    letter = made.letter("a", "b", body, frame_bytes=frame_bytes, schema=LONG.hash)
    answers: list[Body] = made.sent(made.receive(letter), object)
    return answers


def offer(made: Scene) -> list[Body]:
    return get(made, an_offer(escrow=ONE // 2, size_bytes=512))


def frame(made: Scene, index: int, after_s: float) -> list[int]:
    """Deliver a frame to b after a while, and return the offset up to which it grants."""
    made.wait(after_s)
    answers = get(made, Chunk(1, index, 16 * index), 16)
    return [grant.credit_bytes for grant in answers if isinstance(grant, Grant)]


def stalls_after(made: Scene, seconds: float) -> None:
    """Check that b gives the share up after this time, and no sooner."""
    since_s = made.now
    assert made.peers["b"].deadline() <= since_s + 1.0, "meanwhile it gossips"
    made.now = since_s + seconds - 0.01
    assert STALLED not in made.wake("b")
    made.now = since_s + seconds + 0.01
    assert STALLED in made.wake("b")


def test_a_grant_stays_valid_when_the_pace_falls() -> None:
    made = offered()
    granted = [g for index in range(8) for g in frame(made, index, 0.01)]
    granted += [g for index in range(8, 12) for g in frame(made, index, 3.0)]
    assert granted == sorted(granted) and granted[-1] >= 256
    assert offer(made) == [Grant(1, granted[-1])], "also if the offer is repeated"
    # Frames 12 to 14 were lost or are late: this one was still granted.
    frame(made, 15, 0.0)


def test_after_the_pace_has_fallen_nothing_is_granted_twice() -> None:
    made = offered(replace(WIDER, stall_s=100.0))
    assert [g for index in range(8) for g in frame(made, index, 0.01)][-1] == 256
    assert [frame(made, index, 2.4) for index in range(8, 12)] == [[]] * 4


def test_a_slow_sender_is_granted_no_more_than_two_seconds_of_its_pace() -> None:
    made = offered()
    # At two frames a second, two seconds carry four frames.
    granted = [(index, g) for index in range(20) for g in frame(made, index, 0.5)]
    later = [g - 16 * (index + 1) for index, g in granted if index >= 8]
    assert later and max(later) <= 5 * 16
    assert min(later) >= 2 * 16, "never less than two frames"


def test_even_the_slowest_sender_is_granted_a_frame() -> None:
    made, granted = offered(), 128
    for index in range(32):
        assert granted >= 16 * (index + 1), "otherwise it would wait forever"
        granted = max([granted, *frame(made, index, 100.0)])
    assert made.peers["b"].staged == 1 and made.mix_all("b")


@pytest.mark.parametrize(
    ("gap_s", "patience_s"), [(0.05, 2.0), (0.25, 5.0), (1.0, 20.0), (5.0, 100.0), (9.0, 120.0)]
)
def test_the_stall_timeout_of_a_share_follows_its_pace(gap_s: float, patience_s: float) -> None:
    made = offered()
    for index in range(6):
        frame(made, index, gap_s)
    stalls_after(made, patience_s)


def test_the_pace_is_unknown_before_the_second_frame() -> None:
    made = offered()
    frame(made, 0, 9.0)
    stalls_after(made, WIDER.stall_s)


def test_a_query_about_a_slow_share_does_not_end_it() -> None:
    made = offered()
    for index in range(4):
        frame(made, index, 5.0)
    made.wait(60.0)
    assert get(made, Query(1)) == [Pending(1)]
    made.wait(60.0)
    assert get(made, Query(1)) == [Ack(1, 0, bytes_s=3)]


@pytest.mark.parametrize("frame_s", [0.5, 5.0])
def test_a_share_gets_through_however_slow_its_frames_are(frame_s: float) -> None:
    """Half a window may take longer than the timeout of a sender that has not measured the link."""
    made = Scene(WIDER)
    for id in "ab":
        made.enter(id, schema=LONG)
    made.found("a", "b")
    made.push("a", "b", ONE // 2)
    since_s = made.now
    while made.peers["a"].account.outstanding and made.now < since_s + 40 * frame_s:
        made.deliver(Hello, Offer, Grant, Ack, Query, Pending)
        frames = [letter for letter in made.mail if isinstance(letter.body, Chunk)]
        made.mail = deque(frames[1:])
        made.wait(frame_s)
        for letter in frames[:1]:
            made.receive(letter)
        for id in "ab":
            made.wake(id)
        made.mix_all("b")
    assert made.peers["b"].account.weight == ONE + ONE // 2
