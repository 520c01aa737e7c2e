"""Firewalls between two hosts of a network of their own: what is dropped, refused, and one way."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ...hosts import Hosts, HostsError, hosts
from ...waiting import LIMIT_S, until

pytestmark = pytest.mark.live

RUMOR = (sys.executable, "-P", "-m", "rumor.cli")
PATIENT = ("--timeout-s", "600")
"""Where all answers come."""


@contextmanager
def without(network: Hosts, host: int, other: int, how: str) -> Iterator[None]:
    """Let a host have no way to another; packets are dropped (blackhole) or refused."""
    place = f"{network.addresses[other]}/32"
    command = ("ip", "-n", network.names[host], "route")
    subprocess.run([*command, "add", how, place], check=True)
    try:
        yield
    finally:
        subprocess.run([*command, "del", how, place], check=True)


def doctor(network: Hosts, host: int, *words: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        network.command(host, *RUMOR, "doctor", "--json", *words),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["addresses"][0]
    return done.returncode, found


@pytest.mark.extended
def test_what_a_firewall_does_is_told(tmp_path: Path) -> None:
    with ExitStack() as stack:
        try:
            network = stack.enter_context(hosts(3, 12.5e6))
        except HostsError as error:
            pytest.skip(str(error))
        place = f"{network.addresses[0]}:7700"
        # The second one can be dialed by the first, and from the third host not.
        peers = [("--bind", place, "--advertise", place)]
        peers += [("--join", place, "--bind", f"{network.addresses[1]}:7700")]
        for host, words in enumerate(peers):
            log = stack.enter_context((tmp_path / f"{host}.log").open("w"))
            own = ("--task", "quadratic", "--founders", "2", "--id", f"p{host}", *words)
            command = network.command(host, *RUMOR, "peer", "--steps", "1000000", *own)
            process = subprocess.Popen([*command, "--step-s-min", "0.02"], stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
        logs = [tmp_path / f"{host}.log" for host in range(len(peers))]
        until(lambda: all("founded" in log.read_text() for log in logs))

        status, found = doctor(network, 2, place, "--bind", "0.0.0.0:7700", *PATIENT)
        assert (status, found["findings"], found["transport"]) == (0, [], "TCP")

        with without(network, 0, 2, "blackhole"):
            status, found = doctor(network, 2, place)
        assert (status, found["findings"][0]["cause"]) == (1, "silent")

        with without(network, 2, 0, "unreachable"):
            status, found = doctor(network, 2, place, *PATIENT)
        assert (status, found["findings"][0]["cause"]) == (1, "unreachable")

        # One of two members cannot be dialed from here: that costs a way, and no more.
        with without(network, 1, 2, "blackhole"):
            status, found = doctor(network, 2, place, "--bind", "0.0.0.0:7700")
        (finding,) = found["findings"]
        assert (status, finding["cause"], finding["is_fatal"]) == (0, "one-way", False)
        assert finding["why"].startswith(f"p1 tells others to dial {network.addresses[1]}:7700")
