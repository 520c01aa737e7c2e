"""With shards, each piece of the vector has its own weight."""

from dataclasses import replace
from typing import Any

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Mix, Snapshot
from rumor.gossip.effects.events import Joined, PushSkipped, ShareRefused
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE, WEIGHT_MIN
from rumor.gossip.wire.formats import Form
from rumor.gossip.wire.messages import Ack, Ask, Body, Describe, Leave, Phase, Push, Query
from rumor.sim.fuzz.vector import schema_of

from ..scene import SMALL, Effects, Scene, a_push, destinations, hello, letters, only

THREE = schema_of(24, shards=3)
COPY = Form(copy=True)


def founded(*ids: str, config: ProtocolConfig = SMALL) -> Scene:
    return Scene(config).founded(*ids or "ab", shards=3)


def gossiping(**config: Any) -> Scene:
    """Peers a and b, which push at every step."""
    return Scene(replace(SMALL, **config)).founded(
        *"ab", shards=3, rules={p: GoSGD(1.0) for p in "ab"}
    )


def exchange(scene: Scene) -> list[tuple[int, int]]:
    """Let a step and b mix its pushes; return the shard and weight of every push."""
    found = pushed(scene.step("a"))
    scene.deliver()
    scene.step("b", trained=False)
    scene.deliver()
    return found


def pushed(effects: Effects) -> list[tuple[int, int]]:
    return [(letter.shard, letter.body.escrow) for letter in letters(effects, Push)]


def receive(scene: Scene, source: str, to: str, body: Body, **what: Any) -> Effects:
    return scene.tell(source, to, body, schema=THREE.hash, **what)


def weights(scene: Scene, peer: str) -> list[int]:
    return [account.weight for account in scene.peers[peer].accounts]


def test_shards_take_turns() -> None:
    scene = gossiping()
    assert [[shard for shard, _ in exchange(scene)] for _ in range(4)] == [[0], [1], [2], [0]]


