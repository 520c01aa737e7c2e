"""The protocol as a whole: what may be called when, and what it tells whom."""

from dataclasses import replace

import pytest

from rumor.gossip.effects.effects import Inspect, Record, Send
from rumor.gossip.effects.ledger import Kind
from rumor.gossip.errors import LocalProtocolError, RemoteProtocolError
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.types import stream
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Hello, Phase
from rumor.sim.fuzz.peers import complete
from rumor.sim.fuzz.vector import SCHEMA

from ..scene import ANCHOR, Scene, letters, of


def founded(*ids: str) -> Scene:
    scene = Scene()
    scene.founded(*ids or "ab")
    return scene


def live(scene: Scene) -> list[str]:
    """Whom a believes to run."""
    return [member.id for member in scene.peers["a"].table.live()]


def plain() -> Protocol:
    """A peer of which nothing is said that need not be."""
    return Protocol(
        id="a",
        incarnation=1,
        schema=SCHEMA,
        anchor=ANCHOR,
        rule=GoSGD(1.0),
        neighbors=complete,
        rng=lambda purpose: stream(0, "a", purpose),
    )


def test_unless_told_a_peer_keeps_no_anchor_and_has_been_of_no_swarm() -> None:
    founder, newcomer = plain(), plain()
    founder.join(0.0)
    newcomer.join(0.0, ["b"])
    assert founder.swarm == ANCHOR and not founder.state.is_anchored
    assert newcomer.swarm == b""


def test_it_tells_how_many_steps_it_has_taken_and_takes_none_that_has_finished() -> None:
    scene = founded()
    for trained in (True, False, True):
        scene.step("a", trained=trained)
    assert (scene.peers["a"].table.step, scene.peers["b"].table.step) == (2, 0)
    scene.finish("a")
    with pytest.raises(LocalProtocolError, match="a step while finished"):
        scene.step("a")
    assert scene.peers["a"].table.live()[0].step == 2


def test_whoever_is_only_heard_of_is_greeted() -> None:
    scene = founded()
    scene.enter("c")
    scene.join("c", "b")
    effects = scene.deliver()
    hellos = [e for e in letters(effects, Hello) if (e.source, e.destination) == ("c", "a")]
    assert hellos[0].body.reply
    assert live(scene) == ["a", "b", "c"]


def test_a_peer_that_broke_the_protocol_was_heard_all_the_same() -> None:
    scene = founded()
    scene.push("a", "b")
    scene.strand("a", "b")
    assert live(scene) == ["a"]
    with pytest.raises(RemoteProtocolError):
        scene.receive(scene.letter("b", "a", Ack(1, 6)))
    assert live(scene) == ["a", "b"]
    assert scene.peers["a"].account.outstanding["b", 1].escrow == 5


def test_a_protocol_that_was_just_made_wants_to_be_woken_at_once() -> None:
    scene = Scene()
    a = scene.enter("a")
    assert a.deadline() == float("-inf") and a.phase is Phase.SEEKING
    scene.join("a")
    assert a.deadline() == scene.config.gossip_s


def test_what_a_broken_message_has_left_is_handed_over_with_the_next_answer() -> None:
    scene = founded(*"abc")
    a, c = scene.peers["a"], scene.peers["c"]
    scene.push("a", "b", ONE // 4)
    scene.mail.clear()
    while "b" in live(scene):
        scene.passes("a", 1.0)
        for send in of(c.wake(scene.now), Send):
            if send.envelope.destination == "a":
                a.receive(send.envelope, scene.now)
    (share, *_) = letters(scene.push("c", "a", ONE // 4))
    (inspect,) = of(a.receive(share, scene.now), Inspect)
    with pytest.raises(RemoteProtocolError):
        a.receive(replace(share, source="b", frame_bytes=share.frame_bytes - 1), scene.now)
    found = of(a.inspected(inspect.share, scene.now, finite=True), Record)
    assert [record.entry.kind for record in found] == [Kind.FOUND]
