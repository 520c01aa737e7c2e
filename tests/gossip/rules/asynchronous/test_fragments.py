"""Rules that gossip parts of the model: sparta and divshare, on their own and on bad networks."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rumor.gossip.effects.effects import Wait
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Rule, shards_of
from rumor.gossip.protocol.share import Share
from rumor.gossip.rules.asynchronous.fragments import DivShare, Sparta
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE, mixing_fraction
from rumor.gossip.wire.schema import Schema
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import complete, spread
from rumor.sim.fuzz.swarm import CALM
from rumor.sim.fuzz.vector import Values, schema_of

from ...crowd import BAD, CONFIG, LR, Crowd, gradient, starts

N, SIZE = 6, 38
"""Forty numbers with the padding, five cache lines."""

RULES: dict[str, tuple[Callable[[], Rule], Schema]] = {
    "sparta": (lambda: Sparta(fraction=0.2), schema_of(SIZE, 5, scattered=True)),
    "divshare": (lambda: DivShare(s=2, fraction=0.25), schema_of(SIZE, 4)),
}
EACH = pytest.mark.parametrize("name", RULES)
WEATHERS = pytest.mark.parametrize("weather", [CALM, BAD], ids=["calm", "bad"])


class Logged:
    """A rule whose pushes and mixes are logged in the order in which they happen."""

    def __init__(self, rule: Rule, me: PeerId, log: list[tuple[Any, ...]]) -> None:
        self.rule, self._me, self._log = rule, me, log
        self.name, self.registers = rule.name, rule.registers
        self.outstanding_max = rule.outstanding_max
        self.requirements = rule.requirements  # type: ignore[attr-defined]
        self._seqs: Counter[tuple[PeerId, int]] = Counter()

    def step(self, context: RuleContext) -> Wait | None:
        """Take the rule's turn."""
        push, mix = context.push, context.mix

        def logged_push(peer: PeerId, weight: int, *, shard: int = 0, **named: Any) -> None:
            push(peer, weight, shard=shard, **named)
            self._seqs[peer, shard] += 1
            self._log.append(("push", self._me, peer, shard, self._seqs[peer, shard]))

        def logged_mix(share: Share, weight: int | None = None) -> None:
            id = share.id
            fraction = mixing_fraction(context.weight_of(id.shard), share.weight)
            self._log.append(("mix", self._me, id.sender, id.shard, id.seq, fraction))
            mix(share, weight)

        context.push, context.mix = logged_push, logged_mix  # type: ignore[method-assign]
        outcome = self.rule.step(context)
        assert not isinstance(outcome, Wait) and outcome is None
        return outcome


def places_of(schema: Schema, shard: int) -> NDArray[Any]:
    """Which numbers a shard holds."""
    places = (8 * schema.lines(shard)[:, None] + np.arange(8)).ravel()
    found: NDArray[Any] = places[places < SIZE]
    return found


@pytest.mark.extended
@EACH
@WEATHERS
def test_every_part_is_mixed_by_its_own_weights_where_it_belongs(
    name: str, weather: NetworkConfig
) -> None:
    make, schema = RULES[name]
    log: list[tuple[Any, ...]] = []
    crowd = Crowd(lambda peer: Logged(make(), peer, log), N, complete, weather, size=SIZE)
    crowd.on_step = lambda peer: log.append(("train", peer))
    crowd.run(200.0, steps=40)
    place = {peer: index for index, peer in enumerate(crowd.ids)}
    x = starts(N, SIZE)
    under_way: dict[tuple[PeerId, PeerId, int, int], Values] = {}
    mixed = Counter[int]()
    for what, peer, *rest in log:
        i = place[peer]
        if what == "train":
            x[i] -= LR * gradient(i, x[i])
        elif what == "push":
            to, shard, seq = rest
            under_way[peer, to, shard, seq] = x[i, places_of(schema, shard)].copy()
        else:
            sender, shard, seq, fraction = rest
            own = places_of(schema, shard)
            x[i, own] += fraction * (under_way[sender, peer, shard, seq] - x[i, own])
            mixed[shard] += 1
    np.testing.assert_allclose(crowd.models, x, rtol=0, atol=1e-12)
    assert set(mixed) == set(range(schema.shards)) and min(mixed.values()) > 5


