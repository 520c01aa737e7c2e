"""Models that are shown to be read: no weight moves, no rule sees them, and all of it ends."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Drop, Effect, Mix, Reclaim, Send, Snapshot
from rumor.gossip.effects.events import Event, ShareRefused
from rumor.gossip.errors import RemoteProtocolError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Requirements
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Offer, Push, Read

from ..scene import SMALL, WIDE, Scene, a_push, of


def read(scene: Scene, id: str, other: str = "") -> list[Effect | Event]:
    """Let a peer ask another for its model."""
    return scene._do(id, "reads", lambda protocol, now: protocol.read(now, other))


def founded(config: ProtocolConfig = SMALL, shards: int = 1) -> Scene:
    scene = Scene(config)
    scene.founded(*"abc", shards=shards)
    return scene


def pushed(effects: list[Effect | Event]) -> list[Offer]:
    sent = [effect.envelope.body for effect in effects if isinstance(effect, Send)]
    return of(sent, Offer)


@pytest.mark.parametrize("config", [SMALL, WIDE, replace(SMALL, exact=True)])
def test_a_model_is_shown_at_a_step_boundary_and_no_weight_goes_along(
    config: ProtocolConfig,
) -> None:
    scene = founded(config)
    read(scene, "a", "b")
    scene.deliver()
    assert scene.peers["b"].reading.asking and scene.peers["a"].reading.shown() == ()
    effects = scene.step("b")
    assert [effect.register for effect in effects if isinstance(effect, Snapshot)] == ["x"]
    (offer,) = pushed(effects)
    assert (offer.escrow, offer.held) == (0, ONE)
    scene.deliver()
    assert scene.peers["a"].reading.shown() == ((ShareId("b", 1, 1), ONE),)
    effects = read(scene, "a")
    assert Drop(ShareId("b", 1, 1)) in effects
    assert not any(isinstance(effect, Mix | ShareRefused) for effect in effects)
    assert scene.peers["a"].reading.shown() == ()
    scene.deliver()
    effects = scene.step("b")
    assert not any(isinstance(effect, Reclaim) for effect in effects)
    assert [peer.weight for peer in scene.peers.values()] == [ONE, ONE, ONE]
    assert not any(peer.account.outstanding for peer in scene.peers.values())


def test_a_rule_sees_neither_what_is_shown_nor_that_it_came_back() -> None:
    scene = founded()
    read(scene, "a", "b")
    scene.deliver()
    scene.step("b")
    scene.deliver()
    seen: list[object] = []

    def look(context: RuleContext) -> None:
        seen.extend((*context.shares(), *context.returned, context.round))

    scene.act("a", look)
    read(scene, "a")
    scene.deliver()
    scene.act("b", look)
    assert seen == [0, 0]


def test_what_is_under_way_to_a_reader_uses_up_no_credit() -> None:
    scene = founded()
    for reader in "ac":
        read(scene, reader, "b")
    scene.deliver()
    scene.step("b")
    drawn: list[object] = []
    scene.act("b", lambda context: drawn.append(context._has_credit()))
    scene.act("b", lambda context: drawn.append(context.can_push("a")))
    assert drawn == [True, False]


def test_of_a_vector_in_shards_all_are_shown_with_the_weight_of_each() -> None:
    scene = founded(shards=3)
    scene.act("b", lambda context: context.push("c", ONE // 4, shard=1))
    scene.deliver()
    scene.mix_all("c")
    read(scene, "a", "b")
    scene.deliver()
    scene.step("b")
    scene.deliver()
    shown = scene.peers["a"].reading.shown()
    assert {share.shard: held for share, held in shown} == {0: ONE, 1: 3 * ONE // 4, 2: ONE}


def test_before_all_shards_are_there_nothing_is() -> None:
    scene = founded(shards=2)
    read(scene, "a", "b")
    scene.deliver()
    scene.step("b")
    lost = next(letter for letter in scene.mail if isinstance(letter.body, Push))
    scene.mail.remove(lost)
    scene.deliver()
    assert scene.peers["a"].reading.shown() == ()


def test_a_push_of_one_who_is_asked_is_sent_back_so_that_the_model_can_come() -> None:
    scene = founded()
    scene.push("b", "a", ONE // 2)
    scene.deliver()
    effects = read(scene, "a", "b")
    assert any(isinstance(effect, ShareRefused) for effect in effects)
    scene.deliver()
    scene.push("b", "c", ONE // 2)
    scene.deliver()
    assert scene.peers["a"].reading.shown() == ((ShareId("b", 1, 2), ONE),)


def test_a_push_that_comes_while_its_sender_is_asked_is_refused() -> None:
    scene = founded()
    scene.push("b", "a", ONE // 2)
    scene.deliver(lose=(Ack,))
    read(scene, "a", "b")
    scene.mail.clear()
    scene.push("c", "a", ONE // 2)
    scene.deliver()
    read(scene, "a", "c")
    scene.deliver()
    assert scene.peers["c"].account.weight == ONE


def test_asking_again_repeats_the_question_until_something_comes() -> None:
    scene = founded()
    assert [type(e.envelope.body) for e in read(scene, "a", "b") if isinstance(e, Send)] == [Read]
    scene.mail.clear()
    read(scene, "a", "b")
    scene.deliver()
    scene.step("b")
    scene.deliver()
    assert not read(scene, "a", "b")
    assert scene.peers["a"].reading.shown()


def test_two_that_read_each_other_answer_without_a_step() -> None:
    scene = founded()
    read(scene, "a", "b")
    read(scene, "b", "a")
    scene.deliver()
    for _ in range(2):
        read(scene, "a", "b")
        read(scene, "b", "a")
        scene.deliver()
    assert scene.peers["a"].reading.shown() and scene.peers["b"].reading.shown()


def test_what_nobody_reads_any_more_is_refused() -> None:
    scene = founded()
    read(scene, "a", "b")
    scene.deliver()
    scene.step("b")
    read(scene, "a")
    effects = scene.receive(next(m for m in scene.mail if isinstance(m.body, Push)))
    assert ShareRefused("b", "nobody reads it") in effects
    scene.deliver()
    assert not scene.peers["b"].account.outstanding


def test_what_is_arriving_when_nobody_reads_it_any_more_is_sent_back() -> None:
    scene = founded(WIDE)
    read(scene, "a", "b")
    scene.deliver(Read)
    scene.step("b")
    scene.deliver(Offer)
    effects = read(scene, "a", "c")
    assert ShareRefused("b", "nobody reads it any more") in effects
    scene.deliver()
    assert not scene.peers["b"].account.outstanding


@pytest.mark.parametrize("fixed_members", [False, True])
def test_a_model_with_numbers_that_are_not_finite_is_not_there_to_be_read(
    fixed_members: bool,
) -> None:
    """Rules of rounds decide about such shares themselves, but see none that is to be read."""
    scene = Scene(requirements=Requirements(whole=False, fixed_members=fixed_members))
    scene.founded(*"abc")
    read(scene, "a", "b")
    scene.deliver(Read)
    scene.step("b")
    effects = scene.receive(scene.mail.popleft(), finite=False)
    assert ShareRefused("b", "not finite") in effects and Drop(ShareId("b", 1, 1)) in effects
    assert scene.peers["a"].reading.shown() == ()
    scene.deliver()
    assert not scene.peers["b"].account.outstanding
    # Its next one may be.
    read(scene, "a", "b")
    scene.deliver(Read)
    scene.step("b")
    scene.deliver()
    assert scene.peers["a"].reading.shown() == ((ShareId("b", 1, 2), ONE),)


def test_a_peer_that_has_gone_or_leaves_is_not_shown_anything() -> None:
    scene = founded()
    read(scene, "a", "b")
    scene.deliver()
    scene.leave("a")
    scene.deliver()
    assert not pushed(of(scene.step("b"), Send))
    scene.leave("b")
    read(scene, "b", "c")
    read(scene, "c", "nobody")
    scene.deliver()
    assert not scene.peers["b"].reading.asking and not scene.peers["c"].reading.asking


def test_who_joins_takes_its_copy_whatever_it_wanted_to_read_before() -> None:
    scene = founded()
    scene.enter("n")
    read(scene, "n", "a")
    scene.join("n", "a")
    for _ in range(5):
        scene.deliver()
        scene.wait(0.2)
        scene.wake("n")
        scene.step("a")
        scene.step("n", trained=False)
    assert scene.peers["n"].weight == ONE // 2


def test_who_takes_part_and_is_heard_may_show_its_model_and_nobody_else() -> None:
    scene = founded(replace(SMALL, suspect_s=3.0, dead_s=6.0))
    reading = scene.peers["a"].reading
    assert reading.may_show("b") and not reading.may_show("nobody")
    scene.leave("c")
    scene.deliver()
    assert not reading.may_show("c")
    seen = []
    for _ in range(10):
        scene.wait(1.0)
        scene.wake("a")
        scene.mail.clear()
        seen.append(reading.may_show("b"))
    assert seen[0] and not seen[4] and not seen[-1]


def test_two_that_only_dial_out_cannot_show_each_other_anything() -> None:
    scene = Scene()
    for id in "abc":
        scene.enter(id, addresses=(id,) if id == "a" else ())
    for id in "abc":
        scene.join(id, *("a" * (id != "a")), founders=3)
    for _ in range(6):
        scene.deliver()
        scene.wait(1.0)
        for id in "abc":
            scene.wake(id)
    assert scene.peers["b"].reading.may_show("a")
    assert not scene.peers["b"].reading.may_show("c")


def test_one_who_leaves_shows_nothing() -> None:
    scene = founded()
    scene.leave("b")
    read(scene, "a", "b")
    scene.deliver()
    assert not scene.peers["b"].reading.asking


@pytest.mark.parametrize(("escrow", "held"), [(0, 0), (ONE, ONE)])
def test_a_share_has_weight_or_is_shown(escrow: int, held: int) -> None:
    scene = founded()
    push = a_push(escrow=escrow, held=held)
    letter = replace(scene.letter("b", "a", push), frame_bytes=64)
    with pytest.raises(RemoteProtocolError, match="a share "):
        scene.receive(letter)
