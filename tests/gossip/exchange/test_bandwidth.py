"""A peer with a bandwidth limit skips pushes beyond it; frames wait for their turn."""

from dataclasses import replace
from typing import Any

import pytest

from rumor.gossip.effects.events import PushSkipped
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Chunk, Grant, Offer, Push, Query
from rumor.sim.fuzz.vector import schema_of

from ..scene import SMALL, WIDE, Effects, Scene, destinations, letters

SLOW = replace(SMALL, bandwidth_bytes_s=64.0)
"""A share of 64 bytes takes a second."""

SLOW_FRAMES = replace(WIDE, bandwidth_bytes_s=16.0, window_bytes=64)
"""A frame of 16 bytes takes a second."""


def chunks(effects: Effects) -> list[tuple[str, int, int]]:
    """Receiver, shard and number of every frame that is sent."""
    return [(e.destination, e.shard, e.body.index) for e in letters(effects, Chunk)]


def test_pushes_beyond_the_bandwidth_are_skipped_not_queued() -> None:
    scene = Scene(SLOW).founded("a", "b", "c", "d", rules={peer: GoSGD(1.0) for peer in "abcd"})
    pushes = skips = 0
    for _ in range(40):
        effects = scene.step("a")
        pushes += len(scene.sent(effects, Push))
        skips += effects.count(PushSkipped("no bandwidth"))
        scene.deliver(Push)
        for peer in "bcd":
            scene.step(peer, trained=False)
        scene.deliver()
        scene.wait(0.25)
    assert (pushes, skips) == (10, 30)


def test_a_delayed_share_is_not_abandoned() -> None:
    scene = Scene(replace(SLOW_FRAMES, stall_s=0.5)).founded("a", "b")
    scene.push("a", "b", ONE // 2)
    scene.tell("b", "a", Grant(1, 64))
    scene.wait(0.75)
    scene.wake("a")
    assert scene.peers["a"].account.outstanding


def test_a_share_is_offered_after_the_previous_one_is_sent() -> None:
    scene = Scene(SLOW_FRAMES).founded("a", "b", "c", "d")

    offered = destinations(scene.push("a", "cb"), Offer)
    assert offered == ["c"]
    found = chunks(scene.tell("c", "a", Grant(1, 64)))
    for _ in range(12):
        if len(found) == 4:
            assert not destinations(scene.push("a", "d"), Offer), "b has waited longer"
        scene.wait(1.0)
        effects = scene.wake("a")
        found += chunks(effects)
        for peer in destinations(effects, Offer):
            offered.append(peer)
            found += chunks(scene.tell(peer, "a", Grant(1, 64)))
        assert scene.peers["a"].deadline() > scene.now
    assert offered == ["c", "b", "d"]
    assert found == [(peer, 0, index) for peer in "cbd" for index in range(4)]


def test_shards_share_the_bandwidth() -> None:
    scene = Scene(replace(SLOW_FRAMES, shards_per_push=2)).founded(shards=2)
    effects = scene.act("a", lambda context: context.push_shards("b", {0: 5, 1: 5}))
    found, schema = [], schema_of(16, shards=2).hash
    for _ in range(9):
        found += chunks(effects)
        for shard in [envelope.shard for envelope in letters(effects, Offer)]:
            granted = scene.letter("b", "a", Grant(1, 64), shard=shard, schema=schema)
            found += chunks(scene.receive(granted))
        scene.wait(1.0)
        effects = scene.wake("a")
    assert found == [("b", shard, index) for shard in (0, 1) for index in range(4)]


@pytest.mark.parametrize("end", ["refused", "dead", "restarted", "unsent"])
def test_a_finished_share_releases_the_link(end: str) -> None:
    slow: dict[str, Any] = {"bandwidth_bytes_s": 0.4, "stall_s": 1e9} if end == "dead" else {}
    scene = Scene(replace(SLOW_FRAMES, **slow)).founded("a", "b", "c")

    scene.push("a", "bc")
    scene.tell("b", "a", Grant(1, 64))
    assert not scene.tell("c", "a", Grant(1, 64))
    if end == "dead":
        for _ in range(39):
            scene.wait(1.0)
            scene.tell("c", "a", Query(9))
            assert not chunks(scene.wake("a"))
        assert list(scene.peers["a"].account.outstanding) == [("c", 1)]
    elif end == "restarted":
        scene.tell("b", "a", Ack(9, 0), incarnation=2)
    elif end == "unsent":
        scene.unsent(scene.letter("a", "b", Chunk(1, 0, 0), frame_bytes=16))
    else:
        scene.tell("b", "a", Ack(1, 0))
    scene.wait(1.0)
    assert destinations(scene.wake("a"), Offer) == ["c"]
    assert chunks(scene.tell("c", "a", Grant(1, 64))) == [("c", 0, 0)]
