"""Only a peer's own word counts against one that is heard; hearsay is a reason to ask it."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Halt, Meet, Part
from rumor.gossip.effects.events import PeerLeft, PeerRecovered, StaleIncarnation
from rumor.gossip.wire.messages import HEARTBEAT_MAX, Hello, Phase, Query

from ..scene import Effects, Scene, letters, member, of

BRIEF = ProtocolConfig(suspect_s=4.0, dead_s=10.0, redial_s_max=8.0)


def together(*ids: str) -> Scene:
    """Founders; nothing of what they have said is on its way."""
    scene = Scene(BRIEF)
    scene.founded(*ids)
    scene.mail.clear()
    return scene


SILENT_S = BRIEF.suspect_s + 1.0


def asked(effects: Effects, peer: str) -> int:
    """How often somebody was asked whether it is alive."""
    return sum(e.body.reply and e.destination == peer for e in letters(effects, Hello))


FORGED = [
    replace(member("b", heartbeat=500), phase=Phase.LEFT),
    replace(member("b", heartbeat=500), phase=Phase.FINISHED),
    member("b", incarnation=7),
    replace(member("b", incarnation=7), phase=Phase.LEFT),
    member("b", heartbeat=500, addresses=("tcp://elsewhere:1",)),
]


@pytest.mark.parametrize("forged", FORGED, ids=str)
def test_hearsay_about_one_that_speaks_changes_nothing_but_asks_it(forged: object) -> None:
    scene = together("a", "b", "c")
    before = scene.peers["a"].known()
    assert isinstance(forged, type(before[0]))
    effects = scene.says("a", member("c", heartbeat=99), forged)
    after = {m.id: m for m in scene.peers["a"].known()}
    assert after["b"] == next(m for m in before if m.id == "b")
    assert asked(effects, "b") == 1 and Part("b") not in effects
    effects = scene.says("a", member("c", heartbeat=100), replace(forged, heartbeat=501))
    assert asked(effects, "b") == 0, "not twice in a gossip interval"


def test_one_that_was_said_to_have_left_while_it_was_silent_is_back_when_it_speaks() -> None:
    scene = together("a", "b", "c")
    scene.passes("a", SILENT_S)
    gone = replace(member("b", heartbeat=HEARTBEAT_MAX), phase=Phase.LEFT)
    assert PeerLeft("b") in scene.says("a", member("c", heartbeat=99), gone)
    effects = scene.receive(scene.letter("b", "a", Query(1)))
    assert Meet("b", ("b",)) in effects and PeerRecovered("b") in effects
    assert [m.id for m in scene.peers["a"].live()] == ["a", "b", "c"]


def test_a_later_life_of_which_only_others_speak_gives_way_to_the_one_that_speaks() -> None:
    scene = together("a", "b", "c")
    scene.passes("a", SILENT_S)
    scene.says("a", member("c", heartbeat=99), member("b", incarnation=7, heartbeat=50))
    known = {m.id: m.incarnation for m in scene.peers["a"].known()}
    assert known["b"] == 7
    effects = scene.receive(scene.letter("b", "a", Query(1)))
    known = {m.id: m.incarnation for m in scene.peers["a"].known()}
    assert known["b"] == 1 and asked(effects, "b") == 1
    scene.says("a", member("b", incarnation=7))
    assert scene.receive(scene.letter("b", "a", Query(1))) == [], "that life has spoken itself"


def test_one_that_only_others_have_named_is_taken_at_its_own_word() -> None:
    scene = together("a", "c")
    for heartbeat in (5, 6, 7):
        scene.says("a", member("c", heartbeat=90 + heartbeat), member("b", heartbeat=heartbeat))
    later = replace(member("b", incarnation=9), phase=Phase.FINISHED)
    scene.says("a", member("c", heartbeat=99), later)
    scene.receive(scene.letter("b", "a", Query(1)))
    known = {m.id: m for m in scene.peers["a"].known()}
    assert (known["b"].incarnation, known["b"].phase) == (1, Phase.TRAINING)
    scene.says("a", member("b", heartbeat=1, phase=Phase.FINISHED))
    known = {m.id: m for m in scene.peers["a"].known()}
    assert known["b"].phase is Phase.FINISHED, "its own heartbeat is lower than what others said"


def test_a_goodbye_of_its_own_is_not_taken_back_by_what_comes_late() -> None:
    scene = together("a", "b", "c")
    scene.says("a", replace(member("b", heartbeat=99), phase=Phase.LEFT))
    scene.receive(scene.letter("b", "a", Query(1)))
    assert [m.id for m in scene.peers["a"].live()] == ["a", "c"]
    scene.says("a", member("c", heartbeat=99), member("b", incarnation=2))
    assert scene.receive(scene.letter("b", "a", Query(1))) == [], "a later life is expected"


def test_nobody_ends_a_member_by_naming_a_later_life_of_it() -> None:
    scene = together("a", "b", "c", "d")
    effects = scene.says("a", member("b", heartbeat=99), member("a", incarnation=5))
    effects += scene.says("a", member("b", heartbeat=100), member("a", incarnation=6))
    assert of(effects, StaleIncarnation) == [StaleIncarnation(5)]
    assert not of(effects, Halt)
    scene.go_on(15)
    assert len(scene.peers["a"].live()) == 4 and scene.peers["b"].known()[0].incarnation == 1


def test_a_second_peer_of_the_same_name_is_found_out() -> None:
    """Most of the live ones have heard it themselves, and say so to the first."""
    scene = together("a", "b", "c", "d")
    for id in "bcd":
        scene.says(id, member("a", incarnation=5))
    halts: list[str] = []
    for _ in range(30):
        scene.wait(1.0)
        halts += [e.reason for id in "abcd" for e in scene.wake(id) if isinstance(e, Halt)]
        for letter in [scene.mail.popleft() for _ in range(len(scene.mail))]:
            if letter.destination in scene.peers:
                halts += [e.reason for e in scene.receive(letter) if isinstance(e, Halt)]
    assert halts == ["another peer called a has started since: each needs a name of its own"]
