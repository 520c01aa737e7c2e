"""Outgoing shares: once sent, only the receiver can settle them."""

from dataclasses import replace
from itertools import pairwise

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Release
from rumor.gossip.effects.events import PushSkipped
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.state import State
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import (
    Ack,
    Body,
    Chunk,
    Grant,
    Leave,
    Offer,
    Pending,
    Phase,
    Push,
    Query,
)
from rumor.sim.fuzz.vector import schema_of

from ..scene import SMALL, WIDE, Scene, destinations, letters, member, only, settled

HALF = ONE // 2


def pushed(config: ProtocolConfig = SMALL) -> Scene:
    """A push from a to b of half of its weight, not delivered."""
    scene = Scene(config).founded()
    scene.push("a", "b", HALF)
    return scene


@pytest.mark.parametrize("credit", [8, 16])
def test_a_sender_sends_no_more_than_was_granted(credit: int) -> None:
    effects = pushed(WIDE).tell("b", "a", Grant(1, credit))
    assert len(letters(effects, Chunk)) == credit // 16 and not only(effects, Release)


@pytest.mark.parametrize(
    ("config", "body", "reason"),
    [
        (WIDE, Grant(1, 33), "more than a window"),
        (SMALL, Ack(1, HALF + 1, bytes_s=1), "more than was sent"),
        (WIDE, Ack(1, 1, bytes_s=1), "more than was sent"),
    ],
)
def test_a_grant_beyond_a_window_and_an_ack_beyond_the_share_are_errors(
    config: ProtocolConfig, body: Body, reason: str
) -> None:
    scene = pushed(config)
    with pytest.raises(RemoteProtocolError, match=reason):
        scene.tell("b", "a", body)
    assert scene.peers["a"].account.outstanding
    # A message that breaks the protocol is no measurement: the frame size stays.
    scene.tell("b", "a", Ack(1, 0))
    sizes = [body.frame_bytes for body in scene.sent(scene.push("a", "b"), Offer)]
    assert sizes == [config.frame_bytes if config is WIDE else 0]


def test_grants_determine_the_size_of_the_next_frames() -> None:
    config = replace(WIDE, window_bytes=64, frame_s=1.0, frame_bytes_max=64)
    scene = Scene(replace(config, frame_bytes_min=8, frame_bytes=8))
    schema = schema_of(64)
    for id in "ab":
        scene.enter(id, schema=schema)
    scene.found("a", "b")
    scene.push("a", "b")
    for wait_s, body in ((0.0, Grant(1, 32)), (0.8, Grant(1, 64)), (0.0, Ack(1, 0))):
        scene.wait(wait_s)
        scene.tell("b", "a", body, schema=schema.hash)
    (after,) = scene.sent(scene.push("a", "b"), Offer)
    assert after.frame_bytes == 32, "40 bytes a second, and a second for each frame"


def test_answers_about_other_shares_are_ignored() -> None:
    scene = pushed()
    before = scene.peers["a"].deadline()
    for body in (Ack(2, 0), Grant(2, 5), Pending(2), Grant(1, 5)):
        assert scene.tell("b", "a", body) == []
    assert scene.tell("c", "a", Ack(1, 0)) == []
    assert scene.peers["a"].deadline() == before


def test_a_share_without_an_answer_is_queried_with_growing_intervals() -> None:
    scene = pushed(replace(SMALL, dead_s=1e9))
    queried_s = [scene.now for _ in range(100) if scene.sent(scene.wake_for("a", 1.0), Query)]
    gaps = [after - before for before, after in pairwise(queried_s)]
    assert queried_s[0] == 5.0
    assert gaps[:4] == [2.0, 4.0, 8.0, 16.0] and set(gaps[4:]) == {30.0}
    scene = pushed()
    scene.wait(0.5)
    scene.tell("b", "a", Pending(1))
    assert not scene.sent(scene.wake_for("a", 0.6, 0.6), Query), "a PENDING restarts the wait"
    # A peer that is about to leave is queried at once about sent shares.
    assert scene.sent(scene.tell("b", "a", Leave(False)), Query) == [Query(1)]
    assert not scene.sent(pushed(WIDE).tell("b", "a", Leave(False)), Query)


def test_only_a_share_refused_by_the_network_is_taken_back() -> None:
    scene = pushed()
    share = scene.mail[-1]
    scene.unsent(scene.letter("a", "b", Query(1)))
    assert scene.peers["a"].account.outstanding
    assert settled(0) in scene.unsent(share)
    assert not scene.unsent(share)
    reached: list[bool] = []
    scene.act("a", lambda context: reached.append(context.can_push("b")))
    scene.wait(SMALL.retry_s)
    scene.act("a", lambda context: reached.append(context.can_push("b")))
    assert reached == [False, True]


def test_escrow_stranded_at_a_peer_that_left_is_queried_but_stays_stranded() -> None:
    scene = pushed()
    scene.tell("b", "a", Leave(True))
    assert scene.sent(scene.send_hello("a", member("b")), Query) == [Query(1)]
    assert scene.peers["a"].account.outstanding["b", 1].stranded
    assert settled(HALF) in scene.tell("b", "a", Ack(1, HALF))


def test_escrow_is_written_off_if_a_later_incarnation_of_the_receiver_left() -> None:
    scene = pushed()
    gone = member("b", Phase.LEFT, incarnation=2)
    assert not only(scene.send_hello("a", member("c"), gone), Entry), "hearsay"
    assert Entry(Kind.WRITTEN_OFF, 0, "b", 1, 1) in scene.send_hello("a", gone)


def unanswered_pushes() -> Scene:
    """Pushes to b and c use both credits of a and stay unanswered; d is free."""
    scene = Scene().founded(*"abcd")
    scene.push("a", "bc")
    scene.mail.clear()
    return scene


def credit_used(state: State) -> int:
    transfers = [t for each in state.shard_states for t in each.outbox.transfers.values()]
    return sum([transfer.uses_credit for transfer in transfers])


def pass_queries(scene: Scene) -> None:
    scene.wake_for("a", 8.0)
    scene.mail.clear()


def test_credit_returns_after_two_unanswered_queries() -> None:
    scene = unanswered_pushes()
    skipped = scene.act("a", RuleContext.push_half)
    assert PushSkipped("no neighbor free") in skipped
    pass_queries(scene)
    assert destinations(scene.act("a", RuleContext.push_half), Push) == ["d"]
    assert len(scene.peers["a"].account.outstanding) == 3, "their escrow stays open"


@pytest.mark.parametrize("answer", [Pending(1), Ack(1, 0)])
def test_a_late_answer_updates_credit_and_open_shares(answer: Pending | Ack) -> None:
    scene = unanswered_pushes()
    pass_queries(scene)
    state = scene.peers["a"].state
    assert (state.in_flight(), credit_used(state)) == (2, 0)
    scene.tell("b", "a", answer)
    still_open = isinstance(answer, Pending)
    assert (state.in_flight(), credit_used(state)) == (1 + still_open, int(still_open))
