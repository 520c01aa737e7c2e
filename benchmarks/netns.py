"""Two hosts on this machine, joined by a cable of limited speed: Linux network namespaces."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
import zmq

from rumor.benchmarks.exchange import Flat, OnDemand
from rumor.gossip import Envelope, GoSGD, Protocol, ProtocolConfig
from rumor.gossip.effects.effects import Effect, Send
from rumor.gossip.effects.events import Event
from rumor.gossip.wire.messages import Hello
from rumor.train import Peer, PeerConfig

from ..gossip.errors import RumorError

__all__ = ["Cable", "CableError", "HelloWatch", "cable", "far", "near", "plain_far", "plain_near"]


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


_GOSSIP_S: Final = 0.05
_STEP_S: Final = 0.002
_QUIET_S: Final = 0.5
_FRAME_BYTES: Final = 1 << 20


class HelloWatch:
    """Times HELLOs that want an answer, and their answers, at the protocol of this process."""

    def __init__(self) -> None:
        self.roundtrips_s: list[float] = []
        self._asked: deque[float] = deque()
        # A peer makes its protocol itself; what goes in and out of it can be seen here only.
        receive, wake = Protocol.receive, Protocol.wake

        def watched_receive(
            protocol: Protocol, envelope: Envelope, *others: Any
        ) -> list[Effect | Event]:
            if isinstance(envelope.body, Hello) and not envelope.body.reply and self._asked:
                self.roundtrips_s.append(time.monotonic() - self._asked.popleft())
            return receive(protocol, envelope, *others)

        def watched_wake(protocol: Protocol, now: float) -> list[Effect | Event]:
            effects = wake(protocol, now)
            self._asked.extend(time.monotonic() for effect in effects if _wants_answer(effect))
            return effects

        Protocol.receive = watched_receive  # type: ignore[assignment,method-assign]
        Protocol.wake = watched_wake  # type: ignore[assignment,method-assign]

    def take(self) -> list[float]:
        """Round trips since this was last called, seconds."""
        taken, self.roundtrips_s = self.roundtrips_s, []
        return taken


def _wants_answer(effect: Effect | Event) -> bool:
    return (
        isinstance(effect, Send)
        and isinstance(effect.envelope.body, Hello)
        and effect.envelope.body.reply
    )


def near(address: str, size_bytes: int, times: int, idle_s: float) -> dict[str, Any]:
    """Found a swarm, and push to the one that joins while HELLOs go to and fro.

    Args:
        address: Where to listen.
        size_bytes: Of the float32 vector.
        times: How often the vector is pushed.
        idle_s: How long HELLOs are watched without any bulk first, seconds.

    Returns:
        ``idle_s`` and ``bulk_s``, round trips without and with bulk on its way; ``bytes_s``, what
        the bulk came to.
    """
    watch, rule = HelloWatch(), OnDemand()
    with Peer(Flat(size_bytes // 4), _config(bind=address, rule=rule)) as peer:
        _admit(peer)
        watch.take()
        _step_for(peer, idle_s)
        idle = watch.take()
        _push(peer, rule)
        start_s = rule.pushed_s
        for _ in range(times):
            # Each is decided when the answer to the one before has come.
            _push(peer, rule)
        bytes_s = times * size_bytes / (rule.pushed_s - start_s)
        return {"idle_s": idle, "bulk_s": watch.take(), "bytes_s": bytes_s}


def far(address: str, join: str, size_bytes: int) -> None:
    """Join, and mix what comes until killed."""
    config = _config(bind=address, join=(join,), rule=GoSGD(0.0))
    with Peer(Flat(size_bytes // 4), config) as peer:
        while True:
            _step_for(peer, 1.0)


def plain_near(address: str, bulk_bytes: int, times: int) -> dict[str, Any]:
    """Time pings on the one socket that bulk goes over, too.

    Args:
        address: Where to listen.
        bulk_bytes: What is handed to the socket right before a ping.
        times: How many pings, without bulk and with it.

    Returns:
        ``idle_s`` and ``bulk_s``, round trips.
    """
    frame = bytes(_FRAME_BYTES)
    with zmq.Context() as context, context.socket(zmq.PAIR) as socket:
        socket.bind(address)
        socket.recv()
        found: dict[str, Any] = {"idle_s": [], "bulk_s": []}
        for name, frames in {"idle_s": 0, "bulk_s": bulk_bytes // _FRAME_BYTES}.items():
            for _ in range(times):
                for _ in range(frames):
                    socket.send(frame, copy=False)
                start_s = time.monotonic()
                socket.send(b"ping")
                socket.recv()
                found[name].append(time.monotonic() - start_s)
        return found


def plain_far(address: str) -> None:
    """Answer pings until killed."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as socket:
        socket.connect(address)
        socket.send(b"here")
        while True:
            if len(socket.recv(copy=False)) < _FRAME_BYTES:
                socket.send(b"pong")


def _config(**given: Any) -> PeerConfig:
    # They share a kernel, and must not notice.
    protocol = ProtocolConfig(shared_memory=False, gossip_s=_GOSSIP_S)
    return PeerConfig(protocol=protocol, linger_s=0, leave_s=0.5, **given)


def _admit(peer: Peer) -> None:
    """Step until the newcomer has its copy, and nothing large is on its way."""
    while len(peer.live) < 2:
        _step_for(peer, _STEP_S)
    quiet = False
    while not quiet:
        before = peer.counters.bytes_sent
        _step_for(peer, _QUIET_S)
        quiet = peer.counters.pushes > 0 and peer.counters.bytes_sent - before < _FRAME_BYTES


def _push(peer: Peer, rule: OnDemand) -> None:
    rule.wanted = True
    while rule.wanted:
        _step_for(peer, _STEP_S)


def _step_for(peer: Peer, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        time.sleep(_STEP_S)
        peer.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    ends: dict[str, Callable[..., Any]] = {
        "near": near,
        "far": far,
        "plain_near": plain_near,
        "plain_far": plain_far,
    }
    print(json.dumps(ends[sys.argv[1]](**json.loads(sys.argv[2]))), flush=True)
