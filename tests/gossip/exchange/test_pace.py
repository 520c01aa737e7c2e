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
"""Shares of 512 bytes: 32 frames, eight of which may be in flight."""

STALLED = ShareRefused("a", "stalled")


def offered_scene(config: ProtocolConfig = WIDER) -> Scene:
    """A scene in which peer a has offered b a share."""
    scene = Scene(config)
    scene.enter("b", schema=LONG)
    scene.join("b")
    scene.introduce("a", "b", schema=LONG)
    assert offer(scene) == [Grant(1, 128)]
    return scene


def answers(scene: Scene, body: Body, frame_bytes: int = 0) -> list[Body]:
    letter = scene.letter("a", "b", body, frame_bytes=frame_bytes, schema=LONG.hash)
    bodies: list[Body] = scene.sent(scene.receive(letter), object)
    return bodies


def offer(scene: Scene) -> list[Body]:
    return answers(scene, an_offer(escrow=ONE // 2, size_bytes=512))


def frame(scene: Scene, index: int, after_s: float) -> list[int]:
    """Deliver a frame to b after a while, and return the offset up to which it grants."""
    scene.wait(after_s)
    bodies = answers(scene, Chunk(1, index, 16 * index), 16)
    return [grant.credit_bytes for grant in bodies if isinstance(grant, Grant)]


def require_stall_after(scene: Scene, seconds: float) -> None:
    """Check that b gives up the share after *seconds*, and no sooner."""
    since_s = scene.now
    assert scene.peers["b"].deadline() <= since_s + 1.0, "gossip continues meanwhile"
    scene.now = since_s + seconds - 0.01
    assert STALLED not in scene.wake("b")
    scene.now = since_s + seconds + 0.01
    assert STALLED in scene.wake("b")


def test_a_grant_stays_valid_when_the_pace_falls() -> None:
    scene = offered_scene()
    granted = [g for index in range(8) for g in frame(scene, index, 0.01)]
    granted += [g for index in range(8, 12) for g in frame(scene, index, 3.0)]
    assert granted == sorted(granted) and granted[-1] >= 256
    assert offer(scene) == [Grant(1, granted[-1])], "a repeated offer gets the same grant"
    # Frames 12 to 14 are lost or late: frame 15 was still granted.
    frame(scene, 15, 0.0)


def test_nothing_is_granted_twice_after_the_pace_falls() -> None:
    scene = offered_scene(replace(WIDER, stall_s=100.0))
    assert [g for index in range(8) for g in frame(scene, index, 0.01)][-1] == 256
    assert [frame(scene, index, 2.4) for index in range(8, 12)] == [[]] * 4


def test_a_slow_sender_is_granted_no_more_than_two_seconds_of_its_pace() -> None:
    scene = offered_scene()
    # At two frames a second, two seconds carry four frames.
    granted = [(index, g) for index in range(20) for g in frame(scene, index, 0.5)]
    later = [g - 16 * (index + 1) for index, g in granted if index >= 8]
    assert later and max(later) <= 5 * 16
    assert min(later) >= 2 * 16, "never less than two frames"


def test_even_the_slowest_sender_is_granted_a_frame() -> None:
    scene, granted = offered_scene(), 128
    for index in range(32):
        assert granted >= 16 * (index + 1), "otherwise it would wait forever"
        granted = max([granted, *frame(scene, index, 100.0)])
    assert scene.peers["b"].staged == 1 and scene.mix_all("b")


@pytest.mark.parametrize(
    ("gap_s", "patience_s"), [(0.05, 2.0), (0.25, 5.0), (1.0, 20.0), (5.0, 100.0), (9.0, 120.0)]
)
def test_the_stall_timeout_of_a_share_follows_its_pace(gap_s: float, patience_s: float) -> None:
    scene = offered_scene()
    for index in range(6):
        frame(scene, index, gap_s)
    require_stall_after(scene, patience_s)


def test_the_pace_is_unknown_before_the_second_frame() -> None:
    scene = offered_scene()
    frame(scene, 0, 9.0)
    require_stall_after(scene, WIDER.stall_s)


def test_a_query_about_a_slow_share_does_not_end_it() -> None:
    scene = offered_scene()
    for index in range(4):
        frame(scene, index, 5.0)
    scene.wait(60.0)
    assert answers(scene, Query(1)) == [Pending(1)]
    scene.wait(60.0)
    assert answers(scene, Query(1)) == [Ack(1, 0, bytes_s=3)]


@pytest.mark.parametrize("frame_s", [0.5, 5.0])
def test_a_share_completes_even_if_its_frames_are_slow(frame_s: float) -> None:
    """Half a window may take longer than the timeout of a sender that has not measured the link."""
    scene = Scene(WIDER)
    for id in "ab":
        scene.enter(id, schema=LONG)
    scene.found("a", "b")
    scene.push("a", "b", ONE // 2)
    since_s = scene.now
    while scene.peers["a"].account.outstanding and scene.now < since_s + 40 * frame_s:
        scene.deliver(Hello, Offer, Grant, Ack, Query, Pending)
        frames = [letter for letter in scene.mail if isinstance(letter.body, Chunk)]
        scene.mail = deque(frames[1:])
        scene.wait(frame_s)
        for letter in frames[:1]:
            scene.receive(letter)
        for id in "ab":
            scene.wake(id)
        scene.mix_all("b")
    assert scene.peers["b"].account.weight == ONE + ONE // 2
