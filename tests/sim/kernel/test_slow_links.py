"""Links over which a frame takes longer than its receiver waits."""

import pytest

from rumor.sim.models.network import NetworkConfig

from ..fleets import LARGE, fleet_of


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
