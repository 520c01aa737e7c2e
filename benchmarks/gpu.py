"""``gpu-copies`` and ``gpu-workers``: the gain from a GPU. ``make gpu`` runs them on CUDA."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Final

import torch
from torch import Tensor

from rumor.sim import SimulationConfig, simulate
from rumor.train.tensors.vector import Vector

from .harness import Result, Row, alternate, rate_gb_s, timed
from .live.processes import Flat, settled

__all__ = ["measure_copies", "measure_workers"]

_FRACTION: Final = 0.25


def measure_copies(
    device: str = "cuda", copies_mb: tuple[float, ...] = (44.0, 400.0), rounds: int = 7
) -> Result:
    """Take snapshots of a vector of *copies_mb* 10**6 bytes, and mix shares, within a process."""
    return Result(
        name="gpu-copies",
        title="Between device and page-locked memory",
        rows=tuple(row for size_mb in copies_mb for row in _copies(device, size_mb, rounds)),
    )


def _copies(device: str, size_mb: float, rounds: int) -> Iterator[Row]:
    vector = Vector(Flat(int(size_mb * 1e6) // 64 * 16, device))
    numbers = vector.flats[0].uniform_()
    host = vector.snapshot()
    # Copied data stays unchanged: `out` and `room` receive what the plain ways write.
    out = numbers.clone()
    room = vector.memory.lend(host.numel()).view(torch.float32)
    actions: Mapping[str, tuple[Callable[[], object], Callable[[], object], str]] = {
        "leaving": (
            vector.snapshot,
            lambda: room.copy_(numbers, non_blocking=True),
            "copy_ to page-locked memory; ours copies aside first, and sums",
        ),
        "mixing": (
            lambda: vector.mix(host, _FRACTION),
            lambda: out.copy_(host.view(torch.float32), non_blocking=True),
            "copy_ from page-locked memory; ours mixes what has arrived, too",
        ),
    }
    for name, (ours, plain, note) in actions.items():
        ways = {"ours": partial(_settle, ours, numbers), "plain": partial(_settle, plain, numbers)}
        found = alternate(ways, rounds)
        yield Row(
            name=f"{size_mb:g} MB, {name}",
            ours=rate_gb_s(host.numel(), found["ours"]),
            reference=rate_gb_s(host.numel(), found["plain"]),
            unit="GB/s",
            note=note,
        )


def _settle(copy: Callable[[], object], numbers: Tensor) -> list[float]:
    return timed(lambda: (copy(), settled(numbers)))


def measure_workers(
    device: str = "cuda",
    simulated: tuple[int, ...] = (100, 1000, 10_000),
    worker_steps: int = 20,
    rounds: int = 3,
) -> Result:
    """Simulate workers that train on a device, compared with the CPU."""
    torch.set_num_threads(1)
    return Result(
        name="gpu-workers",
        title="Simulated workers, random-regular:d=6, p = 0.1; more steps/s is better",
        rows=tuple(_workers(device, n, worker_steps, rounds) for n in simulated),
    )


def _workers(device: str, n: int, steps: int, rounds: int) -> Row:
    def run(where: str) -> list[float]:
        config = SimulationConfig(
            task="digits",
            workers=n,
            topology="random-regular:d=6",
            steps=steps,
            p=0.1,
            device=where,
            engine="dense",
            threads=1,
        )
        return timed(lambda: simulate(config))

    found = alternate({"there": partial(run, device), "here": partial(run, "cpu")}, rounds)
    return Row(
        name=f"digits, n = {n:,}",
        ours=n * steps / median(found["there"]),
        reference=n * steps / median(found["here"]),
        unit="steps/s",
        note="the same on the CPU, one thread",
    )
