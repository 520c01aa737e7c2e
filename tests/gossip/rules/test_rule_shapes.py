"""Rules of other shapes than GoSGD's do what their papers' equations say, on a bad network."""

from collections.abc import Callable

import numpy as np
import pytest

from rumor.gossip.config import ProtocolConfig
from rumor.gossip.protocol.rule import Rule
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE, UNIT
from rumor.sim import NetworkConfig
from rumor.sim.fuzz.peers import FuzzPeer, Peers, ring
from rumor.sim.fuzz.swarm import CALM, FuzzSwarm
from rumor.sim.fuzz.vector import SIZE, Values

from ..shapes import D2

BAD = NetworkConfig(latency_s=0.02, jitter=1.0, loss=0.15, duplicates=0.1, reorder=0.3)
WEATHERS = pytest.mark.parametrize("weather", [CALM, BAD], ids=["calm", "bad"])

ROUNDS = 16
LR = 0.1
SLOPES = np.linspace(0.2, 1.0, 6)[:, None]
OPTIMA = np.random.default_rng(0).normal(size=(6, SIZE))
START = np.random.default_rng(1).normal(size=(6, SIZE))

IDS = tuple(f"p{index}" for index in range(6))
CONFIG = ProtocolConfig(
    query_s_min=0.1, query_s_max=1.0, stall_s=2.0, gossip_s=0.5, retry_s=0.2, dead_s=1e6
)


def gradients(x: Values) -> Values:
    """Of ``slope / 2 * (x - optimum)^2``, one row for each peer."""
    grown: Values = SLOPES * (x - OPTIMA)
    return grown


def history(
    rule: Callable[[PeerId], Rule],
    weather: NetworkConfig,
    before_step: Callable[[PeerId, int, Values], Values],
) -> tuple[Values, FuzzSwarm]:
    """Run a synchronous rule.

    Returns:
        What each peer's model was after each round, float64, shape ``(ROUNDS, n, SIZE)``, and
        the swarm.
    """
    after: dict[PeerId, list[Values]] = {peer: [] for peer in IDS}

    def train(host: FuzzPeer) -> None:
        after[host.id].append(host.vector.x.copy())
        host.vector.registers["x"] = before_step(host.id, len(after[host.id]) - 1, host.vector.x)

    peers = Peers(
        rule=rule,
        config=CONFIG,
        neighbors=ring,
        train=train,
        values=dict(zip(IDS, START, strict=True)).__getitem__,
        hulls=False,
    )
    swarm = FuzzSwarm(7, peers, IDS, len(IDS), weather)
    swarm.run(400.0, lambda: min(map(len, after.values())) > ROUNDS)
    return np.array([after[peer][1 : ROUNDS + 1] for peer in IDS]).swapaxes(0, 1), swarm


def neighbors(peer: PeerId) -> tuple[PeerId, ...]:
    return ring(IDS, peer, 0)


def ring_matrix(own: float) -> Values:
    """Mixing matrix W of the ring."""
    identity = np.eye(len(IDS))
    left, right = np.roll(identity, 1, axis=0), np.roll(identity, -1, axis=0)
    matrix: Values = own * identity + (1 - own) / 2 * (left + right)
    return matrix


def sgd(peer: PeerId, round: int, x: Values) -> Values:
    index = IDS.index(peer)
    stepped: Values = x - LR * SLOPES[index] * (x - OPTIMA[index])
    return stepped


@WEATHERS
def test_d2_corrects_with_the_difference_of_two_steps(weather: NetworkConfig) -> None:
    models, _ = history(lambda peer: D2(neighbors(peer), own=1 / 2), weather, sgd)
    mixing = ring_matrix(1 / 2)
    before, x = START, mixing @ (START - LR * gradients(START))
    np.testing.assert_allclose(models[0], x, rtol=0, atol=1e-13)
    for round in range(1, ROUNDS):
        change = LR * (gradients(x) - gradients(before))
        before, x = x, mixing @ (2 * x - before - change)
        np.testing.assert_allclose(models[round], x, rtol=0, atol=1e-12)


def test_a_rule_without_weights_leaves_every_peer_its_own() -> None:
    _, swarm = history(lambda peer: D2(neighbors(peer), own=1 / 3), BAD, sgd)
    for host in swarm.running():
        in_escrow = len(host.ledger.outstanding) * UNIT
        apart = abs(host.ledger.weight + in_escrow - ONE)
        assert apart <= len(neighbors(host.id)) * UNIT
