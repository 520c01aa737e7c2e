"""Neighbors on one machine read shares from memory; shares that cannot be read are sent."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Attach, Drop, Inspect, Release, Send, Snapshot
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Chunk, Grant, Pending, Query

from ..scene import SMALL, WIDE, Effects, Scene, letters, member, only, settled

HERE, THERE = b"one-host-of-many", b"another-machine!"
SHARE = ShareId("a", 1, 1)


def shown_offer() -> Scene:
    """A push from a to b in shared memory; only its offer is in flight."""
    scene = Scene(WIDE).founded(host=HERE)
    effects = scene.push("a", "b", ONE // 2)
    assert Snapshot(1, "x", shown=True) in effects and Release(1) not in effects
    assert shown_flags(effects) == [True]
    return scene


def attaching() -> Scene:
    """Peer b is checking whether it can read the share."""
    scene = shown_offer()
    assert scene.deliver() == [Attach(SHARE, "segment 1", 64)]
    return scene


def shown_flags(effects: Effects) -> list[bool]:
    return [send.shown for send in only(effects, Send)]


def test_shares_after_an_unreadable_one_are_sent_to_that_incarnation() -> None:
    scene = attaching()
    granted = scene.attached("b", SHARE, usable=False)
    assert scene.sent(granted, Grant) == [Grant(1, 32)]
    effects = scene.deliver()
    scene.mix_all("b")
    effects += scene.deliver()
    assert scene.peers["b"].account.weight == ONE + ONE // 2 and Release(1) in effects
    assert not any(shown_flags(scene.push("a", "b", ONE // 4)))
    assert not only(scene.deliver(), Attach)
    scene.refuse_all("b")
    scene.deliver()
    scene.send_hello("a", member("b", incarnation=2, host=HERE))
    assert shown_flags(scene.push("a", "b")) == [True], (
        "the next incarnation may be able to read it"
    )


@pytest.mark.parametrize(
    ("mine", "theirs", "config"),
    [
        (b"", b"", WIDE),
        (HERE, HERE, SMALL),
        (HERE, HERE, replace(WIDE, shared_memory=False)),
        (HERE, THERE, WIDE),
    ],
    ids=["no shared memory", "fits one message", "disabled", "another machine"],
)
def test_a_share_is_not_shown_in_memory(mine: bytes, theirs: bytes, config: ProtocolConfig) -> None:
    scene = Scene(config)
    scene.enter("a", host=mine)
    scene.enter("b", host=theirs)
    scene.found("a", "b")
    effects = scene.push("a", "b")
    assert Snapshot(1, "x") in effects and shown_flags(effects) == [False]


@pytest.mark.parametrize(("usable", "again"), [(True, []), (False, [Grant(1, 32)])])
def test_a_duplicate_offer_is_processed_once(usable: bool, again: list[Grant]) -> None:
    scene = shown_offer()
    offer = scene.mail[-1]
    assert [type(e) for e in scene.receive(offer)] == [Attach]
    assert scene.receive(offer) == []
    scene.attached("b", SHARE, usable=usable)
    assert [letter.body for letter in letters(scene.receive(offer))] == again
    # Only the first answer about memory counts.
    assert scene.peers["b"].attached(SHARE, scene.now, usable=not usable) == []


def test_an_answer_about_a_decided_share_is_ignored() -> None:
    scene = attaching()
    scene.wait(WIDE.stall_s)
    assert Drop(SHARE) in scene.wake("b")
    for usable in (True, False):
        assert scene.peers["b"].attached(SHARE, scene.now, usable=usable) == []


def test_frames_are_not_staged_into_the_memory_of_another_peer() -> None:
    scene = attaching()
    chunk = scene.letter("a", "b", Chunk(1, 0, 0), frame_bytes=16)
    assert scene.peers["b"].place_of(chunk) is None
    assert scene.receive(chunk) == []
    assert scene.sent(scene.tell("a", "b", Query(1)), Pending) == [Pending(1)]
    assert Inspect(SHARE) in scene.attached("b", SHARE, usable=True)
    assert scene.receive(chunk) == []


def test_a_grant_of_more_than_a_window_does_not_end_a_lent_share() -> None:
    scene = shown_offer()
    with pytest.raises(RemoteProtocolError, match="more than a window"):
        scene.tell("b", "a", Grant(1, 33))
    assert settled(ONE // 2) in scene.tell("b", "a", Ack(1, ONE // 2))
    assert shown_flags(scene.push("a", "b")) == [True]


@pytest.mark.parametrize(("body", "accepted"), [(Ack(1, ONE // 2), ONE // 2), (Grant(1, 32), 0)])
def test_memory_that_a_dead_peer_may_still_read_is_never_reused_or_sent(
    body: Ack | Grant, accepted: int
) -> None:
    scene = shown_offer()
    assert Release(1, abandoned=True) in scene.strand("a", "b")
    effects = scene.tell("b", "a", body)
    assert Entry(Kind.FOUND, 0, "b", 1, 1) in effects
    assert settled(accepted) in effects
    assert not only(effects, Release) and not scene.sent(effects, Chunk)
    assert scene.peers["a"].account.weight == ONE - accepted


def test_memory_with_a_dead_reader_is_abandoned_after_the_last_live_reader() -> None:
    scene = Scene(replace(WIDE, query_s_max=1e9, query_s_min=1e9)).founded("a", "b", "c", host=HERE)
    scene.push("a", "bc")
    while not scene.peers["a"].account.outstanding["b", 1].stranded:
        scene.wait(1.0)
        scene.tell("c", "a", Pending(1))
        assert not only(scene.wake("a"), Release)
    effects = scene.tell("c", "a", Ack(1, 5))
    assert effects[-1] == Release(1, abandoned=True)
