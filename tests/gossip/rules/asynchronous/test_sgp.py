"""Stochastic gradient push: what it pushes, and that push-sum's invariant holds."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.effects import Wait
from rumor.gossip.effects.events import PushSkipped
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.protocol.rule import Rule
from rumor.gossip.protocol.share import Share
from rumor.gossip.rules.asynchronous.sgp import SGP
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE, WEIGHT_MIN, coarse, founders
from rumor.gossip.wire.messages import Ack, Phase, Push
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import Peers, complete, ring, spread
from rumor.sim.fuzz.swarm import FuzzSwarm
from rumor.sim.fuzz.vector import Values
from rumor.topology.live import LiveTopology

from ...crowd import LR, PATIENT, Crowd, gradient, run_until_agreed, starts
from ...scene import Scene


def rule(peer: PeerId) -> Rule:
    return SGP()


THIRD = coarse(ONE // 3)
"""In whole units."""


def founded(
    neighbors: Any, rules: dict[PeerId, SGP], config: ProtocolConfig | None = None
) -> Scene:
    scene = Scene(config or ProtocolConfig())
    scene.founded(*rules, neighbors=neighbors, rules=rules)
    return scene


def test_the_weight_is_split_evenly_between_itself_and_its_neighbors() -> None:
    scene = founded(complete, {"a": SGP(), "b": SGP(), "c": SGP()})
    pushes = scene.sent(scene.step("a"), Push)
    assert [push.escrow for push in pushes] == [THIRD] * 2
    assert scene.peers["a"].account.weight == ONE - 2 * (THIRD)


def test_a_round_passes_with_every_step_however_many_pushes_it_takes() -> None:
    asked: list[int] = []

    def neighbors(live: Any, peer: PeerId, round: int) -> tuple[PeerId, ...]:
        asked.append(round)
        return () if round == 1 else complete(live, peer, round)

    scene = founded(neighbors, {"a": SGP(), "b": SGP(), "c": SGP()})
    asked.clear()
    for _ in range(4):
        scene.step("a")
        scene.deliver()
        scene.mail.clear()
    assert asked == [0, 1, 2, 3]


def test_a_push_without_credit_is_skipped_and_its_weight_stays() -> None:
    scene = founded(complete, {"a": SGP(outstanding_max=1), "b": SGP(), "c": SGP()})
    effects = scene.step("a")
    assert len(scene.sent(effects, Push)) == 1 and PushSkipped("no credit") in effects
    assert scene.peers["a"].account.weight == ONE - THIRD
    effects = scene.step("a")
    assert effects.count(PushSkipped("no credit")) == 2


def test_a_peer_with_hardly_any_weight_pushes_none() -> None:
    scene = founded(ring, {"a": SGP(), "b": SGP()})
    for _ in range(1100):
        effects = scene.step("a")
        scene.deliver(Push)
        scene.step("b", trained=False)
        scene.mail = type(scene.mail)(m for m in scene.mail if isinstance(m.body, Ack))
        scene.deliver()
        if PushSkipped("too little weight") in effects:
            break
    assert 0 < scene.peers["a"].account.weight < WEIGHT_MIN


class Logged:
    """A context and a rule at once: what the rule does to the context is logged."""

    name, registers = "sgp", ()

    def __init__(self, me: PeerId, log: list[tuple[Any, ...]]) -> None:
        self._me, self._log, self._rule = me, log, SGP()
        self.outstanding_max, self.requirements = (
            self._rule.outstanding_max,
            self._rule.requirements,
        )
        self._pushed: Counter[PeerId] = Counter()

    def step(self, context: RuleContext) -> Wait | None:
        self._context = context
        return self._rule.step(self)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def push_shards(self, peer: PeerId, weights: Mapping[int, int], **given: Any) -> None:
        self._context.push_shards(peer, weights, **given)
        self._pushed[peer] += 1
        self._log.append(("push", self._me, peer, self._pushed[peer], weights[0]))

    def mix(self, share: Share) -> None:
        self._context.mix(share)
        self._log.append(("mix", self._me, share.sender, share.id.seq, share.weight))


@pytest.mark.extended
@pytest.mark.parametrize("spec", ["exponential", "one-peer-exponential", "star", "random-matching"])
def test_it_is_the_published_algorithm_on_numerators_and_weights(spec: str) -> None:
    """x <- A (x - lr w g(z)), w <- A w, z = x / w: with w, since the optimizer steps on z."""
    log: list[tuple[Any, ...]] = []
    crowd = Crowd(
        lambda peer: Logged(peer, log),
        7,
        LiveTopology(spec, 0),
        NetworkConfig(latency_s=0.001, jitter=1.0),
        config=PATIENT,
    )
    crowd.on_step = lambda peer: log.append(("train", peer))
    crowd.run(200.0, steps=40)

    place = {peer: index for index, peer in enumerate(crowd.ids)}
    w = [ONE] * 7
    x = starts(7)
    under_way: dict[tuple[PeerId, PeerId, int], tuple[Values, int]] = {}
    for what, peer, *rest in log:
        i = place[peer]
        if what == "train":
            founder = founders(w[i])
            x[i] -= LR * founder * gradient(i, x[i] / founder)
        elif what == "push":
            to, number, weight = rest
            under_way[peer, to, number] = x[i] * (weight / w[i]), weight
            x[i] *= 1 - weight / w[i]
            w[i] -= weight
        else:
            sender, number, weight = rest
            numerator, sent = under_way.pop((sender, peer, number))
            assert sent == weight
            x[i] += numerator
            w[i] += weight
    assert len(log) > 7 * 60
    held = np.array([founders(each) for each in w])
    np.testing.assert_allclose(crowd.models, x / held[:, None], rtol=0, atol=1e-12)
    assert [host.ledger.weight for host in crowd.hosts] == w


@pytest.mark.parametrize("spec", ["exponential", "one-peer-exponential", "ring", "star", "base-k"])
def test_without_training_all_find_the_mean_of_where_they_began(spec: str) -> None:
    """Kempe, Dobra and Gehrke 2003: sums of x and w are kept, so that z tends to the mean."""
    ids = tuple(f"p{index}" for index in range(7))
    peers = Peers(rule=rule, neighbors=LiveTopology(spec, 0), config=PATIENT)
    swarm = FuzzSwarm(5, peers, ids, 7, NetworkConfig(latency_s=0.001, jitter=1.0))
    start = np.mean([host.vector.x for host in swarm.running()], axis=0)
    run_until_agreed(swarm, 20.0)
    hosts = swarm.running()
    assert spread(hosts) < 1e-5
    np.testing.assert_allclose(hosts[0].vector.x, start, rtol=0, atol=1e-5)


def test_one_that_has_merged_pushes_no_more_so_that_its_escrow_comes_back() -> None:
    scene = founded(complete, {id: SGP() for id in "abc"}, ProtocolConfig(merge_rounds=1))
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


def test_more_neighbors_than_usually_find_room_are_all_let_in() -> None:
    crowd = Crowd(rule, 14, complete, steps=10, config=ProtocolConfig(staged_max=1))
    crowd.run(200.0)
    assert not crowd.swarm.invariants.seen["refused: busy"]
