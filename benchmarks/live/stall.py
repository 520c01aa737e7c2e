"""``stall``: the time that gossip takes from a training thread."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import mean, median
from typing import Any

import numpy as np
import torch

from rumor.gossip import GoSGD
from rumor.train import Peer, PeerConfig

from .. import rivals
from ..harness import Result, Row, alternate
from .processes import Flat, Pipe, admit, partner

__all__ = ["Burst", "measure_stall"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Burst:
    """Some steps in a row."""

    steps_s: list[float] = field(default_factory=list)
    """Duration of each step."""
    stalls_s: list[float] = field(default_factory=list)
    """The part of each step that was gossip."""
    pushes: int = 0
    skipped: int = 0
    mixed: int = 0

    @property
    def rate(self) -> float:
        """Steps per second."""
        return len(self.steps_s) / sum(self.steps_s)

    def step(self, gossip: Callable[[], None] | None, work: Callable[[], None]) -> None:
        """Take one more step: the optimizer's work, then gossip."""
        start_s = time.perf_counter()
        work()
        worked_s = time.perf_counter()
        if gossip is not None:
            gossip()
        end_s = time.perf_counter()
        self.steps_s.append(end_s - start_s)
        self.stalls_s.append(end_s - worked_s)


def measure_stall(
    params: tuple[int, ...] = (1_000_000, 11_000_000, 44_000_000),
    ps: tuple[float, ...] = (0.1, 1.0),
    step_s: float = 0.05,
    steps: int = 50,
    rounds: int = 4,
    rival_rounds: int = 5,
) -> Result:
    """Measure `Peer.step` on the training thread, next to a neighbor that trains equally fast.

    An optimizer step is a sleep, so that cores are not the limit and only gossip is measured.

    Args:
        params: Parameters of the model.
        ps: Probabilities of a push at a step, the same in both processes.
        step_s: Sleep of an optimizer step, seconds.
        steps: Number of steps in a row, with gossip or without.
        rounds: Turns of either.
        rival_rounds: Counted averaging rounds of hivemind and decent-dp, once every 1 / p steps;
            with 0, neither is run.
    """
    torch.set_num_threads(1)
    rows: list[Row] = []
    for n_params in params:
        ours = [_measure(n_params, p, step_s, steps, rounds) for p in ps]
        rows.extend(row for found in ours for row in _own_rows(found))
        for rival in (rivals.HIVEMIND, rivals.DECENT) if rival_rounds else ():
            asked = {
                "rival": rival.name,
                "n_params": n_params,
                "periods": [max(1, round(1 / p)) for p in ps],
                "step_s": step_s,
                "rounds": rival_rounds,
            }
            rows.extend(_next_to(ours, rival, asked))
    return Result(
        name="stall",
        title=f"What averaging takes from a training thread, optimizer steps of {step_s * 1e3:g} "
        "ms, two peers",
        rows=tuple(rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Results of one size and one probability."""

    name: str
    gossiping: list[Burst]
    bare: list[Burst]

    @property
    def stalls_s(self) -> list[float]:
        return [stall_s for burst in self.gossiping for stall_s in burst.stalls_s]

    @property
    def rate(self) -> float:
        return median(burst.rate for burst in self.gossiping)

    @property
    def exchange_s(self) -> float:
        """The training thread's time for one exchange: a share pushed and a share mixed."""
        exchanges = sum(burst.pushes + burst.mixed for burst in self.gossiping) / 2
        return sum(self.stalls_s) / max(1.0, exchanges)


def _measure(n_params: int, p: float, step_s: float, steps: int, rounds: int) -> _Found:
    _log.info("stepping: %d parameters, p = %g", n_params, p)
    config = PeerConfig(rule=GoSGD(p), linger_s=0, leave_s=1)
    work = partial(time.sleep, step_s)
    with (
        Peer(Flat(n_params), config) as peer,
        partner(_serve, peer.address, n_params, p, step_s) as other,
    ):
        admit(peer, other)

        def gossiping() -> list[Burst]:
            before = peer.stats().counters
            other.say(steps)
            burst = _train(peer.step, work, steps)
            other.hear()
            counters = peer.stats().counters
            for what in ("pushes", "skipped", "mixed"):
                setattr(burst, what, getattr(counters, what) - getattr(before, what))
            return [burst]

        found = alternate({"with": gossiping, "bare": lambda: [_train(None, work, steps)]}, rounds)
    name = f"{n_params / 1e6:g} M, p = {p:g}"
    return _Found(name=name, gossiping=found["with"], bare=found["bare"])


def _train(gossip: Callable[[], None] | None, work: Callable[[], None], steps: int) -> Burst:
    burst = Burst()
    for _ in range(steps):
        burst.step(gossip, work)
    return burst


def _serve(pipe: Pipe, address: str, n_params: int, p: float, step_s: float) -> None:
    config = PeerConfig(join=(address,), rule=GoSGD(p), linger_s=0, leave_s=1)
    with Peer(Flat(n_params), config) as peer:
        pipe.send("joined")
        while (steps := pipe.recv()) is not None:
            _train(peer.step, partial(time.sleep, step_s), steps)
            pipe.send("done")


def _own_rows(found: _Found) -> Iterator[Row]:
    stalls_ms = [stall_s * 1e3 for stall_s in found.stalls_s]
    steps_ms = [taken_s * 1e3 for burst in found.bare for taken_s in burst.steps_s]
    for percent, name in {50: "median", 99: "p99"}.items():
        yield Row(
            name=f"{found.name}: step(), {name}",
            ours=float(np.percentile(stalls_ms, percent)),
            reference=float(np.percentile(steps_ms, percent)),
            unit="ms",
            note="the whole step without gossip",
        )
    pushes, skipped, mixed = (
        sum(getattr(burst, what) for burst in found.gossiping)
        for what in ("pushes", "skipped", "mixed")
    )
    yield Row(
        name=f"{found.name}: kept",
        ours=found.rate,
        reference=median(burst.rate for burst in found.bare),
        unit="steps/s",
        note=f"without gossip; {pushes} pushes, {skipped} skipped, {mixed} shares mixed in "
        f"{len(stalls_ms)} steps",
    )


def _next_to(ours: Sequence[_Found], rival: rivals.Rival, asked: dict[str, Any]) -> Iterator[Row]:
    _log.info("stepping: %s", rival.name)
    try:
        theirs = rivals.measure(rival, "averaging", asked, {"OMP_NUM_THREADS": "1"})
    except rivals.RivalError as error:
        _log.warning("%s was not measured: %s", rival.name, error)
        return
    taken = zip(asked["periods"], theirs["stalls_s"], theirs["walls_s"], strict=True)
    for found, (period, stalls_s, wall_s) in zip(ours, taken, strict=True):
        figures = {
            "for one exchange": (found.exchange_s * 1e3, mean(stalls_s) * period * 1e3, "ms"),
            "kept": (found.rate, len(stalls_s) / wall_s, "steps/s"),
        }
        for what, (mine, their, unit) in figures.items():
            name = f"{found.name}: {what}, {rival.name}"
            note = f"{theirs['engine']}, a round of averaging for each exchange of ours"
            yield Row(name=name, ours=mine, reference=their, unit=unit, note=note)
