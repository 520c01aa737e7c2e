"""Faults of processes in a fleet: every unit is accounted for, and training continues."""

from typing import Any

import pytest

from rumor.gossip.weight import ONE
from rumor.gossip.wire.messages import Phase
from rumor.sim.kernel.fleet import Fleet
from rumor.sim.kernel.program import Keep, Start

from ...faults import fault
from ..fleets import LARGE, fleet_of, live_on


def phase(fleet: Fleet, index: int) -> Phase:
    return fleet.workers[index].protocol.phase


def steps_of_workers(fleet: Fleet) -> list[int]:
    return [worker.steps for worker in fleet.workers]


def operations(fleet: Fleet, *kinds: type) -> list[Any]:
    levels = fleet.program.take()
    return [op for level in levels for op in level.operations if isinstance(op, kinds)]


def test_founders_hold_a_roll_call_and_train_normally() -> None:
    fleet = live_on(fleet_of(fault(1.0, "slow", peer=0, factor=1.0)))
    assert steps_of_workers(fleet) == [300] * 4
    found = fleet.audit()
    assert (found.founded, found.died, found.burned) == (4 * ONE, 0, 0)
    assert fleet.traffic.mixed > 100
    assert 0 < fleet.traffic.membership_bytes < fleet.traffic.bytes_sent


def test_a_crash_destroys_weight_and_all_survivors_notice() -> None:
    fleet = live_on(fleet_of(fault(5.0, "crash", peer=2)))
    assert not fleet.workers[2].running
    assert steps_of_workers(fleet)[2] < 60
    assert [steps_of_workers(fleet)[index] for index in (0, 1, 3)] == [300] * 3
    found = fleet.audit()
    assert 0 < found.died < 4 * ONE
    assert fleet.faults is not None
    (crash,) = fleet.faults.fault_report.crashes
    assert crash.first_s is not None and crash.last_s is not None
    # The preset considers a peer dead after 8 s, and checks heartbeats every half second.
    assert 7.0 < crash.first_s <= crash.last_s < 12.0


@pytest.mark.extended
@pytest.mark.parametrize("after", range(8))
def test_a_crash_between_any_two_effects_keeps_all_weight_accounted_for(after: int) -> None:
    fleet = fleet_of(fault(5.02, "crash", peer=1, after=after), schema=LARGE)
    live_on(fleet, 30.0)
    assert not fleet.workers[1].running
    assert fleet.audit().died > 0


def test_a_worker_can_crash_between_accepting_a_share_and_its_ack() -> None:
    fleet = fleet_of(
        fault(5.0, "crash", peer=1, accepting=True), fault(9.0, "restart", peer=1), n=3, p=1.0
    )
    fleet.run(5.0, 10**9)
    worker = fleet.workers[1]
    while fleet.workers[1].running:
        before = fleet.workers[1].protocol.account.decided.copy()
        fleet.run(fleet.now + 0.0005, 10**9)
    # The ledger has the share, but its sender never got the ACK.
    ledger = {account.life: account for account in fleet.incarnations.ended}
    decided = ledger[worker.protocol.account.life].decided
    newest = [life for life, last in decided.items() if before.get(life) != last]
    assert newest
    senders = [w for w in fleet.workers if w.protocol.account.life in newest]
    assert all(("peer-1", 1) in sender.protocol.account.outstanding for sender in senders)
    live_on(fleet)
    assert fleet.workers[1].steps == 300


def test_effects_before_a_crash_are_carried_out_and_counted() -> None:
    """The last event is a push: its share arrives, although the sender has died meanwhile."""
    fleet = fleet_of(fault(5.04, "crash", peer=1, after=99), n=3, p=1.0)
    fleet.run(5.04, 10**9)
    worker, pushes = fleet.workers[1], fleet.workers[1].pushes
    assert worker.crash_point is not None and not worker.protocol.account.outstanding
    while worker.running:
        fleet.run(fleet.now + 0.0005, 10**9)
    assert worker.pushes == pushes + 1
    ((receiver, push),) = worker.protocol.account.outstanding.items()
    fleet.run(fleet.now + 1.0, 10**9)
    (account,) = [w.protocol.account for w in fleet.workers if w.protocol.account.life == receiver]
    assert account.decided[worker.protocol.account.life] == (push.seq, push.escrow)


