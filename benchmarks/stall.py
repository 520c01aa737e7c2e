"""``stall``: what gossip takes from a training thread that has other things to do."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch

from ..gossip import GoSGD
from ..train import Peer, PeerConfig
from ..train.tally import Tally
from . import rival_decent, rival_hivemind
from .machine import machine
from .partner import Flat, Partner, Pipe, admit, partner
from .result import Result, Row
from .rivals import DECENT, HIVEMIND, Rival, RivalError
from .rivals import measure as measure_rival
from .stepping import Burst, train
from .timing import alternate, percentile

__all__ = ["RIVALS", "measure_stall"]

_log = logging.getLogger("rumor.benchmarks")

RIVALS: Final = ((HIVEMIND, rival_hivemind.__file__), (DECENT, rival_decent.__file__))
"""Who is held beside it, and the script that measures each."""


def measure_stall(
    sizes: Sequence[int] = (1_000_000, 11_000_000, 44_000_000),
    ps: Sequence[float] = (0.1, 1.0),
    step_s: float = 0.05,
    steps: int = 50,
    rounds: int = 4,
    rivals: Sequence[tuple[Rival, str]] = RIVALS,
    rival_rounds: int = 5,
    cache: Path | None = None,
) -> Result:
    """Measure `Peer.step` on the training thread, beside a neighbor that trains as fast.

    A step of the optimizer is a sleep, so that cores do not limit and only gossip is seen.

    Args:
        sizes: Parameters of the model.
        ps: Probabilities of a push at a step, the same in both processes.
        step_s: How long an optimizer step sleeps, seconds.
        steps: Taken together, with gossip or without, each time.
        rounds: How often either has its turn.
        rivals: Who does the same work, two peers on this machine, once every 1 / p steps; with
            the script that measures each.
        rival_rounds: Their rounds of averaging that count, at each size and p.
        cache: Where rivals are installed, as `rivals.install` takes it.
    """
    start_s = time.perf_counter()
    torch.set_num_threads(1)
    rows: list[Row] = []
    for n_params in sizes:
        ours = [_measure(n_params, p, step_s, steps, rounds) for p in ps]
        rows.extend(row for found in ours for row in _own_rows(found))
        for rival, script in rivals:
            asked = {
                "n_params": n_params,
                "periods": [max(1, round(1 / p)) for p in ps],
                "step_s": step_s,
                "rounds": rival_rounds,
            }
            rows.extend(_beside(ours, rival, script, asked, cache))
    return Result(
        name="stall",
        title=f"What averaging takes from a training thread, optimizer steps of {step_s * 1e3:g} "
        "ms, two peers",
        columns=("what", "rumor", "reference", "ratio", "unit", "reference and notes"),
        rows=tuple(rows),
        machine=machine(),
        wall_s=time.perf_counter() - start_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What one size and one probability came to."""

    name: str
    gossiping: list[Burst]
    bare: list[Burst]
    counted: Tally
    """What the peer that was measured did meanwhile."""

    @property
    def stalls_s(self) -> list[float]:
        return [stall_s for burst in self.gossiping for stall_s in burst.stalls_s]

    @property
    def rate(self) -> float:
        return median(burst.rate for burst in self.gossiping)

    @property
    def bare_rate(self) -> float:
        return median(burst.rate for burst in self.bare)

    @property
    def exchange_s(self) -> float:
        """The training thread's time for one exchange: a share pushed and a share mixed."""
        exchanges = (self.counted.pushes + self.counted.mixed) / 2
        return sum(self.stalls_s) / max(1.0, exchanges)


def _measure(n_params: int, p: float, step_s: float, steps: int, rounds: int) -> _Found:
    _log.info("stepping: %d parameters, p = %g", n_params, p)
    config = PeerConfig(rule=GoSGD(p), linger_s=0, leave_s=1)
    with (
        Peer(Flat(n_params), config) as peer,
        partner(_serve, peer.address, n_params, p, step_s) as other,
    ):
        admit(peer, other)
        tallies: list[Tally] = []
        ways = {
            "with": lambda: _beside_partner(peer, other, step_s, steps, tallies),
            "without": lambda: [train(_no_gossip, step_s, steps)],
        }
        found = alternate(ways, rounds)
    # The first turn is not counted, here as there.
    counted = Tally(
        pushes=sum(tally.pushes for tally in tallies[1:]),
        skipped=sum(tally.skipped for tally in tallies[1:]),
        mixed=sum(tally.mixed for tally in tallies[1:]),
    )
    name = f"{n_params / 1e6:g} M, p = {p:g}"
    return _Found(name=name, gossiping=found["with"], bare=found["without"], counted=counted)


