"""Hearsay about a live peer changes nothing: it only makes other peers probe that peer."""

from dataclasses import replace

import pytest

from rumor.gossip.effects.effects import Halt, Meet, Part
from rumor.gossip.effects.events import PeerLeft, PeerRecovered, StaleIncarnation
from rumor.gossip.types import Incarnation
from rumor.gossip.wire.messages import HEARTBEAT_MAX, Hello, Member, Phase, Query

from ..scene import BRIEF, Effects, Scene, letters, member, only

SILENT_S = BRIEF.suspect_s + 1.0

FORGED = [
    member("b", Phase.LEFT, heartbeat=500),
    member("b", Phase.FINISHED, heartbeat=500),
    member("b", incarnation=7),
    member("b", Phase.LEFT, incarnation=7),
    member("b", heartbeat=500, addresses=("tcp://elsewhere:1",)),
]


def probes(effects: Effects, peer: str) -> int:
    """Return the number of probes sent to a peer."""
    return sum(e.body.reply and e.destination == peer for e in letters(effects, Hello))


def known_members(scene: Scene) -> dict[str, Member]:
    return {m.id: m for m in scene.peers["a"].known()}


def direct_message(scene: Scene, incarnation: Incarnation = 1) -> Effects:
    return scene.tell("b", "a", Query(1), incarnation=incarnation)


@pytest.mark.parametrize("forged", FORGED, ids=str)
def test_hearsay_about_a_live_peer_only_triggers_a_probe(forged: Member) -> None:
    scene = Scene(BRIEF).founded("a", "b", "c")
    before = known_members(scene)["b"]
    effects = scene.send_hello("a", member("c", heartbeat=99), forged)
    assert known_members(scene)["b"] == before
    assert probes(effects, "b") == 1 and Part("b") not in effects
    effects = scene.send_hello("a", member("c", heartbeat=100), replace(forged, heartbeat=501))
    assert probes(effects, "b") == 0, "not twice in a gossip interval"


def test_a_silent_peer_reported_as_left_recovers_when_it_sends_a_message() -> None:
    scene = Scene(BRIEF).founded("a", "b", "c")
    scene.wake_for("a", SILENT_S)
    gone = member("b", Phase.LEFT, heartbeat=HEARTBEAT_MAX)
    assert PeerLeft("b") in scene.send_hello("a", member("c", heartbeat=99), gone)
    effects = direct_message(scene)
    assert Meet("b", ("b",)) in effects and PeerRecovered("b") in effects
    assert scene.live() == ["a", "b", "c"]


def test_an_incarnation_known_by_hearsay_yields_to_a_direct_message() -> None:
    scene = Scene(BRIEF).founded("a", "b", "c")
    scene.wake_for("a", SILENT_S)
    scene.send_hello("a", member("c", heartbeat=99), member("b", incarnation=7, heartbeat=50))
    assert known_members(scene)["b"].incarnation == 7
    assert probes(direct_message(scene), "b") == 1
    assert known_members(scene)["b"].incarnation == 1
    scene.send_hello("a", member("b", incarnation=7))
    assert direct_message(scene) == [], "that incarnation has sent a message itself"


def test_direct_messages_override_hearsay_about_a_peer() -> None:
    scene = Scene(BRIEF).founded("a", "c")
    for heartbeat in (5, 6, 7):
        reported = member("b", heartbeat=heartbeat)
        scene.send_hello("a", member("c", heartbeat=90 + heartbeat), reported)
    later = member("b", Phase.FINISHED, incarnation=9)
    scene.send_hello("a", member("c", heartbeat=99), later)
    direct_message(scene)
    assert (known_members(scene)["b"].incarnation, known_members(scene)["b"].phase) == (
        1,
        Phase.TRAINING,
    )
    scene.send_hello("a", member("b", Phase.FINISHED))
    # The heartbeat of b itself is lower than the reported one.
    assert known_members(scene)["b"].phase is Phase.FINISHED


def test_hearsay_of_a_later_incarnation_does_not_stop_a_member() -> None:
    scene = Scene(BRIEF).founded("a", "b", "c", "d")
    effects: Effects = []
    for heartbeat, later in ((99, 5), (100, 6)):
        effects += scene.send_hello(
            "a", member("b", heartbeat=heartbeat), member("a", incarnation=later)
        )
    assert only(effects, StaleIncarnation) == [StaleIncarnation(5)] and not only(effects, Halt)
    scene.run_for(15.0)
    assert len(scene.peers["a"].table.live()) == 4 and scene.peers["b"].known()[0].incarnation == 1


def test_a_second_peer_with_the_same_name_is_detected() -> None:
    """Most live peers have received messages of the second peer and report it to the first."""
    scene = Scene(BRIEF).founded("a", "b", "c", "d")
    for id in "bcd":
        scene.send_hello(id, member("a", incarnation=5))
    halts = only(scene.run_for(30.0), Halt)
    assert [halt.reason for halt in halts] == [
        "another peer called a has started since: each needs a name of its own"
    ]
