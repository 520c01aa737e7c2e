"""Shares on their way out: only the receiver's word settles them once they were sent."""

from dataclasses import replace
from itertools import pairwise

import pytest

from rumor.gossip.effects.effects import Record, Release, Send, Snapshot
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Chunk, Grant, Hello, Leave, Pending, Phase, Push, Query

from ..scene import SMALL, WIDE, Scene, hello, of


def pushed(scene: Scene) -> Scene:
    """Let a push half of its weight to b; the mail stays in the bag."""
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    return scene


def settled(weight: int) -> Record:
    return Record(Entry(Kind.SETTLED, weight, "b", 1, 1))


def test_two_pushes_of_one_call_share_a_snapshot_that_outlives_both() -> None:
    scene = Scene()
    scene.founded("a", "b", "c")

    effects = scene.push("a", "bc")
    assert of(effects, Snapshot) == [Snapshot(1, "x")]
    assert [e.snapshot for e in effects if isinstance(e, Send)] == [1, 1]
    assert effects[-1] == Release(1)


def test_a_snapshot_in_frames_is_kept_until_the_last_has_gone() -> None:
    scene = Scene(WIDE)
    scene.founded("a", "b")
    assert Release(1) not in scene.push("a", "b", 5)
    assert Release(1) in scene.receive(scene.letter("b", "a", Ack(1, 0)))


@pytest.mark.parametrize("credit", [8, 16])
def test_no_more_is_sent_than_was_granted(credit: int) -> None:
    scene = pushed(Scene(WIDE))
    effects = scene.receive(scene.letter("b", "a", Grant(1, credit)))
    assert len(scene.sent(effects, Chunk)) == credit // 16


def test_nobody_may_grant_more_than_a_window() -> None:
    scene = pushed(Scene(WIDE))
    with pytest.raises(RemoteProtocolError, match="more than a window"):
        scene.receive(scene.letter("b", "a", Grant(1, 33)))


@pytest.mark.parametrize(("config", "accepted"), [(SMALL, ONE // 2 + 1), (WIDE, 1)])
def test_nobody_may_accept_more_than_was_sent(config: object, accepted: int) -> None:
    scene = pushed(Scene(SMALL if config is SMALL else WIDE))
    with pytest.raises(RemoteProtocolError, match="more than was sent"):
        scene.receive(scene.letter("b", "a", Ack(1, accepted, bytes_s=1)))
    assert scene.peers["a"].account.outstanding
    links = scene.peers["a"]._state.links
    assert not links.to("b", 1)._bytes_s, "a message that breaks the protocol tells no pace"


def test_answers_to_other_questions_are_ignored() -> None:
    scene = pushed(Scene())
    before = scene.peers["a"].deadline()
    for body in (Ack(2, 0), Grant(2, 5), Pending(2), Grant(1, 5)):
        assert scene.receive(scene.letter("b", "a", body)) == []
    assert scene.receive(scene.letter("c", "a", Ack(1, 0))) == []
    assert scene.peers["a"].deadline() == before


def test_a_late_answer_is_asked_for_again_and_again_at_growing_distance() -> None:
    scene = pushed(Scene(replace(SMALL, dead_s=1e9)))
    asked = []
    for _ in range(100):
        scene.wait(1.0)
        if scene.sent(scene.wake("a"), Query):
            asked.append(scene.now)
    gaps = [after - before for before, after in pairwise(asked)]
    assert asked[0] == 5.0
    assert gaps[:4] == [2.0, 4.0, 8.0, 16.0] and set(gaps[4:]) == {30.0}


def test_pending_is_reason_to_wait_on() -> None:
    scene = pushed(Scene())
    scene.wait(0.5)
    scene.receive(scene.letter("b", "a", Pending(1)))
    scene.wait(0.6)
    assert not scene.sent(scene.wake("a"), Query)


def test_a_share_that_the_network_refused_is_taken_back() -> None:
    scene = pushed(Scene())
    push = next(envelope for envelope in scene.mail if isinstance(envelope.body, Push))
    assert settled(0) in scene.unsent(push)
    assert not scene.unsent(push)
    reached: list[bool] = []
    scene.act("a", lambda context: reached.append(context.can_push("b")))
    scene.wait(SMALL.retry_s)
    scene.act("a", lambda context: reached.append(context.can_push("b")))
    assert reached == [False, True]


def test_a_message_that_is_no_share_takes_nothing_back() -> None:
    scene = pushed(Scene())
    scene.unsent(scene.letter("a", "b", Query(1)))
    assert scene.peers["a"].account.outstanding


def test_an_offer_that_nobody_answers_is_given_up() -> None:
    scene = pushed(Scene(WIDE))
    scene.wait(WIDE.stall_s)
    assert settled(0) in scene.wake("a")


def test_an_offer_to_a_dead_peer_is_taken_back_and_a_push_stranded() -> None:
    for config, kind in ((replace(WIDE, stall_s=1e9), Kind.SETTLED), (SMALL, Kind.STRANDED)):
        scene = pushed(Scene(config))
        kinds = []
        for _ in range(40):
            scene.wait(1.0)
            kinds += [e.entry.kind for e in scene.wake("a") if isinstance(e, Record)]
        assert kinds == [kind]


def test_an_offer_to_a_life_that_is_over_is_taken_back_and_a_push_written_off() -> None:
    for config, kind in ((WIDE, Kind.SETTLED), (SMALL, Kind.WRITTEN_OFF)):
        scene = pushed(Scene(config))
        effects = scene.receive(scene.letter("b", "a", Query(9), incarnation=2))
        assert kind in [e.entry.kind for e in effects if isinstance(e, Record)]


def test_a_peer_about_to_go_is_asked_at_once() -> None:
    scene = pushed(Scene())
    assert scene.sent(scene.receive(scene.letter("b", "a", Leave(False))), Query) == [Query(1)]
    scene = pushed(Scene(WIDE))
    assert not scene.sent(scene.receive(scene.letter("b", "a", Leave(False))), Query)


def test_what_is_stranded_at_a_peer_that_left_is_asked_for_but_counts_as_stranded() -> None:
    scene = pushed(Scene())
    scene.receive(scene.letter("b", "a", Leave(True)))
    effects = scene.receive(scene.letter("b", "a", hello()))
    assert scene.sent(effects, Query) == [Query(1)]
    assert scene.peers["a"].account.outstanding["b", 1].stranded
    assert settled(ONE // 2) in scene.receive(scene.letter("b", "a", Ack(1, ONE // 2)))


def test_escrow_toward_a_life_is_written_off_when_a_later_one_has_left_unseen() -> None:
    scene = pushed(Scene())
    known = scene.peers["a"].live()[1]
    gone = replace(known, incarnation=2, phase=Phase.LEFT)
    hello = Hello(members=(gone,), rooted=True, reply=False)
    assert Record not in map(type, scene.receive(scene.letter("c", "a", hello))), "hearsay"
    effects = scene.receive(scene.letter("b", "a", hello, incarnation=2))
    assert Record(Entry(Kind.WRITTEN_OFF, 0, "b", 1, 1)) in effects


def test_a_word_of_an_earlier_incarnation_changes_nothing() -> None:
    scene = pushed(Scene())
    outbox = scene.peers["a"]._state.shard_states[0].outbox
    due_s = outbox.deadline()
    outbox.heard("b", 0, 0.0, gone=False)
    assert outbox.is_busy("b") and outbox.deadline() == due_s
    assert scene.peers["a"].account.outstanding