def _own_rows(found: _Found) -> Iterator[Row]:
    stalls_ms = [stall_s * 1e3 for stall_s in found.stalls_s]
    steps_ms = [taken_s * 1e3 for burst in found.bare for taken_s in burst.steps_s]
    yield Row(
        name=f"{found.name}: step(), median",
        ours=median(stalls_ms),
        reference=median(steps_ms),
        unit="ms",
        note="the whole step without gossip",
    )
    yield Row(
        name=f"{found.name}: step(), p99",
        ours=percentile(stalls_ms, 99),
        reference=percentile(steps_ms, 99),
        unit="ms",
        note="p99 of the whole step without gossip",
    )
    counted = found.counted
    yield Row(
        name=f"{found.name}: kept",
        ours=found.rate,
        reference=found.bare_rate,
        unit="steps/s",
        note=f"without gossip; {counted.pushes} pushes, {counted.skipped} skipped, "
        f"{counted.mixed} shares mixed in {len(stalls_ms)} steps",
    )


def _beside(
    ours: Sequence[_Found], rival: Rival, script: str, asked: dict[str, Any], cache: Path | None
) -> Iterator[Row]:
    _log.info("stepping: %s", rival.name)
    try:
        theirs = measure_rival(rival, script, asked, {"OMP_NUM_THREADS": "1"}, cache)
    except RivalError as error:
        _log.warning("%s", error)
        for found in ours:
            why = f"{rival.name} was not measured: {error}"
            yield from _rows(found, rival.name, _Theirs(why))
        return
    taken = zip(asked["periods"], theirs["stalls_s"], theirs["walls_s"], strict=True)
    for found, (period, stalls_s, wall_s) in zip(ours, taken, strict=True):
        yield from _rows(found, rival.name, _Theirs(theirs["engine"], period, stalls_s, wall_s))


@dataclass(frozen=True, slots=True)
class _Theirs:
    """What a rival came to at one size and one period; all nothing where it was not measured."""

    note: str
    period: int = 1
    """Steps from one round of averaging to the next."""
    stalls_s: Sequence[float] = (0.0,)
    wall_s: float = float("inf")

    @property
    def round_s(self) -> float:
        return sum(self.stalls_s) / len(self.stalls_s) * self.period


def _rows(found: _Found, name: str, theirs: _Theirs) -> Iterator[Row]:
    yield Row(
        name=f"{found.name}: for one exchange, beside {name}",
        ours=found.exchange_s * 1e3,
        reference=theirs.round_s * 1e3,
        unit="ms",
        note=f"{theirs.note}: a round of averaging; ours: one share pushed, one mixed",
    )
    yield Row(
        name=f"{found.name}: p99 of a step, beside {name}",
        ours=percentile(found.stalls_s, 99) * 1e3,
        reference=percentile(theirs.stalls_s, 99) * 1e3,
        unit="ms",
        note=theirs.note,
    )
    yield Row(
        name=f"{found.name}: kept, beside {name}",
        ours=found.rate,
        reference=len(theirs.stalls_s) / theirs.wall_s,
        unit="steps/s",
        note=theirs.note,
    )


def _beside_partner(
    peer: Peer, other: Partner, step_s: float, steps: int, tallies: list[Tally]
) -> list[Burst]:
    before = replace(peer.tally)
    other.say(steps)
    burst = train(peer.step, step_s, steps)
    other.hear()
    after = peer.tally
    tallies.append(
        Tally(
            pushes=after.pushes - before.pushes,
            skipped=after.skipped - before.skipped,
            mixed=after.mixed - before.mixed,
        )
    )
    return [burst]


def _no_gossip() -> None:
    pass


def _serve(pipe: Pipe, address: str, n_params: int, p: float, step_s: float) -> None:
    torch.set_num_threads(1)
    config = PeerConfig(join=(address,), rule=GoSGD(p), linger_s=0, leave_s=1)
    with Peer(Flat(n_params), config) as peer:
        pipe.send("joined")
        while (steps := pipe.recv()) is not None:
            train(peer.step, step_s, steps)
            pipe.send("done")
