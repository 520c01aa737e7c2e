"""Only its own word counts against a peer that is heard; hearsay is a reason to ask it."""

from dataclasses import replace

import pytest

from rumor.gossip.effects.effects import Halt, Meet, Part
from rumor.gossip.effects.events import PeerLeft, PeerRecovered, StaleIncarnation
from rumor.gossip.types import Incarnation
from rumor.gossip.wire.messages import HEARTBEAT_MAX, Hello, Member, Phase, Query

from ..scene import BRIEF, Effects, Scene, letters, member, of

SILENT_S = BRIEF.suspect_s + 1.0

FORGED = [
    member("b", Phase.LEFT, heartbeat=500),
    member("b", Phase.FINISHED, heartbeat=500),
    member("b", incarnation=7),
    member("b", Phase.LEFT, incarnation=7),
    member("b", heartbeat=500, addresses=("tcp://elsewhere:1",)),
]


def asked(effects: Effects, peer: str) -> int:
    """How often a peer was asked whether it is alive."""
    return sum(e.body.reply and e.destination == peer for e in letters(effects, Hello))


def known(scene: Scene) -> dict[str, Member]:
    return {m.id: m for m in scene.peers["a"].known()}


def speaks(scene: Scene, incarnation: Incarnation = 1) -> Effects:
    return scene.tell("b", "a", Query(1), incarnation=incarnation)


@pytest.mark.parametrize("forged", FORGED, ids=str)
def test_hearsay_about_a_peer_that_speaks_only_makes_others_ask_it(forged: Member) -> None:
    scene = Scene(BRIEF).founded("a", "b", "c")
    before = known(scene)["b"]
    effects = scene.says("a", member("c", heartbeat=99), forged)
    assert known(scene)["b"] == before
    assert asked(effects, "b") == 1 and Part("b") not in effects
    effects = scene.says("a", member("c", heartbeat=100), replace(forged, heartbeat=501))
    assert asked(effects, "b") == 0, "not twice in a gossip interval"


def test_a_silent_peer_said_to_have_left_is_back_when_it_speaks() -> None:
    scene = Scene(BRIEF).founded("a", "b", "c")
    scene.passes("a", SILENT_S)
    gone = member("b", Phase.LEFT, heartbeat=HEARTBEAT_MAX)
    assert PeerLeft("b") in scene.says("a", member("c", heartbeat=99), gone)
    effects = speaks(scene)
    assert Meet("b", ("b",)) in effects and PeerRecovered("b") in effects
    assert scene.live() == ["a", "b", "c"]


def test_an_incarnation_known_by_hearsay_gives_way_to_one_that_speaks() -> None:
    scene = Scene(BRIEF).founded("a", "b", "c")
    scene.passes("a", SILENT_S)
    scene.says("a", member("c", heartbeat=99), member("b", incarnation=7, heartbeat=50))
    assert known(scene)["b"].incarnation == 7
    assert asked(speaks(scene), "b") == 1
    assert known(scene)["b"].incarnation == 1
    scene.says("a", member("b", incarnation=7))
    assert speaks(scene) == [], "that incarnation has spoken itself"


def test_a_peer_known_by_hearsay_is_believed_once_it_speaks() -> None:
    scene = Scene(BRIEF).founded("a", "c")
    for heartbeat in (5, 6, 7):
        told = member("b", heartbeat=heartbeat)
        scene.says("a", member("c", heartbeat=90 + heartbeat), told)
    later = member("b", Phase.FINISHED, incarnation=9)
    scene.says("a", member("c", heartbeat=99), later)
    speaks(scene)
    assert (known(scene)["b"].incarnation, known(scene)["b"].phase) == (1, Phase.TRAINING)
    scene.says("a", member("b", Phase.FINISHED))
    # Its own heartbeat is lower than the one that others reported.
    assert known(scene)["b"].phase is Phase.FINISHED


def test_hearsay_of_a_later_incarnation_does_not_end_a_member() -> None:
    scene = Scene(BRIEF).founded("a", "b", "c", "d")
    effects: Effects = []
    for heartbeat, life in ((99, 5), (100, 6)):
        effects += scene.says("a", member("b", heartbeat=heartbeat), member("a", incarnation=life))
    assert of(effects, StaleIncarnation) == [StaleIncarnation(5)] and not of(effects, Halt)
    scene.go_on(15.0)
    assert len(scene.peers["a"].table.live()) == 4 and scene.peers["b"].known()[0].incarnation == 1


def test_a_second_peer_of_the_same_name_is_detected() -> None:
    """Most live peers have heard the second one directly, and tell the first."""
    scene = Scene(BRIEF).founded("a", "b", "c", "d")
    for id in "bcd":
        scene.says(id, member("a", incarnation=5))
    halts = of(scene.go_on(30.0), Halt)
    assert [halt.reason for halt in halts] == [
        "another peer called a has started since: each needs a name of its own"
    ]
