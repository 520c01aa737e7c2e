"""Robust mixing limits how far a share moves the model and returns the rest of its weight."""

import numpy as np
import pytest

from rumor.gossip.effects.effects import Measure, Mix, Snapshot
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Requirements, require_fit, requirements_of
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.types import ShareId
from rumor.gossip.weight import ONE

from ...scene import Scene, only

MEASURING = Requirements(whole=False, measures=True)


def test_rules_that_measure_distances_need_every_number() -> None:
    assert requirements_of(GoSGD(robust="clip:tau=1")).measures
    assert not requirements_of(GoSGD()).measures
    require_fit(GoSGD(robust="clip:tau=1"), "int8", 3)
    with pytest.raises(ConfigError, match="needs every number; use int8"):
        require_fit(GoSGD(robust="clip:tau=1"), "topk:0.1", 1)


def arrived(*, shards: int = 1, rule: GoSGD | None = None) -> Scene:
    """Half of the weight of a is staged at b, shard by shard."""
    scene = Scene(requirements=MEASURING).founded("a", "b", shards=shards)
    if rule is not None:
        scene.peers["b"]._rule = rule

    def push(context: RuleContext) -> None:
        context.push_shards("b", dict.fromkeys(range(shards), ONE // 2))

    scene.act("a", push)
    scene.deliver()
    return scene


def shares_to_measure(scene: Scene, effects: list[object]) -> tuple[ShareId, ...]:
    """Return the shares to measure; their effect must be the last one."""
    *before, last = effects
    assert isinstance(last, Measure) and not any(isinstance(e, Measure) for e in before)
    return last.shares


@pytest.mark.parametrize("shards", [1, 3])
def test_a_measured_share_is_clipped_and_the_rest_is_returned(shards: int) -> None:
    scene = arrived(shards=shards, rule=GoSGD(0.0, robust="clip:tau=1"))
    shares = shares_to_measure(scene, [*scene.step("b")])
    assert [share.shard for share in shares] == list(range(shards))
    effects = scene.measured("b", dict.fromkeys(shares, 4.0))
    fractions = [effect.fraction for effect in effects if isinstance(effect, Mix)]
    np.testing.assert_allclose(fractions, [1 / 4 * 1 / 3] * shards, rtol=1e-12)
    scene.deliver()
    held = [peer.accounts[0].weight for peer in scene.peers.values()]
    assert sum(held) == 2 * ONE and held[1] == ONE + ONE // 11 >> 960 << 960


def test_a_share_at_infinite_distance_is_refused() -> None:
    scene = arrived(rule=GoSGD(0.0, robust="clip:tau=1"))
    (share,) = shares_to_measure(scene, [*scene.step("b")])
    scene.measured("b", {share: float("inf")})
    scene.deliver()
    assert scene.peers["a"].account.weight == scene.peers["b"].account.weight == ONE
    # An answer without the share, dropped meanwhile, has no effect.
    assert not scene.measured("b", {})


@pytest.mark.parametrize("leaves", [False, True])
def test_an_answer_causes_no_push_and_a_leaver_ignores_it(leaves: bool) -> None:
    scene = arrived(rule=GoSGD(1.0, robust="clip:tau=1"))
    (share,) = shares_to_measure(scene, [*scene.step("b")])
    if leaves:
        scene.leave("b")
    effects = scene.measured("b", {share: 0.5})
    assert len(only(effects, Mix)) == (not leaves) and not only(effects, Snapshot)


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

    shares = shares_to_measure(scene, [*scene.act("b", ask)])
    scene.rules["b"].next = lambda context: look(context)
    scene.measured("b", dict(zip(shares, (1.0, 2.0), strict=True)))
    after = {"mix": [None, 2.0], "other register": [1.0, 2.0]}.get(change, [None, None])
    assert seen == [[1.0, 2.0], after]


def crowd(robust: str) -> Scene:
    """Founders a to g; a mixes robustly."""
    scene = Scene(requirements=MEASURING).founded(*"abcdefg")
    scene.peers["a"]._rule = GoSGD(0.0, robust=robust)
    return scene


def mixed_fraction(scene: Scene, sender: str, distance: float) -> float:
    """Push a share to a; return the part of it that a mixes, 0 if a refuses it."""
    offered = scene.peers[sender].account.weight // 2
    scene.push(sender, "a", offered)
    scene.deliver()
    effects = [*scene.step("a")]
    if not any(isinstance(effect, Measure) for effect in effects):
        scene.deliver()
        return 0.0
    (share,) = shares_to_measure(scene, [*effects])
    own = scene.peers["a"].account.weight
    fractions = [e.fraction for e in scene.measured("a", {share: distance}) if isinstance(e, Mix)]
    scene.deliver()
    whole = offered / (offered + own)
    return sum(fractions) / whole


def total(scene: Scene) -> int:
    accounts = [peer.account for peer in scene.peers.values()]
    return sum(a.weight + sum(o.escrow for o in a.outstanding.values()) for a in accounts)


def test_no_share_is_mixed_before_three_votes_and_weight_stays_exact() -> None:
    scene = crowd("clip")
    assert [mixed_fraction(scene, peer, far) for peer, far in (("b", 9.0), ("c", 1.0))] == [
        0.0,
        0.0,
    ]
    assert mixed_fraction(scene, "d", 1.0) == 1.0
    assert mixed_fraction(scene, "b", 2.0) == pytest.approx(0.75)
    assert mixed_fraction(scene, "b", 10.0) == pytest.approx(0.15 * 0.25)
    assert total(scene) == 7 * ONE
    # A fixed radius needs no votes.
    assert mixed_fraction(crowd("clip:tau=1"), "b", 4.0) == pytest.approx(0.25)


def test_byzantine_peers_that_push_first_are_no_majority() -> None:
    """A neighbor that has not pushed yet counts like the nearest neighbor that has."""
    scene = crowd("clip")
    pushed_distances = [("b", 100.0), ("c", 100.0), ("d", 1.0), ("b", 100.0), ("c", 100.0)]
    assert [mixed_fraction(scene, peer, far) for peer, far in pushed_distances[:2]] == [0.0, 0.0]
    assert mixed_fraction(scene, *pushed_distances[2]) == 1.0
    assert max(mixed_fraction(scene, peer, far) for peer, far in pushed_distances[3:]) < 0.001


def test_a_flooding_peer_has_one_vote_and_a_limited_rate() -> None:
    scene = crowd("clip")
    for peer in "cdef":
        mixed_fraction(scene, peer, 1.0)
    fractions = [mixed_fraction(scene, "b", 100.0) for _ in range(30)]
    # If each of its shares were a vote, the median would be 100.
    assert max(fractions) < 0.01
    # The burst limit, plus four times the number of shares of each other peer.
    assert sum(part > 0 for part in fractions) <= 14
    assert mixed_fraction(scene, "c", 1.0) == 1.0
    assert total(scene) == 7 * ONE


def test_a_peer_that_has_left_has_no_vote() -> None:
    scene = crowd("clip")
    for peer in "bcd":
        mixed_fraction(scene, peer, 1.0)
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
    mixed_fraction(scene, "e", 50.0)
    assert {"b", "c"}.isdisjoint({peer for _, peer in rule._mixing._votes})


def test_refused_peers_also_vote_so_that_the_median_follows_a_majority() -> None:
    scene = crowd("nna:byzantine=3")
    for peer in "bcd":
        mixed_fraction(scene, peer, 1.0)
    assert [mixed_fraction(scene, peer, 50.0) for peer in "efg"] == [0.0] * 3
    for peer in "bcd":
        mixed_fraction(scene, peer, 60.0)
    assert mixed_fraction(scene, "e", 50.0) == 1.0
