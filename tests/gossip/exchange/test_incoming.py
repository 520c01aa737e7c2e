"""A share is let in, completed, and decided exactly once; invalid ones are refused."""

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

from ..scene import OTHER_ANCHOR, SMALL, WIDE, Effects, Scene, a_push, an_offer, of

OFFER = an_offer(escrow=ONE // 2)
SHARE = ShareId("a", 1, 1)
PUSH = a_push(escrow=ONE // 2)


def scene(config: ProtocolConfig = WIDE) -> Scene:
    """A peer b that holds weight, and a sender a whose messages the test writes."""
    made = Scene(config)
    made.join("b")
    made.introduce("a", "b")
    return made


def get(made: Scene, body: Body, *, frame_bytes: int = 0, finite: bool = True) -> list[Body]:
    if isinstance(body, Push | Chunk):
        frame_bytes = frame_bytes or (64 if isinstance(body, Push) else 16)
    envelope = made.letter("a", "b", body, frame_bytes=frame_bytes)
    answers: list[Body] = made.sent(made.receive(envelope, finite=finite), object)
    return answers


def refusals(made: Scene, sender: str, body: Body) -> list[str]:
    frame_bytes = body.size_bytes if isinstance(body, Push) else 0
    effects = made.tell(sender, "b", body, frame_bytes=frame_bytes)
    return [refused.reason for refused in of(effects, ShareRefused)]


def test_an_offer_is_granted_a_window_and_then_half_a_window_at_a_time() -> None:
    made = scene()
    assert get(made, Chunk(1, 0, 0)) == [], "a frame without a transfer is dropped"
    assert get(made, OFFER) == get(made, OFFER) == [Grant(1, 32)], "a duplicate"
    get(made, replace(OFFER, escrow=5))
    assert made.peers["b"].staged == 1
    assert get(made, Chunk(1, 0, 0)) == [Grant(1, 48)]
    again = made.tell("a", "b", Chunk(1, 0, 0), frame_bytes=16)
    assert not of(again, Stage)
    assert get(made, Chunk(1, 1, 16)) == [Grant(1, 64)]
    assert get(made, Chunk(1, 2, 32)) == []


@pytest.mark.parametrize(
    ("frame_bytes", "granted"),
    [
        (24, [[Grant(1, 32)], [Grant(1, 56)], [Grant(1, 64)], []]),
        (40, [[Grant(1, 40)], [Grant(1, 64)]]),
    ],
)
def test_frames_are_as_large_as_offered(frame_bytes: int, granted: list[list[Grant]]) -> None:
    made = scene()
    found = [get(made, replace(OFFER, frame_bytes=frame_bytes))]
    with pytest.raises(RemoteProtocolError, match="not a frame of its share"):
        get(made, Chunk(1, 0, 0))
    for index in range(len(granted) - 1):
        start = index * frame_bytes
        size = min(frame_bytes, 64 - start)
        found.append(get(made, Chunk(1, index, start), frame_bytes=size))
    assert found == granted
    assert frame_bytes > 32 or Mix(SHARE, 1 / 3) in made.mix_all("b")


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
    made = scene()
    get(made, OFFER)
    with pytest.raises(RemoteProtocolError, match=reason) as caught:
        made.tell("a", "b", body, frame_bytes=frame_bytes)
    assert caught.value.sender == "a"
    assert made.peers["b"].staged == 1 and not made.wake("b")[1:]


def stranger(config: ProtocolConfig, size: int) -> Scene:
    """The same scene, with a model of *n* numbers."""
    made, schema = Scene(config), schema_of(size)
    made.enter("b", schema=schema)
    made.join("b")
    made.introduce("a", "b", schema=schema)
    return made


def granted(made: Scene, size: int, frame_bytes: int) -> list[Grant]:
    schema = schema_of(size)
    body = replace(OFFER, size_bytes=schema.share_bytes, frame_bytes=frame_bytes)
    return made.sent(made.tell("a", "b", body, schema=schema.hash), Grant)


def test_frames_may_complete_a_share_in_any_order() -> None:
    made = scene(replace(WIDE, window_bytes=64))
    get(made, OFFER)
    for index in (0, 3, 1):
        get(made, Chunk(1, index, 16 * index))
    assert not made.mix_all("b")
    get(made, Chunk(1, 2, 32))
    assert Mix(SHARE, 1 / 3) in made.mix_all("b")


def test_a_query_fences_an_unseen_share_and_ends_the_one_before() -> None:
    made = scene()
    get(made, OFFER)
    assert get(made, Query(2)) == [Ack(1, 0), Ack(2, 0)]
    assert get(made, replace(OFFER, seq=2)) == [Ack(2, 0)]
    assert get(made, OFFER) == get(made, Query(1)) == []
    assert made.peers["b"].staged == 0
    made = scene()
    get(made, OFFER)
    assert get(made, replace(OFFER, seq=2)) == [Ack(1, 0), Grant(2, 32)], "it was given up"
    made = scene()
    get(made, replace(OFFER, seq=2))
    assert get(made, Query(1)) == [], "the share before it needs no answer any more"


@pytest.mark.parametrize("body", [replace(PUSH, seq=2), Query(2)])
def test_a_sender_may_not_continue_before_a_complete_share_is_settled(body: Body) -> None:
    made = scene(SMALL)
    get(made, PUSH)
    with pytest.raises(RemoteProtocolError, match="before the last share was settled"):
        get(made, body)
    assert made.peers["b"].staged == 1


def test_a_share_is_inspected_once_and_returned_if_not_finite() -> None:
    made = scene(SMALL)
    assert get(made, PUSH, finite=False) == [Ack(1, 0)]
    assert made.peers["b"].staged == 0
    get(made, replace(PUSH, seq=2))
    share = SHARE._replace(seq=2)
    assert made.peers["b"].inspected(share, 0.0, finite=True) == []
    assert made.peers["b"].staged == 1
    made.mix_all("b")
    assert made.peers["b"].inspected(share, 0.0, finite=True) == [], "too late"


def test_with_too_many_staged_shares_others_are_refused_before_their_bytes_are_sent() -> None:
    made = scene(replace(WIDE, staged_max=1))
    made.introduce("c", "b")
    get(made, OFFER)
    assert refusals(made, "c", OFFER) == ["busy"]


def test_an_impossible_weight_is_refused() -> None:
    made, why = scene(), ["more weight than there can be"]
    assert refusals(made, "a", replace(OFFER, escrow=WEIGHT_MAX)) == why
    assert get(made, replace(OFFER, seq=2, escrow=WEIGHT_MAX - ONE)) == [Grant(2, 32)]
    made.introduce("c", "b")
    assert refusals(made, "c", replace(OFFER, escrow=1)) == why


def test_a_share_that_its_restarted_sender_cannot_complete_is_returned() -> None:
    made = scene()
    made.introduce("c", "b")
    assert not refusals(made, "c", OFFER)
    get(made, OFFER)
    effects = made.tell("a", "b", Query(1), incarnation=2)
    assert Drop(SHARE) in effects
    assert of(effects, ShareRefused) == [ShareRefused("a", "its sender restarted")]
    assert made.peers["b"].staged == 1
    made = scene(SMALL)
    get(made, PUSH)
    assert not of(made.tell("a", "b", Query(1), incarnation=2), ShareRefused), "it is whole"


def test_a_share_of_another_swarm_is_refused_unless_it_was_accepted_before() -> None:
    made = scene()
    strange = made.letter("a", "b", OFFER, swarm=OTHER_ANCHOR)
    assert made.sent(made.receive(strange), Ack) == [Ack(1, 0)]
    get(made, replace(OFFER, seq=2))
    strange = made.letter("a", "b", replace(OFFER, seq=2), swarm=OTHER_ANCHOR)
    assert made.sent(made.receive(strange), Ack) == []
    assert made.peers["b"].staged == 1


def test_a_newcomer_accepts_only_a_copy_that_it_asked_for() -> None:
    made = Scene()
    made.join("b", "a")
    made.introduce("a", "b", phase=Phase.SEEKING)
    copy = replace(PUSH, size_bytes=128, form=Form(copy=True))
    assert refusals(made, "a", copy) == ["not asked for"]
    made = Scene()
    made.join("a")
    made.ask("b", "a")
    assert made.peers["b"].phase is Phase.JOINING
    assert refusals(made, "a", PUSH) == ["not a copy"]


@pytest.mark.parametrize("frame_bytes", [0, 1])
def test_a_share_in_too_many_frames_is_refused(frame_bytes: int) -> None:
    size = FRAMES_MAX // 8 + 1
    made = stranger(SMALL, size)
    with pytest.raises(RemoteProtocolError, match="more frames than are counted"):
        granted(made, size, frame_bytes)
    assert granted(made, size, 2)


def test_an_expected_frame_is_received_in_place() -> None:
    made = scene()
    b, chunk = made.peers["b"], made.letter("a", "b", Chunk(1, 1, 16), frame_bytes=16)
    assert b.place_of(chunk) is None
    get(made, OFFER)
    place = Stage(SHARE, 16, 64)
    assert b.place_of(chunk) == b.place_of(chunk) == place
    assert place in made.receive(chunk)
    assert b.place_of(chunk) is None, "it has arrived"
    others = [
        made.letter("a", "b", Chunk(1, 2, 32), frame_bytes=15),
        made.letter("a", "b", Chunk(2, 2, 32), frame_bytes=16),
        made.letter("a", "b", Chunk(1, 2, 32), frame_bytes=16, shard=1),
        made.letter("a", "b", Chunk(1, 2, 32), frame_bytes=16, incarnation=2),
        made.letter("a", "b", PUSH, frame_bytes=64),
    ]
    assert [b.place_of(other) for other in others] == [None] * len(others)


SHARE_BYTES = 64


def offered(scene: Scene, weight: int) -> Effects:
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
    effects = offered(scene, weight)
    (mixed,) = of(effects, Mix)
    (ack,) = [body for body in scene.sent(effects, Ack)]
    assert ack.accepted == accepted == scene.peers["a"].state.weight - own
    assert mixed.fraction == accepted / (own + accepted)


def test_a_leaver_may_outweigh_its_receiver_up_to_a_limit() -> None:
    scene = Scene().founded()
    scene.push("a", "b", ONE - ONE // 2**20)
    scene.introduce("s", "a")
    scene.tell("s", "a", Leave(gone=False))
    offered(scene, 99 * ONE)
    assert scene.peers["a"].state.weight == 8 * ONE + ONE // 2**20


def test_rules_that_need_whole_shares_accept_them_whole() -> None:
    scene = Scene(requirements=Requirements()).founded("a", "b")
    scene.introduce("s", "a")
    offered(scene, 99 * ONE)
    assert scene.peers["a"].state.weight == 100 * ONE