def test_every_push_carries_several_shards_each_with_half_of_its_weight() -> None:
    scene = gossiping(shards_per_push=2)
    effects = scene.step("a")
    assert pushed(effects) == [(0, ONE // 2), (1, ONE // 2)]
    assert [push.round for push in scene.sent(effects, Push)] == [0, 0]
    assert only(effects, Snapshot) == [Snapshot(1, "x"), Snapshot(2, "x", shard=1)]
    assert Entry(Kind.PUSHED, ONE // 2, "b", 1, 1, shard=1) in effects
    assert weights(scene, "a") == [ONE // 2, ONE // 2, ONE]
    scene.deliver()
    mixed = only(scene.step("b", trained=False), Mix)
    # b had pushed half of its own weight before.
    assert [(mix.share.shard, mix.fraction) for mix in mixed] == [(0, 1 / 2), (1, 1 / 2)]
    scene.deliver()
    later = scene.sent(scene.step("a"), Push)
    assert [push.round for push in later] == [1, 1], "the two earlier pushes count as one"


def drain(scene: Scene, shard: int) -> None:
    """Leave a almost no weight in one shard: the rest stays in unanswered escrow."""
    weight = scene.peers["a"].accounts[shard].weight - WEIGHT_MIN + 1
    scene.act("a", lambda context: context.push("b", weight, shard=shard))


def test_a_shard_with_too_little_weight_is_skipped() -> None:
    scene = founded(*"abc")
    drain(scene, 0)
    assert PushSkipped("too little weight") in scene.act("a", RuleContext.push_half)
    assert [shard for shard, _ in pushed(scene.act("a", RuleContext.push_half))] == [1]
    # If several shards are due together, only those with enough weight are pushed.
    scene = founded(*"abc", config=replace(SMALL, shards_per_push=3))
    drain(scene, 1)
    effects = scene.act("a", RuleContext.push_half)
    assert [shard for shard, _ in pushed(effects)] == [0, 2] and set(destinations(effects)) == {"c"}


def test_a_peer_is_busy_only_for_the_shards_in_flight_to_it() -> None:
    scene = founded()
    scene.act("a", lambda context: context.push("b", 5, shard=1))
    found: list[object] = []

    def look(context: RuleContext) -> None:
        found.extend(["b" in context.outstanding(), context.can_push("b")])
        context.next_shards()
        found.extend([context.can_push("b"), context.draw(), context.draw(shards=[0, 2])])

    scene.act("a", look)
    assert found == [True, True, False, None, "b"]


def test_every_push_carries_all_shards_while_merging() -> None:
    scene = gossiping()
    for id in "ab":
        scene.finish(id)
    scene.deliver()
    assert scene.peers["a"].merging
    assert [shard for shard, _ in pushed(scene.step("a", trained=False))] == [0, 1, 2]


def test_acks_and_queries_concern_only_their_own_shard() -> None:
    scene = founded()
    scene.act("a", lambda context: context.push_shards("b", {0: 5, 1: 5}))
    effects = receive(scene, "b", "a", Ack(1, 0), shard=1)
    assert Entry(Kind.SETTLED, 0, "b", 1, 1, shard=1) in effects
    assert [len(account.outstanding) for account in scene.peers["a"].accounts] == [1, 0, 0]
    effects = receive(scene, "a", "b", Query(1), shard=2)
    assert Entry(Kind.ACCEPTED, 0, "a", 1, 1, shard=2) in effects
    receive(scene, "a", "b", a_push(), frame_bytes=64)
    assert scene.peers["b"].staged == 1


def test_a_leaving_peer_is_queried_about_every_shard() -> None:
    scene = founded()
    scene.act("a", lambda context: context.push_shards("b", {0: 5, 2: 5}))
    effects = receive(scene, "b", "a", Leave(False))
    assert [letter.shard for letter in letters(effects)] == [0, 2]


def test_a_message_about_a_nonexistent_shard_is_refused() -> None:
    scene = founded()
    for body in (Query(1), Describe(THREE), hello()):
        with pytest.raises(RemoteProtocolError, match="a message about shard 3"):
            receive(scene, "a", "b", body, shard=3)
    with pytest.raises(RemoteProtocolError, match="a message about shard 3"):
        scene.tell("a", "b", Describe(THREE), shard=3)
    # A peer with a different number of shards gets the schema.
    other = scene.tell("a", "b", Query(1), shard=3)
    assert scene.sent(other, Describe) == [Describe(THREE)]


def test_a_leaver_hands_on_or_burns_every_shard() -> None:
    scene = founded()
    scene.leave("a")
    scene.deliver()
    scene.mix_all("b")
    scene.deliver()
    assert scene.peers["a"].done and weights(scene, "b") == [2 * ONE] * 3
    burned = only(scene.leave("b"), Entry)
    assert burned == [Entry(Kind.BURNED, 2 * ONE, shard=shard) for shard in range(3)]


def joining() -> Scene:
    """Peer b has asked the lone founder a for a copy."""
    scene = Scene()
    scene.enter("a", schema=THREE)
    scene.join("a")
    scene.ask("b", "a")
    scene.deliver(Ask)
    assert scene.peers["b"].phase is Phase.JOINING
    return scene


def test_a_newcomer_trains_once_it_has_a_copy_of_every_shard() -> None:
    scene = joining()
    shares = letters(scene.step("a"), Push)
    # The local buffers travel with the first shard.
    sizes = [(share.shard, share.body.size_bytes, share.body.form) for share in shares]
    assert sizes == [(0, 128, COPY), (1, 64, COPY), (2, 64, COPY)]
    for share in shares[:2]:
        scene.receive(share)
        scene.step("b", trained=False)
        assert scene.peers["b"].phase is Phase.JOINING
    scene.receive(shares[2])
    assert Joined("a") in scene.step("b", trained=False)
    assert weights(scene, "b") == [ONE // 2] * 3


def send_copies(scene: Scene, donor: str, *shards: int) -> Effects:
    """Let a donor send b copies of *shards*; b then takes a step."""
    for shard in shards:
        size = COPY.size_bytes(THREE, shard)
        body = a_push(form=COPY, size_bytes=size)
        receive(scene, donor, "b", body, frame_bytes=size, shard=shard)
    return scene.step("b", trained=False)


def test_a_newcomer_gets_the_missing_part_of_a_copy_from_another_donor() -> None:
    scene = founded(*"ac")
    scene.ask("b", "a")
    assert [mix.share.shard for mix in only(send_copies(scene, "a", 0, 1), Mix)] == [0, 1]
    effects = send_copies(scene, "c", 0, 1, 2)
    assert [mix.share for mix in only(effects, Mix)] == [ShareId("c", 1, 1, 2)]
    assert Joined("c") in effects
    mixed = [(mix.share.sender, mix.share.shard) for mix in only(scene.mix_all("b"), Mix)]
    assert mixed == [("c", 0), ("c", 1)]


def test_surplus_copies_do_not_prevent_copies_of_missing_shards() -> None:
    scene = joining()
    scene.introduce("c", "b", schema=THREE)
    send_copies(scene, "a", 1)
    assert ShareRefused("c", "of this shard there is a copy") in send_copies(scene, "c", 1)
    assert scene.peers["b"].staged == 0


@pytest.mark.parametrize("shard", range(3))
def test_a_peer_wakes_for_the_shard_that_is_due_first(shard: int) -> None:
    scene = founded(config=replace(SMALL, gossip_s=1e9, dead_s=1e9))
    scene.act("a", lambda context: context.push("b", 5, shard=shard))
    assert scene.now < scene.peers["a"].deadline() < 10.0
    scene.now = scene.peers["a"].deadline()
    (query,) = letters(scene.wake("a"))
    assert (query.body, query.shard) == (Query(1), shard)
