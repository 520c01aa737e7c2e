"""Without memory for another share, nothing is pushed or let in but what must not wait."""

import pytest

from rumor.gossip.effects.effects import Effect, Snapshot
from rumor.gossip.effects.events import NO_MEMORY, Event, PushSkipped, ShareRefused
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import requirements_of
from rumor.gossip.rules.registry import make_rule
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Offer

from ..scene import ANCHOR, WIDE, Scene


def founded(*ids: str) -> Scene:
    scene = Scene(WIDE)
    scene.founded(*ids or "ab")
    return scene


def units(scene: Scene) -> int:
    """All that there is, in hands and in escrow."""
    accounts = [peer.account for peer in scene.peers.values()]
    escrow = [open_one.escrow for account in accounts for open_one in account.outstanding.values()]
    return sum(account.weight for account in accounts) + sum(escrow)


def half(context: RuleContext) -> None:
    context.push_half()


def refused(effects: list[Effect | Event]) -> list[str]:
    return [effect.reason for effect in effects if isinstance(effect, ShareRefused)]


def test_a_push_for_which_there_is_no_memory_is_skipped() -> None:
    scene = founded()
    assert scene.fill("a") == []
    effects = scene.act("a", half)
    assert [e.reason for e in effects if isinstance(e, PushSkipped)] == [NO_MEMORY]
    assert not any(isinstance(effect, Snapshot) for effect in effects)
    scene.fill("a", is_full=False)
    assert any(isinstance(effect, Snapshot) for effect in scene.act("a", half))
    assert units(scene) == 2 * ONE


@pytest.mark.parametrize(
    ("spec", "shards"),
    [
        ("gosgd:p=1", 1),
        ("gosgd:p=1,layers=2", 2),
        ("sparta", 2),
        ("easgd:every=1", 1),
        ("adpsgd", 1),
    ],
)
def test_each_rule_says_that_memory_is_why_it_skips_a_push(spec: str, shards: int) -> None:
    rules = {id: make_rule(spec) for id in "ab"}
    scene = Scene(WIDE, requirements_of(rules["a"]))
    scene.founded("a", "b", rules=rules, shards=shards)
    scene.fill("a")
    skipped = [
        effect.reason
        for _ in range(30)
        for effect in scene.step("a")
        if isinstance(effect, PushSkipped)
    ]
    assert NO_MEMORY in skipped and set(skipped) <= {NO_MEMORY, "an exchange is open"}


def test_a_share_for_which_there_is_no_memory_goes_back_whole() -> None:
    scene = founded()
    scene.fill("b")
    scene.act("a", half)
    assert scene.peers["a"].weight == ONE // 2
    (offer,) = [envelope for envelope in scene.mail if isinstance(envelope.body, Offer)]
    scene.mail.clear()
    assert refused(scene.receive(offer)) == [NO_MEMORY]
    scene.deliver()
    assert [peer.weight for peer in scene.peers.values()] == [ONE, ONE]


def test_what_was_let_in_before_may_come() -> None:
    scene = founded()
    scene.act("a", half)
    scene.deliver(Offer)
    assert list(scene.peers["b"].in_memory()[0].values()) == [64]
    scene.fill("b")
    scene.deliver()
    assert scene.mix_all("b")
    assert scene.peers["b"].in_memory() == ({}, set())


def test_a_sender_hears_that_there_is_no_memory_for_its_next_share() -> None:
    for is_full in (False, True):
        scene = founded()
        scene.act("a", half)
        scene.deliver()
        scene.fill("b", is_full=is_full)
        acks = scene.sent(scene.mix_all("b"), Ack)
        assert [bool(ack.credit_bytes) for ack in acks] == [not is_full]


def test_snapshots_that_are_read_or_kept_take_memory() -> None:
    scene = founded()
    scene.act("a", half)
    assert scene.peers["a"].in_memory() == ({}, {1})
    scene.act("a", lambda context: context.keep("x", ["b"]))
    assert scene.peers["a"].in_memory() == ({}, {1, 2})


def test_a_model_is_shown_when_there_is_memory_and_read_at_once() -> None:
    scene = founded()
    scene.fill("a")
    scene.fill("b")
    scene._do("a", "reads", lambda protocol, now: protocol.read(now, "b"))
    scene.deliver()
    assert not scene.sent(scene.step("b"), Offer)
    scene.fill("b", is_full=False)
    assert scene.sent(scene.step("b"), Offer)
    scene.deliver()
    assert scene.peers["a"].reading.shown() == ((ShareId("b", 1, 1), ONE),)


def test_a_newcomer_takes_its_copy_and_a_leaver_hands_its_weight_on() -> None:
    scene = founded("a")
    scene.enter("n")
    scene.fill("n")
    scene.join("n", "a")
    for _ in range(6):
        scene.deliver()
        scene.wait(0.2)
        scene.wake("n")
        scene.step("a")
        scene.step("n", trained=False)
    assert scene.peers["n"].weight == ONE // 2
    scene.fill("n")
    scene.leave("n")
    for _ in range(6):
        scene.deliver()
        scene.wait(1.0)
        scene.wake("n")
        scene.mix_all("a")
    assert scene.peers["n"].done and scene.peers["a"].weight == ONE


def test_a_step_that_gives_a_copy_or_shows_a_model_pushes_nothing_else() -> None:
    for bounded in (False, True):
        scene = founded()
        if bounded:
            scene.fill("a", is_full=False)
        for reader in "b":
            scene._do(reader, "reads", lambda protocol, now: protocol.read(now, "a"))
        scene.deliver()
        effects = scene.act("a", half)
        assert len(scene.sent(effects, Offer)) == 1
        assert [e.reason for e in effects if isinstance(e, PushSkipped)] == (
            [NO_MEMORY] if bounded else ["no neighbor free"]
        )
        if not bounded:
            continue
        scene.deliver()
        scene._do("b", "reads", lambda protocol, now: protocol.read(now, ""))
        scene.deliver()
        assert len(scene.sent(scene.act("a", half), Offer)) == 1


def test_a_leaver_waits_a_while_for_memory_before_it_hands_on() -> None:
    scene = founded()
    scene.act("b", half)
    scene.fill("b")
    scene.wait(0.1)
    effects = scene.leave("b")
    assert not scene.sent(effects, Offer)
    scene.deliver()
    scene.wait(1.5)
    assert scene.mix_all("a")
    scene.deliver()
    scene.wake("b")
    scene.deliver()
    scene.mix_all("a")
    scene.deliver()
    assert scene.peers["b"].done and scene.peers["a"].weight == 2 * ONE


def test_what_a_peer_founds_with_is_asked_for_when_it_founds() -> None:
    asked: list[str] = []

    def anchor_of(id: str) -> bytes:
        asked.append(id)
        return ANCHOR

    scene = Scene()
    scene.enter("a")
    scene.join("a")
    for id in "nm":
        scene.enter(id, anchor=lambda id=id: anchor_of(id))  # type: ignore[misc]
    scene.join("n", "a")
    for _ in range(6):
        scene.deliver()
        scene.wait(0.2)
        scene.wake("n")
        scene.step("a")
        scene.step("n", trained=False)
    assert scene.peers["n"].weight == ONE // 2 and asked == []
    scene.join("m")
    assert scene.peers["m"].swarm == ANCHOR and asked == ["m"]
