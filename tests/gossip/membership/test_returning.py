"""Whoever comes back with a checkpoint looks for its swarm, and founds it anew where it is gone."""

from dataclasses import replace

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.events import Founded, Joined, PeerRefused, SwarmGivenUp
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ask, Hello, Phase

from ..scene import ANCHOR, OTHER_ANCHOR, SMALL, Scene, hello, member, of


def returned(*ids: str, config: ProtocolConfig = SMALL, seeds: str = "") -> Scene:
    """Peers that come back with their checkpoints, and know one another's addresses."""
    scene = Scene(config)
    for id in ids:
        scene.enter(id, incarnation=2)
    for id in ids:
        scene.join(id, *(other for other in ids + tuple(seeds) if other != id), returning=True)
    return scene


def test_after_a_mass_restart_one_founds_and_all_others_join_it() -> None:
    scene = returned(*"abcdefgh")
    effects = scene.go_on(SMALL.found_s - 0.4, step_s=0.2, turns=True)
    assert Founded() not in effects
    effects = scene.go_on(10.0, step_s=0.2, turns=True)
    assert effects.count(Founded()) == 1
    assert len(of(effects, Joined)) == 7
    assert scene.peers["a"].account.founded == ONE, "the smallest id"
    assert {(p.phase, p.swarm) for p in scene.peers.values()} == {(Phase.TRAINING, ANCHOR)}


def test_where_the_first_of_them_stays_away_the_next_one_founds() -> None:
    scene = returned(*"bcd", seeds="a")
    effects = scene.go_on(15.0, step_s=0.2, turns=True)
    assert effects.count(Founded()) == 1 and scene.peers["b"].account.founded == ONE


def test_one_that_returns_alone_founds_its_swarm_anew_after_a_while() -> None:
    scene = returned("a", seeds="b")
    a = scene.peers["a"]
    assert (a.phase, a.swarm) == (Phase.SEEKING, ANCHOR)
    assert Founded() not in scene.passes("a", SMALL.found_alone_s - 0.4, 0.2)
    effects = scene.passes("a", 0.8, 0.2)
    assert Founded() in effects and (a.account.weight, a.swarm) == (ONE, ANCHOR)


def test_one_that_returns_and_knows_nobody_founds_at_once() -> None:
    scene = Scene()
    scene.enter("a")
    assert Founded() in scene.join("a", returning=True)


def test_two_that_returned_apart_are_one_swarm_when_they_meet() -> None:
    scene = returned("a", seeds="b")
    scene.passes("a", 31.0, 0.2)
    scene.mail.clear()
    scene.enter("b", incarnation=2)
    scene.join("b", "x", returning=True)
    scene.passes("b", 31.0, 0.2)
    scene.mail.clear()
    scene.join("b", "a")
    effects = scene.receive(
        scene.letter(
            "b",
            "a",
            replace(hello(replace(scene.peers["b"].live()[0])), reply=True),
            incarnation=2,
            to_incarnation=2,
        )
    )
    scene.deliver()
    assert not [e for e in effects if isinstance(e, SwarmGivenUp | PeerRefused)]
    assert [p.account.founded for p in scene.peers.values()] == [ONE, ONE]
    assert all(len(p.live()) == 2 for p in scene.peers.values())


def test_one_that_returns_to_a_living_swarm_joins_with_nothing() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.enter("c", incarnation=2, clock={"c": 9})
    scene.join("c", "a", returning=True)
    effects = scene.go_on(5.0, step_s=0.2, turns=True)
    assert Founded() not in effects
    c = scene.peers["c"]
    assert (c.phase, c.account.founded) == (Phase.TRAINING, 0)
    assert sum(p.account.weight for p in scene.peers.values()) == 2 * ONE
    assert scene.peers["a"].clock.rows()["c"] >= 9


def test_a_returning_peer_founds_no_second_time_with_those_who_train() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.enter("c", incarnation=2)
    scene.join("c", "a", "b", founders=3, returning=True)
    assert Founded() not in scene.go_on(5.0, step_s=0.2, turns=True)
    assert scene.peers["c"].phase is Phase.TRAINING


