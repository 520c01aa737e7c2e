"""Links over which a frame takes longer than its receiver waits, and cables that many share."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from rumor.gossip.wire.messages import Envelope
from rumor.sim import Run, simulate
from rumor.sim.kernel.fast_path.choice import unsupported_reason
from rumor.sim.kernel.fleet import Fleet
from rumor.sim.kernel.program import Slot
from rumor.sim.models.network import NetworkConfig

from ..fleets import LARGE, SMALL, fault, fleet_of, live_on
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


def readers_of(fleet: Fleet) -> Counter[Slot]:
    """Who refers to each share: workers, messages under way, and those on cables."""
    found: Counter[Slot] = Counter()
    for worker in fleet.workers:
        found.update([*worker.snapshots.values(), *worker.shares.values()])
        found.update(slot for _, slot in worker.held if isinstance(slot, Slot))
    for *_, given in fleet.clock._queue:
        # Of one that waits for a port, the arguments of its arrival are an argument of the waiting.
        nested = [part for part in given if isinstance(part, tuple)]
        found.update(part for each in (given, *nested) for part in each if isinstance(part, Slot))
    for connection in fleet.deliveries.links._connections.values():
        for _, _, given in connection.messages:
            found.update(part for part in given if isinstance(part, Slot))
    return found


@pytest.mark.parametrize("fair", [False, True], ids=["queues", "cables"])
def test_what_is_on_its_way_is_let_go_once_nobody_refers_to_it(
    fair: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Slot] = []
    begin = Slot.__init__

    def note(slot: Slot, *given: Any) -> None:
        begin(slot, *given)
        made.append(slot)

    monkeypatch.setattr(Slot, "__init__", note)
    network = replace(FAIR, fair_sharing=fair, loss=0.05, duplicates=0.1, jitter=0.5)
    fleet = fleet_of(*FAULTS, steps=150, p=1.0, network=network, schema=LARGE)
    for second in range(40):
        fleet.run(float(second), 10**9)
        found = readers_of(fleet)
        assert [slot.readers for slot in made] == [found[slot] for slot in made]
    assert len(made) >= 20


def test_what_nobody_listens_to_holds_up_nobody() -> None:
    """Its host refuses it at once: no other message of its sender waits for it."""
    fleet = fleet_of(fault(1.0, "crash", peer="peer-1"), steps=None, p=1.0, network=FAIR)
    assert fleet.faults is not None
    links = fleet.deliveries.links
    late: list[float] = []
    ask = links.deliveries

    def deliveries(now: float, *given: Any) -> tuple[float, ...]:
        found = ask(now, *given)
        late.extend(time_s - now for time_s in found)
        return found

    links.deliveries = deliveries  # type: ignore[assignment, method-assign]
    fleet.run(30.0, 10**9)
    assert len(late) > 100 and max(late) == pytest.approx(FAIR.latency_s)


def test_what_is_sent_over_a_way_that_is_cut_is_lost_though_it_leaves_after_healing() -> None:
    fleet = fleet_of(steps=None, p=1.0, network=replace(FAIR, bandwidth_mbit=1.0), schema=LARGE)
    assert fleet.faults is not None
    mail, got = fleet.mail, list[float]()
    fleet.run(5.0, 10**9)
    taken = fleet.deliver

    def deliver(worker: Any, envelope: Envelope, payload: Any) -> None:
        if (envelope.source, envelope.destination) == ("peer-2", "peer-1"):
            got.append(fleet.now)
        taken(worker, envelope, payload)

    fleet.deliver = deliver  # type: ignore[method-assign]
    mail.cut((2, 1))
    fleet.run(10.0, 10**9)
    mail.heal((2, 1))
    # A share of 2 MiB, sent before, takes a quarter of a minute, and all behind it goes later.
    fleet.run(18.0, 10**9)
    assert not got
    fleet.run(200.0, 10**9)
    assert got


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
    assert "cables" in unsupported_reason(plan_of(8, fair_sharing=True))
    first, again = (run_of(network=FAIR, p=1.0) for _ in range(2))
    assert first.summary["decided"] == "the protocols"
    assert first.summary["digest"] == again.summary["digest"]
