"""The effect of each kind of fault on a small swarm with a calm network."""

import json
from typing import Any

import pytest

from rumor.gossip.wire.messages import Phase
from rumor.sim.fuzz import OPTIONS, attempt, draw
from rumor.sim.fuzz.peers import FuzzPeer
from rumor.sim.fuzz.swarm import FuzzSwarm
from rumor.sim.fuzz.trial import swarm_of
from rumor.train.faults.schedule import ATTACKS, KINDS, read_faults

from ...faults import Fault, fault


class Swarm:
    """Three peers, the first of which founds the swarm, under a schedule of faults."""

    def __init__(self, *faults: Fault) -> None:
        scenario = draw(1, 3, OPTIONS, read_faults(json.dumps(faults)))
        self.made: FuzzSwarm = swarm_of(scenario, None, digests=False)
        self.seen = self.made.invariants.seen

    def at(self, time_s: float) -> "Swarm":
        self.made.run(time_s)
        return self

    def __getitem__(self, peer: str) -> FuzzPeer:
        return self.made.peers[peer]


def test_a_crash_ends_a_peer_and_a_restart_with_state_resumes_its_model_and_clock() -> None:
    swarm = Swarm(fault(9, "crash", "p1"), fault(10, "restart", "p1")).at(9.5)
    assert [peer.id for peer in swarm.made.running()] == ["p0", "p2"]
    kept = swarm["p1"].worker.kept
    assert kept is not None and dict(kept.clock)["p1"] > 0
    assert {"p0", "p2"} <= set(kept.peers)
    values = swarm.made.kept["p1"][0]
    swarm.at(10.0)
    assert swarm["p1"].ledger.incarnation == 10_001
    assert (swarm["p1"].vector.x == values).all()
    assert swarm["p1"].protocol.table.clock.rows()["p1"] >= dict(kept.clock)["p1"]
    swarm.at(20.0)
    assert swarm["p1"].protocol.phase is Phase.TRAINING
    assert swarm.seen["restart with state"] == 1


def test_a_clock_that_jumped_stays_ahead_and_gives_a_larger_incarnation() -> None:
    jump = fault(7, "clock-jump", "p1", by_s=60)
    swarm = Swarm(
        jump,
        fault(8, "crash", "p1"),
        fault(8.5, "restart", "p1"),
        fault(11, "crash", "p1"),
        fault(11.5, "restart", "p1", state="lost"),
    ).at(8.5)
    assert swarm["p1"].worker.ahead_s == 60.0
    assert swarm["p1"].ledger.incarnation == 68_501
    # A peer that learns of a later incarnation of its name restarts with a still larger number.
    swarm.at(20.0)
    assert swarm.seen["started over"] >= 1
    assert swarm["p1"].ledger.incarnation > 68_501
    assert swarm["p1"].protocol.phase is Phase.TRAINING


def test_a_reset_loses_messages_in_flight() -> None:
    swarm = Swarm(fault(0, "reset", every_s=0.005, for_s=4)).at(4.0)
    assert swarm.seen["lost in a reset"] > 20
    assert not swarm["p0"].ledger.decided
    lost = swarm.at(5.0).seen["lost in a reset"]
    assert swarm.at(10.0).seen["lost in a reset"] == lost


def test_a_peer_that_only_dials_out_is_reachable_only_by_peers_it_has_dialled() -> None:
    plain = [name for name in OPTIONS if name not in ("dial-out", "founders", "tells")]
    scenario = next(s for s in (draw(n, 3, plain, ()) for n in range(99)) if s.dial_out == {"p1"})
    swarm = swarm_of(scenario, None, digests=False)
    swarm.run(12.0)
    workers = {id: peer.worker for id, peer in swarm.peers.items()}
    assert "tcp://p1:7700" not in workers["p0"].seeds
    assert swarm.reaches(workers["p0"], workers["p1"])
    assert {dialled[0] for _, dialled in swarm.opened} == {"p1"}
    assert workers["p1"].protocol.phase is Phase.TRAINING


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in ("crash", "join") else pytest.param(kind, marks=pytest.mark.extended)
        for kind in sorted(set(KINDS) - set(ATTACKS))
    ],
)
def test_a_swarm_settles_after_a_fault_of_every_kind(kind: str) -> None:
    given = {"peer": "p1", "for_s": 2.0, "factor": 3.0, "by_s": 0.5, "rate": 0.2, "count": 2}
    given |= {"groups": [["p0"]]}
    takes: Any = {name: given[name] for name in KINDS[kind].takes if name in given}
    faults = read_faults(json.dumps([fault(6.0, kind, **takes)]))
    trial = attempt(draw(1, 3, OPTIONS, faults))
    assert trial.failure is None
    assert trial.seen[f"fault: {kind}"] == 1
