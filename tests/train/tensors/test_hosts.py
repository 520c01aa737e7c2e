"""Peers on two hosts: network namespaces joined by a cable, with an address each."""

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from rumor.train.tensors.shared_memory import host_id

from ...waiting import LIMIT_S

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None,
        reason="making network namespaces needs root and iproute2",
    ),
]

LOOP = """
    import sys, time, torch
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


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=LIMIT_S)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Two hosts, 10.77.0.1 and 10.77.0.2."""
    names = (f"rumor-a-{os.getpid()}", f"rumor-b-{os.getpid()}")
    made = []
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
            cable = ("type", "veth", "peer", "name", "wire", "netns", names[1])
            ip("-n", names[0], "link", "add", "wire", *cable)
            for number, name in enumerate(names, start=1):
                ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "wire")
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "link", "set", "wire", "up")
        except subprocess.CalledProcessError:
            pytest.skip("this kernel makes no network namespaces or veth pairs")
        yield names
    finally:
        for name in made:
            ip("netns", "del", name)


class Script:
    """The loop above, running on one host."""

    def __init__(self, host: str, folder: Path, *arguments: str) -> None:
        (folder / "loop.py").write_text(textwrap.dedent(LOOP))
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", host, sys.executable, "loop.py", *arguments],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def first_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self) -> tuple[str, str]:
        try:
            return self.process.communicate(timeout=LIMIT_S)
        finally:
            self.process.kill()


@pytest.mark.parametrize(
    "bind",
    [
        pytest.param("tcp://0.0.0.0:*", id="both"),
        pytest.param("tcp://127.0.0.1:*", id="dial-out", marks=pytest.mark.slow),
    ],
)
def test_peers_on_two_hosts_exchange_shares(
    hosts: tuple[str, str], tmp_path: Path, bind: str
) -> None:
    """The second host is reached at its own address, or only on the way it dialled."""
    first = Script(hosts[0], tmp_path, "tcp://10.77.0.1:7700")
    assert "tcp://10.77.0.1:7700" in first.first_line()
    second = Script(hosts[1], tmp_path, bind, "10.77.0.1:7700")
    said, errors = second.end()
    first.process.send_signal(signal.SIGINT)
    first_said, first_errors = first.end()
    address = re.search(r"at (\S+)", said)
    assert address, errors
    assert address[1].startswith("tcp://10.77.0.2:" if "0.0.0.0" in bind else "None")
    assert int(said.split()[-1]) >= 20
    assert int(first_said.split()[-1]) > 0, first_errors


@pytest.mark.extended
def test_hosts_share_no_memory_though_they_share_a_kernel(hosts: tuple[str, str]) -> None:
    script = "from rumor.train.tensors.shared_memory import host_id; print(host_id().hex())"
    said = [
        subprocess.run(
            ["ip", "netns", "exec", host, sys.executable, "-c", script],
            check=True,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        ).stdout.strip()
        for host in (*hosts, hosts[0])
    ]
    assert said[0] == said[2] != said[1]
    assert host_id().hex() not in said
