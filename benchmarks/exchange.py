"""``exchange``: a share's way from snapshot to mixed between two processes, beside its limits."""

import logging
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

import torch

from ..gossip import ONE, GoSGD, Turn
from ..train import Peer, PeerConfig
from .machine import machine
from .partner import Flat, admit, partner
from .raw import RawReceiver, RawSender
from .result import Result, Row
from .timing import alternate, rate_gb_s, timed

__all__ = ["OnDemand", "measure_exchange"]

_log = logging.getLogger("rumor.benchmarks")

_POLL_S: Final = 0.0002
_UNITS: Final = ONE >> 20
_PATIENCE_S: Final = 60.0


class OnDemand:
    """A rule that pushes when it is told to, and mixes whatever comes.

    Pushes weigh next to nothing, so that weight lasts for a million of them; mixing costs the
    same whatever a share weighs.
    """

    name = "on-demand"
    registers: tuple[str, ...] = ()
    outstanding_max = 1

    def __init__(self) -> None:
        self.wanted = False
        """Whether a push shall be made as soon as there is credit."""
        self.pushed_s = 0.0
        """When the last one was decided, right before its snapshot; seconds, monotonic."""

    def step(self, turn: Turn) -> None:
        """Take one turn."""
        for share in turn.shares():
            turn.mix(share)
        peer = turn.draw() if self.wanted else None
        if peer is not None:
            turn.push(peer, _UNITS)
            self.wanted, self.pushed_s = False, turn.now


def measure_exchange(
    sizes_mb: Sequence[float] = (4, 44, 100), pushes: int = 3, rounds: int = 9
) -> Result:
    """Push float32 vectors from this process into another over TCP on this machine.

    Args:
        sizes_mb: Sizes of the vector, 10**6 bytes.
        pushes: One after another, each time that a way has its turn.
        rounds: How often each way takes its turn.
    """
    start_s = time.perf_counter()
    torch.set_num_threads(1)
    rows = [row for size_mb in sizes_mb for row in _measure_size(size_mb, pushes, rounds)]
    return Result(
        name="exchange",
        title="From snapshot to mixed between two processes, TCP on one machine, float32",
        columns=("vector", "rumor", "reference", "ratio", "unit", "reference and notes"),
        rows=tuple(rows),
        machine=machine(),
        wall_s=time.perf_counter() - start_s,
    )


def _measure_size(size_mb: float, pushes: int, rounds: int) -> list[Row]:
    _log.info("exchanging %g MB", size_mb)
    size_bytes = int(size_mb * 1e6) // 4 * 4
    found = _measure_ways(size_bytes, pushes, rounds)
    ours = rate_gb_s(size_bytes, found.pop("rumor"))
    notes = {
        "raw": "pyzmq: copy out, frames of 1 MiB, recv_into, lerp_; nothing checked",
        "memcpy": "copy_ on one thread",
        "lerp": "lerp_ on one thread",
    }
    return [
        Row(
            name=f"{size_mb:g} MB beside {name}",
            ours=ours,
            reference=rate_gb_s(size_bytes, taken_s),
            unit="GB/s",
            note=notes[name],
        )
        for name, taken_s in found.items()
    ]


def _measure_ways(size_bytes: int, pushes: int, rounds: int) -> dict[str, list[float]]:
    rule, n_params = OnDemand(), size_bytes // 4
    x, y = torch.ones(n_params), torch.zeros(n_params)
    config = PeerConfig(rule=rule, linger_s=0, leave_s=1)
    with Peer(Flat(n_params), config) as peer, partner(_serve, peer.address, n_params) as pipe:
        with RawSender(n_params, admit(peer, pipe)) as raw:
            ways: dict[str, Callable[[], Sequence[float]]] = {
                "rumor": lambda: [_push(peer, rule, pipe) for _ in range(pushes)],
                "raw": lambda: [_send_raw(raw, pipe) for _ in range(pushes)],
                "memcpy": lambda: timed(lambda: y.copy_(x), pushes),
                "lerp": lambda: timed(lambda: y.lerp_(x, 0.25), pushes),
            }
            return alternate(ways, rounds)


def _push(peer: Peer, rule: OnDemand, pipe: "Connection[Any, Any]") -> float:
    """Push once; seconds from before the snapshot to after the mixing."""
    pipe.send("rumor")
    rule.wanted = True
    while rule.wanted:
        # The answer to the share before may still be on its way.
        peer.step()
        time.sleep(_POLL_S)
    return _answer(pipe) - rule.pushed_s


def _send_raw(raw: RawSender, pipe: "Connection[Any, Any]") -> float:
    pipe.send("raw")
    sent_s = raw.send()
    return _answer(pipe) - sent_s


def _answer(pipe: "Connection[Any, Any]") -> float:
    if not pipe.poll(_PATIENCE_S):
        raise TimeoutError("the other process does not answer")
    return float(pipe.recv())


def _serve(pipe: "Connection[Any, Any]", address: str, n_params: int) -> None:
    torch.set_num_threads(1)
    config = PeerConfig(join=(address,), rule=GoSGD(0.0), linger_s=0, leave_s=1)
    with Peer(Flat(n_params), config) as peer, RawReceiver(n_params) as raw:
        pipe.send(raw.address)
        while (way := pipe.recv()) is not None:
            pipe.send(raw.receive() if way == "raw" else _mix(peer))


def _mix(peer: Peer) -> float:
    """Step until one more share was mixed; when that was, seconds, monotonic."""
    before = peer.tally.mixed
    while peer.tally.mixed == before:
        time.sleep(_POLL_S)
        peer.step()
    return time.monotonic()
