"""In exact mode, values not accepted are mixed back at a step, before their weight returns."""

from dataclasses import replace

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Reclaim, Release, Snapshot
from rumor.gossip.effects.ledger import Entry, Kind
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Ack, Chunk, Grant, Hello, Leave, Offer, Phase, Push, Query

from ..scene import SMALL, WIDE, Effects, Scene, only, settled

EXACT = replace(SMALL, exact=True)
FRAMES = replace(WIDE, exact=True)
HALF = ONE // 2


def pushed(config: ProtocolConfig = EXACT, weight: int = HALF, host: bytes = b"") -> Scene:
    """A push from a to b that is not delivered."""
    scene = Scene(config).founded("a", "b", "c", "d", "e", host=host)
    assert not only(scene.push("a", "b", weight), Release)
    return scene


def require_credit(scene: Scene, pushes: int = 2) -> None:
    """Check that a can push to *pushes* other peers now."""
    pushed: list[str] = []

    def push_on(context: RuleContext) -> None:
        for peer in "cde":
            if context.can_push(peer):
                context.push(peer, 5)
                pushed.append(peer)

    scene.act("a", push_on)
    assert len(pushed) == pushes


@pytest.mark.parametrize(
    ("weight", "accepted"), [(HALF, 0), (HALF, HALF // 4), (ONE, 0)], ids=["", "in part", "all"]
)
def test_a_returned_share_is_mixed_back_at_the_next_step(weight: int, accepted: int) -> None:
    scene, back = pushed(weight=weight), weight - accepted
    a = scene.peers["a"]
    assert only(scene.tell("b", "a", Ack(1, accepted)), Entry) == only(scene.wake("a"), Entry) == []
    assert a.account.weight == ONE - weight
    effects = scene.step("a")
    mixed = Reclaim(1, back / (ONE - accepted))
    assert effects[:3] == [mixed, settled(accepted), Release(1)]
    assert a.account.weight == ONE - accepted
    assert not only(scene.step("a"), Reclaim)


def test_a_fully_accepted_share_is_settled_at_once() -> None:
    assert pushed().tell("b", "a", Ack(1, HALF)) == [settled(HALF), Release(1)]


def test_two_returned_shares_are_mixed_back_in_sequence() -> None:
    scene = Scene(EXACT).founded("a", "b", "c")

    def push_both(context: RuleContext) -> None:
        context.push("b", ONE // 4)
        context.push("c", ONE // 2)

    assert [snapshot.id for snapshot in only(scene.act("a", push_both), Snapshot)] == [1]
    for peer in ("b", "c"):
        scene.tell(peer, "a", Ack(1, 0))
    effects = scene.step("a")
    assert only(effects, Reclaim) == [Reclaim(1, 0.5), Reclaim(1, 0.5)]
    assert effects[-1] == Release(1) and scene.peers["a"].account.weight == ONE


def test_values_are_mixed_back_before_the_rule_is_called() -> None:
    scene = pushed()
    scene.tell("b", "a", Ack(1, 0))
    seen: list[tuple[int, int, bool]] = []

    def look(context: RuleContext) -> None:
        seen.append((context.weight, len(context.returned), context.can_push("b")))
        context.push("b", 5)

    effects = scene.act("a", look)
    assert seen == [(ONE, 1, True)]
    assert effects.index(Reclaim(1, 0.5)) < effects.index(Snapshot(2, "x"))


def test_a_share_stays_open_until_its_values_are_mixed_back() -> None:
    scene = pushed()
    scene.tell("b", "a", Ack(1, 0))
    assert not scene.tell("b", "a", Ack(1, HALF))
    effects = scene.tell("b", "a", Leave(True)) + scene.tell("b", "a", Query(9), incarnation=2)
    effects += scene.wake_for("a", 40.0)
    assert not [entry for entry in only(effects, Entry) if entry.seq == 1]
    assert Reclaim(1, 0.5) in scene.step("a")
    assert scene.peers["a"].account.weight == ONE
    for peer in "cde":
        scene.tell(peer, "a", Query(9))  # they had also been silent
    require_credit(scene)


@pytest.mark.parametrize("config", [EXACT, FRAMES])
def test_a_share_that_the_network_refused_is_mixed_back_once(config: ProtocolConfig) -> None:
    scene = pushed(config)
    share = scene.mail[-1]
    assert only(scene.unsent(share), Entry) == only(scene.unsent(share), Entry) == []
    assert Reclaim(1, 0.5) in scene.step("a")


KEPT_S = 10 * EXACT.dead_s
"""How long the values of a stranded share are kept."""


def long_stranded(scene: Scene) -> Effects:
    """Keep b dead until it is no longer expected to return."""
    assert not only(scene.strand("a", "b"), Release)
    assert not only(scene.wake_for("a", KEPT_S - 1.0), Release)
    scene.mail.clear()
    return scene.wake_for("a", 1.0)


@pytest.mark.parametrize("config", [EXACT, FRAMES])
def test_values_of_a_stranded_share_are_released_eventually(
    config: ProtocolConfig,
) -> None:
    """Otherwise each killed peer would cost each of its neighbors the memory of a model."""
    scene = pushed(config)
    if config is FRAMES:
        scene.deliver(Offer, Grant, Chunk)
    assert Release(1) in long_stranded(scene)
    assert scene.peers["a"].account.outstanding["b", 1].stranded
    # A share returned after that brings back weight alone.
    effects = scene.tell("b", "a", Ack(1, 0))
    assert only(effects, Entry) == [Entry(Kind.FOUND, 0, "b", 1, 1), settled(0)]
    assert scene.peers["a"].account.weight == ONE
    assert not [e for e in scene.step("a") if isinstance(e, Reclaim | Release)]


def test_a_leaver_mixes_returned_values_back_before_it_hands_over_its_weight() -> None:
    scene = pushed()
    scene.leave("a")
    scene.deliver(Hello)
    assert scene.peers["a"].account.weight == 0
    effects = scene.tell("b", "a", Ack(1, HALF // 2))
    (push,) = scene.sent(effects, Push)
    assert push.escrow == HALF - HALF // 2
    assert effects.index(Reclaim(1, 1.0)) < effects.index(Snapshot(3, "x"))


def test_a_finished_peer_waits_for_returned_values_before_it_becomes_quiet() -> None:
    scene = pushed()
    scene.mail.clear()  # b does not receive a's share
    for id in "abcde":
        scene.finish(id)
    scene.merge(*"abcde")
    scene.tell("b", "a", Ack(1, 0))
    phases = [scene.peers["a"].phase]
    assert Reclaim(1, 0.5) in scene.step("a", trained=False)
    scene.merge(*"abcde")
    phases.append(scene.peers["a"].phase)
    assert phases == [Phase.FINISHED, Phase.QUIET]