@pytest.mark.extended
@EACH
@WEATHERS
def test_models_without_steps_come_together_and_nobody_waits(
    name: str, weather: NetworkConfig
) -> None:
    make, _ = RULES[name]
    crowd = Crowd(lambda peer: make(), N, complete, weather, size=SIZE, descend=False)
    crowd.run(2000.0, steps=200 if name == "sparta" else 30)
    assert spread(crowd.hosts) < 1e-2 * np.ptp(starts(N, SIZE), axis=0).max()
    assert not any(witnessed.waits for witnessed in crowd.rules.values())


MORTAL = replace(CONFIG, suspect_s=1.0, dead_s=3.0)


@pytest.mark.extended
@EACH
@pytest.mark.parametrize("dies", [False, True])
def test_weight_is_exact_part_by_part_whoever_dies(name: str, dies: bool) -> None:
    make, schema = RULES[name]
    config = MORTAL if dies else CONFIG
    crowd = Crowd(lambda peer: make(), N, complete, BAD, steps=40, config=config, size=SIZE)
    crowd.run(100.0, steps=10)
    if dies:
        crowd.crash("p03")
    crowd.swarm.run(3000.0, lambda: not crowd.swarm.running())
    assert not crowd.swarm.running()
    for shard in range(schema.shards):
        held = [host.ledgers[shard].weight for host in crowd.hosts]
        if dies:
            # That which was under way to the dead is in nobody's ledger.
            assert ONE < sum(held) - held[3] < sum(held) <= N * ONE
        else:
            assert sum(held) == N * ONE


def test_a_fragment_goes_to_as_many_peers_as_asked_and_its_weight_is_split_evenly() -> None:
    given: list[tuple[int, PeerId, int]] = []

    class Noted(DivShare):
        def step(self, context: RuleContext) -> Wait | None:
            if context.me == "p00" and context.step == 1:
                push = context.push

                def noted(peer: PeerId, weight: int, *, shard: int = 0, **named: Any) -> None:
                    given.append((shard, peer, weight))
                    push(peer, weight, shard=shard, **named)

                context.push = noted  # type: ignore[method-assign]
            return super().step(context)

    crowd = Crowd(lambda peer: Noted(s=3, fraction=0.25), N, complete, size=SIZE)
    crowd.run(5.0, steps=3)
    assert sorted(shard for shard, _, _ in given) == sorted([*range(4)] * 3)
    assert [shard for shard, _, _ in given] != sorted(shard for shard, _, _ in given)
    assert {weight for _, _, weight in given} == {ONE // 4}
    for fragment in range(4):
        assert len({peer for shard, peer, _ in given if shard == fragment}) == 3


@pytest.mark.parametrize(("fraction", "shards"), [(0.5, 2), (0.005, 200), (0.0005, 2000)])
def test_the_fraction_says_into_how_many_parts_a_model_is_cut(fraction: float, shards: int) -> None:
    assert Sparta(fraction).requirements.shards == shards
    assert Sparta(fraction).requirements.scattered
    assert not DivShare(fraction=max(fraction, 0.001)).requirements.scattered


class Drained:
    """What a rule sees of a peer that holds next to nothing."""

    merging, me, n_shards = False, "a", 4

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.skipped: list[str] = []
        self.skip = self.skipped.append
        self.table = SimpleNamespace(takers=lambda: ("a", "b", "c"))

    def shares(self) -> tuple[Share, ...]:
        return ()

    def weight_of(self, shard: int) -> int:
        return 1


@pytest.mark.parametrize(("rule", "times"), [(Sparta(0.25), 1), (DivShare(fraction=0.25), 4)])
def test_who_holds_next_to_nothing_pushes_nothing(rule: Sparta | DivShare, times: int) -> None:
    drained: Any = Drained()
    rule.step(drained)
    assert drained.skipped == ["too little weight"] * times


def test_only_one_says_into_how_many_parts_a_vector_is_cut() -> None:
    rule = Sparta(0.25)
    assert shards_of(rule, 1) == shards_of(rule, 4) == 4 and shards_of(GoSGD(), 7) == 7
    with pytest.raises(ConfigError, match="shards is 5: rule 'sparta' itself cuts the vector"):
        shards_of(rule, 5)
