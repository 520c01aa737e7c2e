"""A fleet under virtual time: steps, messages, waiting and faults."""

from dataclasses import replace
from typing import Any

import pytest

from rumor.gossip import RuleContext, audit
from rumor.gossip.effects.effects import Wait
from rumor.gossip.wire.messages import Phase
from rumor.sim.kernel.fleet import Fleet
from rumor.sim.kernel.plan import FleetPlan
from rumor.sim.models.network import NetworkConfig, read_network

from .fast_path.plans import plan_of

LARGE = 1 << 19
"""Numbers of a model of 2 MiB: too much for one message."""


def plan(n: int = 4, **settings: Any) -> FleetPlan:
    given: dict[str, Any] = {"steps": 10, "network": read_network("lan")} | settings
    return plan_of(n, **given)


def run(fleet: Fleet, until_s: float = 1e6) -> Fleet:
    assert fleet.run(until_s, 10**9)
    return fleet


def test_the_clock_stops_after_the_last_step_or_at_the_limit() -> None:
    fleet = run(Fleet(plan(slow=("2:3",))))
    assert fleet.over and [worker.steps for worker in fleet.workers] == [10] * 4
    assert fleet.now == pytest.approx(3.0)
    endless = run(Fleet(plan(steps=None, slow=("2:5",))), 2.05)
    assert not endless.over and endless.now == 2.05
    assert [worker.steps for worker in endless.workers] == [20, 20, 4, 20]
    # The clock also stops when the allowed number of steps is scheduled.
    fleet = Fleet(plan())
    for steps in (7, 14):
        assert not fleet.run(1e6, 7) and fleet.program.steps == steps


def test_lost_shares_are_queried_and_fenced() -> None:
    network = NetworkConfig(latency_s=0.001, loss=0.3)
    fleet = run(Fleet(plan(4, steps=100, network=network)))
    assert fleet.traffic.refusals > 0
    assert fleet.traffic.mixed < fleet.traffic.pushes and fleet.traffic.errors == 0
    # The fence makes it possible to lose a share and keep its weight.
    assert audit(w.protocol.account for w in fleet.workers).balanced


def test_large_shares_travel_in_frames_at_the_speed_of_the_link() -> None:
    network = NetworkConfig(bandwidth_mbit=8.0 * 2.1)
    fleet = Fleet(plan(2, steps=None, network=network, numbers=LARGE))
    run(fleet, 0.95)
    # 2 MiB at 2.1 MB/s: the first share of 0.1 s arrives at 1.1 s.
    assert [worker.mixed for worker in fleet.workers] == [0, 0]
    run(fleet, 1.25)
    assert [worker.mixed for worker in fleet.workers] == [1, 1]
    assert fleet.traffic.bytes_sent > 2 * 4 * LARGE


def test_exchanges_may_make_steps_longer() -> None:
    free = run(Fleet(plan(4, steps=50)))
    costly = run(Fleet(replace(plan(4, steps=50), exchange_s=0.01)))
    done = [worker.pushes + worker.mixed for worker in costly.workers]
    assert free.now == pytest.approx(5.0)
    # No exchange follows the last step.
    assert 5.0 + 0.01 * (max(done) - 9) < costly.now <= 5.0 + 0.01 * max(done) + 1e-9
    assert audit(worker.protocol.account for worker in costly.workers).balanced


class EveryOther:
    """Waits after each step until a share has arrived."""

    name = "every-other"
    registers: tuple[str, ...] = ()
    outstanding_max = 2

    def step(self, turn: RuleContext) -> Wait | None:
        if turn.trained:
            turn.push_half()
        shares = turn.shares()
        for share in shares:
            turn.mix(share)
        return None if shares else Wait(turn.step, ())


def test_a_waiting_rule_is_idle_in_virtual_time_until_the_next_share() -> None:
    network = NetworkConfig(latency_s=0.05)
    fleet = Fleet(plan(2, steps=None, rule=EveryOther(), network=network))
    run(fleet, 3.0)
    for worker in fleet.workers:
        # Each step of 0.1 s is followed by 0.05 s of waiting.
        assert worker.steps == pytest.approx(20, abs=1)
        assert worker.idle_until(fleet.now) == pytest.approx(1.0, abs=0.06)


def test_a_finished_worker_keeps_mixing_at_its_pace() -> None:
    fleet = Fleet(plan(2, steps=5, slow=("1:10",)))
    run(fleet)
    fast, slow = fleet.workers
    assert (fast.steps, slow.steps) == (5, 5)
    assert fast.protocol.phase is Phase.FINISHED
    # The slow worker acts once per ten steps of the others, so most pushes find no credit.
    assert fast.pushes + fleet.traffic.skipped > 40
