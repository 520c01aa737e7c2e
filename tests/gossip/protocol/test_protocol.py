"""The protocol as a whole: what may be called when, and what it tells whom."""

from dataclasses import replace
from itertools import pairwise

import pytest

from rumor.gossip.effects.effects import Inspect, Record, Send, Wait
from rumor.gossip.effects.ledger import Kind
from rumor.gossip.errors import LocalProtocolError, RemoteProtocolError
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.types import stream
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Hello, Leave, Phase, Push
from rumor.sim.fuzz.peers import complete
from rumor.sim.fuzz.vector import SCHEMA

from ..scene import ANCHOR, Scene


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
    assert founder.swarm == ANCHOR and not founder.is_anchored
    assert newcomer.swarm == b""


def test_a_peer_that_finished_takes_no_step() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.finish("a")
    with pytest.raises(LocalProtocolError, match="a step while finished"):
        scene.step("a")
    assert scene.peers["a"].live()[0].step == 0


def test_a_new_phase_is_told_to_everybody_at_once() -> None:
    scene = Scene()
    scene.founded("a", "b", "c")
    told = scene.sent(scene.finish("a"), Hello)
    assert [hello.members[0].phase for hello in told] == [Phase.FINISHED] * 2


def test_whoever_is_only_heard_of_is_greeted() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.enter("c")
    scene.join("c", "b")
    scene.deliver()
    hellos = [line for line in scene.lines if "send c > a HELLO" in line]
    assert hellos[0].endswith("answer!")
    assert [member.id for member in scene.peers["a"].live()] == ["a", "b", "c"]


def test_a_rule_that_cannot_go_on_says_so() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.rules["a"].next = lambda context: Wait(1, ("b",))
    assert Wait(1, ("b",)) in scene.step("a")


def test_a_peer_that_broke_the_protocol_was_heard_all_the_same() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", 5)
    for _ in range(40):
        scene.wait(1.0)
        scene.wake("a")
    assert [member.id for member in scene.peers["a"].live()] == ["a"]
    with pytest.raises(RemoteProtocolError):
        scene.receive(scene.letter("b", "a", Ack(1, 6)))
    assert [member.id for member in scene.peers["a"].live()] == ["a", "b"]
    assert scene.peers["a"].account.outstanding["b", 1].escrow == 5


def test_a_message_of_an_earlier_life_is_not_listened_to() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.enter("b", incarnation=2)
    scene.join("b", "a")
    scene.deliver()
    assert scene.receive(scene.letter("b", "a", Leave(True), incarnation=1)) == []


def test_a_silent_peer_that_is_not_asked_any_more_is_dialled_for_ever() -> None:
    scene = Scene()
    scene.founded("a", "b")
    greeted_s = []
    for _ in range(1000):
        scene.wait(1.0)
        if scene.sent(scene.wake("a"), Hello):
            greeted_s.append(scene.now)
    late = [after - before for before, after in pairwise(greeted_s) if before > 300]
    assert len(late) > 5 and 30 <= min(late) and max(late) <= 91
    assert len(set(late)) > 3, "without jitter all come back at once"


def test_turns_of_a_peer_that_left_do_nothing() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a")
    scene.leave("a")
    assert scene.step("a", trained=False) == []
    assert scene.leave("a") == []


def test_what_is_staged_can_be_counted() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    scene.deliver(Push)
    assert scene.peers["b"].staged == 1 and not scene.peers["b"].done


def test_a_protocol_that_was_just_made_wants_to_be_woken_at_once() -> None:
    scene = Scene()
    a = scene.enter("a")
    assert a.deadline() == float("-inf")
    scene.join("a")
    assert a.deadline() == scene.config.gossip_s


def test_it_tells_how_many_steps_it_has_taken() -> None:
    scene = Scene()
    scene.founded("a", "b")
    for trained in (True, False, True):
        scene.step("a", trained=trained)
    assert (scene.peers["a"].steps, scene.peers["b"].steps) == (2, 0)


def test_what_a_broken_message_has_left_is_handed_over_with_the_next_answer() -> None:
    scene = Scene()
    scene.founded("a", "b", "c")
    a, c = scene.peers["a"], scene.peers["c"]
    scene.push("a", "b", ONE // 4)
    scene.mail.clear()
    while "b" in {member.id for member in a.live()}:
        scene.wait(1.0)
        scene.wake("a")
        for effect in c.wake(scene.now):
            if isinstance(effect, Send) and effect.envelope.destination == "a":
                a.receive(effect.envelope, scene.now)
    sent = [each.envelope for each in scene.push("c", "a", ONE // 4) if isinstance(each, Send)]
    (inspect,) = [e for e in a.receive(sent[0], scene.now) if isinstance(e, Inspect)]
    broken = replace(sent[0], source="b", frame_bytes=sent[0].frame_bytes - 1)
    with pytest.raises(RemoteProtocolError):
        a.receive(broken, scene.now)
    found = a.inspected(inspect.share, scene.now, finite=True)
    assert [each.entry.kind for each in found if isinstance(each, Record)] == [Kind.FOUND]
