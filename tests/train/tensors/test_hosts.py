"""Peers on two hosts: network namespaces joined by a switch, with an address each."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rumor.train.tensors.shared_memory import host_id

from ...hosts import Hosts, HostsError, hosts
from ...waiting import LIMIT_S

pytestmark = pytest.mark.live

LOOP = """
import sys, time
from torch import nn
from rumor.gossip import GoSGD
from rumor.train import Peer, PeerConfig

bind, *join = sys.argv[1:]
config = PeerConfig(linger_s=0.2)
with Peer(nn.Linear(8, 2), config, bind=bind, join=join, rule=GoSGD(p=0.5)) as peer:
    print("at", peer.address, flush=True)
    try:
        while peer.stats().counters.mixed < 20 or not join:
            peer.step()
            time.sleep(0.002)
    except KeyboardInterrupt:
        pass
print("mixed", peer.stats().counters.mixed, flush=True)
"""


@pytest.fixture
def pair() -> Iterator[Hosts]:
    try:
        with hosts(2, rate_bytes_s=1e9) as made:
            yield made
    except HostsError as error:
        pytest.skip(str(error))


def started(pair: Hosts, host: int, script: str, *arguments: str) -> subprocess.Popen[str]:
    """A script that runs on one host."""
    return subprocess.Popen(
        pair.command(host, sys.executable, "-c", script, *arguments),
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.extended
@pytest.mark.parametrize(
    "bind",
    [
        pytest.param("tcp://0.0.0.0:*", id="both"),
        pytest.param("tcp://127.0.0.1:*", id="dial-out", marks=pytest.mark.slow),
    ],
)
def test_peers_on_two_hosts_exchange_shares(pair: Hosts, bind: str) -> None:
    """The second host is reached at its own address, or only on the way it dialled."""
    place = f"{pair.addresses[0]}:7700"
    first = started(pair, 0, LOOP, f"tcp://{place}")
    try:
        assert first.stdout is not None and place in first.stdout.readline()
        said = started(pair, 1, LOOP, bind, place).communicate(timeout=LIMIT_S)[0]
        first.send_signal(signal.SIGINT)
        first_said = first.communicate(timeout=LIMIT_S)[0]
    finally:
        first.kill()
    address = re.search(r"at (\S+)", said)
    own = f"tcp://{pair.addresses[1]}:" if "0.0.0.0" in bind else "None"
    assert address and address[1].startswith(own)
    assert int(said.split()[-1]) >= 20 and int(first_said.split()[-1]) > 0


@pytest.mark.extended
def test_hosts_share_no_memory_though_they_share_a_kernel(pair: Hosts) -> None:
    script = "from rumor.train.tensors.shared_memory import host_id; print(host_id().hex())"
    said = [started(pair, host, script).communicate(timeout=LIMIT_S)[0] for host in (0, 1, 0)]
    assert said[0] == said[2] != said[1]
    assert host_id().hex() not in [each.strip() for each in said]
