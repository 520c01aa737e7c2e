"""Hosts on a switch, each a network namespace with a cable of limited bandwidth.

A cable limits both directions: traffic from a host, and traffic to it from all other hosts.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Final

__all__ = ["Hosts", "HostsError", "hosts"]

_COMMAND_S_MAX: Final = 20
_COUNT: Final = count()

_BURST_BYTES: Final = 32 * 1024


class HostsError(Exception):
    """This machine cannot make hosts, which takes root and a Linux with the needed modules."""


class Hosts:
    """Names and addresses of hosts.

    Args:
        n: Number of hosts.
    """

    def __init__(self, n: int) -> None:
        # Linux frees the names of a block's hosts only some time after its end.
        self.tag = f"{os.getpid() % 10**7}{next(_COUNT) % 100:02}"
        self.names = tuple(f"rumor-{self.tag}-{index}" for index in range(n))
        self.addresses = tuple(f"10.77.1.{index + 1}" for index in range(n))

    def command(self, host: int, *words: str) -> list[str]:
        """Return the command that runs *words* on a host, counted from 0."""
        return ["ip", "netns", "exec", self.names[host], *words]


@contextmanager
def hosts(n: int, rate_bytes_s: float, queue_ms: int = 20) -> Iterator[Hosts]:
    """Connect hosts by a switch for the duration of the block.

    Args:
        n: Number of hosts, up to 100.
        rate_bytes_s: Bandwidth of each host's cable in each direction, bytes per second.
        queue_ms: Longest wait of a packet in the cable's queue before it is dropped, milliseconds.
            Sockets' own buffers come first; all connections of a host share the cable's queue.

    Raises:
        HostsError: Hosts cannot be made here; all that was created is removed.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        raise HostsError("making network namespaces needs root and iproute2")
    made = Hosts(n)
    shape = ("rate", f"{int(rate_bytes_s * 8)}bit", "burst", str(_BURST_BYTES))
    limit = ("root", "tbf", *shape, "latency", f"{queue_ms}ms")
    switch = f"rs{made.tag}"
    with ExitStack() as stack:
        _run("ip", "link", "add", switch, "type", "bridge")
        stack.callback(_run, "ip", "link", "del", switch)
        _run("ip", "link", "set", switch, "up")
        for index, (name, address) in enumerate(zip(made.names, made.addresses, strict=True)):
            port = f"r{made.tag}p{index}"
            _run("ip", "netns", "add", name)
            stack.callback(_run, "ip", "netns", "del", name)
            _run("ip", "link", "add", port, "type", "veth", "peer", "name", "wire", "netns", name)
            _run("ip", "link", "set", port, "master", switch, "up")
            _run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "wire")
            for device in ("lo", "wire"):
                _run("ip", "-n", name, "link", "set", device, "up")
            _run("tc", "-n", name, "qdisc", "add", "dev", "wire", *limit)
            _run("tc", "qdisc", "add", "dev", port, *limit)
        yield made


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_COMMAND_S_MAX)
    except subprocess.CalledProcessError as error:
        why = (error.stderr.strip().splitlines() or ["no reason given"])[0]
        raise HostsError(f"{' '.join(command[:4])} failed: {why}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostsError(f"{' '.join(command[:4])} failed: {error}") from None
