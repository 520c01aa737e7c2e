"""Without memory for another share only urgent shares are pushed or accepted."""

import pytest

from rumor.gossip.effects.effects import Snapshot
from rumor.gossip.effects.events import NO_MEMORY, PushSkipped, ShareRefused
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import requirements_of
from rumor.gossip.rules.registry import make_rule
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Offer

from ..scene import ANCHOR, WIDE, Effects, Scene, only

half = RuleContext.push_half


def skipped(effects: Effects) -> list[str]:
    return [event.reason for event in only(effects, PushSkipped)]


def test_a_push_without_memory_is_skipped() -> None:
    scene = Scene(WIDE).founded()
    assert scene.fill("a") == []
    effects = scene.act("a", half)
    assert skipped(effects) == [NO_MEMORY] and not only(effects, Snapshot)
    assert scene.peers["a"].state.weight == ONE
    scene.fill("a", is_full=False)
    assert only(scene.act("a", half), Snapshot)


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
def test_every_rule_names_memory_as_the_reason_for_a_skipped_push(spec: str, shards: int) -> None:
    rules = {id: make_rule(spec) for id in "ab"}
    scene = Scene(WIDE, requirements_of(rules["a"])).founded(rules=rules, shards=shards)
    scene.fill("a")
    reasons = {why for _ in range(30) for why in skipped(scene.step("a"))}
    assert NO_MEMORY in reasons <= {NO_MEMORY, "an exchange is open"}


def test_a_share_without_memory_at_the_receiver_is_returned_whole() -> None:
    scene = Scene(WIDE).founded()
    scene.fill("b")
    scene.act("a", half)
    assert scene.peers["a"].state.weight == ONE // 2
    assert [refused.reason for refused in only(scene.deliver(), ShareRefused)] == [NO_MEMORY]
    assert [peer.state.weight for peer in scene.peers.values()] == [ONE, ONE]


@pytest.mark.parametrize("is_full", [False, True])
def test_an_accepted_share_completes_and_its_ack_grants_credit_if_there_is_room(
    is_full: bool,
) -> None:
    scene = Scene(WIDE).founded()
    scene.act("a", half)
    assert scene.peers["a"].in_memory() == ({}, {1}), "a snapshot that is being read"
    scene.deliver(Offer)
    assert list(scene.peers["b"].in_memory()[0].values()) == [64]
    scene.fill("b", is_full=is_full)
    scene.deliver()
    acks = scene.sent(scene.mix_all("b"), Ack)
    assert [bool(ack.credit_bytes) for ack in acks] == [not is_full]
    assert scene.peers["b"].in_memory() == ({}, set())
    scene.act("a", lambda context: context.keep("x", ["b"]))
    assert scene.peers["a"].in_memory() == ({}, {2}), "a kept snapshot"


def test_copies_for_newcomers_and_weight_of_leavers_ignore_the_memory_limit() -> None:
    scene = Scene(WIDE).founded("a")
    scene.enter("n")
    scene.fill("n")
    scene.join("n", "a")
    scene.run_for(1.4, step_s=0.2, turns=True)
    assert scene.peers["n"].state.weight == ONE // 2
    scene.fill("n")
    scene.leave("n")
    for _ in range(6):
        scene.run_for(1.0)
        scene.mix_all("a")
    assert scene.peers["n"].done and scene.peers["a"].state.weight == ONE


def test_a_leaver_waits_for_memory_before_it_hands_its_weight_on() -> None:
    scene = Scene(WIDE).founded()
    scene.act("b", half)
    scene.fill("b")
    scene.wait(0.1)
    assert not scene.sent(scene.leave("b"), Offer)
    scene.deliver()
    scene.wait(1.5)
    for _ in range(2):
        assert scene.mix_all("a")
        scene.deliver()
        scene.wake("b")
        scene.deliver()
    assert scene.peers["b"].done and scene.peers["a"].state.weight == 2 * ONE


def test_the_anchor_is_computed_when_a_peer_founds() -> None:
    computed: list[str] = []

    def anchor_of(id: str) -> bytes:
        computed.append(id)
        return ANCHOR

    scene = Scene()
    scene.join("a")
    for id in "nm":
        scene.enter(id, anchor=lambda id=id: anchor_of(id))  # type: ignore[misc]
    scene.join("n", "a")
    scene.run_for(1.4, "a", "n", step_s=0.2, turns=True)
    assert scene.peers["n"].state.weight == ONE // 2 and computed == []
    scene.join("m")
    assert scene.peers["m"].swarm == ANCHOR and computed == ["m"]