def test_one_that_returns_takes_no_other_swarm_for_its_own() -> None:
    scene = returned("a", seeds="b")
    for rooted in (False, True):
        stranger = replace(hello(member("b", Phase.TRAINING)), rooted=rooted, reply=True)
        effects = scene.receive(
            scene.letter("b", "a", stranger, swarm=OTHER_ANCHOR, to_incarnation=2)
        )
        assert SwarmGivenUp() not in effects and not scene.sent(effects, Ask)
        assert bool(of(effects, PeerRefused)) is rooted
        (answer,) = scene.sent(effects, Hello)
        assert answer.rooted, "what it had accepted before is not nothing"
    a = scene.peers["a"]
    assert (a.phase, a.swarm) == (Phase.SEEKING, ANCHOR)
    assert a.known() == ()


def test_a_young_founder_gives_its_swarm_up_for_those_who_return() -> None:
    scene = Scene()
    scene.enter("a", anchor=OTHER_ANCHOR)
    scene.join("a")
    for id in "bc":
        scene.enter(id, incarnation=2)
        scene.join(id, "a", "b", "c", returning=True)
    effects = scene.go_on(30.0, step_s=0.2, turns=True)
    assert SwarmGivenUp() in effects
    assert {(p.phase, p.swarm) for p in scene.peers.values()} == {(Phase.TRAINING, ANCHOR)}


def test_one_that_lost_its_checkpoint_keeps_nobody_from_founding_anew() -> None:
    """It has the smallest id, so that all wait for it, and not the anchor."""
    scene = Scene()
    scene.enter("a", anchor=OTHER_ANCHOR)
    for id in "bcd":
        scene.enter(id, incarnation=2)
    for id in "abcd":
        others = (other for other in "abcd" if other != id)
        scene.join(id, *others, returning=id != "a")
    scene.go_on(60.0, step_s=0.2, turns=True)
    assert {(p.phase, p.swarm) for p in scene.peers.values()} == {(Phase.TRAINING, ANCHOR)}


def test_a_stranger_that_meets_one_who_returns_founds_no_swarm_of_its_own() -> None:
    """It would only have to give it up again: it has heard of the other, and that has roots."""
    scene = Scene()
    scene.enter("a", anchor=OTHER_ANCHOR)
    scene.enter("b", incarnation=2)
    scene.join("a", "b")
    scene.join("b", "a", returning=True)
    scene.go_on(60.0, step_s=0.2, turns=True)
    a, b = scene.peers["a"], scene.peers["b"]
    assert {(p.phase, p.swarm) for p in (a, b)} == {(Phase.TRAINING, ANCHOR)}
    assert (a.account.founded, a.account.burned, b.account.founded) == (0, 0, ONE)


def test_one_that_returned_once_and_then_without_its_checkpoint_keeps_nobody_waiting() -> None:
    scene = Scene()
    scene.enter("a", anchor=OTHER_ANCHOR)
    scene.enter("b", incarnation=2)
    scene.join("a", "b")
    scene.join("b", "a", returning=True)
    scene.go_on(2.0, step_s=0.2, turns=True)
    scene.enter("b", incarnation=3, anchor=OTHER_ANCHOR)
    scene.join("b", "a")
    scene.go_on(30.0, step_s=0.2, turns=True)
    assert all(peer.phase is Phase.TRAINING for peer in scene.peers.values())


def test_a_newcomer_with_a_part_of_a_copy_is_none_that_returns() -> None:
    """It has accepted something, but brings nothing that a swarm could be founded anew with."""
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b")
    for beat in range(1, 9):
        other = replace(hello(member("b", Phase.JOINING, heartbeat=beat)), rooted=True)
        scene.receive(scene.letter("b", "a", other))
        scene.passes("a", 1.0, 0.2)
    assert scene.peers["a"].phase is Phase.TRAINING
