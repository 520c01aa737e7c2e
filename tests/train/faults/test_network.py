"""Network faults between the workers of a fleet, and their effect on messages."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from rumor.sim import NetworkConfig
from rumor.train.faults.network import REPLAY_S_MAX, NetworkFaults
from rumor.train.faults.schedule import read_faults

from ...faults import Fault, fault
from ...sim.fleets import LARGE, fleet_of, live_on

IDS = ("a", "b", "c", "d")


def network_faults(*faults: Fault, ids: Sequence[str] = IDS, seed: int = 0) -> NetworkFaults:
    return NetworkFaults(read_faults(faults), ids, seed)


def arrival_times(
    network: NetworkFaults, source: int, to: int, n: int = 2000
) -> list[tuple[float, ...]]:
    """Arrival times of messages that are sent every millisecond and take one millisecond."""
    return [network.arrivals(k / 1000, source, to, ((k + 1) / 1000,)) for k in range(n)]


Message = tuple[float, int, int, float, bool]

CASES: dict[str, tuple[list[Fault], list[Message]]] = {
    "other faults change nothing": ([fault(1.0, "crash", peer="a")], [(0.5, 0, 1, 0.7, True)]),
    "a cut drops messages in flight and later ones until it ends": (
        [fault(1.0, "cut", peer="a", to="b", for_s=2.0)],
        [
            (0.5, 0, 1, 0.9, True),
            (0.5, 0, 1, 1.1, False),
            (2.0, 1, 0, 2.1, False),
            (2.0, 1, 2, 2.1, True),
            (3.0, 0, 1, 3.1, True),
        ],
    ),
    "a one-way cut drops messages to all other peers": (
        [fault(1.0, "cut", peer="a", one_way=True)],
        [
            (5.0, 0, 1, 5.1, False),
            (5.0, 0, 2, 5.1, False),
            (5.0, 0, 3, 5.1, False),
            (5.0, 1, 0, 5.1, True),
        ],
    ),
    "healing ends all current cuts": (
        [
            fault(1.0, "cut", peer="a"),
            fault(2.0, "partition", groups=[["a", "b"]]),
            fault(3.0, "heal"),
            fault(5.0, "cut", peer="a"),
        ],
        [(2.5, 0, 2, 2.6, False), (3.5, 0, 2, 3.6, True), (5.5, 0, 2, 5.6, False)],
    ),
    "a reset drops messages in flight": (
        [fault(1.0, "reset", peer="a", every_s=0.5, for_s=1.0)],
        [
            (0.9, 0, 1, 0.95, True),
            (0.9, 0, 1, 1.1, False),
            (1.1, 0, 1, 1.2, True),
            (1.4, 0, 1, 1.6, False),
            (1.9, 0, 1, 2.1, False),
            (2.1, 0, 1, 9.0, True),
            (0.9, 1, 2, 1.1, True),
        ],
    ),
    "a reset without an interval happens once": (
        [fault(1.0, "reset")],
        [(0.9, 2, 3, 1.1, False), (1.1, 2, 3, 7.0, True)],
    ),
    "a fault of one peer spares the links of other peers": (
        [fault(0.0, "loss", rate=1.0, peer="a")],
        [(1.0, 0, 1, 1.1, False), (1.0, 2, 0, 1.1, False), (1.0, 1, 2, 1.1, True)],
    ),
}


@pytest.mark.parametrize(("faults", "messages"), CASES.values(), ids=CASES)
def test_messages_arrive_on_time_or_not_at_all(
    faults: list[Fault], messages: list[Message]
) -> None:
    network = network_faults(*faults)
    for start_s, source, to, stop_s, arrives in messages:
        assert network.arrivals(start_s, source, to, (stop_s,)) == ((stop_s,) if arrives else ())
    if any(each["kind"] == "heal" for each in faults):
        assert network.healed_s() == [3.0]


def test_next_reset_s_is_the_first_reset_after_a_time() -> None:
    first = fault(1.0, "reset", peer="a", every_s=0.5, for_s=1.2)
    network = network_faults(first, fault(9.0, "reset", for_s=3.0))
    after = (-math.inf, 0.9, 1.0, 1.4, 1.5, 2.0, 8.9, 9.0)
    assert [network.next_reset_s(s) for s in after] == [1.0, 1.0, 1.5, 1.5, 2.0, 9.0, 9.0, math.inf]
    assert network_faults().next_reset_s(0.0) == math.inf


def test_the_fraction_of_lost_messages_matches_the_rate() -> None:
    arrivals = arrival_times(network_faults(fault(0.0, "loss", rate=0.3)), 0, 1)
    assert np.mean([not times for times in arrivals]) == pytest.approx(0.3, abs=0.04)


def test_duplicates_arrive_soon_and_replays_up_to_minutes_later() -> None:
    twice = arrival_times(network_faults(fault(0.0, "duplicate", rate=0.5)), 0, 1)
    copies = [times[1] - times[0] for times in twice if len(times) == 2]
    assert len(copies) / len(twice) == pytest.approx(0.5, abs=0.05)
    assert 0 <= min(copies) <= max(copies) < 0.005
    again = arrival_times(network_faults(fault(0.0, "replay", rate=0.5)), 0, 1)
    late = [times[1] - times[0] for times in again if len(times) == 2]
    assert np.mean(late) == pytest.approx(REPLAY_S_MAX / 2, rel=0.1)
    assert max(late) < REPLAY_S_MAX


def test_delays_have_a_minimum_and_a_heavy_tail() -> None:
    arrivals = arrival_times(network_faults(fault(0.0, "delay", by_s=0.1)), 0, 1)
    late = np.array([times[0] for times in arrivals]) - np.arange(1, 2001) / 1000
    assert late.min() >= 0.1 - 1e-9
    assert np.median(late) < 0.2
    assert (late > 1.0).mean() == pytest.approx(0.01, abs=0.01)


def test_removing_a_fault_does_not_change_draws_of_other_faults() -> None:
    loss, copies = fault(0.0, "loss", rate=0.3), fault(0.5, "duplicate", rate=0.3, for_s=1.0)
    other = fault(0.2, "loss", rate=1.0, peer="c", for_s=0.5)
    both = arrival_times(network_faults(loss, copies, other), 0, 1)
    assert arrival_times(network_faults(loss, copies), 0, 1) == both
    alone = arrival_times(network_faults(loss), 0, 1)
    assert [bool(times) for times in alone] == [bool(times) for times in both]
    assert all(one[0] == two[0] for one, two in zip(alone, both, strict=True) if one)


def test_a_partition_splits_a_fleet_and_healing_unites_it() -> None:
    fleet = fleet_of(fault(5.0, "partition", groups=[[0, 1]], for_s=20.0), steps=500)
    live_on(fleet, 24.9)
    for index, worker in enumerate(fleet.workers):
        live = {member.id for member in worker.protocol.table.live()}
        assert live == ({"peer-0", "peer-1"} if index < 2 else {"peer-2", "peer-3"})
    live_on(fleet, 40.0)
    assert all(len(worker.protocol.table.live()) == 4 for worker in fleet.workers)
    assert fleet.faults is not None
    # The preset redials dead members within 5 s.
    figures = fleet.faults.fault_report.figures()
    assert figures["heal_s"] < 10.0 and figures["unhealed"] == 0


def test_shares_pass_between_repeated_connection_resets() -> None:
    # A share of 2 MiB takes 84 ms.
    network = NetworkConfig(latency_s=0.0005, bandwidth_mbit=200)
    reset = fault(3.0, "reset", every_s=0.2)
    fleet = fleet_of(reset, schema=LARGE, steps=200, network=network)
    live_on(fleet)
    assert fleet.traffic.mixed > 50
    assert fleet.traffic.refusals > 0
    assert fleet.audit().died == fleet.audit().burned == 0


@pytest.mark.parametrize(
    "network_fault",
    [
        fault(2.0, "loss", rate=0.3),
        fault(2.0, "duplicate", rate=0.5),
        fault(2.0, "replay", rate=0.2, for_s=10.0),
        fault(2.0, "delay", by_s=0.5),
        fault(2.0, "cut", peer=1, one_way=True, for_s=15.0),
    ],
    ids=lambda network_fault: str(network_fault["kind"]),
)
def test_network_faults_neither_lose_nor_create_weight(network_fault: Fault) -> None:
    fleet = live_on(fleet_of(network_fault, network="wan"))
    account = fleet.audit()
    assert account.died == account.burned == 0
    assert [worker.steps for worker in fleet.workers] == [300] * 4
