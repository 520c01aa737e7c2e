"""AD-PSGD averages pairs, conserves the mean of all models, and never deadlocks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.effects.events import PushSkipped
from rumor.gossip.protocol.rule import Rule
from rumor.gossip.rules.asynchronous.adpsgd import ADPSGD
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Phase
from rumor.sim import NetworkConfig
from rumor.sim.fuzz import Scenario, attempt
from rumor.sim.fuzz.peers import complete, ring
from rumor.sim.fuzz.swarm import CALM
from rumor.topology.live import LiveTopology
from rumor.train.faults.schedule import Fault

from ...crowd import BAD, CONFIG, Crowd, starts
from ...scene import Scene, only

WEATHERS = pytest.mark.parametrize("weather", [CALM, BAD], ids=["calm", "bad"])


def rule(peer: PeerId) -> ADPSGD:
    return ADPSGD()


def close_exchanges(crowd: Crowd) -> None:
    """Run until all exchanges end; no new exchange begins."""
    for recorded in crowd.rules.values():
        assert isinstance(recorded.rule, ADPSGD)
        recorded.rule.p = 0.0
    crowd.change_weather(CALM)
    crowd.swarm.finish()
    # One peer still trains, so that no peer merges yet.
    crowd.swarm.running()[0].worker.finishing = False
    for _ in range(5):
        # The answer of an exchange arrives some steps after its request was mixed.
        crowd.swarm.run(crowd.swarm.now + 3.0)
        if not any(host.ledger.outstanding for host in crowd.swarm.running()):
            return
    pytest.fail("an exchange is still open")


def star(live: Sequence[PeerId], peer: PeerId, round: int) -> tuple[PeerId, ...]:
    return tuple(live[1:]) if peer == live[0] else (live[0],)


GRAPHS = [(ring, 2), (ring, 5), (star, 5), (complete, 5), (LiveTopology("exponential", 0), 5)]


@pytest.mark.extended
@WEATHERS
@pytest.mark.parametrize(("neighbors", "n"), GRAPHS)
def test_every_exchange_conserves_the_mean(neighbors: Any, n: int, weather: NetworkConfig) -> None:
    pace = {"p01": 0.3}
    crowd = Crowd(
        lambda peer: ADPSGD(),
        n,
        neighbors,
        weather,
        step_s=lambda peer: pace.get(peer, 0.05),
    )
    # Two peers have few shares that could be fenced.
    crowd.run(500.0, steps=20 if n == 2 else 8)
    close_exchanges(crowd)
    expected = starts(n).mean(axis=0) + crowd.moved / n
    np.testing.assert_allclose(crowd.models.mean(axis=0), expected, rtol=0, atol=1e-12)
    assert sum(host.ledger.weight for host in crowd.hosts) == n * ONE
    assert crowd.swarm.invariants.seen["fence"] or weather is CALM
    assert not any(recorded.waits for recorded in crowd.rules.values())


def exchanges(crowd: Crowd, peer: PeerId) -> int:
    """Return the number of accepted shares from and to a peer: one of each in every exchange."""
    account = crowd.swarm.peers[peer].ledger
    return sum(last for last, _ in account.decided.values())


@pytest.mark.extended
@pytest.mark.parametrize(("neighbors", "n"), GRAPHS)
def test_all_peers_end_at_the_mean_of_their_models(neighbors: Any, n: int) -> None:
    crowd = Crowd(rule, n, neighbors, BAD, steps=15)
    crowd.run(1000.0)
    assert not crowd.swarm.running()
    assert {host.protocol.phase for host in crowd.hosts} == {Phase.QUIET}
    expected = starts(n).mean(axis=0) + crowd.moved / n
    np.testing.assert_allclose(crowd.models.mean(axis=0), expected, rtol=0, atol=1e-12)


def founded(rules: dict[PeerId, Rule], config: ProtocolConfig = CONFIG) -> Scene:
    return Scene(config).founded(*rules, rules=rules)


def test_a_peer_begins_no_exchange_while_its_own_is_open() -> None:
    scene = founded({"a": ADPSGD(), "b": ADPSGD()})
    scene.step("a")
    assert PushSkipped("an exchange is open") in scene.step("a")


def test_a_peer_with_p_0_only_answers() -> None:
    scene = founded({"a": ADPSGD(), "b": ADPSGD(0.0)})
    assert not only(scene.step("b"), PushSkipped)
    assert scene.peers["b"].account.weight == ONE


def test_a_peer_that_dies_in_an_exchange_does_not_block_the_others() -> None:
    crowd = Crowd(rule, 5, complete, BAD, config=replace(CONFIG, dead_s=2.0))
    crowd.run(100.0, steps=20)
    crowd.crash("p03")
    crowd.swarm.run(crowd.swarm.now + 10.0)
    left = [peer for peer in crowd.ids if peer != "p03"]
    before = [exchanges(crowd, peer) for peer in left]
    crowd.swarm.run(crowd.swarm.now + 10.0)
    assert all(exchanges(crowd, p) > b + 5 for p, b in zip(left, before, strict=True))


def test_a_leaver_hands_its_weight_on_and_a_newcomer_exchanges() -> None:
    crowd = Crowd(rule, 4, complete, BAD, newcomers=("p50",))
    crowd.run(100.0, steps=20)
    crowd.leave("p00")
    crowd.launch("p50", seeds=("p01",))
    crowd.swarm.run(crowd.swarm.now + 15.0)
    hosts = crowd.swarm.peers
    assert hosts["p00"].protocol.phase is Phase.LEFT and hosts["p00"].ledger.weight == 0
    assert hosts["p50"].protocol.phase is Phase.TRAINING and hosts["p50"].ledger.weight > 0
    before = exchanges(crowd, "p50")
    crowd.swarm.run(crowd.swarm.now + 10.0)
    assert exchanges(crowd, "p50") > before + 5


@pytest.mark.extended
@pytest.mark.parametrize("seed", [17, 26, 38, 41])
def test_a_requester_closes_even_if_its_partner_considered_it_dead(seed: int) -> None:
    """A peer that was silent for a while gets no answer, and all other peers become quiet."""
    cut = Fault(at_s=9.5, kind="cut", peer="p3", one_way=True)
    peers = ("p0", "p1", "p2", "p3")
    scenario = Scenario(seed=seed, peers=peers, founders=4, rule="adpsgd", faults=(cut,))
    assert attempt(scenario).failure is None
