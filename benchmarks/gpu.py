"""What a GPU adds: shares between it and host memory, mixing there, training beside gossip, and
the simulator's workers on it. ``make gpu`` runs all of it, and writes a page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

import torch
from torch import Tensor

from ..gossip.wire.formats import Form
from ..sim import SimulationConfig, simulate
from ..train.tensors.vector import Vector
from .exchange.exchange import Way, measure_exchange
from .exchange.processes import Flat, settled
from .exchange.stall import measure_stall
from .results import Result, Row, alternate, rate_gb_s, timed

__all__ = ["AIMS", "PARTS", "Aim", "measure_copies", "measure_workers"]

_FRACTION: Final = 0.25
_WHOLE: Final = Form()


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a figure should come to on an H100."""

    result: str
    """The result that has it."""
    row: str
    """Its row there."""
    least: float
    unit: str = ""
    """That of the figure itself; where it is empty, the ratio counts."""

    def of(self, row: Row) -> float:
        """The figure that counts."""
        return row.ours if self.unit else row.ratio


AIMS: Final = (
    Aim(result="copies", row="400 MB, leaving", least=20.0, unit="GB/s"),
    Aim(result="copies", row="400 MB, mixing", least=0.8),
    Aim(result="stall", row="100 M, p = 0.1: kept", least=0.98),
)


def measure_copies(device: str, sizes_mb: tuple[float, ...] = (44, 400), rounds: int = 7) -> Result:
    """Take snapshots of a vector, and bring and mix shares, within one process.

    Args:
        device: Where the vector lies.
        sizes_mb: Its sizes in float32, 10**6 bytes.
        rounds: How often each way takes its turn.
    """
    return Result(
        name="copies",
        title="Between device and page-locked memory, and mixing on the device",
        rows=tuple(row for size_mb in sizes_mb for row in _copies(device, size_mb, rounds)),
    )


def _copies(device: str, size_mb: float, rounds: int) -> list[Row]:
    vector = Vector(Flat(int(size_mb * 1e6) // 64 * 16, device))
    numbers = vector.flats[0].uniform_()
    host = vector.staging.lend(numbers.numel() * 4)
    host.copy_(vector.snapshot())
    # Nothing that is copied is changed: `out` and `room` take what the plain ways write.
    out, room = numbers.clone(), vector.snapshots.lend(host.numel()).view(torch.float32)
    plain: Mapping[str, Callable[[], object]] = {
        "leaving": lambda: room.copy_(numbers, non_blocking=True),
        "arriving": lambda: out.copy_(host.view(torch.float32), non_blocking=True),
        "mixing": lambda: out.copy_(numbers),
    }
    ways: dict[str, Callable[[], list[float]]] = {
        "leaving": lambda: timed(lambda: vector.snapshots.take_back(vector.snapshot()), 1),
        "arriving": lambda: [_bring(vector, host)],
        "mixing": lambda: [_mix(vector, host)],
        **{f"{name}, plain": partial(_settle, copy, numbers) for name, copy in plain.items()},
    }
    found = alternate(ways, rounds)
    return [
        Row(
            name=f"{size_mb:g} MB, {name}",
            ours=rate_gb_s(ours * host.numel(), found[name]),
            reference=rate_gb_s(theirs * host.numel(), found[f"{name}, plain"]),
            unit="GB/s",
            note=note,
        )
        for name, (ours, theirs, note) in _PASSES.items()
    ]


# How often each byte is read or written where the rate is counted, by us and by a plain copy.
_PASSES: Final = {
    "leaving": (1, 1, "copy_ to page-locked memory; ours copies aside first, and sums"),
    "arriving": (1, 1, "copy_ from page-locked memory"),
    "mixing": (3, 2, "copy_ on the device; bytes read and written, which are three to its two"),
}


def _settle(copy: Callable[[], object], numbers: Tensor) -> list[float]:
    return timed(lambda: (copy(), settled(numbers)), 1)


def _bring(vector: Vector, host: Tensor) -> float:
    """Seconds until a share is on the device, ahead of its mixing."""
    (taken_s,) = timed(lambda: vector.bring(host, _WHOLE, 0).synchronize(), 1)
    vector.forget(host)
    return taken_s


def _mix(vector: Vector, host: Tensor) -> float:
    """Seconds to mix a share that is on the device."""
    vector.bring(host, _WHOLE, 0).synchronize()
    settled(vector.flats[0])

    def mix() -> None:
        vector.mix(host, _FRACTION)
        settled(vector.flats[0])

    (taken_s,) = timed(mix, 1)
    vector.forget(host)
    return taken_s


def measure_workers(
    device: str, sizes: Sequence[int] = (100, 1000, 10_000), steps: int = 20, rounds: int = 3
) -> Result:
    """Simulate workers that train batched on a device, beside the same on the CPU.

    Args:
        device: Where the workers' models lie.
        sizes: Numbers of workers.
        steps: Of each worker.
        rounds: How often either has its turn.
    """
    torch.set_num_threads(1)
    rows = []
    for n in sizes:
        ways = {where: partial(_simulate, n, steps, where) for where in ("cpu", device)}
        # Named apart, also where the device is the CPU.
        found = alternate({"there": ways[device], "here": ways["cpu"]}, rounds)
        rates = {way: n * steps / median(taken_s) for way, taken_s in found.items()}
        rows.append(
            Row(
                name=f"digits, n = {n:,}",
                ours=rates["there"],
                reference=rates["here"],
                unit="steps/s",
                note="the same on the CPU, one thread",
            )
        )
    return Result(
        name="workers",
        title="Simulated workers, random-regular:d=6, p = 0.1, batched; more steps/s is better",
        rows=tuple(rows),
    )


def _simulate(n: int, steps: int, device: str) -> list[float]:
    config = SimulationConfig(
        task="digits",
        workers=n,
        topology="random-regular:d=6",
        steps=steps,
        p=0.1,
        device=device,
        engine="batched",
        threads=1,
    )
    return timed(lambda: simulate(config), 1)


_WAYS: Final = (Way(name="TCP"), Way(name="shared memory", shared_memory=True))

PARTS: Final[Mapping[str, Callable[[str], Result]]] = {
    "copies": measure_copies,
    "exchange": lambda device: measure_exchange(ways=_WAYS, device=device),
    "stall": lambda device: measure_stall(
        sizes=(11_000_000, 44_000_000, 100_000_000), rivals=(), device=device
    ),
    "workers": measure_workers,
}
"""All that is measured on a device, by name."""
