"""Links on which a frame takes longer than its receiver's timeout, and shares in flight."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from rumor.sim.kernel.fleet import Fleet
from rumor.sim.kernel.program import Slot
from rumor.sim.models.network import NetworkConfig

from ...faults import fault
from ..fleets import LARGE, SMALL, fleet_of, live_on

NETWORK = NetworkConfig(latency_s=0.001, bandwidth_mbit=10.0)


@pytest.mark.extended
def test_a_link_too_slow_for_the_first_frame_still_carries_shares() -> None:
    # 2 MiB take 20 s, and the first frame of 1 MiB 10 s, but a receiver waits only five seconds. On
    # each of the six links a share or two are lost before the link is known to be slow.
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


@pytest.mark.extended
@pytest.mark.parametrize("rule", ["gosgd", "sgp", "allreduce"])
@pytest.mark.parametrize("schema", [SMALL, LARGE], ids=["small", "large"])
def test_all_weight_is_accounted_for_under_faults(rule: str, schema: Any) -> None:
    p = 1.0 if rule == "gosgd" else None
    faults = FAULTS if rule != "allreduce" else FAULTS[-1:]
    fleet = fleet_of(*faults, steps=120, rule=rule, p=p, network=NETWORK, schema=schema)
    live_on(fleet, until_s=900.0, every_s=0.5)
    assert fleet.over
    assert min(worker.mixed for worker in fleet.workers) > 0


def readers_of(fleet: Fleet) -> Counter[Slot]:
    """References to each share, by workers and messages in flight."""
    found: Counter[Slot] = Counter()
    for worker in fleet.workers:
        found.update([*worker.snapshots.values(), *worker.shares.values()])
        found.update(slot for _, slot in worker.held if isinstance(slot, Slot))
    for *_, given in fleet.clock._queue:
        # A message that waits at a port has the arguments of its arrival inside those of the wait.
        nested = [part for part in given if isinstance(part, tuple)]
        found.update(part for each in (given, *nested) for part in each if isinstance(part, Slot))
    return found


def test_a_share_in_flight_is_released_with_its_last_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Slot] = []
    begin = Slot.__init__

    def note(slot: Slot, *given: Any) -> None:
        begin(slot, *given)
        made.append(slot)

    monkeypatch.setattr(Slot, "__init__", note)
    network = replace(NETWORK, loss=0.05, duplicates=0.1, jitter=0.5)
    fleet = fleet_of(*FAULTS, steps=150, p=1.0, network=network, schema=LARGE)
    for second in range(40):
        fleet.run(float(second), 10**9)
        found = readers_of(fleet)
        assert [slot.readers for slot in made] == [found[slot] for slot in made]
    assert len(made) >= 20
