"""Rules that gossip parts of the model: sparta and divshare, on their own and on bad networks."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rumor.gossip.effects.effects import Wait
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.share import Share
from rumor.gossip.rules.asynchronous.fragments import DivShare, Sparta
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE
from rumor.sim.fuzz.peers import complete

from ...crowd import Crowd

N, SIZE = 6, 38
"""Forty numbers with the padding, five cache lines."""


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
