"""With shards every piece of the vector has weights of its own, which never touch."""

from dataclasses import replace
from typing import Any

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Effect, Mix, Record, Send, Snapshot
from rumor.gossip.effects.events import Event, Joined, PushSkipped, ShareRefused
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.rules.asynchronous.sgp import SGP
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE, WEIGHT_MIN, coarse
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import (
    Ack,
    Ask,
    Body,
    Describe,
    Envelope,
    Hello,
    Leave,
    Phase,
    Push,
    Query,
)
from rumor.sim.fuzz.vector import schema_of

from ..scene import ANCHOR, SMALL, Scene, a_push, hello, of

THREE = schema_of(24, shards=3)


def gossiping(config: ProtocolConfig = SMALL, *, shards: int = 3) -> Scene:
    """Peers a and b, which push at every turn."""
    scene = Scene(config)
    scene.founded("a", "b", shards=shards, rules={peer: GoSGD(1.0) for peer in "ab"})
    return scene


def pushed(effects: list[Effect | Event]) -> list[tuple[int, int]]:
    """Shard and weight of every push."""
    sent = [effect.envelope for effect in effects if isinstance(effect, Send)]
    return [(e.shard, e.body.escrow) for e in sent if isinstance(e.body, Push)]


def letter(scene: Scene, source: str, to: str, body: Body, **what: Any) -> Envelope:
    return scene.letter(source, to, body, schema=THREE.hash, **what)


def weights(scene: Scene, peer: str) -> list[int]:
    return [account.weight for account in scene.peers[peer].accounts]


def test_a_founder_brings_one_of_every_shard() -> None:
    scene = gossiping()
    assert weights(scene, "a") == [ONE] * 3 and scene.peers["a"].weight == 3 * ONE
    assert [account.shard for account in scene.peers["a"].accounts] == [0, 1, 2]


def test_shards_take_turns() -> None:
    scene = gossiping(SMALL)
    found = []
    for _ in range(4):
        found.append(pushed(scene.step("a")))
        scene.deliver()
        scene.step("b", trained=False)
        scene.deliver()
    assert [[shard for shard, _ in pushes] for pushes in found] == [[0], [1], [2], [0]]


