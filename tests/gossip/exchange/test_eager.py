"""An ACK may grant credit: bytes of the next share that can follow its offer at once."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Chunk, Offer

from ..scene import WIDE, Effects, Scene, an_offer, letters

WHOLE = replace(WIDE, window_bytes=64)
"""All four frames of a share may be in flight."""


def settled(config: ProtocolConfig = WIDE, *, accept: bool = True) -> Scene:
    """Return a scene with one settled push from a to b and no mail in flight."""
    scene = Scene(config).founded()
    scene.push("a", "b", ONE // 4)
    scene.deliver()
    if accept:
        scene.mix_all("b")
    else:
        scene.refuse_all("b")
    scene.deliver()
    assert not scene.peers["a"].account.outstanding
    return scene


def bodies(effects: Effects) -> list[str]:
    return [type(letter.body).__name__ for letter in letters(effects)]


def test_an_offer_is_followed_by_the_frames_that_the_last_ack_allowed() -> None:
    scene = settled()
    assert bodies(scene.push("a", "b", ONE // 4)) == ["Offer", "Chunk", "Chunk"]
    scene.tell("b", "a", Ack(2, 0))
    assert bodies(scene.push("a", "b", 5)) == ["Offer"], "credit is used once"
    assert bodies(settled(WHOLE).push("a", "b", 5)) == ["Offer", *["Chunk"] * 4]
    assert bodies(settled(accept=False).push("a", "b", 5)) == ["Offer"], (
        "a refused share gives no credit"
    )
    scene = settled()
    scene.enter("b", incarnation=2)
    scene.introduce("b", "a", incarnation=2)
    assert bodies(scene.push("a", "b", 5)) == ["Offer"], "credit is for one incarnation"


def test_an_offer_sent_with_credit_and_its_first_frame_get_no_grant() -> None:
    scene = Scene(WHOLE).founded("b")
    scene.introduce("a", "b")
    scene.wait(100.0)
    offer = an_offer(eager_bytes=64)
    assert bodies(scene.tell("a", "b", offer)) == []
    frame = scene.letter("a", "b", Chunk(1, 0, 0), frame_bytes=16)
    assert bodies(scene.receive(frame)) == []


def test_frames_of_a_refused_share_are_dropped() -> None:
    scene = settled(replace(WHOLE, staged_max=1))
    scene.introduce("c", "b")
    other = an_offer(frame_bytes=64)
    scene.receive(scene.letter("c", "b", other))
    scene.push("a", "b", 5)
    scene.deliver(Offer)
    assert scene.peers["b"].staged == 1
    before = len(scene.lines)
    scene.deliver(Chunk)
    assert not [line for line in scene.lines[before:] if "stage" in line or "inspect" in line]
    scene.deliver()
    assert scene.peers["a"].account.weight == ONE - ONE // 4


def test_an_ack_gives_credit_if_there_is_room_for_another_share() -> None:
    scene = Scene(replace(WIDE, staged_max=2)).founded("a", "b")
    for name in ("c", "d"):
        scene.introduce(name, "b")
        offer = an_offer()
        scene.tell(name, "b", offer)
    for index in range(4):
        chunk = Chunk(1, index, 16 * index)
        scene.tell("c", "b", chunk, frame_bytes=16)
    assert [ack.credit_bytes for ack in scene.sent(scene.mix_all("b"), Ack)] == [32]
    assert scene.peers["b"].staged == 1


def test_credit_beyond_a_window_is_ignored() -> None:
    scene = Scene(WIDE).founded()
    scene.push("a", "b", ONE // 4)
    scene.deliver()
    scene.mix_all("b")
    scene.mail.clear()
    scene.tell("b", "a", Ack(1, ONE // 4, 2**40))
    assert bodies(scene.push("a", "b", 5)) == ["Offer", "Chunk", "Chunk"]


def test_an_ack_reports_the_pace_of_frames_that_needed_no_grant() -> None:
    config = replace(WHOLE, frame_bytes_min=8, frame_bytes=16, frame_bytes_max=64, frame_s=1.0)
    scene = settled(config)
    scene.push("a", "b", ONE // 4)
    scene.deliver(Offer)
    for _ in range(4):
        scene.wait(2.0)
        scene.receive(scene.mail.popleft())
    scene.mix_all("b")
    (answer,) = (letter.body for letter in scene.mail if isinstance(letter.body, Ack))
    assert answer.bytes_s == 8, "three frames of 16 bytes in six seconds"
    scene.deliver()
    offers = scene.sent(scene.push("a", "b", ONE // 8), Offer)
    assert [offer.frame_bytes for offer in offers] == [8]


@pytest.mark.parametrize("frames", [0, 1])
def test_a_share_of_at_most_one_frame_has_no_pace(frames: int) -> None:
    scene = settled(replace(WHOLE, frame_bytes=64, frame_bytes_max=64) if frames else WHOLE)
    scene.push("a", "b", 5)
    scene.wait(1.0)
    scene.deliver(Offer, Chunk)
    if not frames:
        scene.refuse_all("b")
    scene.mix_all("b")
    answers = [letter.body for letter in scene.mail if isinstance(letter.body, Ack)]
    assert [answer.bytes_s for answer in answers] == [0]
