"""``stall``: the time that gossip takes from a training thread."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np
import torch

from rumor.gossip import GoSGD
from rumor.train import Peer, PeerConfig

from .. import rivals
from ..harness import Result, Row, alternate
from .processes import Flat, Pipe, admit, partner, settled

__all__ = ["measure_stall"]

_log = logging.getLogger(__name__)


def measure_stall(
    params: tuple[int, ...] = (1_000_000, 11_000_000, 44_000_000),
    ps: tuple[float, ...] = (0.1, 1.0),
    step_s: float = 0.05,
    steps: int = 50,
    rounds: int = 4,
    rival_rounds: int = 5,
    device: str = "cpu",
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
        device: Device of the model; that of the neighbor is in host memory.
    """
    torch.set_num_threads(1)
    rows: list[Row] = []
    for n_params in params:
        ours = [_measure(n_params, p, step_s, steps, rounds, device) for p in ps]
        rows.extend(row for found in ours for row in _own_rows(found, step_s))
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
        title="Time of a training thread that averaging takes: optimizer steps of "
        f"{step_s * 1e3:g} ms, two peers",
        rows=tuple(rows),
    )


class _Burst(NamedTuple):
    """Some steps in a row."""

    rate: float
    """Steps per second."""
    stalls_s: list[float]
    """The part of each step that was gossip."""
    exchanges: float = 0.0
    """Half of the number of shares that were pushed or mixed."""


class _Found(NamedTuple):
    """Results of one size and one probability."""

    name: str
    rate: float
    """Steps per second."""
    kept: Row
    """The step rate next to that without gossip."""
    stalls_s: list[float]
    """Time that each step lost to gossip."""
    exchange_s: float
    """The training thread's time for one exchange: a share pushed and a share mixed."""


def _measure(
    n_params: int, p: float, step_s: float, steps: int, rounds: int, device: str
) -> _Found:
    _log.info("stepping: %d parameters, p = %g", n_params, p)
    config = PeerConfig(rule=GoSGD(p), linger_s=0, leave_s=1)
    model = Flat(n_params, device)
    with (
        Peer(model, config) as peer,
        partner(_serve, peer.address, n_params, p, step_s) as other,
    ):
        admit(peer, other)

        def shares() -> int:
            counters = peer.stats().counters
            return counters.pushes + counters.mixed

        def gossip() -> None:
            peer.step()
            settled(model.flat)

        def gossiping() -> list[_Burst]:
            before = shares()
            other.say(steps)
            burst = _train(gossip, step_s, steps)
            other.hear()
            return [burst._replace(exchanges=(shares() - before) / 2)]

        ways = {"with": gossiping, "bare": lambda: [_train(lambda: None, step_s, steps)]}
        found = alternate(ways, rounds)
    name = f"{n_params / 1e6:g} M, p = {p:g}"
    rate, bare = (median(burst.rate for burst in found[way]) for way in ways)
    stalls_s = [stall_s for burst in found["with"] for stall_s in burst.stalls_s]
    exchanges = sum(burst.exchanges for burst in found["with"])
    note = f"without gossip; {exchanges:g} exchanges in {len(stalls_s)} steps"
    kept = Row(name=f"{name}: kept", ours=rate, reference=bare, unit="steps/s", note=note)
    return _Found(name, rate, kept, stalls_s, sum(stalls_s) / max(1.0, exchanges))


def _train(gossip: Callable[[], None], step_s: float, steps: int) -> _Burst:
    """Take steps: a sleep, then gossip."""
    stalls_s = []
    start_s = time.perf_counter()
    for _ in range(steps):
        time.sleep(step_s)
        worked_s = time.perf_counter()
        gossip()
        stalls_s.append(time.perf_counter() - worked_s)
    return _Burst(steps / (time.perf_counter() - start_s), stalls_s)


def _serve(pipe: Pipe, address: str, n_params: int, p: float, step_s: float) -> None:
    config = PeerConfig(join=(address,), rule=GoSGD(p), linger_s=0, leave_s=1)
    with Peer(Flat(n_params), config) as peer:
        pipe.send("joined")
        while (steps := pipe.recv()) is not None:
            _train(peer.step, step_s, steps)
            pipe.send("done")


def _own_rows(found: _Found, step_s: float) -> Iterator[Row]:
    for percent, name in {50: "median", 99: "p99"}.items():
        yield Row(
            name=f"{found.name}: step(), {name}",
            ours=float(np.percentile(found.stalls_s, percent)) * 1e3,
            reference=step_s * 1e3,
            unit="ms",
            note="the step without gossip",
        )
    yield found.kept


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
