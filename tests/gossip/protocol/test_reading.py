"""Models that are shown to be read: no weight moves, no rule sees them, and all of it ends."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Drop, Mix, Reclaim, Snapshot
from rumor.gossip.effects.events import ShareRefused
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Requirements
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Offer, Push, Read

from ..scene import SMALL, WIDE, Scene, a_push, letters, of

Shown = tuple[tuple[ShareId, int], ...]


def founded(config: ProtocolConfig = SMALL, shards: int = 1) -> Scene:
    return Scene(config).founded(*"abc", shards=shards)


def asked(config: ProtocolConfig = SMALL, shards: int = 1) -> Scene:
    """A has asked b for its model."""
    scene = founded(config, shards)
    scene.read("a", "b")
    scene.deliver()
    return scene


def shown(scene: Scene, id: str = "a") -> Shown:
    return scene.peers[id].reading.shown()


def of_b(seq: int = 1) -> Shown:
    return ((ShareId("b", 1, seq), ONE),)


@pytest.mark.parametrize("config", [SMALL, WIDE, replace(SMALL, exact=True)])
def test_a_model_is_shown_at_a_boundary_and_no_weight_goes_along(config: ProtocolConfig) -> None:
    scene = asked(config)
    assert scene.peers["b"].reading.asking and shown(scene) == ()
    effects = scene.step("b")
    assert [snapshot.register for snapshot in of(effects, Snapshot)] == ["x"]
    (offer,) = scene.sent(effects, Offer)
    assert (offer.escrow, offer.held) == (0, ONE)
    scene.deliver()
    assert shown(scene) == of_b()
    effects = scene.read("a")
    assert Drop(ShareId("b", 1, 1)) in effects
    assert not any(isinstance(effect, Mix | ShareRefused) for effect in effects)
    assert shown(scene) == ()
    scene.deliver()
    assert not of(scene.step("b"), Reclaim)
    assert [peer.state.weight for peer in scene.peers.values()] == [ONE, ONE, ONE]
    assert not any(peer.account.outstanding for peer in scene.peers.values())


def test_a_rule_sees_neither_what_is_shown_nor_that_it_came_back() -> None:
    scene = asked()
    scene.step("b")
    scene.deliver()
    seen: list[object] = []

    def look(context: RuleContext) -> None:
        seen.extend((*context.shares(), *context.returned, context.round))

    scene.act("a", look)
    scene.read("a")
    scene.deliver()
    scene.act("b", look)
    assert seen == [0, 0]


def test_what_is_under_way_to_a_reader_uses_up_no_credit() -> None:
    scene = Scene().founded(*"abcde")
    for reader in "ac":
        scene.read(reader, "b")
    scene.deliver()
    scene.step("b")
    found: list[bool] = []
    scene.act("b", lambda context: found.extend(context.can_push(peer) for peer in "ad"))
    assert found == [False, True]


def test_of_a_vector_in_shards_all_are_shown_with_the_weight_of_each_or_none() -> None:
    scene = founded(shards=3)
    scene.act("b", lambda context: context.push("c", ONE // 4, shard=1))
    scene.deliver()
    scene.mix_all("c")
    scene.read("a", "b")
    scene.deliver()
    scene.step("b")
    late = next(letter for letter in scene.mail if isinstance(letter.body, Push))
    scene.mail.remove(late)
    scene.deliver()
    assert shown(scene) == (), "before all shards are there"
    scene.receive(late)
    held = {share.shard: held for share, held in shown(scene)}
    assert held == {0: ONE, 1: 3 * ONE // 4, 2: ONE}


def test_a_push_of_one_who_is_asked_is_sent_back_so_that_the_model_can_come() -> None:
    scene = founded()
    scene.push("b", "a", ONE // 2)
    scene.deliver()
    assert of(scene.read("a", "b"), ShareRefused)
    scene.deliver()
    scene.push("b", "c", ONE // 2)
    scene.deliver()
    assert shown(scene) == of_b(2)


def test_a_push_that_comes_while_its_sender_is_asked_is_refused() -> None:
    scene = founded()
    scene.push("b", "a", ONE // 2)
    scene.deliver(lose=(Ack,))
    scene.read("a", "b")
    scene.mail.clear()
    scene.push("c", "a", ONE // 2)
    scene.deliver()
    scene.read("a", "c")
    scene.deliver()
    assert scene.peers["c"].account.weight == ONE


def test_asking_again_repeats_the_question_until_something_comes() -> None:
    scene = founded()
    assert [type(letter.body) for letter in letters(scene.read("a", "b"))] == [Read]
    scene.mail.clear()
    scene.read("a", "b")
    scene.deliver()
    scene.step("b")
    scene.deliver()
    assert not scene.read("a", "b")
    assert shown(scene)


def test_two_that_read_each_other_answer_without_a_step() -> None:
    scene = founded()
    for _ in range(3):
        scene.read("a", "b")
        scene.read("b", "a")
        scene.deliver()
    assert shown(scene, "a") and shown(scene, "b")


@pytest.mark.parametrize(
    ("config", "other", "why"),
    [(SMALL, "", "nobody reads it"), (WIDE, "c", "nobody reads it any more")],
    ids=["it comes too late", "it is arriving"],
)
def test_what_nobody_reads_is_sent_back(config: ProtocolConfig, other: str, why: str) -> None:
    scene = founded(config)
    scene.read("a", "b")
    scene.deliver(Read)
    scene.step("b")
    if other:
        scene.deliver(Offer)
        assert shown(scene) == ()
    effects = scene.read("a", other)
    assert ShareRefused("b", why) in effects + scene.deliver()
    assert not scene.peers["b"].account.outstanding


@pytest.mark.parametrize("fixed_members", [False, True])
def test_a_model_that_is_not_finite_is_not_there_to_be_read(fixed_members: bool) -> None:
    """Rules of rounds decide about such shares themselves, but see none that is to be read."""
    scene = Scene(SMALL, Requirements(whole=False, fixed_members=fixed_members)).founded(*"abc")
    scene.read("a", "b")
    scene.deliver(Read)
    scene.step("b")
    effects = scene.receive(scene.mail.popleft(), finite=False)
    assert ShareRefused("b", "not finite") in effects and Drop(ShareId("b", 1, 1)) in effects
    assert shown(scene) == ()
    scene.deliver()
    assert not scene.peers["b"].account.outstanding
    # Its next one may be.
    scene.read("a", "b")
    scene.deliver(Read)
    scene.step("b")
    scene.deliver()
    assert shown(scene) == of_b(2)


def test_a_peer_that_has_gone_or_leaves_is_not_shown_anything_and_shows_nothing() -> None:
    scene = asked()
    scene.leave("a")
    scene.deliver()
    assert not scene.sent(scene.step("b"), Offer)
    scene.leave("b")
    for reader, other in (("b", "c"), ("c", "b"), ("c", "nobody")):
        scene.read(reader, other)
    scene.deliver()
    assert not scene.peers["b"].reading.asking and not scene.peers["c"].reading.asking


def test_who_joins_takes_its_copy_whatever_it_wanted_to_read_before() -> None:
    scene = founded()
    scene.enter("n")
    scene.read("n", "a")
    scene.join("n", "a")
    scene.go_on(1.2, step_s=0.2, turns=True)
    assert scene.peers["n"].state.weight == ONE // 2


def test_who_takes_part_and_is_heard_may_show_its_model_and_nobody_else() -> None:
    scene = founded(replace(SMALL, suspect_s=3.0, dead_s=6.0))
    reading = scene.peers["a"].reading
    assert reading.may_show("b") and not reading.may_show("nobody")
    scene.leave("c")
    scene.deliver()
    assert not reading.may_show("c")
    seen = []
    for _ in range(10):
        scene.passes("a", 1.0)
        seen.append(reading.may_show("b"))
    assert seen[0] and not seen[4] and not seen[-1]
    scene = Scene().founded(*"abc", outward="bc")
    reading = scene.peers["b"].reading
    assert reading.may_show("a") and not reading.may_show("c"), "two that only dial out"


@pytest.mark.parametrize(("escrow", "held"), [(0, 0), (ONE, ONE)])
def test_a_share_has_weight_or_is_shown(escrow: int, held: int) -> None:
    scene = founded()
    letter = scene.letter("b", "a", a_push(escrow=escrow, held=held), frame_bytes=64)
    with pytest.raises(RemoteProtocolError, match="a share "):
        scene.receive(letter)
