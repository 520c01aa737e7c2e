"""``stall``: what gossip takes from a training thread that has other things to do."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import torch

from ..gossip import GoSGD
from ..train import Peer, PeerConfig
from ..train.tally import Tally
from .machine import machine
from .partner import Flat, admit, partner
from .result import Result, Row
from .timing import alternate, percentile

__all__ = ["measure_stall"]

_log = logging.getLogger("rumor.benchmarks")


def measure_stall(
    sizes: Sequence[int] = (1_000_000, 11_000_000),
    ps: Sequence[float] = (0.1, 1.0),
    step_s: float = 0.01,
    steps: int = 100,
    rounds: int = 5,
) -> Result:
    """Measure `Peer.step` on the training thread, beside a neighbor that trains as fast.

    A step of the optimizer is a sleep, so that cores do not limit and only gossip is seen.

    Args:
        sizes: Parameters of the model.
        ps: Probabilities of a push at a step, the same in both processes.
        step_s: How long an optimizer step sleeps, seconds.
        steps: Taken together, with gossip or without, each time.
        rounds: How often either has its turn.
    """
    start_s = time.perf_counter()
    torch.set_num_threads(1)
    rows = []
    for n_params in sizes:
        for p in ps:
            _log.info("stepping: %d parameters, p = %g", n_params, p)
            rows.extend(_measure(n_params, p, step_s, steps, rounds))
    return Result(
        name="stall",
        title=f"Peer.step on the training thread, beside optimizer steps of {step_s * 1e3:g} ms",
        columns=("what", "with gossip", "without", "ratio", "unit", "notes"),
        rows=tuple(rows),
        machine=machine(),
        wall_s=time.perf_counter() - start_s,
    )


@dataclass(frozen=True, slots=True)
class _Burst:
    """Some steps in a row."""

    steps_s: list[float]
    """How long each took as a whole."""
    stalls_s: list[float]
    """The part of each that was gossip."""

    @property
    def rate(self) -> float:
        """Steps per second."""
        return len(self.steps_s) / sum(self.steps_s)


def _measure(n_params: int, p: float, step_s: float, steps: int, rounds: int) -> list[Row]:
    config = PeerConfig(rule=GoSGD(p), linger_s=0, leave_s=1)
    with (
        Peer(Flat(n_params), config) as peer,
        partner(_serve, peer.address, n_params, p, step_s) as pipe,
    ):
        admit(peer, pipe)
        before = replace(peer.tally)
        ways = {
            "with": lambda: _beside_partner(peer, pipe, step_s, steps),
            "without": lambda: [_train(_no_gossip, step_s, steps)],
        }
        found = alternate(ways, rounds)
        note = _counted(before, peer.tally)
    return _rows(f"{n_params / 1e6:g} M, p = {p:g}", found["with"], found["without"], note)


def _rows(name: str, gossiping: list[_Burst], bare: list[_Burst], note: str) -> list[Row]:
    stalls_ms = [stall_s * 1e3 for burst in gossiping for stall_s in burst.stalls_s]
    steps_ms = [taken_s * 1e3 for burst in bare for taken_s in burst.steps_s]
    return [
        Row(
            name=f"{name}: step(), median",
            ours=median(stalls_ms),
            reference=median(steps_ms),
            unit="ms",
            note="beside the whole step without gossip",
        ),
        Row(
            name=f"{name}: step(), p99",
            ours=percentile(stalls_ms, 99),
            reference=percentile(steps_ms, 99),
            unit="ms",
            note="beside the p99 of the whole step without gossip",
        ),
        Row(
            name=f"{name}: kept",
            ours=median(burst.rate for burst in gossiping),
            reference=median(burst.rate for burst in bare),
            unit="steps/s",
            note=note,
        ),
    ]


def _beside_partner(
    peer: Peer, pipe: "Connection[Any, Any]", step_s: float, steps: int
) -> list[_Burst]:
    pipe.send(steps)
    burst = _train(peer.step, step_s, steps)
    pipe.recv()
    return [burst]


def _train(gossip: Callable[[], None], step_s: float, steps: int) -> _Burst:
    """Take steps that only sleep, as an optimizer on a device of its own would have it."""
    burst = _Burst([], [])
    start_s = time.perf_counter()
    for _ in range(steps):
        time.sleep(step_s)
        slept_s = time.perf_counter()
        gossip()
        end_s = time.perf_counter()
        burst.steps_s.append(end_s - start_s)
        burst.stalls_s.append(end_s - slept_s)
        start_s = end_s
    return burst


def _no_gossip() -> None:
    pass


def _counted(before: Tally, after: Tally) -> str:
    return (
        f"{after.pushes - before.pushes} pushes, {after.skipped - before.skipped} skipped, "
        f"{after.mixed - before.mixed} shares mixed"
    )


def _serve(
    pipe: "Connection[Any, Any]", address: str, n_params: int, p: float, step_s: float
) -> None:
    torch.set_num_threads(1)
    config = PeerConfig(join=(address,), rule=GoSGD(p), linger_s=0, leave_s=1)
    with Peer(Flat(n_params), config) as peer:
        pipe.send("joined")
        while (steps := pipe.recv()) is not None:
            _train(peer.step, step_s, steps)
            pipe.send("done")
