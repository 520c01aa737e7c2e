"""Stochastic gradient push: its pushes, and the invariant of push-sum."""

from typing import Any

import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.events import PushSkipped
from rumor.gossip.protocol.rule import Rule
from rumor.gossip.rules.asynchronous.sgp import SGP
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE, coarse
from rumor.gossip.wire.messages import Phase, Push
from rumor.sim.fuzz.peers import complete

from ...crowd import Crowd
from ...scene import Scene


def rule(peer: PeerId) -> Rule:
    return SGP()


THIRD = coarse(ONE // 3)
"""In whole units."""


def founded(neighbors: Any, rules: dict[PeerId, SGP]) -> Scene:
    return Scene().founded(*rules, neighbors=neighbors, rules=rules)


def test_the_weight_is_split_evenly_between_a_peer_and_its_neighbors() -> None:
    scene = founded(complete, {"a": SGP(), "b": SGP(), "c": SGP()})
    pushes = scene.sent(scene.step("a"), Push)
    assert [push.escrow for push in pushes] == [THIRD] * 2
    assert scene.peers["a"].account.weight == ONE - 2 * (THIRD)


def test_every_step_is_a_round_for_any_number_of_pushes() -> None:
    requested_rounds: list[int] = []

    def neighbors(live: Any, peer: PeerId, round: int) -> tuple[PeerId, ...]:
        requested_rounds.append(round)
        return () if round == 1 else complete(live, peer, round)

    scene = founded(neighbors, {"a": SGP(), "b": SGP(), "c": SGP()})
    requested_rounds.clear()
    for _ in range(4):
        scene.step("a")
        scene.deliver()
        scene.mail.clear()
    assert requested_rounds == [0, 1, 2, 3]


def test_a_push_without_credit_is_skipped_and_its_weight_stays() -> None:
    scene = founded(complete, {"a": SGP(outstanding_max=1), "b": SGP(), "c": SGP()})
    effects = scene.step("a")
    assert len(scene.sent(effects, Push)) == 1 and PushSkipped("no credit") in effects
    assert scene.peers["a"].account.weight == ONE - THIRD
    effects = scene.step("a")
    assert effects.count(PushSkipped("no credit")) == 2


def test_a_merged_peer_stops_pushing_so_that_its_escrow_returns() -> None:
    rules = {id: SGP() for id in "abc"}
    scene = Scene(ProtocolConfig(merge_rounds=1)).founded(*rules, neighbors=complete, rules=rules)
    for id in "abc":
        scene.finish(id)
    scene.deliver()
    assert len(scene.sent(scene.step("a", trained=False), Push)) == 1
    assert not scene.sent(scene.step("a", trained=False), Push)
    for _ in range(12):
        scene.deliver()
        for id in "bca":
            scene.step(id, trained=False)
    assert scene.peers["a"].phase is Phase.QUIET


@pytest.mark.extended
def test_shares_of_more_neighbors_than_the_staging_limit_are_accepted() -> None:
    crowd = Crowd(rule, 14, complete, steps=10, config=ProtocolConfig(staged_max=1))
    crowd.run(200.0)
    assert not crowd.swarm.invariants.seen["refused: busy"]
