"""The protocol as a whole: what may be called when, and what it tells whom."""

import pytest

from rumor.gossip.errors import LocalProtocolError, RemoteProtocolError
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.types import stream
from rumor.gossip.wire.messages import Ack, Hello, Phase
from rumor.sim.fuzz.peers import complete
from rumor.sim.fuzz.vector import SCHEMA

from ..scene import ANCHOR, Scene, letters


def founded(*ids: str) -> Scene:
    return Scene().founded(*ids or "ab")


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
