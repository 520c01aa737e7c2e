"""Neighbors on one machine read shares from memory, and what cannot be read is sent."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import (
    Attach,
    Drop,
    Effect,
    Inspect,
    Record,
    Release,
    Send,
    Snapshot,
    Stage,
)
from rumor.gossip.effects.events import Event, ShareRefused
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Chunk, Grant, Hello, Offer, Pending, Query

from ..scene import SMALL, WIDE, Scene, of

HERE, THERE = b"one-host-of-many", b"another-machine!"
SHARE = ShareId("a", 1, 1)


def shown() -> Scene:
    """A push of a to b, of which only the offer is on its way."""
    scene = Scene(WIDE)
    scene.founded("a", "b", host=HERE)
    scene.push("a", "b", ONE // 2)
    return scene


def attaching() -> Scene:
    """B has been asked whether it can read the share."""
    scene = shown()
    scene.deliver()
    return scene


def sends(effects: list[Effect | Event]) -> list[str]:
    return [type(e.envelope.body).__name__ for e in effects if isinstance(e, Send)]


def test_an_offer_to_a_neighbor_on_this_machine_shows_where_the_share_lies() -> None:
    scene = Scene(WIDE)
    scene.founded("a", "b", host=HERE)
    effects = scene.push("a", "b", ONE // 2)
    assert Snapshot(1, "x", shown=True) in effects and Release(1) not in effects
    assert [e.shown for e in effects if isinstance(e, Send)] == [True]
    got = scene.receive(scene.mail.popleft())
    assert got == [Attach(SHARE, "segment 1", 64)]


def test_a_share_that_is_read_is_released_by_its_answer() -> None:
    scene = attaching()
    assert Inspect(SHARE) in scene.attached("b", SHARE, usable=True)
    acks = scene.sent(scene.mix_all("b"), Ack)
    assert acks == [Ack(1, ONE // 2, 32)]
    scene.mail.clear()
    effects = scene.receive(scene.letter("b", "a", acks[0]))
    assert effects == [Record(Entry(Kind.SETTLED, ONE // 2, "b", 1, 1)), Release(1)]


def test_a_share_that_cannot_be_read_is_sent_and_later_ones_are_not_shown() -> None:
    scene = attaching()
    granted = scene.attached("b", SHARE, usable=False)
    assert scene.sent(granted, Grant) == [Grant(1, 32)]
    scene.deliver()
    scene.mix_all("b")
    scene.deliver()
    assert scene.peers["b"].account.weight == ONE + ONE // 2
    assert "release snapshot 1" in "".join(scene.lines)
    effects = scene.push("a", "b", ONE // 4)
    assert next(e.shown for e in effects if isinstance(e, Send)) is False
    assert "Attach" not in str(scene.receive(scene.mail.popleft()))


def test_what_one_life_could_not_read_the_next_may() -> None:
    scene = attaching()
    scene.attached("b", SHARE, usable=False)
    scene.deliver()
    scene.refuse_all("b")
    scene.deliver()
    member = scene.peers["b"].live()[1]
    again = replace(member, incarnation=2, heartbeat=1, host=HERE)
    hello = Hello(members=(again,), rooted=True, reply=False)
    scene.receive(scene.letter("b", "a", hello, incarnation=2))
    effects = scene.push("a", "b", 5)
    assert [e.shown for e in effects if isinstance(e, Send)] == [True]


@pytest.mark.parametrize(
    ("host", "config"),
    [
        (b"", WIDE),
        (HERE, SMALL),
        (HERE, replace(WIDE, shared_memory=False)),
    ],
    ids=["no memory to show", "in one message anyway", "not wanted"],
)
def test_a_share_is_not_shown(host: bytes, config: ProtocolConfig) -> None:
    scene = Scene(config)
    scene.founded("a", "b", host=host)
    effects = scene.push("a", "b", 5)
    assert Snapshot(1, "x") in effects
    assert not any(e.shown for e in effects if isinstance(e, Send))


def test_a_share_is_not_shown_to_a_neighbor_on_another_machine() -> None:
    scene = Scene(WIDE)
    scene.enter("a", host=HERE)
    scene.enter("b", host=THERE)
    scene.join("a", "b", founders=2)
    scene.join("b", "a", founders=2)
    for _ in range(4):
        scene.deliver()
        scene.wait(1.0)
        scene.wake("a")
        scene.wake("b")
    effects = scene.push("a", "b", 5)
    assert scene.sent(effects, Offer) and Snapshot(1, "x") in effects


def test_an_offer_that_comes_twice_is_looked_at_once() -> None:
    scene = shown()
    offer = scene.mail[-1]
    assert [type(e) for e in scene.receive(offer)] == [Attach]
    assert scene.receive(offer) == []
    scene.attached("b", SHARE, usable=True)
    assert scene.receive(offer) == []


def test_an_offer_that_comes_again_after_its_memory_could_not_be_read_is_granted_again() -> None:
    scene = shown()
    offer = scene.mail[-1]
    scene.receive(offer)
    scene.attached("b", SHARE, usable=False)
    assert scene.sent(scene.receive(offer), Grant) == [Grant(1, 32)]


def test_only_the_first_answer_about_memory_counts() -> None:
    scene = attaching()
    scene.attached("b", SHARE, usable=False)
    assert scene.peers["b"].attached(SHARE, scene.now, usable=True) == []
    scene = attaching()
    scene.attached("b", SHARE, usable=True)
    assert scene.peers["b"].attached(SHARE, scene.now, usable=False) == []


def test_an_answer_about_a_share_that_is_decided_comes_too_late() -> None:
    scene = attaching()
    scene.wait(WIDE.stall_s)
    assert Drop(SHARE) in scene.wake("b")
    for usable in (True, False):
        assert scene.peers["b"].attached(SHARE, scene.now, usable=usable) == []


def test_frames_are_not_staged_into_memory_of_another() -> None:
    scene = attaching()
    chunk = scene.letter("a", "b", Chunk(1, 0, 0), frame_bytes=16)
    assert scene.peers["b"].place_of(chunk) is None
    assert scene.receive(chunk) == []
    assert Inspect(SHARE) in scene.attached("b", SHARE, usable=True)
    assert scene.receive(chunk) == []


def test_a_question_while_it_is_being_looked_finds_it_pending() -> None:
    scene = attaching()
    assert scene.sent(scene.receive(scene.letter("a", "b", Query(1))), Pending) == [Pending(1)]


def test_a_grant_of_more_than_a_window_does_not_end_the_showing() -> None:
    scene = shown()
    with pytest.raises(RemoteProtocolError, match="more than a window"):
        scene.receive(scene.letter("b", "a", Grant(1, 33)))
    effects = scene.receive(scene.letter("b", "a", Ack(1, ONE // 2)))
    assert Record(Entry(Kind.SETTLED, ONE // 2, "b", 1, 1)) in effects
    effects = scene.push("a", "b", 5)
    assert [e.shown for e in effects if isinstance(e, Send)] == [True]


def stranded() -> Scene:
    """B, to which a share was shown, is considered dead."""
    scene = shown()
    while not scene.peers["a"].account.outstanding["b", 1].stranded:
        scene.wait(1.0)
        last = scene.wake("a")
        scene.mail.clear()
    assert Release(1, abandoned=True) in last
    return scene


def test_memory_that_one_considered_dead_may_still_read_is_never_used_again() -> None:
    scene = stranded()
    effects = scene.receive(scene.letter("b", "a", Ack(1, ONE // 2)))
    assert Record(Entry(Kind.SETTLED, ONE // 2, "b", 1, 1)) in effects
    assert not of(effects, Release)


def test_of_an_abandoned_share_nothing_can_be_sent_any_more() -> None:
    scene = stranded()
    effects = scene.receive(scene.letter("b", "a", Grant(1, 32)))
    assert Record(Entry(Kind.FOUND, 0, "b", 1, 1)) in effects
    assert Record(Entry(Kind.SETTLED, 0, "b", 1, 1)) in effects
    assert not scene.sent(effects, Chunk)
    assert scene.peers["a"].account.weight == ONE


def test_one_of_two_readers_being_dead_the_memory_is_abandoned_after_the_other() -> None:
    scene = Scene(replace(WIDE, query_s_max=1e9, query_s_min=1e9))
    scene.founded("a", "b", "c", host=HERE)

    scene.push("a", "bc")
    scene.mail.clear()
    while not scene.peers["a"].account.outstanding["b", 1].stranded:
        scene.wait(1.0)
        scene.receive(scene.letter("c", "a", Pending(1)))
        effects = scene.wake("a")
        scene.mail.clear()
        assert not of(effects, Release)
    effects = scene.receive(scene.letter("c", "a", Ack(1, 5)))
    assert effects[-1] == Release(1, abandoned=True)


def test_a_share_shown_to_a_life_that_is_over_is_written_off_and_released() -> None:
    scene = shown()
    effects = scene.receive(scene.letter("b", "a", Query(9), incarnation=2))
    assert Record(Entry(Kind.WRITTEN_OFF, 0, "b", 1, 1)) in effects
    assert Release(1) in effects


def test_a_share_that_is_not_finite_is_dropped_wherever_it_lies() -> None:
    scene = attaching()
    scene.peers["b"].attached(SHARE, scene.now, usable=True)
    effects = scene.peers["b"].inspected(SHARE, scene.now, finite=False)
    assert Drop(SHARE) in effects and ShareRefused("a", "not finite") in effects
    assert sends(effects) == ["Ack"]
    assert not of(effects, Stage)


def test_what_cannot_be_read_waits_for_its_turn_where_another_share_has_the_link() -> None:
    scene = Scene(replace(WIDE, bandwidth_bytes_s=16.0, window_bytes=64))
    scene.founded("a", "b", "c", host=HERE)
    for peer in ("b", "c"):
        scene.push("a", peer, ONE // 4)
    for peer in ("b", "c"):
        effects = scene.receive(scene.letter(peer, "a", Grant(1, 64)))
        if peer == "c":
            assert not scene.sent(effects, Chunk), "b's share has the link"
    ends: list[str] = []
    last_bytes = 64 - 16
    for _ in range(60):
        scene.wait(0.25)
        effects = scene.wake("a")
        sends = [effect.envelope for effect in effects if isinstance(effect, Send)]
        ends += [
            envelope.destination
            for envelope in sends
            if isinstance(envelope.body, Chunk) and envelope.body.offset_bytes == last_bytes
        ]
    assert ends == ["b", "c"]


def test_a_peer_says_who_may_read_its_memory() -> None:
    scene = Scene(WIDE)
    scene.founded("a", "b", host=HERE)
    assert scene.peers["a"].shares_memory("b") and not scene.peers["a"].shares_memory("z")
