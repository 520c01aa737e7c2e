"""One of two swarms gives way; a peer that changes swarms takes nothing with it."""

from functools import partial

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.events import Joined, PeerRefused, ShareRefused, SwarmGivenUp
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.weight import ONE
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import Ack, Ask, Hello, Leave, Phase
from rumor.sim.fuzz.vector import schema_of

from ..scene import (
    ANCHOR,
    OTHER_ANCHOR,
    SMALL,
    WIDE,
    Effects,
    Scene,
    a_push,
    an_offer,
    hello,
    member,
    only,
)

SMALLER, LARGER = b"\0" * 16, b"\xff" * 16


def alone(config: ProtocolConfig = SMALL) -> Scene:
    """A founder a that has accepted nothing yet."""
    scene = Scene(config)
    scene.join("a")
    return scene


def newcomer() -> Scene:
    scene = Scene()
    scene.join("a", "b", "c")
    return scene


def test_a_young_founder_gives_up_its_swarm_for_a_rooted_one() -> None:
    scene = alone()
    scene.introduce("c", "a")
    effects = scene.send_hello("a", member("b"), swarm=OTHER_ANCHOR)
    a = scene.peers["a"]
    assert SwarmGivenUp() in effects and a.phase is Phase.JOINING
    assert (a.account.weight, a.account.burned, a.swarm) == (0, ONE, OTHER_ANCHOR)
    assert [m.id for m in a.known()] == ["b"], "it forgets the members of the other swarm"
    assert a.table.clock.rows() == {"a": 0}


@pytest.mark.parametrize(
    ("holds", "theirs", "phase", "gives_up"),
    [
        (True, SMALLER, Phase.TRAINING, True),
        (True, LARGER, Phase.TRAINING, False),
        # A newcomer may still represent a swarm whose last member has died.
        (True, SMALLER, Phase.SEEKING, False),
        (True, SMALLER, Phase.JOINING, False),
        (False, LARGER, Phase.TRAINING, True),
        (False, SMALLER, Phase.TRAINING, True),
        (False, LARGER, Phase.SEEKING, False),
        (False, SMALLER, Phase.SEEKING, True),
    ],
)
def test_a_founders_swarm_beats_a_newcomers_and_ties_go_to_the_smaller_hash(
    holds: bool, theirs: bytes, phase: Phase, gives_up: bool
) -> None:
    scene = alone() if holds else newcomer()
    if not holds:
        scene.send_hello("a", member("c", Phase.SEEKING), rooted=False)
    assert scene.peers["a"].swarm == ANCHOR
    effects = scene.send_hello("a", member("b", phase), rooted=False, swarm=theirs)
    assert (SwarmGivenUp() in effects) is gives_up
    assert scene.peers["a"].account.burned == (ONE if holds and gives_up else 0)


def test_a_newcomer_between_two_rooted_swarms_stays_with_the_first() -> None:
    scene = newcomer()
    assert scene.sent(scene.send_hello("a", member("b")), Ask)
    for _ in range(3):
        effects = scene.send_hello("a", member("c"), swarm=OTHER_ANCHOR)
        assert SwarmGivenUp() not in effects and not scene.sent(effects, Ask)
    assert scene.peers["a"].swarm == ANCHOR
    # The newcomer may join the other swarm once no member of the first is left.
    scene.tell("b", "a", Leave(True))
    assert SwarmGivenUp() in scene.send_hello("a", member("c"), swarm=OTHER_ANCHOR)
    assert scene.peers["a"].swarm == OTHER_ANCHOR


def test_a_newcomer_does_not_alternate_between_two_young_swarms() -> None:
    scene = newcomer()
    say_c = partial(scene.send_hello, "a", member("c"), rooted=False, swarm=OTHER_ANCHOR)
    # OTHER_ANCHOR is the larger hash, so its swarm gives way.
    assert ANCHOR < OTHER_ANCHOR and scene.sent(say_c(), Ask)
    effects = scene.send_hello("a", member("b"), member("d"), rooted=False)
    assert SwarmGivenUp() in effects and scene.sent(effects, Ask)
    for _ in range(3):
        assert SwarmGivenUp() not in say_c()
    # A silent peer may be gone, and does not count any more.
    scene.wait(SMALL.stall_s + 0.1)
    effects = say_c()
    assert SwarmGivenUp() in effects and scene.sent(effects, Ask)
    assert [m.id for m in scene.peers["a"].known()] == ["c"]


def test_two_rooted_swarms_do_not_merge() -> None:
    scene = Scene().founded("a", "b")
    scene.push("b", "a")
    scene.deliver()
    scene.mix_all("a")
    scene.deliver()
    effects = scene.send_hello("a", member("c"), reply=True, swarm=OTHER_ANCHOR)
    assert [e.reason for e in only(effects, PeerRefused)] == ["it belongs to another swarm"]
    assert len(scene.sent(effects, Hello)) == 1
    assert scene.send_hello("a", member("c"), rooted=False, swarm=OTHER_ANCHOR) == []


