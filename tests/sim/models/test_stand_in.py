"""A small model that stands for a large one: messages, frames and member tables take as long."""

from typing import Any

import pytest

from rumor.gossip import ProtocolConfig
from rumor.sim import NetworkConfig, simulate
from rumor.sim.models.network import Host, Link
from rumor.sim.models.stand_in import slowed_network, smaller_exchange

from ...faults import fault

SHARE_BYTES = 460_032
FACTOR = SHARE_BYTES / (4 * 30.8e6)


def test_all_bandwidths_are_scaled_down() -> None:
    hosts = (Host(workers=("0", "1"), bandwidth_mbit=10.0),)
    links = (Link(source=("0",), to=("2",), bandwidth_mbit=1.0),)
    found = slowed_network(NetworkConfig(bandwidth_mbit=100.0, hosts=hosts, links=links), FACTOR)
    assert found.bandwidth_mbit == 100.0 * FACTOR and found.downlink_mbit is None
    assert found.hosts[0].bandwidth_mbit == 10.0 * FACTOR
    assert found.links[0].bandwidth_mbit == 1.0 * FACTOR


@pytest.mark.parametrize(("stands_for", "frames"), [(30.8e6, 32), (0.8e6, 13)])
def test_a_share_travels_in_frames_if_the_large_models_share_does(
    stands_for: float, frames: int
) -> None:
    factor = SHARE_BYTES / (4 * stands_for)
    found = smaller_exchange(ProtocolConfig(), factor, SHARE_BYTES)
    assert found.inline_bytes_max < SHARE_BYTES
    assert found.frame_bytes_min <= found.frame_bytes <= found.frame_bytes_max
    # As many frames of 256 KiB as the large model has, but at most 32.
    assert -(-SHARE_BYTES // found.frame_bytes) <= 32
    assert -(-SHARE_BYTES // found.frame_bytes_min) <= frames * 4
    assert found.window_bytes >= found.frame_bytes_max


@pytest.mark.extended
def test_member_tables_do_not_delay_the_copy_of_a_large_model() -> None:
    # 8 numbers stand for 3.2 MB, which take 2.6 s at 10 Mbit/s. If the bytes of a hello were scaled
    # too, it would take 20 s: no push would get through, and a restarted peer would found a swarm.
    settings: dict[str, Any] = {
        "task": "consensus",
        "workers": 8,
        "topology": "exponential",
        "rule": "gosgd:p=1",
        "step_s": 3.0,
        "time_s": 200.0,
        "bandwidth_mbit": 10.0,
        "stands_for": 0.8e6,
        "faults": [fault(20.0, "crash", 3), fault(60.0, "restart", 3)],
        "threads": 1,
    }
    found = simulate(**settings).summary
    assert found["restart_s_median"] < 5.0 and found["mixed"] > 300