def test_a_restarted_worker_continues_from_its_last_checkpoint() -> None:
    fleet = fleet_of(fault(9.0, "crash", peer=1), fault(12.0, "restart", peer=1))
    fleet.run(8.95, 10**9)
    first = fleet.workers[1]
    live_on(fleet, 12.3)
    second = fleet.workers[1]
    assert second.protocol.account.incarnation == 2
    assert first.kept is not None
    # A checkpoint every two seconds, with steps of 0.1 s.
    assert first.steps - 21 <= first.kept.steps < first.steps
    assert second.steps >= first.kept.steps
    assert second.total_steps == first.steps + second.steps - first.kept.steps
    kept = operations(fleet, Keep, Start)
    assert kept[-1] == Start(1, True)
    assert kept.count(Keep(1)) >= 3
    # No other worker restarts, so only its values are kept.
    assert {operation.worker for operation in kept} == {1}
    assert live_on(fleet).workers[1].steps == 300


def test_a_worker_that_lost_its_disk_starts_from_scratch_and_joins() -> None:
    fleet = fleet_of(fault(5.0, "crash", peer=1), fault(6.0, "restart", peer=1, state="lost"))
    live_on(fleet, 6.5)
    assert fleet.workers[1].steps < 10
    assert operations(fleet, Start) == [Start(1, False)]
    assert phase(fleet, 1) is Phase.TRAINING
    assert live_on(fleet).audit().founded == 4 * ONE


@pytest.mark.parametrize("state", ["kept", "lost"])
def test_a_swarm_that_crashed_as_a_whole_is_founded_anew_and_keeps_training(state: str) -> None:
    fleet = live_on(fleet_of(fault(8.0, "mass-restart", for_s=3.0, state=state)))
    assert [worker.protocol.account.incarnation for worker in fleet.workers] == [2] * 4
    assert steps_of_workers(fleet) == [300] * 4
    found = fleet.audit()
    # The lost weight is accounted for, and one worker has founded the new swarm.
    assert (found.founded, found.died) == (5 * ONE, 4 * ONE)


def test_a_paused_worker_stops_and_continues_where_it_was() -> None:
    fleet = live_on(fleet_of(fault(5.0, "pause", peer=1, for_s=3.0)), 7.9)
    worker = fleet.workers[1]
    paused_at, waiting = worker.steps, len(worker.held)
    assert paused_at == pytest.approx(46, abs=5)
    assert waiting > 0
    live_on(fleet, 9.95)
    assert worker.steps - paused_at == pytest.approx(20, abs=2)
    assert not worker.held
    assert live_on(fleet).workers[1].protocol.account.incarnation == 1


@pytest.mark.extended
def test_a_worker_paused_forever_does_not_block_the_others() -> None:
    fleet = live_on(fleet_of(fault(5.0, "pause", peer=1)), 1000.0)
    assert fleet.over and fleet.faults is not None
    assert fleet.faults.fault_report.stranded == (1,)


def test_a_jumping_clock_stops_no_worker() -> None:
    jumps = [fault(5.0 + k, "clock-jump", peer=1, by_s=by_s) for k, by_s in enumerate((0.3, 5e3))]
    fleet = live_on(fleet_of(*jumps))
    assert steps_of_workers(fleet) == [300] * 4
    assert fleet.now < 40.0


def test_a_leaver_hands_its_weight_on() -> None:
    fleet = live_on(fleet_of(fault(5.0, "leave", peer=1)))
    found = fleet.audit()
    assert not fleet.workers[1].running
    assert (found.died, found.burned) == (0, 0)
    assert found.held + found.in_flight + found.stranded == 4 * ONE
    assert steps_of_workers(fleet)[1] < 60


def test_a_worker_that_diverges_burns_its_weight() -> None:
    fleet = live_on(fleet_of(fault(5.0, "diverge", peer=1)))
    assert fleet.audit().burned > 0
    assert fleet.workers[1].protocol.account.weight == 0


def test_a_worker_told_to_finish_keeps_mixing() -> None:
    fleet = live_on(fleet_of(fault(5.0, "finish", peer=1)), 20.0)
    worker = fleet.workers[1]
    mixed = worker.mixed
    assert phase(fleet, 1) is Phase.FINISHED and worker.steps < 60
    live_on(fleet, 25.0)
    assert worker.mixed > mixed


def test_a_synchronous_rule_names_the_missing_worker() -> None:
    fleet = live_on(fleet_of(fault(5.0, "crash", peer=1), rule="allreduce", p=None))
    assert fleet.halts
    assert all("peer-1 died" in reason for reason in fleet.halts.values())


def test_each_worker_stops_at_the_total_steps_by_its_own_count() -> None:
    faults = [fault(5.0, "crash", peer=1), fault(6.0, "join")]
    fleet = live_on(fleet_of(*faults, steps=None, steps_total=1000))
    taken = sum(worker.total_steps for worker in fleet.workers)
    # News of others' steps takes about a second, in which four workers take forty.
    assert 1000 <= taken < 1200
