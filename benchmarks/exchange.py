"""``exchange``: a share's way from snapshot to mixed between two processes, beside its limits."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from ..gossip import ONE, GoSGD, ProtocolConfig, Turn
from ..train import Peer, PeerConfig
from ..train.allocator import keep_pages
from .machine import machine
from .partner import Flat, Partner, Pipe, admit, partner
from .raw import RawReceiver, RawSender
from .result import Result, Row
from .timing import alternate, rate_gb_s, timed

__all__ = ["OnDemand", "Way", "measure_exchange"]

_log = logging.getLogger("rumor.benchmarks")

_NAP_S: Final = 0.5
_WEIGHT: Final = ONE >> 20

# One push of the largest vector takes as long as many of the smallest: as many bytes for each.
_BYTES_PER_TURN: Final = 100_000_000
_PUSHES_MAX: Final = 10


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
            turn.push(peer, _WEIGHT)
            self.wanted, self.pushed_s = False, turn.now


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How shares go from one process to the other."""

    name: str
    wire: str = "float32"
    shared_memory: bool = False

    @property
    def protocol(self) -> ProtocolConfig:
        """The settings of both peers."""
        return ProtocolConfig(wire=self.wire, shared_memory=self.shared_memory)


WAYS: Final = (
    Way(name="TCP"),
    Way(name="shared memory", shared_memory=True),
    Way(name="TCP, bfloat16", wire="bfloat16"),
    Way(name="TCP, int8", wire="int8"),
)

_NOTES: Final = {
    "raw": "pyzmq over TCP: copy out, frames of 1 MiB, recv_into, lerp_; nothing checked",
    "memcpy": "copy_ on one thread",
    "lerp": "lerp_ on one thread",
}


def measure_exchange(
    sizes_mb: Sequence[float] = (4, 44, 100, 400), rounds: int = 7, ways: Sequence[Way] = WAYS
) -> Result:
    """Push vectors from this process into another on this machine.

    Args:
        sizes_mb: Sizes of the vector in float32, 10**6 bytes.
        rounds: How often each way takes its turn.
        ways: Each has a pair of peers of its own, and takes turns with the references.
    """
    start_s = time.perf_counter()
    torch.set_num_threads(1)
    # As `rumor peer` does. The references live in the same processes.
    keep_pages()
    rows = [row for size_mb in sizes_mb for way in ways for row in _measure(size_mb, way, rounds)]
    return Result(
        name="exchange",
        title="From snapshot to mixed between two processes of one machine: the vector's float32 "
        "bytes per second, whatever travels",
        columns=("vector and way", "rumor", "reference", "ratio", "unit", "reference and notes"),
        rows=tuple(rows),
        machine=machine(),
        wall_s=time.perf_counter() - start_s,
    )


def _measure(size_mb: float, way: Way, rounds: int) -> list[Row]:
    _log.info("exchanging %g MB: %s", size_mb, way.name)
    size_bytes = int(size_mb * 1e6) // 4 * 4
    found = _measure_in_turn(size_bytes, way, rounds)
    rates = {name: rate_gb_s(size_bytes, taken_s) for name, taken_s in found.items()}
    ours = rates.pop("rumor")
    return [
        Row(
            name=f"{size_mb:g} MB, {way.name}, beside {name}",
            ours=ours,
            reference=rate,
            unit="GB/s",
            note=_NOTES[name],
        )
        for name, rate in rates.items()
        # A copy within one process is a limit of what sends all bytes, not of a smaller format.
        if name == "raw" or way.wire == "float32"
    ]


def _measure_in_turn(size_bytes: int, way: Way, rounds: int) -> Mapping[str, Sequence[float]]:
    rule, n_params = OnDemand(), size_bytes // 4
    pushes = max(1, min(_PUSHES_MAX, _BYTES_PER_TURN // size_bytes))
    x, y = torch.ones(n_params), torch.zeros(n_params)
    config = PeerConfig(rule=rule, linger_s=0, leave_s=1, protocol=way.protocol)
    model = Flat(n_params)
    with (
        Peer(model, config) as peer,
        partner(_serve, peer.address, n_params, way) as other,
        RawSender(n_params, admit(peer, other)) as raw,
    ):
        # Away from the anchor: a difference that is nothing could cost less than one that is.
        model.drift()
        ways: dict[str, Callable[[], Sequence[float]]] = {
            "rumor": lambda: [_push(peer, rule, other) for _ in range(pushes)],
            "raw": lambda: [_send_raw(raw, other) for _ in range(pushes)],
            "memcpy": lambda: timed(lambda: y.copy_(x), pushes),
            "lerp": lambda: timed(lambda: y.lerp_(x, 0.25), pushes),
        }
        return alternate(ways, rounds)


def _push(peer: Peer, rule: OnDemand, other: Partner) -> float:
    """Push once; seconds from before the snapshot to after the mixing."""
    other.say("rumor")
    rule.wanted = True
    peer.step()
    while rule.wanted:
        # The answer to the share before is still on its way.
        peer.wait(_NAP_S)
        peer.step()
    return float(other.hear()) - rule.pushed_s


def _send_raw(raw: RawSender, other: Partner) -> float:
    other.say("raw")
    sent_s = raw.send()
    return float(other.hear()) - sent_s


def _serve(pipe: Pipe, address: str, n_params: int, way: Way) -> None:
    torch.set_num_threads(1)
    keep_pages()
    config = PeerConfig(
        join=(address,), rule=GoSGD(0.0), linger_s=0, leave_s=1, protocol=way.protocol
    )
    with Peer(Flat(n_params), config) as peer, RawReceiver(n_params) as raw:
        pipe.send(raw.address)
        while (asked := pipe.recv()) is not None:
            pipe.send(raw.receive() if asked == "raw" else _mix(peer))


def _mix(peer: Peer) -> float:
    """Step until one more share was mixed; when that was, seconds, monotonic."""
    before = peer.tally.mixed
    while peer.tally.mixed == before:
        peer.wait(_NAP_S)
        peer.step()
    return time.monotonic()
