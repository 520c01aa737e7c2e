"""A peer founds a swarm if it has no seeds, and otherwise becomes a copy of a donor."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Greet
from rumor.gossip.effects.events import Founded
from rumor.gossip.errors import LocalProtocolError
from rumor.gossip.rules.synchronous.dpsgd import DPSGD
from rumor.gossip.weight import ONE, WEIGHT_MIN
from rumor.gossip.wire.messages import Ack, Ask, Leave, Phase, Push

from ..scene import ANCHOR, OTHER_ANCHOR, SMALL, Effects, Scene, destinations, member, only


def seeking_scene(config: ProtocolConfig = SMALL, *seeds: str) -> Scene:
    """A newcomer a that looks for a swarm, by default at b."""
    scene = Scene(config)
    scene.join("a", *seeds or "b")
    return scene


def greeted(effects: Effects) -> list[str]:
    return [greet.address for greet in only(effects, Greet)]


def test_a_peer_without_seeds_founds_when_it_joins() -> None:
    scene = Scene()
    a = scene.enter("a")
    assert not scene.wake_for("a", 1.0, 0.2) and a.phase is Phase.SEEKING
    assert Founded() in scene.join("a")
    assert (a.phase, a.account.weight, a.swarm) == (Phase.TRAINING, ONE, ANCHOR)


def test_a_lone_newcomer_never_founds_and_waits_under_fixed_member_rules() -> None:
    scene = Scene()
    scene.enter("a", rule=DPSGD())
    scene.join("a", "b")
    assert scene.step("a", trained=False) == []
    assert Founded() not in seeking_scene().wake_for("a", 100.0, 0.2)


def test_a_peer_greets_an_address_until_its_peer_is_known() -> None:
    scene = Scene()
    scene.enter("a")
    (greet,) = only(scene.join("a", "b"), Greet)
    assert greet.address == "b", "the greeting names no peer, since none is known there"
    assert (greet.envelope.destination, greet.envelope.destination_incarnation) == ("", 0)
    assert greeted(scene.wake_for("a", 1.0, 0.2)) == ["b"] * 5
    scene.send_hello("a", member("b", Phase.SEEKING), rooted=False)
    assert greeted(scene.wake_for("a", 1.0, 0.2)) == []


def test_the_smallest_id_founds_among_newcomers_that_see_only_each_other() -> None:
    for id, other, founds in (("a", "b", True), ("b", "a", False)):
        scene = Scene()
        scene.join(id, other)
        entry = member(other, Phase.SEEKING, addresses=())
        scene.send_hello(id, entry, rooted=False, swarm=b"")
        assert Founded() not in scene.wake_for(id, 4.8, 0.2)
        assert (Founded() in scene.wake_for(id, 0.4, 0.2)) is founds


def test_further_seeds_do_not_extend_a_roll_call() -> None:
    scene = Scene(ProtocolConfig(roll_s=2.0))
    scene.enter("a")
    effects = scene.join("a", "b", founders=2)
    for address in ("c", "d", "e"):
        effects += scene.wake_for("a", 0.6, 0.2) + scene.join("a", address)
    assert Founded() not in effects
    assert Founded() in scene.wake_for("a", 0.4, 0.2)


def test_a_peer_in_a_roll_call_adopts_neither_another_swarm_nor_its_steps() -> None:
    scene = Scene(ProtocolConfig(roll_s=2.0))
    a = scene.enter("a", clock={"a": 3})
    scene.join("a", "b", founders=3)
    z = member("z", step=7000, addresses=())
    scene.send_hello("a", z, rooted=False, clock=(("y", 10**6),), swarm=OTHER_ANCHOR)
    assert a.swarm == b""
    assert Founded() in scene.wake_for("a", 2.4, 0.2)
    assert a.table.clock.total == 3


@pytest.mark.parametrize("founders", [1, 2])
def test_a_peer_that_gave_up_its_swarm_founds_no_other_when_it_joins(founders: int) -> None:
    scene = Scene()
    a = scene.enter("a")
    scene.join("a", founders=founders)
    if founders == 2:
        scene.introduce("c", "a")
        scene.wait(1.0)
        scene.wake("a")
    scene.send_hello("a", member("b", Phase.JOINING), swarm=OTHER_ANCHOR)
    assert a.swarm == OTHER_ANCHOR and a.phase is Phase.SEEKING
    for _ in range(3):
        scene.wait(1.0)
        assert Founded() not in scene.join("a", founders=founders)
    assert (a.swarm, a.state.weight) == (OTHER_ANCHOR, 0)
    assert a.account.founded == a.account.burned == ONE


def test_a_newcomer_asks_another_donor_if_the_first_does_not_answer() -> None:
    scene = seeking_scene()
    donors = [member(id, addresses=()) for id in "bcdef"]
    first = destinations(scene.send_hello("a", *donors, rooted=False), Ask)
    assert len(first) == 1
    again = destinations(scene.wake_for("a", 9.6, 0.2), Ask)
    assert set(again) == set(first), "the request may have been lost"
    second = destinations(scene.wake_for("a", 0.8, 0.2), Ask)
    assert len(second) == 1 and second != first


def test_a_waiting_newcomer_wakes_in_time_to_repeat_its_request() -> None:
    scene = seeking_scene(replace(SMALL, gossip_s=50.0))
    scene.send_hello("a", member("b"), rooted=False)
    a = scene.peers["a"]
    assert a.phase is Phase.JOINING and a.deadline() <= scene.now + scene.config.seek_s


def asked_donor() -> Scene:
    """Newcomer c has asked a, one of the founders a and b."""
    scene = Scene().founded()
    scene.send_hello("a", member("c", Phase.JOINING, addresses=()), rooted=False)
    scene.tell("c", "a", Ask())
    return scene


def test_a_donor_with_too_little_weight_waits_for_more() -> None:
    scene = Scene().founded()
    scene.push("a", "b", ONE - 2 * WEIGHT_MIN + 1)
    scene.send_hello("a", member("c", Phase.JOINING, addresses=()), rooted=False)
    scene.tell("c", "a", Ask())
    assert not scene.sent(scene.step("a"), Push)
    scene.tell("b", "a", Ack(1, 0))
    assert [copy.escrow for copy in scene.sent(scene.step("a"), Push)] == [ONE // 2]


def test_a_newcomer_that_only_dials_out_asks_only_peers_it_can_dial() -> None:
    scene = Scene()
    scene.enter("a", addresses=())
    scene.join("a", "b")
    others = [member(id, addresses=()) for id in "cd"]
    effects = scene.send_hello("a", member("b", Phase.JOINING, addresses=()), *others, rooted=False)
    assert not scene.sent(effects + scene.wake_for("a", 3.0, 0.2), Ask)
    assert scene.sent(scene.send_hello("a", member("d", heartbeat=2), rooted=False), Ask)


def test_a_newcomer_asks_another_donor_if_the_first_is_unreachable() -> None:
    for others, donors in (("", ["b"]), ("c", ["c"])):
        scene = seeking_scene()
        scene.send_hello("a", member("b", addresses=()), rooted=False)
        scene.unsent(next(letter for letter in scene.mail if isinstance(letter.body, Ask)))
        effects: Effects = []
        for other in others:
            effects += scene.send_hello("a", member(other, addresses=()), rooted=False)
        assert destinations(effects, Ask) == [*others], "at once: the first request cannot succeed"
        assert set(destinations(effects + scene.wake_for("a", 0.4, 0.2), Ask)) == set(donors)


@pytest.mark.parametrize("own", [ANCHOR, OTHER_ANCHOR, b"a-smaller-anchor"])
def test_newcomers_found_again_if_the_only_holder_of_weight_leaves(own: bytes) -> None:
    """No peer holds weight in the swarm that the newcomers adopted, even if its hash is smaller."""
    scene = Scene()
    for id, other in ("ab", "ba"):
        scene.enter(id, anchor=own)
        scene.join(id, "z")
        scene.send_hello(id, member(other, Phase.SEEKING), rooted=False, swarm=b"")
    for id in "ab":
        scene.send_hello(id, member("z", addresses=()), rooted=False)
        scene.tell("z", id, Leave(True))
    scene.mail.clear()
    assert scene.run_for(15.0, step_s=0.2, turns=True).count(Founded()) == 1
    assert {(p.phase, p.swarm) for p in scene.peers.values()} == {(Phase.TRAINING, own)}


def test_a_peer_reports_its_steps_and_takes_none_once_finished() -> None:
    scene = Scene().founded()
    for trained in (True, False, True):
        scene.step("a", trained=trained)
    assert (scene.peers["a"].table.step, scene.peers["b"].table.step) == (2, 0)
    scene.finish("a")
    with pytest.raises(LocalProtocolError, match="a step while finished"):
        scene.step("a")
    assert scene.peers["a"].table.live()[0].step == 2


def test_a_new_protocol_must_be_woken_at_once() -> None:
    scene = Scene()
    a = scene.enter("a")
    assert a.deadline() == float("-inf") and a.phase is Phase.SEEKING
    scene.join("a")
    assert a.deadline() == scene.config.gossip_s
