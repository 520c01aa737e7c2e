"""Only some dead peers are remembered; a full view accepts no further names."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Meet, Part
from rumor.gossip.effects.events import PeerMet, ViewFull
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.protocol import anti_entropy
from rumor.gossip.wire.messages import Member, Query

from ..scene import Effects, Scene, member, only

NARROW = ProtocolConfig(suspect_s=4.0, dead_s=10.0, members_max=4)


@pytest.fixture(autouse=True)
def _two_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anti_entropy, "_DEAD_MAX", 2)


def entry(id: str, heartbeat: int = 1) -> Member:
    return member(id, heartbeat=heartbeat, addresses=(f"tcp://{id}:1",))


def known(scene: Scene) -> list[str]:
    return [member.id for member in scene.peers["a"].known()]


def wake_hearing(scene: Scene, seconds: int, *alive: Member) -> Effects:
    """Let time pass at a while *alive* peers keep sending messages."""
    effects: Effects = []
    for _ in range(seconds):
        scene.wait(1.0)
        for each in alive:
            scene.send_hello("a", replace(each, heartbeat=round(scene.now) + 10))
        effects += scene.wake("a")
        scene.mail.clear()
        scene.lines.clear()
    return effects


def founder_with_dead(*dead: str, alive: str = "b") -> Scene:
    """A founder that has met one live peer and *dead* peers, which died a second apart."""
    scene = Scene(NARROW)
    scene.join("a")
    for id in dead:
        scene.send_hello("a", entry(id))
        wake_hearing(scene, 1, entry(alive))
    return scene


def test_the_most_recently_heard_dead_peers_are_remembered() -> None:
    scene = founder_with_dead("y", "z", "x")
    assert known(scene) == ["b", "x", "y", "z"]
    assert Part("y") in wake_hearing(scene, 20, entry("b"))
    assert known(scene) == ["b", "x", "z"]
    assert [member.id for member in scene.peers["a"].last_heard()] == ["b", "x", "z"]
    assert Meet("y", ("tcp://y:1",)) in scene.send_hello("a", entry("y", heartbeat=70))


def test_no_peer_with_open_escrow_is_forgotten() -> None:
    scene = Scene(NARROW).founded()
    scene.push("a", "b", 5)
    scene.mail.clear()
    wake_hearing(scene, 1)
    for id in "cde":
        scene.send_hello("a", entry(id))
    wake_hearing(scene, 40)
    assert scene.peers["a"].account.outstanding["b", 1].stranded
    assert "b" in known(scene) and len(known(scene)) == 3
    effects = scene.tell("b", "a", Query(9), incarnation=2)
    assert Kind.WRITTEN_OFF in [e.kind for e in only(effects, Entry)]


def test_a_full_view_accepts_no_new_peer_and_reports_it_once() -> None:
    scene = founder_with_dead("c", "d", "e")
    effects = scene.send_hello("a", entry("new"))
    assert ViewFull(5) in effects and PeerMet("new") not in effects
    assert ViewFull(5) not in scene.send_hello("a", entry("other"))
    wake_hearing(scene, 20, entry("b"))
    assert PeerMet("new") in scene.send_hello("a", entry("new")), "some peers have died"
