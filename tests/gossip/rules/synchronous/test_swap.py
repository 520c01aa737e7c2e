"""Swap exchanges the models of pairs, and nothing else."""

import numpy as np
import pytest

from rumor.gossip.rules.synchronous.swap import Swap
from rumor.gossip.weight import ONE
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import ring
from rumor.sim.fuzz.swarm import CALM
from rumor.topology import LiveTopology, over

from ...crowd import BAD, LR, Crowd, gradient, starts

ROUNDS = 9


@pytest.mark.parametrize("weather", [CALM, BAD], ids=["calm", "bad"])
@pytest.mark.parametrize("spec", ["random-matching", "base-k:k=1"])
@pytest.mark.parametrize("n", [2, 6, 7])
def test_models_travel_as_the_pairs_say(spec: str, n: int, weather: NetworkConfig) -> None:
    crowd = Crowd(lambda peer: Swap(), n, LiveTopology(spec, 3), weather)
    found = crowd.history(ROUNDS)
    topology, x = over(spec, 3, crowd.ids), starts(n)
    for round in range(ROUNDS):
        x = np.array([row - LR * gradient(place, row) for place, row in enumerate(x)])
        partners = [topology.neighbors(place, round) or (place,) for place in range(n)]
        x = x[[partner for (partner,) in partners]]
        np.testing.assert_allclose(found[round], x, rtol=0, atol=1e-12)
    assert sum(host.ledger.weight for host in crowd.hosts) <= n * ONE


def test_more_than_a_pair_is_refused() -> None:
    crowd = Crowd(lambda peer: Swap(), 5, ring)
    crowd.run(5.0)
    (why, *_) = [why for rule in crowd.rules.values() for why in rule.halts]
    assert "swap needs at most 1 neighbor in a round, and p0" in why
