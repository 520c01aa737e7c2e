"""Whoever gives a swarm up takes nothing of it into the other."""

from dataclasses import replace

import pytest

from rumor.gossip import ONE, Entry, Kind, Member, Phase, ProtocolConfig
from rumor.gossip.effects import Reclaim, Record
from rumor.gossip.events import SwarmGivenUp
from rumor.gossip.messages import Ack, Ask, Hello

from .scene import ANCHOR, OTHER_ANCHOR, SMALL, Scene


def hello(*ids: str, rooted: bool = True) -> Hello:
    """Of members that train; the first is the sender."""
    members = [
        Member(id=id, incarnation=1, heartbeat=9, phase=Phase.TRAINING, step=0, addresses=(id,))
        for id in ids
    ]
    return Hello(members=tuple(members), rooted=rooted, reply=False)


def stranded(config: ProtocolConfig = SMALL) -> Scene:
    """A founder that has half of its weight in escrow toward one that fell silent."""
    scene = Scene(config)
    scene.enter("a")
    scene.join("a")
    scene.introduce("c", "a")
    scene.push("a", "c", ONE // 2)
    for _ in range(40):
        scene.wait(1.0)
        scene.wake("a")
    assert scene.peers["a"].account.outstanding["c", 1].stranded
    return scene


@pytest.mark.parametrize("exact", [False, True])
def test_escrow_of_a_swarm_that_was_given_up_is_burned_when_it_comes_back(exact: bool) -> None:
    scene = stranded(replace(SMALL, exact=exact))
    effects = scene.receive(scene.letter("b", "a", hello("b"), swarm=OTHER_ANCHOR))
    assert SwarmGivenUp() in effects and Record(Entry(Kind.BURNED, ONE // 2)) in effects
    effects = scene.receive(scene.letter("c", "a", Ack(1, ONE // 8), swarm=ANCHOR))
    assert Record(Entry(Kind.BURNED, ONE // 2 - ONE // 8)) in effects
    assert not [e for e in scene.step("a", trained=False) if isinstance(e, Reclaim)]
    account = scene.peers["a"].account
    assert (account.weight, account.burned) == (0, ONE - ONE // 8)
    assert not account.outstanding


def test_a_newcomer_that_hears_of_two_swarms_with_roots_keeps_to_the_first() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b", "c")
    effects = scene.receive(scene.letter("b", "a", hello("b")))
    assert scene.sent(effects, Ask)
    effects = scene.receive(scene.letter("c", "a", hello("c"), swarm=OTHER_ANCHOR))
    assert SwarmGivenUp() not in effects and not scene.sent(effects, Ask)
    assert scene.peers["a"].swarm == ANCHOR


def test_of_a_swarm_without_roots_it_knows_nobody_any_more_once_it_has_gone_over() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b", "c")
    scene.receive(scene.letter("b", "a", hello("b", "d", rooted=False)))
    effects = scene.receive(scene.letter("c", "a", hello("c"), swarm=OTHER_ANCHOR))
    assert SwarmGivenUp() in effects and scene.sent(effects, Ask)
    assert [member.id for member in scene.peers["a"].known()] == ["c"]
