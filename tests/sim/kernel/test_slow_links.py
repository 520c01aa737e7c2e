"""Links over which a frame takes longer than its receiver waits, and cables that many share."""

from dataclasses import replace
from typing import Any

import pytest

from rumor.sim import Run, simulate
from rumor.sim.kernel.fast_path.fleet import why_not
from rumor.sim.models.network import NetworkConfig

from ..fleets import LARGE, SMALL, fault, fleet_of, live_on, slots_under_way
from .fast_path.plans import plan_of

FAIR = NetworkConfig(latency_s=0.001, bandwidth_mbit=10.0, fair_sharing=True)


@pytest.mark.extended
def test_a_link_that_carries_no_frame_in_time_carries_shares_all_the_same() -> None:
    # 2 MiB take 20 s, and the first frame of 1 MiB 10 s, of which a receiver waits five. Each of
    # the six ways is found out to be slow by a share or two that do not come through.
    slow = NetworkConfig(latency_s=0.001, bandwidth_mbit=0.84)
    fleet = fleet_of(n=3, steps=None, p=0.001, network=slow, schema=LARGE)
    fleet.run(900.0, 10**6)
    counted = [(worker.pushes, worker.mixed) for worker in fleet.workers]
    pushes, mixed = map(sum, zip(*counted, strict=True))
    assert pushes > 20 and mixed > pushes / 3


FAULTS = [
    fault(4.0, "crash", peer="peer-1"),
    fault(7.0, "restart", peer="peer-1"),
    fault(9.0, "reset"),
    fault(12.0, "cut", peer="peer-2", for_s=4.0),
    fault(18.0, "loss", rate=0.3, for_s=5.0),
    fault(20.0, "pause", peer="peer-3", for_s=2.0),
]


@pytest.mark.parametrize("rule", ["gosgd", "sgp", "allreduce"])
@pytest.mark.parametrize("schema", [SMALL, LARGE], ids=["small", "large"])
def test_on_shared_cables_all_weight_is_found_whatever_goes_wrong(rule: str, schema: Any) -> None:
    p = 1.0 if rule == "gosgd" else None
    faults = FAULTS if rule != "allreduce" else FAULTS[-1:]
    fleet = fleet_of(*faults, steps=120, rule=rule, p=p, network=FAIR, schema=schema)
    live_on(fleet, until_s=900.0, every_s=0.5)
    assert fleet.over
    assert min(worker.mixed for worker in fleet.workers) > 0


def test_what_is_on_a_cable_is_let_go_once_it_has_come() -> None:
    fleet = fleet_of(*FAULTS, steps=100, p=1.0, network=FAIR, schema=LARGE)
    live_on(fleet, until_s=900.0, every_s=0.5)
    fleet.run(2000.0, 10**9)
    staged = {slot for worker in fleet.workers for slot in worker.shares.values()}
    assert all(slot.readers > 0 for slot in staged | slots_under_way(fleet))


def run_of(**settings: Any) -> Run:
    given: dict[str, Any] = {"task": "consensus", "workers": 8, "topology": "complete"}
    return simulate(**given | {"steps": 60, "step_s": 0.01} | settings)


def test_peers_that_are_out_of_step_hold_up_one_another_at_a_barrier() -> None:
    """In a queue, what was sent first comes first, and no round is longer than it must be."""
    slow = NetworkConfig(latency_s=0.0003, bandwidth_mbit=0.1)
    settings: dict[str, Any] = {"rule": "allreduce", "pace": "lognormal:cv=0.5"}
    times_s = [
        run_of(network=network, **settings).summary["virtual_time_s"]
        for network in (slow, replace(slow, fair_sharing=True))
    ]
    assert times_s[0] < 0.8 * times_s[1]


def test_where_nothing_meets_it_makes_no_difference_who_shares() -> None:
    """Two workers, each of which sends one thing at a time to the other."""
    settings: dict[str, Any] = {"rule": "allreduce", "workers": 2, "steps": 20}
    fair = run_of(network=FAIR, **settings)
    queue = run_of(network=replace(FAIR, fair_sharing=False), **settings)
    assert fair.summary["digest"] == queue.summary["digest"]
    assert fair.summary["virtual_time_s"] == pytest.approx(queue.summary["virtual_time_s"])


def test_the_protocols_decide_there_and_the_same_twice() -> None:
    assert "cables" in why_not(plan_of(8, fair_sharing=True))
    first, again = (run_of(network=FAIR, p=1.0) for _ in range(2))
    assert first.summary["decided"] == "the protocols"
    assert first.summary["digest"] == again.summary["digest"]
