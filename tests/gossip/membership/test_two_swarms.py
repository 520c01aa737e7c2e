"""Whoever gives a swarm up takes nothing of it into the other."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Effect, Reclaim, Record
from rumor.gossip.effects.events import Event, Joined, ShareRefused, SwarmGivenUp
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.weight import ONE
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import Ack, Ask, Hello
from rumor.sim.fuzz.vector import schema_of

from ..scene import ANCHOR, OTHER_ANCHOR, SMALL, WIDE, Scene, a_push, an_offer, member, of


def hello(*ids: str, rooted: bool = True) -> Hello:
    """Of members that train; the first is the sender."""
    members = [member(id, heartbeat=9) for id in ids]
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
    assert not of(scene.step("a", trained=False), Reclaim)
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


def test_between_two_swarms_without_roots_a_newcomer_does_not_go_to_and_fro() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b", "c")
    # Of these two the other anchor's has the larger name, and gives way.
    assert ANCHOR < OTHER_ANCHOR
    effects = scene.receive(scene.letter("c", "a", hello("c", rooted=False), swarm=OTHER_ANCHOR))
    assert scene.sent(effects, Ask)
    effects = scene.receive(scene.letter("b", "a", hello("b", rooted=False)))
    assert SwarmGivenUp() in effects and scene.sent(effects, Ask)
    for _ in range(3):
        effects = scene.receive(
            scene.letter("c", "a", hello("c", rooted=False), swarm=OTHER_ANCHOR)
        )
        assert SwarmGivenUp() not in effects
    # Whoever fell silent may be gone, and counts no more.
    scene.wait(SMALL.stall_s + 0.1)
    effects = scene.receive(scene.letter("c", "a", hello("c", rooted=False), swarm=OTHER_ANCHOR))
    assert SwarmGivenUp() in effects and scene.sent(effects, Ask)


def test_of_a_swarm_without_roots_it_knows_nobody_any_more_once_it_has_gone_over() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a", "b", "c")
    scene.receive(scene.letter("b", "a", hello("b", "d", rooted=False)))
    effects = scene.receive(scene.letter("c", "a", hello("c"), swarm=OTHER_ANCHOR))
    assert SwarmGivenUp() in effects and scene.sent(effects, Ask)
    assert [member.id for member in scene.peers["a"].known()] == ["c"]


@pytest.mark.parametrize(
    ("config", "kind"), [(SMALL, Kind.STRANDED), (WIDE, Kind.SETTLED)], ids=["sent", "offered"]
)
def test_a_share_under_way_to_one_that_gives_its_swarm_up_is_waited_for_no_longer(
    config: ProtocolConfig, kind: Kind
) -> None:
    """It is no member any more, so that nobody would ever notice its death."""
    scene = Scene(config)
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    effects = scene.receive(scene.letter("b", "a", hello("b"), swarm=OTHER_ANCHOR))
    assert Record(Entry(kind, 0, "b", 1, 1)) in effects
    assert SwarmGivenUp() not in effects
    assert scene.peers["a"]._state.in_flight() == 0


def test_what_it_accepted_before_it_gave_its_swarm_up_still_counts() -> None:
    scene = Scene()
    scene.founded("a", "b")
    scene.push("a", "b", ONE // 2)
    scene.receive(scene.letter("b", "a", hello("b"), swarm=OTHER_ANCHOR))
    scene.receive(scene.letter("b", "a", Ack(1, ONE // 8), swarm=OTHER_ANCHOR))
    account = scene.peers["a"].account
    assert account.weight == ONE - ONE // 8 and not account.outstanding


def test_a_share_that_is_on_its_way_to_one_that_gives_its_swarm_up_is_sent_back() -> None:
    scene = Scene(WIDE)
    scene.enter("a")
    scene.join("a")
    scene.introduce("c", "a")
    offer = an_offer(form=Form())
    scene.receive(scene.letter("c", "a", offer))
    assert scene.peers["a"].staged == 1
    effects = scene.receive(scene.letter("b", "a", hello("b"), swarm=OTHER_ANCHOR))
    assert SwarmGivenUp() in effects and ShareRefused("c", "another swarm") in effects
    assert scene.sent(effects, Ack) == [Ack(1, 0)] and scene.peers["a"].staged == 0


def test_one_with_a_share_under_way_does_not_give_its_swarm_up() -> None:
    scene = Scene()
    scene.enter("a")
    scene.join("a")
    scene.introduce("c", "a")
    scene.push("a", "c", ONE // 2)
    effects = scene.receive(scene.letter("b", "a", hello("b"), swarm=OTHER_ANCHOR))
    assert SwarmGivenUp() not in effects and scene.peers["a"].swarm == ANCHOR


def test_one_that_starts_over_with_a_part_of_a_copy_needs_every_shard_of_the_other_swarm() -> None:
    two = schema_of(16, 2)
    scene = Scene()
    scene.enter("a", schema=two)
    scene.join("a", "b")

    def copied(sender: str, shard: int, swarm: bytes) -> list[Effect | Event]:
        """What the newcomer does when this copy has come."""
        form = Form(copy=True)
        size = form.size_bytes(two, shard)
        push = a_push(size_bytes=size, form=form)
        letter = scene.letter(
            sender, "a", push, swarm=swarm, schema=two.hash, frame_bytes=size, shard=shard
        )
        scene.receive(letter)
        return scene.step("a", trained=False)

    scene.receive(scene.letter("b", "a", hello("b"), schema=two.hash))
    assert Joined("b") not in copied("b", 0, ANCHOR)
    a = scene.peers["a"]
    assert a.weight > 0
    a._joining.start_over(OTHER_ANCHOR, scene.now)
    scene.receive(scene.letter("c", "a", hello("c"), schema=two.hash, swarm=OTHER_ANCHOR))
    assert a.weight == 0
    assert Joined("c") not in copied("c", 1, OTHER_ANCHOR)
    assert Joined("c") in copied("c", 0, OTHER_ANCHOR)
