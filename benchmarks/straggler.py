"""``straggler``: what one slow peer costs the others, beside a barrier."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import torch

from ..gossip import GoSGD
from ..train import Peer, PeerConfig
from .barrier import serve_ddp
from .machine import machine
from .partner import Flat, Partner, Pipe, partners
from .result import Result, Row
from .stepping import train_until
from .timing import alternate

__all__ = ["measure_straggler"]

_log = logging.getLogger("rumor.benchmarks")

# All begin when the last has been told to.
_HEAD_START_S: Final = 0.1


def measure_straggler(
    peers: int = 4,
    slowdown: float = 10.0,
    step_s: float = 0.02,
    n_params: int = 1_000_000,
    p: float = 0.1,
    burst_s: float = 5.0,
    rounds: int = 4,
) -> Result:
    """Count the fleet's samples per second where one peer is slow; a step is one sample.

    A step of the optimizer is a sleep, so that cores do not limit.

    Args:
        peers: How many.
        slowdown: How many times as long the last one's steps take.
        step_s: How long a step of the others sleeps, seconds.
        n_params: Parameters of the model.
        p: Probability of a push at a step.
        burst_s: How long each way runs at a time, seconds.
        rounds: How often each has its turn.
    """
    start_s = time.perf_counter()
    paces_s = [*[step_s] * (peers - 1), step_s * slowdown]
    with _gossiping(paces_s, n_params, p) as fleet, _in_step(paces_s, n_params) as barrier:
        _log.info("straggling: %d peers, one %g times slower", peers, slowdown)
        ways = {
            "alone": lambda: [_rates(fleet, "alone", burst_s)],
            "rumor": lambda: [_rates(fleet, "gossip", burst_s)],
            "ddp": lambda: [_rates(barrier, "train", burst_s)],
        }
        found = alternate(ways, rounds)
    return Result(
        name="straggler",
        title=f"Samples per second of {peers} peers, one {slowdown:g} times slower; steps of "
        f"{step_s * 1e3:g} ms and {step_s * slowdown * 1e3:g} ms, {n_params / 1e6:g} M parameters",
        columns=("what", "fleet", "reference", "ratio", "unit", "reference and notes"),
        rows=tuple(_rows(found, p)),
        machine=machine(),
        wall_s=time.perf_counter() - start_s,
    )


def _rows(found: dict[str, list[list[float]]], p: float) -> Iterator[Row]:
    fleets = {way: median(sum(rates) for rates in bursts) for way, bursts in found.items()}
    slowest = {way: median(rates[-1] for rates in bursts) for way, bursts in found.items()}
    fast = {way: median(sum(rates[:-1]) for rates in bursts) for way, bursts in found.items()}
    alone = "the sum of what each does alone"
    yield _row(f"rumor, p = {p:g}", fleets["rumor"], fleets["alone"], alone)
    yield _row("torch DDP over gloo", fleets["ddp"], fleets["alone"], alone)
    yield _row("rumor beside DDP", fleets["rumor"], fleets["ddp"], "torch DDP over gloo")
    yield _row("rumor, the fast ones", fast["rumor"], fast["alone"], "the same, alone")
    yield _row("rumor, the slow one", slowest["rumor"], slowest["alone"], "the same, alone")


def _row(name: str, ours: float, reference: float, note: str) -> Row:
    return Row(name=name, ours=ours, reference=reference, unit="samples/s", note=note)


def _rates(fleet: Sequence[Partner], how: str, burst_s: float) -> list[float]:
    """Let all run for a while at the same time; steps per second of each."""
    start_s = time.monotonic() + _HEAD_START_S
    for one in fleet:
        one.say((how, start_s, start_s + burst_s))
    return [float(one.hear()) for one in fleet]


@contextmanager
def _gossiping(paces_s: Sequence[float], n_params: int, p: float) -> Iterator[list[Partner]]:
    with TemporaryDirectory() as folder:
        given = [(pace_s, len(paces_s), folder, n_params, p) for pace_s in paces_s]
        with partners(_serve, given) as fleet:
            for one in fleet:
                one.hear()
            yield fleet


@contextmanager
def _in_step(paces_s: Sequence[float], n_params: int) -> Iterator[list[Partner]]:
    with TemporaryDirectory() as folder:
        given = [(pace_s, i, len(paces_s), folder, n_params) for i, pace_s in enumerate(paces_s)]
        with partners(serve_ddp, given) as fleet:
            for one in fleet:
                one.hear()
            yield fleet


def _serve(pipe: Pipe, pace_s: float, peers: int, folder: str, n_params: int, p: float) -> None:
    torch.set_num_threads(1)
    config = PeerConfig(
        rendezvous=Path(folder), founders=peers, rule=GoSGD(p), linger_s=0, leave_s=1
    )
    with Peer(Flat(n_params), config) as peer:
        pipe.send("founded")
        while (asked := pipe.recv()) is not None:
            how, start_s, end_s = asked
            time.sleep(max(0.0, start_s - time.monotonic()))
            gossip = peer.step if how == "gossip" else _no_gossip
            burst = train_until(gossip, pace_s, end_s)
            pipe.send(burst.rate)


def _no_gossip() -> None:
    pass
