"""``exchange``: a share's way from snapshot to mixed between two processes, and its limits."""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

import torch

from rumor.gossip import GoSGD, ProtocolConfig
from rumor.train import Peer, PeerConfig
from rumor.train.tensors.buffers import keep_pages

from ..harness import Result, Row, alternate, rate_gb_s
from .processes import Flat, OnDemand, Partner, Pipe, admit, partner, settled
from .raw import RawReceiver, RawSender

__all__ = ["measure_exchange"]

_log = logging.getLogger(__name__)

_NAP_S: Final = 0.5

# A push of the largest vector takes as long as many of the smallest: each gets as many bytes.
_BYTES_PER_TURN: Final = 100_000_000
_PUSHES_MAX: Final = 10

_RAW: Final = (
    "pyzmq over TCP, nothing checked: frames of 1 MiB copied out, sent and mixed one by one"
)

_SHARED_MEMORY: Final = "shared-memory"


def measure_exchange(
    sizes_mb: tuple[float, ...] = (4.0, 44.0, 100.0, 400.0),
    ways: tuple[str, ...] = ("float32", _SHARED_MEMORY, "bfloat16", "int8"),
    rounds: int = 7,
    device: str = "cpu",
) -> Result:
    """Push vectors of *sizes_mb* 10**6 bytes from this process into another on this machine."""
    torch.set_num_threads(1)
    # `rumor peer` keeps its pages, too. The references run in the same processes.
    keep_pages(messages=True)
    return Result(
        name="exchange",
        title="From snapshot to mixed between two processes of one machine: the vector's float32 "
        "bytes per second, whatever travels",
        rows=tuple(_measure(size_mb, way, rounds, device) for size_mb in sizes_mb for way in ways),
    )


def _config(way: str, **given: object) -> PeerConfig:
    is_shared = way == _SHARED_MEMORY
    protocol = ProtocolConfig(wire="float32" if is_shared else way, shared_memory=is_shared)
    settings: dict[str, object] = {"linger_s": 0, "leave_s": 1, "protocol": protocol, **given}
    return PeerConfig(**settings)  # type: ignore[arg-type]


def _measure(size_mb: float, way: str, rounds: int, device: str) -> Row:
    _log.info("exchanging %g MB: %s", size_mb, way)
    size_bytes = int(size_mb * 1e6) // 4 * 4
    rule, n_params = OnDemand(), size_bytes // 4
    pushes = max(1, min(_PUSHES_MAX, _BYTES_PER_TURN // size_bytes))
    model = Flat(n_params, device)
    with ExitStack() as stack:
        peer = stack.enter_context(Peer(model, _config(way, rule=rule)))
        other = stack.enter_context(partner(_serve, peer.address, n_params, way, device))
        sender = stack.enter_context(RawSender(n_params, admit(peer, other)))
        # Away from the anchor, since differences of zero could cost less than others.
        model.drift()
        pushing = {
            "rumor": partial(_push, peer, rule, other),
            "raw": partial(sender.send_to, other),
        }
        turns = {name: partial(_repeated, push, pushes) for name, push in pushing.items()}
        found = alternate(turns, rounds)
    return Row(
        name=f"{size_mb:g} MB, {way}",
        ours=rate_gb_s(size_bytes, found["rumor"]),
        reference=rate_gb_s(size_bytes, found["raw"]),
        unit="GB/s",
        note=_RAW,
    )


def _repeated(push: Callable[[], float], times: int) -> list[float]:
    return [push() for _ in range(times)]


def _push(peer: Peer, rule: OnDemand, other: Partner) -> float:
    """Push once; return the seconds from before the snapshot to after the mixing."""
    other.say("rumor")
    rule.is_asked = True
    peer.step()
    while rule.is_asked:
        # The answer to the previous share is still in flight.
        peer._running().wait_for_share(_NAP_S)
        peer.step()
    return float(other.hear()) - rule.decided_s


def _serve(pipe: Pipe, address: str, n_params: int, way: str, device: str) -> None:
    keep_pages(messages=True)
    model = Flat(n_params, device)
    config = _config(way, join=(address,), rule=GoSGD(0.0))
    with Peer(model, config) as peer, RawReceiver(n_params) as receiver:
        pipe.send(receiver.address)
        while (asked := pipe.recv()) is not None:
            pipe.send(receiver.receive() if asked == "raw" else _mix(peer, model))


def _mix(peer: Peer, model: Flat) -> float:
    """Step until one more share is mixed; return that time, seconds, monotonic."""
    before = peer.stats().counters.mixed
    while peer.stats().counters.mixed == before:
        peer._running().wait_for_share(_NAP_S)
        peer.step()
    settled(model.flat)
    return time.monotonic()
