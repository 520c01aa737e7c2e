"""Rules that gossip parts of the model: sparta and divshare."""

from typing import Any

import pytest

from rumor.gossip.effects.effects import Wait
from rumor.gossip.effects.events import PushSkipped
from rumor.gossip.errors import ConfigError
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import shards_of
from rumor.gossip.rules.asynchronous.fragments import DivShare, Sparta
from rumor.gossip.rules.asynchronous.gosgd import GoSGD
from rumor.gossip.rules.registry import make_rule
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE, WEIGHT_MIN
from rumor.sim.fuzz.peers import complete

from ...crowd import Crowd
from ...scene import Scene

N, SIZE = 6, 38
"""Forty numbers with padding: five cache lines."""


def test_a_fragment_goes_to_s_peers_and_its_weight_is_split_evenly() -> None:
    pushes: list[tuple[int, PeerId, int]] = []

    class RecordedDivShare(DivShare):
        def step(self, context: RuleContext) -> Wait | None:
            if context.me == "p00" and context.step == 1:
                push = context.push

                def record(peer: PeerId, weight: int, *, shard: int = 0, **options: Any) -> None:
                    pushes.append((shard, peer, weight))
                    push(peer, weight, shard=shard, **options)

                context.push = record  # type: ignore[method-assign]
            return super().step(context)

    crowd = Crowd(lambda peer: RecordedDivShare(s=3, fraction=0.25), N, complete, size=SIZE)
    crowd.run(5.0, steps=3)
    assert sorted(shard for shard, _, _ in pushes) == sorted([*range(4)] * 3)
    assert [shard for shard, _, _ in pushes] != sorted(shard for shard, _, _ in pushes)
    assert {weight for _, _, weight in pushes} == {ONE // 4}
    for fragment in range(4):
        assert len({peer for shard, peer, _ in pushes if shard == fragment}) == 3


@pytest.mark.parametrize(
    ("spec", "shards", "times"),
    [
        ("sparta:fraction=0.25", 4, 1),
        ("divshare:fraction=0.25", 4, 4),
        ("sgp", 1, 1),
        ("easgd:every=1", 1, 1),
    ],
)
def test_a_peer_with_too_little_weight_pushes_nothing(spec: str, shards: int, times: int) -> None:
    scene = Scene().founded(rules={id: make_rule(spec) for id in "ab"}, shards=shards)
    for account in scene.peers["a"].accounts:
        account.weight = WEIGHT_MIN - 1
    assert scene.step("a").count(PushSkipped("too little weight")) == times


def test_the_number_of_fragments_is_set_in_one_place() -> None:
    rule = Sparta(0.25)
    assert shards_of(rule, 1) == shards_of(rule, 4) == 4 and shards_of(GoSGD(), 7) == 7
    assert Sparta(0.0005).requirements.shards == 2000 and DivShare().requirements.shards == 10
    assert rule.requirements.scattered and not DivShare().requirements.scattered
    with pytest.raises(ConfigError, match="shards is 5: rule 'sparta' itself cuts the vector"):
        shards_of(rule, 5)
