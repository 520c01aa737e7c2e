"""Two hosts on this machine, joined by a cable of limited speed: Linux network namespaces."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from ..gossip.errors import RumorError

__all__ = ["Cable", "CableError", "cable"]

_COMMAND_S_MAX: Final = 20

# Sockets' own buffers come before the cable's: what waits in the cable, everybody waits for.
_QUEUE_MS: Final = 20
_BURST_BYTES: Final = 32 * 1024


class CableError(RumorError):
    """This machine lays no cables: it takes root, and a Linux that has the parts."""


class Cable:
    """Names and addresses of the two hosts."""

    addresses = ("10.77.1.1", "10.77.1.2")

    def __init__(self) -> None:
        self.hosts = (f"rumor-near-{os.getpid()}", f"rumor-far-{os.getpid()}")

    def command(self, end: int, *words: str) -> list[str]:
        """What runs a command on one of the hosts, 0 or 1."""
        return ["ip", "netns", "exec", self.hosts[end], *words]


@contextmanager
def cable(rate_bytes_s: float) -> Iterator[Cable]:
    """Lay a cable, for as long as the block lasts.

    Args:
        rate_bytes_s: Bytes per second that it carries, each way.

    Raises:
        CableError: It cannot be laid here; nothing is left of it.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        raise CableError("making network namespaces needs root and iproute2")
    laid = Cable()
    with ExitStack() as stack:
        for host in laid.hosts:
            _run("ip", "netns", "add", host)
            stack.callback(_run, "ip", "netns", "del", host)
        ends = ("type", "veth", "peer", "name", "wire", "netns", laid.hosts[1])
        _run("ip", "-n", laid.hosts[0], "link", "add", "wire", *ends)
        for host, address in zip(laid.hosts, laid.addresses, strict=True):
            _run("ip", "-n", host, "addr", "add", f"{address}/24", "dev", "wire")
            _run("ip", "-n", host, "link", "set", "lo", "up")
            _run("ip", "-n", host, "link", "set", "wire", "up")
            shape = ("rate", f"{int(rate_bytes_s * 8)}bit", "burst", str(_BURST_BYTES))
            queue = ("latency", f"{_QUEUE_MS}ms")
            _run("tc", "-n", host, "qdisc", "add", "dev", "wire", "root", "tbf", *shape, *queue)
        yield laid


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_COMMAND_S_MAX)
    except subprocess.CalledProcessError as error:
        why = (error.stderr.strip().splitlines() or ["no reason given"])[0]
        raise CableError(f"{' '.join(command[:4])} failed: {why}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CableError(f"{' '.join(command[:4])} failed: {error}") from None
