"""A share is admitted, completed and decided exactly once; invalid shares are refused."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Drop, Mix, Stage
from rumor.gossip.effects.events import ShareRefused
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.exchange.flow_control import FRAMES_MAX
from rumor.gossip.protocol.rule import Requirements
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE, WEIGHT_MAX
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import Ack, Body, Chunk, Grant, Leave, Phase, Push, Query
from rumor.sim.fuzz.vector import schema_of

from ..scene import OTHER_ANCHOR, SMALL, WIDE, Effects, Scene, a_push, an_offer, only

OFFER = an_offer(escrow=ONE // 2)
SHARE = ShareId("a", 1, 1)
PUSH = a_push(escrow=ONE // 2)


def make_scene(config: ProtocolConfig = WIDE) -> Scene:
    """A peer b that holds weight, and a sender a whose messages the test supplies."""
    scene = Scene(config)
    scene.join("b")
    scene.introduce("a", "b")
    return scene


def answers(scene: Scene, body: Body, *, frame_bytes: int = 0, finite: bool = True) -> list[Body]:
    if isinstance(body, Push | Chunk):
        frame_bytes = frame_bytes or (64 if isinstance(body, Push) else 16)
    envelope = scene.letter("a", "b", body, frame_bytes=frame_bytes)
    bodies: list[Body] = scene.sent(scene.receive(envelope, finite=finite), object)
    return bodies


def refusals(scene: Scene, sender: str, body: Body) -> list[str]:
    frame_bytes = body.size_bytes if isinstance(body, Push) else 0
    effects = scene.tell(sender, "b", body, frame_bytes=frame_bytes)
    return [refused.reason for refused in only(effects, ShareRefused)]


def test_an_offer_gets_a_window_and_then_half_a_window_at_a_time() -> None:
    scene = make_scene()
    assert answers(scene, Chunk(1, 0, 0)) == [], "a frame without a transfer is dropped"
    assert answers(scene, OFFER) == answers(scene, OFFER) == [Grant(1, 32)], "a duplicate"
    answers(scene, replace(OFFER, escrow=5))
    assert scene.peers["b"].staged == 1
    assert answers(scene, Chunk(1, 0, 0)) == [Grant(1, 48)]
    again = scene.tell("a", "b", Chunk(1, 0, 0), frame_bytes=16)
    assert not only(again, Stage)
    assert answers(scene, Chunk(1, 1, 16)) == [Grant(1, 64)]
    assert answers(scene, Chunk(1, 2, 32)) == []


@pytest.mark.parametrize(
    ("frame_bytes", "granted"),
    [
        (24, [[Grant(1, 32)], [Grant(1, 56)], [Grant(1, 64)], []]),
        (40, [[Grant(1, 40)], [Grant(1, 64)]]),
    ],
)
def test_frames_have_the_size_stated_in_the_offer(
    frame_bytes: int, granted: list[list[Grant]]
) -> None:
    scene = make_scene()
    found = [answers(scene, replace(OFFER, frame_bytes=frame_bytes))]
    with pytest.raises(RemoteProtocolError, match="not a frame of its share"):
        answers(scene, Chunk(1, 0, 0))
    for index in range(len(granted) - 1):
        start = index * frame_bytes
        size = min(frame_bytes, 64 - start)
        found.append(answers(scene, Chunk(1, index, start), frame_bytes=size))
    assert found == granted
    assert frame_bytes > 32 or Mix(SHARE, 1 / 3) in scene.mix_all("b")


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
def test_a_message_that_breaks_the_protocol_changes_nothing(
    body: Body, frame_bytes: int, reason: str
) -> None:
    scene = make_scene()
    answers(scene, OFFER)
    with pytest.raises(RemoteProtocolError, match=reason) as caught:
        scene.tell("a", "b", body, frame_bytes=frame_bytes)
    assert caught.value.sender == "a"
    assert scene.peers["b"].staged == 1 and not scene.wake("b")[1:]


def scene_of_size(config: ProtocolConfig, size: int) -> Scene:
    """A receiver b and a sender a with a model of *size* numbers."""
    scene, schema = Scene(config), schema_of(size)
    scene.enter("b", schema=schema)
    scene.join("b")
    scene.introduce("a", "b", schema=schema)
    return scene


def offer_grants(scene: Scene, size: int, frame_bytes: int) -> list[Grant]:
    schema = schema_of(size)
    body = replace(OFFER, size_bytes=schema.share_bytes, frame_bytes=frame_bytes)
    return scene.sent(scene.tell("a", "b", body, schema=schema.hash), Grant)


def test_frames_may_complete_a_share_in_any_order() -> None:
    scene = make_scene(replace(WIDE, window_bytes=64))
    answers(scene, OFFER)
    for index in (0, 3, 1):
        answers(scene, Chunk(1, index, 16 * index))
    assert not scene.mix_all("b")
    answers(scene, Chunk(1, 2, 32))
    assert Mix(SHARE, 1 / 3) in scene.mix_all("b")


def test_a_query_fences_an_unseen_share_and_ends_the_previous_share() -> None:
    scene = make_scene()
    answers(scene, OFFER)
    assert answers(scene, Query(2)) == [Ack(1, 0), Ack(2, 0)]
    assert answers(scene, replace(OFFER, seq=2)) == [Ack(2, 0)]
    assert answers(scene, OFFER) == answers(scene, Query(1)) == []
    assert scene.peers["b"].staged == 0
    scene = make_scene()
    answers(scene, OFFER)
    assert answers(scene, replace(OFFER, seq=2)) == [Ack(1, 0), Grant(2, 32)], (
        "a new offer ends the previous share"
    )
    scene = make_scene()
    answers(scene, replace(OFFER, seq=2))
    assert answers(scene, Query(1)) == [], "the previous share needs no answer"


@pytest.mark.parametrize("body", [replace(PUSH, seq=2), Query(2)])
def test_a_sender_must_wait_until_a_complete_share_is_settled(body: Body) -> None:
    scene = make_scene(SMALL)
    answers(scene, PUSH)
    with pytest.raises(RemoteProtocolError, match="before the last share was settled"):
        answers(scene, body)
    assert scene.peers["b"].staged == 1


def test_a_share_is_inspected_once_and_returned_if_not_finite() -> None:
    scene = make_scene(SMALL)
    assert answers(scene, PUSH, finite=False) == [Ack(1, 0)]
    assert scene.peers["b"].staged == 0
    answers(scene, replace(PUSH, seq=2))
    share = SHARE._replace(seq=2)
    assert scene.peers["b"].inspected(share, 0.0, finite=True) == []
    assert scene.peers["b"].staged == 1
    scene.mix_all("b")
    assert scene.peers["b"].inspected(share, 0.0, finite=True) == [], "too late"


def test_offers_beyond_the_staging_limit_are_refused() -> None:
    scene = make_scene(replace(WIDE, staged_max=1))
    scene.introduce("c", "b")
    answers(scene, OFFER)
    assert refusals(scene, "c", OFFER) == ["busy"]


def test_an_impossible_weight_is_refused() -> None:
    scene, why = make_scene(), ["more weight than there can be"]
    assert refusals(scene, "a", replace(OFFER, escrow=WEIGHT_MAX)) == why
    assert answers(scene, replace(OFFER, seq=2, escrow=WEIGHT_MAX - ONE)) == [Grant(2, 32)]
    scene.introduce("c", "b")
    assert refusals(scene, "c", replace(OFFER, escrow=1)) == why


def test_an_incomplete_share_of_a_restarted_sender_stalls_beside_its_next_one() -> None:
    scene = make_scene()
    answers(scene, OFFER)
    again = scene.tell("a", "b", OFFER, incarnation=2)
    assert scene.sent(again, Grant) == [Grant(1, 32)] and scene.peers["b"].staged == 2
    scene.wait(WIDE.stall_s - 1.0)
    scene.tell("a", "b", Chunk(1, 0, 0), incarnation=2, frame_bytes=16)
    scene.wait(1.0)
    effects = scene.wake("b")
    assert Drop(SHARE) in effects and scene.peers["b"].staged == 1
    assert only(effects, ShareRefused) == [ShareRefused("a", "stalled")]


def test_a_share_of_another_swarm_is_refused_unless_it_was_accepted_before() -> None:
    scene = make_scene()
    strange = scene.letter("a", "b", OFFER, swarm=OTHER_ANCHOR)
    assert scene.sent(scene.receive(strange), Ack) == [Ack(1, 0)]
    answers(scene, replace(OFFER, seq=2))
    strange = scene.letter("a", "b", replace(OFFER, seq=2), swarm=OTHER_ANCHOR)
    assert scene.sent(scene.receive(strange), Ack) == []
    assert scene.peers["b"].staged == 1


def test_a_newcomer_accepts_only_a_requested_copy() -> None:
    scene = Scene()
    scene.join("b", "a")
    scene.introduce("a", "b", phase=Phase.SEEKING)
    copy = replace(PUSH, size_bytes=128, form=Form(copy=True))
    assert refusals(scene, "a", copy) == ["not asked for"]
    scene = Scene()
    scene.join("a")
    scene.ask("b", "a")
    assert scene.peers["b"].phase is Phase.JOINING
    assert refusals(scene, "a", PUSH) == ["not a copy"]


@pytest.mark.parametrize("frame_bytes", [0, 1])
def test_a_share_with_too_many_frames_is_refused(frame_bytes: int) -> None:
    size = FRAMES_MAX // 8 + 1
    scene = scene_of_size(SMALL, size)
    with pytest.raises(RemoteProtocolError, match="more frames than are counted"):
        offer_grants(scene, size, frame_bytes)
    assert offer_grants(scene, size, 2)


def test_an_expected_frame_is_received_in_place() -> None:
    scene = make_scene()
    b, chunk = scene.peers["b"], scene.letter("a", "b", Chunk(1, 1, 16), frame_bytes=16)
    assert b.place_of(chunk) is None
    answers(scene, OFFER)
    place = Stage(SHARE, 16, 64)
    assert b.place_of(chunk) == b.place_of(chunk) == place
    assert place in scene.receive(chunk)
    assert b.place_of(chunk) is None, "it has arrived"
    others = [
        scene.letter("a", "b", Chunk(1, 2, 32), frame_bytes=15),
        scene.letter("a", "b", Chunk(2, 2, 32), frame_bytes=16),
        scene.letter("a", "b", Chunk(1, 2, 32), frame_bytes=16, shard=1),
        scene.letter("a", "b", Chunk(1, 2, 32), frame_bytes=16, incarnation=2),
        scene.letter("a", "b", PUSH, frame_bytes=64),
    ]
    assert [b.place_of(other) for other in others] == [None] * len(others)


SHARE_BYTES = 64


def push_from_stranger(scene: Scene, weight: int) -> Effects:
    """Let a stranger push *weight* to a, which mixes the share."""
    body = a_push(escrow=weight, size_bytes=SHARE_BYTES)
    scene.tell("s", "a", body, frame_bytes=SHARE_BYTES)
    return scene.mix_all("a")


@pytest.mark.parametrize(
    ("own", "weight", "accepted"),
    [
        (ONE, ONE, ONE),
        (ONE, 99 * ONE, 8 * ONE),
        (ONE // 2, 99 * ONE, 9 * ONE // 2),
        (ONE // 2**20, 4 * ONE, 4 * ONE),
        (ONE // 2**20, 99 * ONE, 4 * ONE),
    ],
)
def test_the_weight_accepted_from_one_peer_is_limited(own: int, weight: int, accepted: int) -> None:
    scene = Scene().founded()
    if own < ONE:
        scene.push("a", "b", ONE - own)
    scene.introduce("s", "a")
    effects = push_from_stranger(scene, weight)
    (mixed,) = only(effects, Mix)
    (ack,) = [body for body in scene.sent(effects, Ack)]
    assert ack.accepted == accepted == scene.peers["a"].state.weight - own
    assert mixed.fraction == accepted / (own + accepted)


def test_a_leaver_may_outweigh_its_receiver_up_to_a_limit() -> None:
    scene = Scene().founded()
    scene.push("a", "b", ONE - ONE // 2**20)
    scene.introduce("s", "a")
    scene.tell("s", "a", Leave(gone=False))
    push_from_stranger(scene, 99 * ONE)
    assert scene.peers["a"].state.weight == 8 * ONE + ONE // 2**20


def test_rules_that_need_whole_shares_accept_their_full_weight() -> None:
    scene = Scene(requirements=Requirements()).founded("a", "b")
    scene.introduce("s", "a")
    push_from_stranger(scene, 99 * ONE)
    assert scene.peers["a"].state.weight == 100 * ONE
