"""D-PSGD is exact on any network, topology and pace, or reports why it cannot continue."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from rumor.gossip.effects.effects import Halt
from rumor.gossip.protocol.rule import Rule
from rumor.gossip.protocol.state import Neighbors
from rumor.gossip.rules.synchronous.dpsgd import DPSGD
from rumor.gossip.types import PeerId
from rumor.gossip.weight import ONE
from rumor.sim.fuzz.peers import Peers, complete, ring
from rumor.sim.fuzz.swarm import FuzzSwarm
from rumor.sim.fuzz.vector import Values

from ...crowd import BAD, CONFIG, LR, Crowd, gradient, starts
from ...scene import Scene


def rule(peer: PeerId) -> Rule:
    return DPSGD()


def expected(matrices: Sequence[Values], n: int) -> list[Values]:
    """``X <- W (X - lr G)``, round by round; rows are peers."""
    x, models = starts(n), []
    for matrix in matrices:
        x = matrix @ np.array([row - LR * gradient(index, row) for index, row in enumerate(x)])
        models.append(x)
    return models


class Weighted:
    """By default a directed cycle: each peer sends to the next and mixes the previous model."""

    def __init__(self, own: float, before: float, neighbors: Neighbors | None = None) -> None:
        self._own, self._before, self._neighbors = own, before, neighbors

    def __call__(self, live: Sequence[PeerId], peer: PeerId, round: int) -> Sequence[PeerId]:
        if self._neighbors is not None:
            return self._neighbors(live, peer, round)
        return (live[(live.index(peer) + 1) % len(live)],)

    def weights(self, live: Sequence[PeerId], peer: PeerId, round: int) -> dict[PeerId, float]:
        before = {live[live.index(peer) - 1]: self._before} if self._before else {}
        return {peer: self._own} | before

    def matrix(self, n: int) -> Values:
        found: Values = self._own * np.eye(n) + self._before * np.roll(np.eye(n), 1, 0)
        return found


CYCLE = Weighted(0.25, 0.75)


def test_a_peer_keeps_a_vector_that_a_slow_neighbor_still_needs() -> None:
    """On a directed cycle a peer may be rounds ahead of its receivers."""
    weather = replace(BAD, loss=0.4)
    pace = {"p03": 1.0}
    crowd = Crowd(rule, 5, CYCLE, weather, step_s=lambda peer: pace.get(peer, 0.02))
    models = crowd.history(15)
    np.testing.assert_allclose(models, expected([CYCLE.matrix(5)] * 15, 5), rtol=0, atol=1e-12)
    assert any(recorded.waits for recorded in crowd.rules.values())


def test_an_unexpected_share_blocks_no_peer() -> None:
    """This happens if peers have different topologies, usually by mistake."""
    models = Crowd(rule, 4, Weighted(1.0, 0.0, ring)).history(10)
    np.testing.assert_allclose(models, expected([np.eye(4)] * 10, 4), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("robust", "weights", "message"),
    [("clip", (1.25, -0.25), "with weights below 0"), ("none", (0.25, 0.25), "add up to 0.5, not")],
)
def test_impossible_weights_are_refused(
    robust: str, weights: tuple[float, float], message: str
) -> None:
    crowd = Crowd(lambda peer: DPSGD(robust=robust), 4, Weighted(*weights))
    crowd.run(10.0, steps=3)
    assert message in halts(crowd)[0]


@pytest.mark.extended
def test_more_neighbors_than_the_staging_limit_cause_no_deadlock() -> None:
    crowd = Crowd(rule, 8, complete, BAD, config=replace(CONFIG, staged_max=1))
    models = crowd.history(5)
    np.testing.assert_allclose(models[-1], models[-1][:1].repeat(8, 0), rtol=0, atol=1e-12)


MORTAL = replace(CONFIG, suspect_s=1.0, dead_s=3.0)


def halts(crowd: Crowd) -> list[str]:
    """Return the reasons of all peers that halted."""
    return [reason for recorded in crowd.rules.values() for reason in recorded.halts]


@pytest.mark.parametrize("burn", [False, True])
def test_a_peer_that_leaves_early_ends_the_run_for_all_peers(burn: bool) -> None:
    crowd = Crowd(rule, 4, ring)
    crowd.run(100.0, steps=3)
    crowd.leave("p01", burn=burn)
    crowd.swarm.run(crowd.swarm.now + 3.0)
    # A halted peer also leaves; its departure may arrive first and carries the reason.
    reasons = halts(crowd)
    assert len(reasons) == 3 and all(reason.startswith("p01 left in") for reason in reasons)


@pytest.mark.parametrize("seed", [1, 3, 10])
def test_the_first_cause_is_named_if_peers_leave_one_after_another(seed: int) -> None:
    crowd = Crowd(rule, 6, ring, config=MORTAL, seed=seed)
    crowd.run(100.0, steps=3)
    crowd.crash("p00")
    crowd.swarm.run(crowd.swarm.now + 60.0)
    assert all(crowd.rules[peer].halts for peer in crowd.ids[1:])
    assert {reason[:8] for reason in halts(crowd)} == {"p00 died"}


def test_a_later_incarnation_of_a_member_does_not_replace_it() -> None:
    crowd = Crowd(rule, 3, ring)
    crowd.run(100.0, steps=3)
    crowd.crash("p01")
    crowd.launch("p01", seeds=("p00", "p02"))
    crowd.swarm.run(crowd.swarm.now + 5.0)
    assert any(reason.startswith("p01 restarted in round") for reason in halts(crowd))


def test_a_peer_that_finished_before_its_first_step_is_named() -> None:
    crowd = Crowd(rule, 3, ring)
    crowd.swarm.run(30.0, lambda: len(crowd.swarm.peers) == 3)
    crowd.swarm.peers["p00"].worker.finishing = True
    crowd.swarm.fleet.finish(crowd.swarm.peers["p00"].worker)
    crowd.swarm.run(60.0)
    assert crowd.swarm.peers["p00"].worker.steps == 0
    assert any("p00 has finished after 0 steps" in reason for reason in halts(crowd))


def test_training_waits_for_all_founders_and_then_reports_their_number() -> None:
    scene = Scene(replace(CONFIG, roll_s=5.0))
    for id in ("a", "b"):
        scene.enter(id, rule=DPSGD())
    scene.join("a", "b", founders=3)
    scene.join("b", "a", founders=3)
    scene.deliver()
    scene.wait(6.0)
    for id in ("a", "b"):
        scene.wake(id)
    scene.deliver()
    assert not any(isinstance(effect, Halt) for effect in scene.step("a"))
    scene.wait(6.0)
    (halt,) = (e for e in scene.step("a", trained=False) if isinstance(e, Halt))
    reason = "2 of 3 founders are there after 5 s, and dpsgd cannot begin without all of them"
    assert halt.reason == reason


def test_a_late_peer_gets_the_reason_why_it_cannot_join() -> None:
    crowd = Crowd(rule, 3, ring, newcomers=("p99",))
    crowd.run(100.0, steps=3)
    crowd.launch("p99", seeds=("p00",))
    latecomer = crowd.swarm.peers["p99"]
    crowd.swarm.run(crowd.swarm.now + 3.0)
    reason = crowd.swarm.fleet.halts["p99"]
    assert reason.startswith("a swarm that trains with dpsgd admits no peers")
    crowd.run(crowd.swarm.now + 50.0, steps=20)
    assert min(map(len, crowd.before.values())) > 20
    assert latecomer.ledger.weight == 0 and sum(h.ledger.founded for h in crowd.hosts) == 3 * ONE


def test_peers_that_founded_the_same_swarm_separately_halt() -> None:
    peers = Peers(rule=rule, config=CONFIG, rolls=(1, 1), step_s=lambda peer: 3.0)
    swarm = FuzzSwarm(7, peers, ("a", "b"), 2)
    swarm.run(1.2)
    swarm.meet("a", "b")
    swarm.run(30.0)
    assert "2 peers founded this swarm, and 1 were to" in " ".join(swarm.fleet.halts.values())
    assert not any(peer.worker.waiting_since_s for peer in swarm.running())
