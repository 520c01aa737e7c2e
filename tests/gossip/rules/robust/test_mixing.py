"""Robust mixing: what a share may move at most, and what becomes of the rest."""

import numpy as np
import pytest

from rumor.gossip.effects.effects import Measure, Mix, Snapshot
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Requirements, require_fit, requirements_of
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE

from ...scene import Scene, of

MEASURING = Requirements(whole=False, measures=True)


def test_who_measures_needs_every_number() -> None:
    assert requirements_of(GoSGD(robust="clip:tau=1")).measures
    assert not requirements_of(GoSGD()).measures
    require_fit(GoSGD(robust="clip:tau=1"), "int8", 3, exact=True)
    with pytest.raises(ConfigError, match="needs every number; use int8"):
        require_fit(GoSGD(robust="clip:tau=1"), "topk:0.1", 1, exact=False)


def arrived(*, shards: int = 1, rule: GoSGD | None = None) -> Scene:
    """Half of the weight of a lies at b, shard by shard."""
    scene = Scene(requirements=MEASURING).founded("a", "b", shards=shards)
    if rule is not None:
        scene.peers["b"]._rule = rule

    def push(context: RuleContext) -> None:
        context.push_shards("b", dict.fromkeys(range(shards), ONE // 2))

    scene.act("a", push)
    scene.deliver()
    return scene


def measured(scene: Scene, effects: list[object]) -> tuple[ShareId, ...]:
    """What is to be measured, which comes last."""
    *before, last = effects
    assert isinstance(last, Measure) and not any(isinstance(e, Measure) for e in before)
    return last.shares


@pytest.mark.parametrize("shards", [1, 3])
def test_what_was_measured_is_clipped_and_the_rest_goes_back(shards: int) -> None:
    scene = arrived(shards=shards, rule=GoSGD(0.0, robust="clip:tau=1"))
    shares = measured(scene, [*scene.step("b")])
    assert [share.shard for share in shares] == list(range(shards))
    effects = scene.measured("b", dict.fromkeys(shares, 4.0))
    fractions = [effect.fraction for effect in effects if isinstance(effect, Mix)]
    np.testing.assert_allclose(fractions, [1 / 4 * 1 / 3] * shards, rtol=1e-12)
    scene.deliver()
    held = [peer.accounts[0].weight for peer in scene.peers.values()]
    assert sum(held) == 2 * ONE and held[1] == ONE + ONE // 11 >> 960 << 960


def test_what_is_too_far_to_be_measured_is_refused_and_the_next_one_is_measured_anew() -> None:
    scene = arrived(rule=GoSGD(0.0, robust="clip:tau=1"))
    (share,) = measured(scene, [*scene.step("b")])
    scene.measured("b", {share: float("inf")})
    scene.deliver()
    assert scene.peers["a"].account.weight == scene.peers["b"].account.weight == ONE
    # One that was dropped meanwhile is not measured, and nothing comes of it.
    assert not scene.measured("b", {})


@pytest.mark.parametrize("leaves", [False, True])
def test_no_push_comes_of_an_answer_nor_anything_else_at_one_that_leaves(leaves: bool) -> None:
    scene = arrived(rule=GoSGD(1.0, robust="clip:tau=1"))
    (share,) = measured(scene, [*scene.step("b")])
    if leaves:
        scene.leave("b")
    effects = scene.measured("b", {share: 0.5})
    assert len(of(effects, Mix)) == (not leaves) and not of(effects, Snapshot)


@pytest.mark.parametrize("change", ["mix", "combine", "exchange", "other register"])
def test_a_distance_is_known_until_the_model_changes(change: str) -> None:
    scene = arrived(shards=2)
    seen: list[list[float | None]] = []

    def ask(context: RuleContext) -> None:
        assert not context.measured
        for share in context.shares():
            context.measure(share)

    def look(context: RuleContext) -> None:
        assert context.measured and not context.trained
        shares = context.shares()
        seen.append([context.distance(share) for share in shares])
        match change:
            case "mix":
                context.mix(shares[0])
            case "combine":
                context.combine("x", [(0.5, "x")])
            case "exchange":
                context.exchange("center", taken=0.5, given=0.5)
            case _:
                context.combine("y", [(0.5, "x")])
        seen.append([context.distance(share) for share in shares])

    shares = measured(scene, [*scene.act("b", ask)])
    scene.rules["b"].next = lambda context: look(context)
    scene.measured("b", dict(zip(shares, (1.0, 2.0), strict=True)))
    after = {"mix": [None, 2.0], "other register": [1.0, 2.0]}.get(change, [None, None])
    assert seen == [[1.0, 2.0], after]


def crowd(robust: str) -> Scene:
    """Peer a, and b to g around it, all founders."""
    scene = Scene(requirements=MEASURING).founded(*"abcdefg")
    scene.peers["a"]._rule = GoSGD(0.0, robust=robust)
    return scene


def take(scene: Scene, sender: str, distance: float) -> float:
    """Push a share to a; returns the fraction that it is mixed with, 0 where it is refused."""
    offered = scene.peers[sender].account.weight // 2
    scene.push(sender, "a", offered)
    scene.deliver()
    effects = [*scene.step("a")]
    if not any(isinstance(effect, Measure) for effect in effects):
        scene.deliver()
        return 0.0
    (share,) = measured(scene, [*effects])
    own = scene.peers["a"].account.weight
    fractions = [e.fraction for e in scene.measured("a", {share: distance}) if isinstance(e, Mix)]
    scene.deliver()
    whole = offered / (offered + own)
    return sum(fractions) / whole


def total(scene: Scene) -> int:
    accounts = [peer.account for peer in scene.peers.values()]
    return sum(a.weight + sum(o.escrow for o in a.outstanding.values()) for a in accounts)


def test_nothing_is_taken_before_there_are_three_to_compare_and_weight_stays_exact() -> None:
    scene = crowd("clip")
    assert [take(scene, peer, far) for peer, far in (("b", 9.0), ("c", 1.0))] == [0.0, 0.0]
    assert take(scene, "d", 1.0) == 1.0
    assert take(scene, "b", 2.0) == pytest.approx(0.75)
    assert take(scene, "b", 10.0) == pytest.approx(0.15 * 0.25)
    assert total(scene) == 7 * ONE
    # A bound that is given needs nobody to compare with.
    assert take(crowd("clip:tau=1"), "b", 4.0) == pytest.approx(0.25)


def test_liars_that_are_heard_first_are_no_majority() -> None:
    """Who was not heard yet counts like the nearest that was."""
    scene = crowd("clip")
    heard = [("b", 100.0), ("c", 100.0), ("d", 1.0), ("b", 100.0), ("c", 100.0)]
    assert [take(scene, peer, far) for peer, far in heard[:2]] == [0.0, 0.0]
    assert take(scene, *heard[2]) == 1.0
    assert max(take(scene, peer, far) for peer, far in heard[3:]) < 0.001


def test_a_flooder_has_one_vote_and_then_is_not_even_measured() -> None:
    scene = crowd("clip")
    for peer in "cdef":
        take(scene, peer, 1.0)
    taken = [take(scene, "b", 100.0) for _ in range(30)]
    # Were each of its shares a vote, the median would be 100 by now.
    assert max(taken) < 0.01
    # So many as may come at once, and four times as many as each of the others has sent.
    assert sum(part > 0 for part in taken) <= 14
    assert take(scene, "c", 1.0) == 1.0
    assert total(scene) == 7 * ONE


def test_one_that_has_gone_has_no_vote() -> None:
    scene = crowd("clip")
    for peer in "bcd":
        take(scene, peer, 1.0)
    for peer in "bcd":
        scene.leave(peer)
        scene.deliver()
        for _ in range(200):
            scene.wait(0.1)
            scene.wake(peer)
            scene.deliver()
    rule = scene.peers["a"]._rule
    assert isinstance(rule, GoSGD) and rule._mixing is not None
    assert {"b", "c"} < {peer for _, peer in rule._mixing._votes}
    take(scene, "e", 50.0)
    assert {"b", "c"}.isdisjoint({peer for _, peer in rule._mixing._votes})


def test_where_most_have_moved_away_those_who_were_refused_have_voted() -> None:
    scene = crowd("nna:byzantine=3")
    for peer in "bcd":
        take(scene, peer, 1.0)
    assert [take(scene, peer, 50.0) for peer in "efg"] == [0.0] * 3
    for peer in "bcd":
        take(scene, peer, 60.0)
    assert take(scene, "e", 50.0) == 1.0
