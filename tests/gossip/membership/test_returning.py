"""A peer that returns with a checkpoint looks for its swarm, and founds it anew if it is gone."""

import pytest

from rumor.gossip.effects.events import Founded, Joined, PeerRefused, SwarmGivenUp
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ask, Hello, Phase

from ..scene import ANCHOR, OTHER_ANCHOR, SMALL, Scene, hello, member, only


def returned(*ids: str, seeds: str = "") -> Scene:
    """Peers that return with their checkpoints and know one another's addresses."""
    scene = Scene()
    for id in ids:
        scene.enter(id, incarnation=2)
    for id in ids:
        scene.join(id, *(other for other in ids + tuple(seeds) if other != id), returning=True)
    return scene


def phases(scene: Scene) -> set[tuple[Phase, bytes]]:
    return {(peer.phase, peer.swarm) for peer in scene.peers.values()}


@pytest.mark.parametrize(("ids", "absent"), [("abcdefgh", ""), ("bcd", "a")])
def test_after_a_mass_restart_one_peer_founds_and_the_others_join(ids: str, absent: str) -> None:
    scene = returned(*ids, seeds=absent)
    effects = scene.run_for(SMALL.found_s - 0.4, step_s=0.2, turns=True)
    assert Founded() not in effects
    effects = scene.run_for(12.0, step_s=0.2, turns=True)
    assert effects.count(Founded()) == 1 and len(only(effects, Joined)) == len(ids) - 1
    assert scene.peers[ids[0]].account.founded == ONE, "the smallest id"
    assert phases(scene) == {(Phase.TRAINING, ANCHOR)}


def test_a_lone_returning_peer_founds_after_a_timeout_or_at_once_without_seeds() -> None:
    scene = returned("a", seeds="b")
    a = scene.peers["a"]
    assert (a.phase, a.swarm) == (Phase.SEEKING, ANCHOR)
    assert Founded() not in scene.wake_for("a", SMALL.found_alone_s - 0.4, 0.2)
    effects = scene.wake_for("a", 0.8, 0.2)
    assert Founded() in effects and (a.account.weight, a.swarm) == (ONE, ANCHOR)
    assert Founded() in Scene().join("a", returning=True)


def test_peers_that_returned_separately_form_one_swarm_when_they_meet() -> None:
    scene = returned("a", seeds="b")
    scene.wake_for("a", 31.0, 0.2)
    scene.enter("b", incarnation=2)
    scene.join("b", "x", returning=True)
    scene.wake_for("b", 31.0, 0.2)
    scene.mail.clear()
    scene.join("b", "a")
    body = hello(scene.peers["b"].table.live()[0], rooted=False, reply=True)
    effects = scene.tell("b", "a", body, incarnation=2, to_incarnation=2)
    scene.deliver()
    assert not only(effects, SwarmGivenUp) + only(effects, PeerRefused)
    assert [p.account.founded for p in scene.peers.values()] == [ONE, ONE]
    assert all(len(p.table.live()) == 2 for p in scene.peers.values())


@pytest.mark.parametrize("founders", [1, 3])
def test_a_peer_that_returns_to_a_live_swarm_joins_without_weight(founders: int) -> None:
    scene = Scene().founded()
    c = scene.enter("c", incarnation=2, clock={"c": 9})
    scene.join("c", "a", founders=founders, returning=True)
    assert Founded() not in scene.run_for(5.0, step_s=0.2, turns=True)
    assert (c.phase, c.account.founded) == (Phase.TRAINING, 0)
    assert sum(p.account.weight for p in scene.peers.values()) == 2 * ONE
    assert scene.peers["a"].table.clock.rows()["c"] >= 9


@pytest.mark.parametrize("rooted", [False, True])
def test_a_returning_peer_does_not_mistake_another_swarm_for_its_own(rooted: bool) -> None:
    scene = returned("a", seeds="b")
    stranger = hello(member("b"), rooted=rooted, reply=True)
    letter = scene.letter("b", "a", stranger, swarm=OTHER_ANCHOR, to_incarnation=2)
    effects = scene.receive(letter)
    assert SwarmGivenUp() not in effects and not scene.sent(effects, Ask)
    assert bool(only(effects, PeerRefused)) is rooted
    (answer,) = scene.sent(effects, Hello)
    assert answer.rooted, "it had accepted shares before"
    assert phases(scene) == {(Phase.SEEKING, ANCHOR)}
    assert scene.peers["a"].known() == ()


def test_a_young_founder_gives_up_its_swarm_for_returning_peers() -> None:
    scene = Scene()
    scene.enter("a", anchor=OTHER_ANCHOR)
    scene.join("a")
    for id in "bc":
        scene.enter(id, incarnation=2)
        scene.join(id, "a", "b", "c", returning=True)
    assert SwarmGivenUp() in scene.run_for(30.0, step_s=0.2, turns=True)
    assert phases(scene) == {(Phase.TRAINING, ANCHOR)}


@pytest.mark.parametrize("ids", ["ab", "abcd"])
def test_a_peer_that_lost_its_checkpoint_does_not_stop_others_from_founding_again(ids: str) -> None:
    """All wait for peer a because it has the smallest id, but it lacks the anchor.

    It must not found a swarm that it would have to give up again.
    """
    scene = Scene()
    scene.enter("a", anchor=OTHER_ANCHOR)
    for id in ids[1:]:
        scene.enter(id, incarnation=2)
    for id in ids:
        scene.join(id, *(other for other in ids if other != id), returning=id != "a")
    scene.run_for(60.0, step_s=0.2, turns=True)
    assert phases(scene) == {(Phase.TRAINING, ANCHOR)}
    a, b = scene.peers["a"], scene.peers["b"]
    assert (a.account.founded, a.account.burned, b.account.founded) == (0, 0, ONE)


def test_a_peer_that_returns_without_its_checkpoint_blocks_no_other_peer() -> None:
    scene = Scene()
    scene.enter("a", anchor=OTHER_ANCHOR)
    scene.enter("b", incarnation=2)
    scene.join("a", "b")
    scene.join("b", "a", returning=True)
    scene.run_for(2.0, step_s=0.2, turns=True)
    scene.enter("b", incarnation=3, anchor=OTHER_ANCHOR)
    scene.join("b", "a")
    scene.run_for(30.0, step_s=0.2, turns=True)
    assert all(peer.phase is Phase.TRAINING for peer in scene.peers.values())


def test_a_newcomer_with_part_of_a_copy_is_not_a_returning_peer() -> None:
    """It has accepted shares, but it has no anchor with which to found a swarm again."""
    scene = Scene()
    scene.join("a", "b")
    for heartbeat in range(1, 9):
        scene.send_hello("a", member("b", Phase.JOINING, heartbeat=heartbeat))
        scene.wake_for("a", 1.0, 0.2)
    assert scene.peers["a"].phase is Phase.TRAINING