def test_escrow_of_an_abandoned_swarm_is_burned_when_it_returns() -> None:
    scene = alone(SMALL)
    scene.introduce("c", "a")
    scene.push("a", "c", ONE // 2)
    assert SwarmGivenUp() not in scene.send_hello("a", member("b"), swarm=OTHER_ANCHOR), (
        "a share is in flight"
    )
    scene.strand("a", "c")
    effects = scene.send_hello("a", member("b"), swarm=OTHER_ANCHOR)
    assert SwarmGivenUp() in effects and Entry(Kind.BURNED, ONE // 2) in effects
    effects = scene.tell("c", "a", Ack(1, ONE // 8), swarm=ANCHOR)
    assert Entry(Kind.BURNED, ONE // 2 - ONE // 8) in effects
    scene.step("a", trained=False)
    account = scene.peers["a"].account
    assert (account.weight, account.burned) == (0, ONE - ONE // 8)
    assert not account.outstanding


@pytest.mark.parametrize(
    ("config", "kind", "accepted"),
    [(SMALL, Kind.STRANDED, ONE // 8), (WIDE, Kind.SETTLED, 0)],
    ids=["sent", "offered"],
)
def test_a_sender_does_not_wait_for_a_peer_that_changed_swarms(
    config: ProtocolConfig, kind: Kind, accepted: int
) -> None:
    """Peer b is no longer a member, so its death would go unnoticed."""
    scene = Scene(config).founded()
    scene.push("a", "b", ONE // 2)
    effects = scene.send_hello("a", member("b", heartbeat=9), swarm=OTHER_ANCHOR)
    assert Entry(kind, 0, "b", 1, 1) in effects
    assert SwarmGivenUp() not in effects
    # Weight that b accepted before still counts.
    scene.tell("b", "a", Ack(1, accepted), swarm=OTHER_ANCHOR)
    account = scene.peers["a"].account
    assert account.weight == ONE - accepted and not account.outstanding


def test_a_staged_share_is_returned_when_its_receiver_gives_up_its_swarm() -> None:
    scene = alone(WIDE)
    scene.introduce("c", "a")
    scene.tell("c", "a", an_offer())
    assert scene.peers["a"].staged == 1
    effects = scene.send_hello("a", member("b"), swarm=OTHER_ANCHOR)
    assert SwarmGivenUp() in effects and ShareRefused("c", "another swarm") in effects
    assert scene.sent(effects, Ack) == [Ack(1, 0)] and scene.peers["a"].staged == 0


def test_a_newcomer_that_changes_swarms_needs_every_shard_again() -> None:
    two = schema_of(16, 2)
    scene = Scene()
    a = scene.enter("a", schema=two)
    scene.join("a", "b")

    def copied(sender: str, shard: int, swarm: bytes) -> Effects:
        """Return the effects of the newcomer after this copy arrives."""
        form = Form(copy=True)
        size = form.size_bytes(two, shard)
        letter = partial(scene.letter, sender, "a", swarm=swarm, schema=two.hash, shard=shard)
        scene.receive(letter(a_push(size_bytes=size, form=form), frame_bytes=size))
        return scene.step("a", trained=False)

    scene.tell("b", "a", hello(member("b")), schema=two.hash)
    assert Joined("b") not in copied("b", 0, ANCHOR)
    assert a.state.weight > 0
    a._joining.start_over(OTHER_ANCHOR, scene.now)
    body = hello(member("c"))
    scene.tell("c", "a", body, schema=two.hash, swarm=OTHER_ANCHOR)
    assert a.state.weight == 0
    assert Joined("c") not in copied("c", 1, OTHER_ANCHOR)
    assert Joined("c") in copied("c", 0, OTHER_ANCHOR)


def roll_call(**anchors: bytes) -> Scene:
    """Founders of one roll call that have these models, before they hear of one another's."""
    scene = Scene()
    for id, anchor in anchors.items():
        scene.enter(id, anchor=anchor)
    for id in anchors:
        scene.join(id, *anchors.keys() - {id}, founders=len(anchors))
    while any(scene.peers[id].phase is Phase.SEEKING for id in anchors):
        scene.deliver(Hello)
        for id in anchors:
            if scene.peers[id].phase is Phase.SEEKING:
                scene.wake(id)
        scene.wait(0.1)
    return scene


@pytest.mark.parametrize("finished", ["", "a", "b", "ab"])
def test_founders_with_different_models_become_one_swarm_however_short_their_training(
    finished: str,
) -> None:
    scene = roll_call(a=SMALLER, b=LARGER)
    scene.mail.clear()
    for id in finished:
        scene.finish(id)
        scene.step(id, trained=False)
    scene.run_for(10.0, turns=True)
    a, b = scene.peers["a"], scene.peers["b"]
    assert a.swarm == b.swarm == SMALLER and (a.account.burned, b.account.burned) == (0, ONE)
    assert a.account.weight + b.account.weight == ONE and a.strays == b.strays == ()
    for id in "ab":
        scene.finish(id)
    scene.run_for(5.0, turns=True)
    scene.merge("a", "b")
    assert a.agreement.reached and b.agreement.reached


def test_a_founder_in_another_rooted_swarm_is_awaited_for_a_moment_and_remembered() -> None:
    scene = roll_call(a=SMALLER, b=LARGER, c=SMALLER)
    del scene.peers["b"]
    scene.run_for(3.0)
    scene.push("c", "a")
    scene.deliver()
    scene.mix_all("a")
    a = scene.peers["a"]
    for id in "ac":
        scene.finish(id)
    scene.deliver()
    scene.send_hello("a", member("b", heartbeat=9), swarm=LARGER)
    assert not a.merging and a.strays == ("b",)
    scene.run_for(SMALL.found_s + 1.0)
    assert a.merging and a.strays == ("b",)


def test_a_finished_peer_keeps_its_model_when_it_meets_a_stranger_of_another_swarm() -> None:
    scene = Scene().founded("a", "b")
    scene.finish("a")
    effects = scene.send_hello("a", member("c"), swarm=OTHER_ANCHOR)
    assert SwarmGivenUp() not in effects
    assert (scene.peers["a"].account.weight, scene.peers["a"].swarm) == (ONE, ANCHOR)
