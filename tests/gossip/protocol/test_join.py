"""A peer founds where there is nobody to look for, and else becomes a copy of a donor."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Greet, Mix
from rumor.gossip.effects.events import Founded, Joined
from rumor.gossip.weight import ONE, WEIGHT_MIN
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import Ack, Ask, Leave, Phase, Push

from ..scene import ANCHOR, OTHER_ANCHOR, SMALL, Scene, a_push, hello, member, of, to


def greeted(effects: Effects) -> list[str]:
    return [effect.address for effect in of(effects, Greet)]


def test_a_peer_without_addresses_founds_at_once() -> None:
    scene = Scene()
    a = scene.enter("a")
    assert Founded() in scene.join("a")
    assert (a.phase, a.account.weight, a.swarm) == (Phase.TRAINING, ONE, ANCHOR)


def test_a_peer_with_an_address_greets_it_until_it_is_known() -> None:
    scene = Scene()
    scene.enter("a")
    assert greeted(scene.join("a", "b")) == ["b"]
    assert greeted(scene.passes("a", 1.0, 0.2)) == ["b"] * 5
    scene.says("a", member("b", Phase.SEEKING), rooted=False)
    assert greeted(scene.passes("a", 1.0, 0.2)) == []


def test_a_greeting_names_nobody_for_nobody_is_known_there() -> None:
    scene = Scene()
    scene.enter("a")
    (envelope,) = [e.envelope for e in scene.join("a", "b") if isinstance(e, Greet)]
    assert (envelope.destination, envelope.destination_incarnation) == ("", 0)


def test_addresses_can_be_added_while_a_peer_looks_for_a_swarm_and_to_a_member() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b")
    scene.join("a", "c")
    assert greeted(scene.passes("a", 0.2, 0.2)) == ["b", "c"]
    scene.enter("d")
    scene.join("d")
    assert Founded() not in scene.join("d", "e")
    assert scene.peers["d"].account.founded == ONE
    assert greeted(scene.passes("d", 2.0, 0.2)) == ["e"]


def test_a_peer_that_was_not_told_to_join_does_nothing() -> None:
    scene = Scene()
    scene.enter("a")
    assert not scene.passes("a", 1.0, 0.2)
    assert scene.peers["a"].phase is Phase.SEEKING


def test_a_lonely_newcomer_never_founds() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "typo")
    assert Founded() not in scene.passes("a", 100.0, 0.2)


def test_of_newcomers_that_see_only_one_another_the_one_with_the_smallest_id_founds() -> None:
    for id, other, founds in (("a", "b", True), ("b", "a", False)):
        scene = Scene()
        scene.enter(id)
        scene.join(id, other)
        scene.receive(
            scene.letter(other, id, hello(member(other, Phase.SEEKING), rooted=False), swarm=b"")
        )
        assert Founded() not in scene.passes(id, 4.8, 0.2)
        assert (Founded() in scene.passes(id, 0.4, 0.2)) is founds


def test_a_roll_call_founds_together_when_all_are_there() -> None:
    scene = Scene()
    scene.founded("a", "b", "c")
    assert {p.swarm for p in scene.peers.values()} == {ANCHOR}
    assert [p.account.weight for p in scene.peers.values()] == [ONE] * 3


def test_a_roll_call_does_not_wait_for_ever() -> None:
    scene = Scene(ProtocolConfig(roll_s=2.0))
    scene.enter("a")
    scene.join("a", "b", founders=2)
    assert Founded() not in scene.passes("a", 1.8, 0.2)
    assert Founded() in scene.passes("a", 0.4, 0.2)


def test_a_roll_call_is_neither_cut_short_nor_prolonged_where_more_addresses_are_given() -> None:
    scene = Scene(ProtocolConfig(roll_s=2.0))
    scene.enter("a")
    effects = scene.join("a", "b", founders=2)
    for address in ("c", "d", "e"):
        effects += scene.passes("a", 0.6, 0.2) + scene.join("a", address)
    assert Founded() not in effects
    assert Founded() in scene.passes("a", 0.4, 0.2)


def test_one_that_gave_its_swarm_up_founds_no_other_when_it_is_told_to_join_again() -> None:
    scene = Scene()
    a = scene.enter("a")
    scene.join("a")
    rooted = replace(hello(member("b", Phase.JOINING)), rooted=True)
    scene.receive(scene.letter("b", "a", rooted, swarm=OTHER_ANCHOR))
    assert a.swarm == OTHER_ANCHOR and a.phase is Phase.SEEKING
    assert Founded() not in scene.join("a")
    assert (a.swarm, a.weight, a.account.founded) == (OTHER_ANCHOR, 0, ONE)


def test_one_of_a_roll_call_does_not_take_over_anothers_swarm() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b", founders=2)
    stranger = scene.letter("b", "a", hello(member("b", Phase.TRAINING)), swarm=OTHER_ANCHOR)
    scene.receive(stranger)
    assert scene.peers["a"].swarm == b""


def test_a_newcomer_becomes_a_copy_of_its_donor_and_takes_half_of_its_weight() -> None:
    scene = Scene()
    a, b = scene.enter("a"), scene.enter("b")
    scene.join("a")
    scene.join("b", "a")
    scene.deliver()
    scene.passes("b", 0.2, 0.2)
    scene.deliver()
    scene.step("a")
    scene.deliver()
    effects = scene.step("b", trained=False)
    assert next(e for e in effects if isinstance(e, Mix)).fraction == 1.0
    assert Joined("a") in effects
    scene.deliver()
    assert (a.account.weight, b.account.weight) == (ONE // 2, ONE // 2)
    assert (b.phase, b.swarm) == (Phase.TRAINING, ANCHOR)


def test_a_newcomer_belongs_to_the_swarm_of_the_copy_it_got() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b")
    heard = scene.letter("b", "a", hello(member("c", Phase.TRAINING)), swarm=b"")
    assert scene.sent(scene.receive(heard), Ask)
    push = a_push(escrow=5, size_bytes=128, form=Form(copy=True))
    scene.receive(scene.letter("c", "a", push, swarm=OTHER_ANCHOR, frame_bytes=128))
    scene.step("a", trained=False)
    assert scene.peers["a"].swarm == OTHER_ANCHOR


def test_a_newcomer_asks_one_donor_and_another_when_that_one_does_not_answer() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b")
    donors = [member(id, Phase.TRAINING) for id in "bcdef"]
    first = to(scene.says("a", *donors, rooted=False), Ask)
    assert len(first) == 1
    assert set(to(scene.passes("a", 9.6, 0.2), Ask)) == set(first), (
        "the question may have been lost"
    )
    second = to(scene.passes("a", 0.8, 0.2), Ask)
    assert len(second) == 1 and second != first


def test_a_newcomer_that_has_asked_wakes_in_time_to_ask_again() -> None:
    scene = Scene(replace(SMALL, gossip_s=50.0))
    b = scene.enter("b")
    scene.join("b", "a")
    scene.says("b", member("a", Phase.TRAINING), rooted=False)
    assert b.phase is Phase.JOINING
    assert b.deadline() <= scene.now + scene.config.seek_s


def test_a_newcomer_that_gets_a_copy_asks_nobody_else() -> None:
    scene = Scene(replace(SMALL, stall_s=0.5))
    scene.enter("a")
    scene.join("a", "b")
    heard = scene.letter("b", "a", hello(member("b", Phase.TRAINING)))
    assert scene.sent(scene.receive(heard), Ask)
    push = a_push(escrow=5, size_bytes=128, form=Form(copy=True))
    scene.receive(scene.letter("b", "a", push, frame_bytes=128))
    assert not scene.sent(scene.passes("a", 2.0, 0.2), Ask)


def test_a_donor_gives_to_those_that_asked_and_still_need_it() -> None:
    scene = Scene()
    scene.founded("a", "b")
    newcomer = member("c", Phase.JOINING)
    scene.receive(scene.letter("stranger", "a", Ask()))
    scene.receive(scene.letter("b", "a", Ask()))
    scene.receive(scene.letter("c", "a", hello(newcomer)))
    scene.receive(scene.letter("c", "a", Ask()))
    (push,) = scene.sent(scene.step("a"), Push)
    assert push.form == Form(copy=True) and push.escrow == ONE // 2
    assert not scene.sent(scene.step("a"), Push)


def test_a_donor_with_its_hands_full_gives_later() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.says("a", member("c", Phase.JOINING), rooted=False)
    scene.receive(scene.letter("c", "a", Ask()))
    scene.act("a", lambda context: None)
    scene.receive(scene.letter("c", "a", Ask()))
    assert not scene.sent(scene.step("a"), Push)
    scene.deliver()


def test_a_donor_with_hardly_any_weight_waits_until_it_has_some() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", ONE - 2 * WEIGHT_MIN + 1)
    scene.says("a", member("c", Phase.JOINING), rooted=False)
    scene.receive(scene.letter("c", "a", Ask()))
    assert not scene.sent(scene.step("a"), Push)
    scene.receive(scene.letter("b", "a", Ack(1, 0)))
    assert [push.escrow for push in scene.sent(scene.step("a"), Push)] == [ONE // 2]


def test_one_of_a_roll_call_does_not_count_another_swarms_steps() -> None:
    scene = Scene(ProtocolConfig(roll_s=2.0))
    a = scene.enter("a", clock={"a": 3})
    scene.join("a", "b", founders=3)
    body = replace(hello(replace(member("z", Phase.TRAINING), step=7000)), clock=(("y", 10**6),))
    scene.receive(scene.letter("z", "a", body, swarm=OTHER_ANCHOR))
    assert Founded() in scene.passes("a", 2.4, 0.2)
    assert a.clock.total == 3


def test_newcomers_who_only_see_one_another_found_one_swarm() -> None:
    scene = Scene()
    for id in "abcd":
        scene.enter(id)
    for id in "abcd":
        scene.join(id, *(other for other in "abcd" if other != id))
    assert scene.go_on(15.0, step_s=0.2, turns=True).count(Founded()) == 1
    assert all(peer.phase is Phase.TRAINING for peer in scene.peers.values())


def test_one_that_only_dials_out_asks_nobody_who_only_dials_out() -> None:
    scene = Scene()
    scene.enter("a", addresses=())
    scene.join("a", "b")
    others = [member(id, addresses=()) for id in "cd"]
    effects = scene.receive(scene.letter("b", "a", hello(member("b", Phase.JOINING), *others)))
    assert not scene.sent(effects + scene.passes("a", 3.0, 0.2), Ask)
    listens = replace(member("d", heartbeat=2), addresses=("d",))
    effects = scene.receive(scene.letter("d", "a", hello(listens)))
    assert scene.sent(effects, Ask)


def test_a_newcomer_asks_nobody_whom_it_cannot_reach_where_there_is_another() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b")
    scene.says("a", member("b", Phase.TRAINING), rooted=False)
    ask = next(letter for letter in scene.mail if isinstance(letter.body, Ask))
    scene.unsent(ask)
    scene.mail.clear()
    scene.says("a", member("c", Phase.TRAINING), rooted=False)
    asked = [letter.destination for letter in scene.mail if isinstance(letter.body, Ask)]
    assert asked == ["c"], "at once: nothing can come of the first question"


def test_where_no_donor_can_be_reached_just_now_one_is_asked_all_the_same() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b")
    scene.says("a", member("b", Phase.TRAINING), rooted=False)
    ask = next(letter for letter in scene.mail if isinstance(letter.body, Ask))
    scene.unsent(ask)
    assert scene.sent(scene.passes("a", 0.4, 0.2), Ask)


@pytest.mark.parametrize("own", [ANCHOR, OTHER_ANCHOR, b"a-smaller-anchor"])
def test_newcomers_whose_only_holder_leaves_without_an_heir_found_anew(own: bytes) -> None:
    """Nobody holds anything in the swarm whose name they had taken over, be its hash smaller."""
    scene = Scene()
    for id in "ab":
        scene.enter(id, anchor=own)
        scene.join(id, "z")
        for other in "ab":
            if other != id:
                entry = replace(member(other, Phase.SEEKING), addresses=(other,))
                scene.receive(scene.letter(other, id, hello(entry), swarm=b""))
    for id in "ab":
        scene.receive(scene.letter("z", id, hello(member("z", Phase.TRAINING))))
        scene.receive(scene.letter("z", id, Leave(True)))
    scene.mail.clear()
    assert scene.go_on(15.0, step_s=0.2, turns=True).count(Founded()) == 1
    assert all(peer.phase is Phase.TRAINING for peer in scene.peers.values())
    assert {peer.swarm for peer in scene.peers.values()} == {own}
