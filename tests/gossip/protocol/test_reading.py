"""Models are shown for reading: no weight moves, no rule sees them, and every reading ends."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Drop, Mix, Snapshot
from rumor.gossip.effects.events import ShareRefused
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Requirements
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Offer, Push, Read

from ..scene import SMALL, WIDE, Scene, a_push, only

Shown = tuple[tuple[ShareId, int], ...]


def founded(config: ProtocolConfig = SMALL, shards: int = 1) -> Scene:
    return Scene(config).founded(*"abc", shards=shards)


def requested_scene(config: ProtocolConfig = SMALL, shards: int = 1) -> Scene:
    """A scene in which peer a has asked b for its model."""
    scene = founded(config, shards)
    scene.read("a", "b")
    scene.deliver()
    return scene


def shown_models(scene: Scene, id: str = "a") -> Shown:
    return scene.peers[id].reading.shown()


def model_of_b(seq: int = 1) -> Shown:
    return ((ShareId("b", 1, seq), ONE),)


@pytest.mark.parametrize("config", [SMALL, WIDE])
def test_a_model_is_shown_at_a_step_boundary_without_weight(config: ProtocolConfig) -> None:
    scene = requested_scene(config)
    assert scene.peers["b"].reading.asking and shown_models(scene) == ()
    effects = scene.step("b")
    assert [snapshot.register for snapshot in only(effects, Snapshot)] == ["x"]
    (offer,) = scene.sent(effects, Offer)
    assert (offer.escrow, offer.held) == (0, ONE)
    scene.deliver()
    assert shown_models(scene) == model_of_b()
    effects = scene.read("a")
    assert Drop(ShareId("b", 1, 1)) in effects
    assert not any(isinstance(effect, Mix | ShareRefused) for effect in effects)
    assert shown_models(scene) == ()
    scene.deliver()
    scene.step("b")
    assert [peer.state.weight for peer in scene.peers.values()] == [ONE, ONE, ONE]
    assert not any(peer.account.outstanding for peer in scene.peers.values())


def test_a_rule_sees_neither_a_shown_model_nor_its_return() -> None:
    scene = requested_scene()
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


def test_a_share_in_flight_to_a_reader_takes_no_credit() -> None:
    scene = Scene().founded(*"abcde")
    for reader in "ac":
        scene.read(reader, "b")
    scene.deliver()
    scene.step("b")
    found: list[bool] = []
    scene.act("b", lambda context: found.extend(context.can_push(peer) for peer in "ad"))
    assert found == [False, True]


def test_either_all_shards_are_shown_with_their_weights_or_none() -> None:
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
    assert shown_models(scene) == (), "before all shards have arrived"
    scene.receive(late)
    held = {share.shard: held for share, held in shown_models(scene)}
    assert held == {0: ONE, 1: 3 * ONE // 4, 2: ONE}


def test_a_staged_push_is_returned_to_make_room_for_a_requested_model() -> None:
    scene = founded()
    scene.push("b", "a", ONE // 2)
    scene.deliver()
    assert only(scene.read("a", "b"), ShareRefused)
    scene.deliver()
    scene.push("b", "c", ONE // 2)
    scene.deliver()
    assert shown_models(scene) == model_of_b(2)


@pytest.mark.parametrize(
    ("config", "other", "why"),
    [(SMALL, "", "nobody reads it"), (WIDE, "c", "nobody reads it any more")],
    ids=["too late", "in transfer"],
)
def test_an_unrequested_model_is_returned(config: ProtocolConfig, other: str, why: str) -> None:
    scene = founded(config)
    scene.read("a", "b")
    scene.deliver(Read)
    scene.step("b")
    if other:
        scene.deliver(Offer)
        assert shown_models(scene) == ()
    effects = scene.read("a", other)
    assert ShareRefused("b", why) in effects + scene.deliver()
    assert not scene.peers["b"].account.outstanding


@pytest.mark.parametrize("fixed_members", [False, True])
def test_a_model_that_is_not_finite_cannot_be_read(fixed_members: bool) -> None:
    """Synchronous rules decide about such shares themselves, but never see a model for reading."""
    scene = Scene(SMALL, Requirements(whole=False, fixed_members=fixed_members)).founded(*"abc")
    scene.read("a", "b")
    scene.deliver(Read)
    scene.step("b")
    effects = scene.receive(scene.mail.popleft(), finite=False)
    assert ShareRefused("b", "not finite") in effects and Drop(ShareId("b", 1, 1)) in effects
    assert shown_models(scene) == ()
    scene.deliver()
    assert not scene.peers["b"].account.outstanding
    # The next model of b is finite.
    scene.read("a", "b")
    scene.deliver(Read)
    scene.step("b")
    scene.deliver()
    assert shown_models(scene) == model_of_b(2)


def test_a_leaving_or_unknown_peer_neither_reads_nor_shows_a_model() -> None:
    scene = requested_scene()
    scene.leave("a")
    scene.deliver()
    assert not scene.sent(scene.step("b"), Offer)
    scene.leave("b")
    for reader, other in (("b", "c"), ("c", "b"), ("c", "unknown")):
        scene.read(reader, other)
    scene.deliver()
    assert not scene.peers["b"].reading.asking and not scene.peers["c"].reading.asking


def test_a_newcomer_takes_its_copy_despite_an_earlier_read_request() -> None:
    scene = founded()
    scene.enter("n")
    scene.read("n", "a")
    scene.join("n", "a")
    scene.run_for(1.2, step_s=0.2, turns=True)
    assert scene.peers["n"].state.weight == ONE // 2


def test_only_live_reachable_members_may_show_their_model() -> None:
    scene = founded(replace(SMALL, suspect_s=3.0, dead_s=6.0))
    reading = scene.peers["a"].reading
    assert reading.may_show("b") and not reading.may_show("unknown")
    scene.leave("c")
    scene.deliver()
    assert not reading.may_show("c")
    seen = []
    for _ in range(10):
        scene.wake_for("a", 1.0)
        seen.append(reading.may_show("b"))
    assert seen[0] and not seen[4] and not seen[-1]
    scene = Scene().founded(*"abc", outward="bc")
    reading = scene.peers["b"].reading
    assert reading.may_show("a") and not reading.may_show("c"), "two peers that only dial out"


@pytest.mark.parametrize(("escrow", "held"), [(0, 0), (ONE, ONE)])
def test_a_share_has_either_weight_or_a_model_for_reading(escrow: int, held: int) -> None:
    scene = founded()
    letter = scene.letter("b", "a", a_push(escrow=escrow, held=held), frame_bytes=64)
    with pytest.raises(RemoteProtocolError, match="a share "):
        scene.receive(letter)
