"""A full view makes room for newcomers, at the cost of those of whom least is to be hoped."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Effect, Meet, Part, Record
from rumor.gossip.effects.events import Event, PeerDied, PeerMet, ViewFull
from rumor.gossip.effects.ledger import Kind
from rumor.gossip.membership.dialing import OPEN_MAX
from rumor.gossip.wire.messages import Member, Phase, Query

from ..scene import Scene, member, of

NARROW = ProtocolConfig(suspect_s=4.0, dead_s=10.0, members_max=4)


def entry(id: str, phase: Phase = Phase.TRAINING, heartbeat: int = 1) -> Member:
    return member(id, phase, heartbeat=heartbeat, addresses=(f"tcp://{id}:1",))


def known(scene: Scene) -> list[str]:
    return [member.id for member in scene.peers["a"].known()]


def passes(scene: Scene, seconds: int, *alive: Member) -> list[Effect | Event]:
    """Let time pass at a, which goes on hearing some."""
    effects: list[Effect | Event] = []
    for _ in range(seconds):
        scene.wait(1.0)
        for each in alive:
            scene.says("a", replace(each, heartbeat=round(scene.now) + 10))
        effects += scene.wake("a")
        scene.mail.clear()
        scene.lines.clear()
    return effects


def full_of(dead: Iterable[Member], *alive: Member, config: ProtocolConfig = NARROW) -> Scene:
    """A founder whose view is full of these; those that die do so a second apart."""
    scene = Scene(config)
    scene.enter("a")
    scene.join("a")
    for each in dead:
        scene.says("a", each)
        passes(scene, 1, *alive)
    passes(scene, 20, *alive)
    return scene


def test_the_longest_dead_makes_room_and_everybody_else_is_kept() -> None:
    scene = full_of([entry("y"), entry("z"), entry("x")], entry("b"))
    assert known(scene) == ["b", "x", "y", "z"]
    effects = scene.says("a", entry("new"))
    assert Part("y") in effects and PeerMet("new") in effects
    assert effects.index(Part("y")) < effects.index(PeerMet("new"))
    assert known(scene) == ["b", "new", "x", "z"]
    scene.says("a", entry("newer"))
    assert known(scene) == ["b", "new", "newer", "x"]


def test_who_died_before_it_was_a_member_goes_first() -> None:
    scene = full_of([entry("y"), entry("z"), entry("n", Phase.JOINING)], entry("b"))
    scene.says("a", entry("new"))
    assert known(scene) == ["b", "new", "y", "z"]


def test_a_swarm_that_outlives_any_number_of_names_lets_newcomers_in() -> None:
    """Each is killed right after its first hello."""
    scene = Scene(NARROW)
    scene.founded("a", "b")
    b = scene.peers["b"].table.live()[1]
    for index in range(50):
        scene.says("a", entry(f"spot-{index}", Phase.JOINING))
        passes(scene, 12, b)
    assert PeerMet("new") in scene.says("a", entry("new", Phase.SEEKING))
    assert "b" in known(scene) and len(known(scene)) == 4


def test_the_living_make_room_for_nobody_and_that_is_said_once() -> None:
    living = [entry(id) for id in "bcde"]
    scene = full_of([], *living)
    effects = scene.says("a", entry("new"))
    assert ViewFull(5) in effects and PeerMet("new") not in effects
    assert ViewFull(5) not in passes(scene, 3, *living) + scene.says("a", entry("other"))
    assert known(scene) == ["b", "c", "d", "e"]
    passes(scene, 20, *living[1:])
    assert PeerMet("new") in scene.says("a", entry("new")), "b has died meanwhile"


def test_nobody_is_forgotten_with_whom_weight_is_to_be_settled() -> None:
    scene = Scene(NARROW)
    scene.founded("a", "b", "c")
    scene.push("a", "b", 5)
    scene.mail.clear()
    passes(scene, 30)
    assert scene.peers["a"].account.outstanding["b", 1].stranded
    for id in ("new", "newer"):
        scene.says("a", entry(id))
    assert "b" in known(scene)
    scene.says("a", entry("newest"))
    assert known(scene) == ["b", "new", "newer", "newest"], "c had nothing"
    assert ViewFull(5) in scene.says("a", entry("last"))
    effects = scene.receive(scene.letter("b", "a", Query(9), incarnation=2))
    assert Kind.WRITTEN_OFF in [e.entry.kind for e in effects if isinstance(e, Record)]


def test_those_that_left_long_ago_go_before_the_dead_and_lately_not_at_all() -> None:
    scene = full_of([entry("y"), entry("z")], entry("b"))
    gone = entry("n", heartbeat=9)
    scene.says("a", gone)
    scene.says("a", replace(gone, phase=Phase.LEFT, heartbeat=10))
    scene.says("a", entry("b", heartbeat=90))
    assert scene.peers["a"].departed() == ("n",)
    scene.says("a", entry("new"))
    assert known(scene) == ["b", "new", "z"], "the news has still to spread"
    passes(scene, 12, entry("b"), entry("new"))
    scene.says("a", entry("newer"))
    assert scene.peers["a"].departed() == () and "z" in known(scene)


@pytest.mark.parametrize(
    "nobody",
    [
        replace(entry("new"), phase=Phase.LEFT),
        replace(entry("new"), incarnation=10**12),
        entry("y"),
        replace(entry("a"), incarnation=1),
    ],
)
def test_nobody_is_forgotten_for_one_that_would_not_be_taken_in(nobody: Member) -> None:
    scene = full_of([entry("y"), entry("z"), entry("x")], entry("b"))
    scene.says("a", entry("b", heartbeat=99), nobody)
    assert known(scene) == ["b", "x", "y", "z"]


def test_one_that_comes_back_before_its_turn_is_kept() -> None:
    scene = full_of([entry("w"), entry("y"), entry("z")], entry("b"))
    effects = scene.says("a", entry("b", heartbeat=99), entry("n1"), entry("y", heartbeat=50))
    assert known(scene) == ["b", "n1", "y", "z"] and PeerDied("y") not in effects
    scene.says("a", entry("b", heartbeat=100), entry("n2"))
    assert known(scene) == ["b", "n1", "n2", "y"]


def test_one_that_is_forgotten_leaves_its_place_among_the_open_sockets_to_another() -> None:
    config = replace(NARROW, members_max=OPEN_MAX)
    first = [entry(f"d{index:02}") for index in range(OPEN_MAX)]
    scene = full_of(first, config=config)
    more = [entry(f"e{index:02}") for index in range(OPEN_MAX)]
    for each in more:
        scene.says("a", each)
    effects = passes(scene, 20)
    assert of(effects, PeerDied)
    assert not of(effects, Part), "all of their sockets may stay open"


def test_one_that_was_forgotten_is_met_again_when_it_speaks() -> None:
    scene = full_of([entry("y"), entry("z"), entry("x")], entry("b"))
    scene.says("a", entry("new"))
    assert "y" not in known(scene)
    assert Meet("y", ("tcp://y:1",)) in scene.says("a", entry("y", heartbeat=70))


def test_who_was_heard_last_is_told_first() -> None:
    scene = full_of([entry("x"), entry("z"), entry("y")], entry("b"))
    told = scene.peers["a"].last_heard()
    assert [member.id for member in told] == ["b", "y", "z", "x"]