def test_so_many_shards_go_with_every_push_each_with_half_of_its_weight() -> None:
    scene = gossiping(replace(SMALL, shards_per_push=2))
    effects = scene.step("a")
    assert pushed(effects) == [(0, ONE // 2), (1, ONE // 2)]
    snapshots = of(effects, Snapshot)
    assert snapshots == [Snapshot(1, "x"), Snapshot(2, "x", shard=1)]
    assert Record(Entry(Kind.PUSHED, ONE // 2, "b", 1, 1, shard=1)) in effects
    assert weights(scene, "a") == [ONE // 2, ONE // 2, ONE]
    scene.deliver()
    mixed = of(scene.step("b", trained=False), Mix)
    # It pushed half of its own before.
    assert [(mix.share.shard, mix.fraction) for mix in mixed] == [(0, 1 / 2), (1, 1 / 2)]


def test_a_push_of_all_shards_counts_as_one_and_carries_one_round() -> None:
    scene = gossiping(replace(SMALL, shards_per_push=3))
    scene.step("a")
    rounds = [e.body.round for e in scene.mail if isinstance(e.body, Push)]
    assert rounds == [0, 0, 0]
    scene.deliver()
    scene.step("b", trained=False)
    scene.deliver()
    scene.step("a")
    assert {e.body.round for e in scene.mail if isinstance(e.body, Push)} == {1}


def test_random_shards_are_drawn_without_repetition_and_all_come_up() -> None:
    scene = gossiping(replace(SMALL, shards_per_push=2, shard_order="random"))
    found = set()
    for _ in range(30):
        shards = [shard for shard, _ in pushed(scene.step("a"))]
        assert len(shards) == len(set(shards)) == 2 and shards == sorted(shards)
        found |= {tuple(shards)}
        scene.deliver()
        scene.step("b", trained=False)
        scene.deliver()
    assert found == {(0, 1), (0, 2), (1, 2)}


def test_sgp_shares_every_shard_out_by_its_own_weight() -> None:
    scene = Scene(replace(SMALL, shards_per_push=3))
    scene.founded("a", "b", "c", shards=3, rules={peer: SGP() for peer in "abc"})
    third = coarse(ONE // 3)
    assert pushed(scene.step("a")) == [(shard, third) for _ in "bc" for shard in range(3)]
    assert weights(scene, "a") == [ONE - 2 * third] * 3


def light(scene: Scene, shard: int) -> None:
    """Leave a nearly nothing of one shard, in escrow that nobody answers for."""
    weight = scene.peers["a"].accounts[shard].weight - WEIGHT_MIN + 1
    scene.act("a", lambda context: context.push("b", weight, shard=shard))


def test_a_shard_with_hardly_any_weight_is_passed_over_and_its_turn_with_it() -> None:
    scene = Scene()
    scene.founded("a", "b", "c", shards=3)
    light(scene, 0)
    effects = scene.act("a", lambda context: context.push_half())
    assert PushSkipped("too little weight") in effects
    assert [shard for shard, _ in pushed(scene.act("a", lambda context: context.push_half()))] == [
        1
    ]


def test_of_several_shards_the_heavy_ones_go() -> None:
    scene = Scene(replace(SMALL, shards_per_push=3))
    scene.founded("a", "b", "c", shards=3)
    light(scene, 1)
    effects = scene.act("a", lambda context: context.push_half())
    assert [shard for shard, _ in pushed(effects)] == [0, 2]
    assert {e.envelope.destination for e in effects if isinstance(e, Send)} == {"c"}


def test_a_peer_is_busy_for_the_shards_under_way_and_free_for_the_others() -> None:
    scene = Scene()
    scene.founded("a", "b", shards=3)
    scene.act("a", lambda context: context.push("b", 5, shard=1))
    found: list[object] = []

    def look(context: RuleContext) -> None:
        found.extend(["b" in context.outstanding(), context.can_push("b")])
        context.next_shards()
        found.extend([context.can_push("b"), context.draw(), context.draw(shards=[0, 2])])

    scene.act("a", look)
    assert found == [True, True, False, None, "b"]


def test_while_merging_all_shards_go_with_every_push() -> None:
    scene = gossiping()
    scene.finish("a")
    scene.finish("b")
    scene.deliver()
    assert scene.peers["a"].merging
    assert [shard for shard, _ in pushed(scene.step("a", trained=False))] == [0, 1, 2]


def test_an_answer_about_one_shard_settles_no_other() -> None:
    scene = Scene()
    scene.founded("a", "b", shards=3)
    scene.act("a", lambda context: context.push_shards("b", {0: 5, 1: 5}))
    effects = scene.receive(letter(scene, "b", "a", Ack(1, 0), shard=1))
    assert Record(Entry(Kind.SETTLED, 0, "b", 1, 1, shard=1)) in effects
    outstanding = [len(account.outstanding) for account in scene.peers["a"].accounts]
    assert outstanding == [1, 0, 0]


def test_a_question_fences_its_own_shard_only() -> None:
    scene = Scene()
    scene.founded("a", "b", shards=3)
    effects = scene.receive(letter(scene, "a", "b", Query(1), shard=2))
    assert Record(Entry(Kind.ACCEPTED, 0, "a", 1, 1, shard=2)) in effects
    share = a_push(escrow=5)
    scene.receive(letter(scene, "a", "b", share, frame_bytes=64))
    assert scene.peers["b"].staged == 1


def test_a_peer_about_to_go_is_asked_about_every_shard() -> None:
    scene = Scene()
    scene.founded("a", "b", shards=3)
    scene.act("a", lambda context: context.push_shards("b", {0: 5, 2: 5}))
    effects = scene.receive(letter(scene, "b", "a", Leave(False)))
    asked = [e.envelope.shard for e in effects if isinstance(e, Send)]
    assert asked == [0, 2]


def test_a_message_about_a_shard_that_is_not_there_is_refused() -> None:
    scene = Scene()
    scene.founded("a", "b", shards=3)
    for body in (Query(1), Describe(THREE), hello()):
        with pytest.raises(RemoteProtocolError, match="a message about shard 3"):
            scene.receive(letter(scene, "a", "b", body, shard=3))
    described = scene.letter("a", "b", Describe(THREE), shard=3)
    with pytest.raises(RemoteProtocolError, match="a message about shard 3"):
        scene.receive(described)
    other = scene.receive(scene.letter("a", "b", Query(1), shard=3))
    assert scene.sent(other, Describe) == [Describe(THREE)]


def test_a_leaver_hands_every_shard_on() -> None:
    scene = Scene()
    scene.founded("a", "b", shards=3)
    scene.leave("a")
    scene.deliver()
    scene.mix_all("b")
    scene.deliver()
    assert scene.peers["a"].done and weights(scene, "b") == [2 * ONE] * 3


def test_a_leaver_that_is_alone_burns_every_shard() -> None:
    scene = Scene()
    scene.enter("a", schema=THREE)
    scene.join("a")
    effects = scene.leave("a")
    burned = [e.entry for e in effects if isinstance(e, Record)]
    assert burned == [Entry(Kind.BURNED, ONE, shard=shard) for shard in range(3)]


def joining(scene: Scene) -> None:
    """B has asked a, which founded alone, for a copy."""
    scene.enter("a", schema=THREE)
    scene.join("a")
    scene.enter("b", schema=THREE)
    scene.join("b", "a")
    scene.deliver()
    scene.wait(0.2)
    scene.wake("b")
    scene.deliver(Ask)
    assert scene.peers["b"].phase is Phase.JOINING


def copies(effects: list[Effect | Event]) -> list[tuple[int, int, Form]]:
    sent = [effect.envelope for effect in effects if isinstance(effect, Send)]
    return [(e.shard, e.body.size_bytes, e.body.form) for e in sent if isinstance(e.body, Push)]


def test_a_newcomer_gets_a_copy_of_every_shard_and_trains_when_it_has_all() -> None:
    scene = Scene()
    joining(scene)
    form = Form(copy=True)
    # The local buffers go along with the first shard.
    expected = [(0, 128, form), (1, 64, form), (2, 64, form)]
    assert copies(scene.step("a")) == expected
    shares = [e for e in scene.mail if isinstance(e.body, Push)]
    for share in shares[:2]:
        scene.receive(share)
        scene.step("b", trained=False)
        assert scene.peers["b"].phase is Phase.JOINING
    scene.receive(shares[2])
    assert Joined("a") in scene.step("b", trained=False)
    assert weights(scene, "b") == [ONE // 2] * 3


def test_one_that_got_a_part_of_a_copy_takes_what_is_missing_from_another_donor() -> None:
    scene = Scene()
    scene.founded("a", "c", shards=3)
    scene.enter("b", schema=THREE)
    scene.join("b", "a")
    scene.deliver()
    scene.wait(0.2)
    scene.wake("b")
    share = a_push(form=Form(copy=True))
    first = replace(share, size_bytes=128)

    def give(donor: str) -> None:
        for shard, body in ((0, first), (1, share), (2, share)):
            if (donor, shard) != ("a", 2):
                size = body.size_bytes
                scene.receive(letter(scene, donor, "b", body, frame_bytes=size, shard=shard))

    give("a")
    effects = scene.step("b", trained=False)
    assert [e.share.shard for e in effects if isinstance(e, Mix)] == [0, 1]
    give("c")
    effects = scene.step("b", trained=False)
    assert [e.share for e in effects if isinstance(e, Mix)] == [ShareId("c", 1, 1, 2)]
    assert Joined("c") in effects
    assert [(m.share.sender, m.share.shard) for m in scene.mix_all("b") if isinstance(m, Mix)] == [
        ("c", 0),
        ("c", 1),
    ]


def test_further_copies_do_not_keep_their_donor_from_giving_what_is_missing() -> None:
    scene = Scene()
    joining(scene)
    share = a_push(form=Form(copy=True))
    scene.introduce("c", "b", schema=THREE)
    scene.receive(letter(scene, "a", "b", share, frame_bytes=64, shard=1))
    scene.step("b", trained=False)
    scene.receive(letter(scene, "c", "b", share, frame_bytes=64, shard=1))
    effects = scene.step("b", trained=False)
    assert ShareRefused("c", "of this shard there is a copy") in effects
    assert scene.peers["b"].staged == 0


def test_peers_with_other_shards_are_told_so() -> None:
    scene = Scene()
    scene.founded("a", "b")
    hello = Hello(members=(), rooted=True, reply=False)
    effects = scene.receive(scene.letter("c", "a", hello, schema=THREE.hash, swarm=ANCHOR))
    assert scene.sent(effects, Describe)


@pytest.mark.parametrize("shard", range(3))
def test_a_peer_wakes_for_whichever_shard_is_due_first(shard: int) -> None:
    scene = Scene(replace(SMALL, gossip_s=1e9, dead_s=1e9))
    scene.founded("a", "b", shards=3)
    scene.act("a", lambda context: context.push("b", 5, shard=shard))
    assert scene.now < scene.peers["a"].deadline() < 10.0
    scene.now = scene.peers["a"].deadline()
    (query,) = of(scene.wake("a"), Send)
    assert (query.envelope.body, query.envelope.shard) == (Query(1), shard)
