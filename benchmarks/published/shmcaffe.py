"""ShmCaffe's equation of an iteration, on real segments that processes of this machine share.

    T_iter = max(T_comp, T_write + T_accumulate) + T_read + T_update

A worker reads the center and moves toward it; what it gives is written and accumulated while it
computes. The terms are measured alone by the exchange that ``seasgd`` makes, `SharedSegments`, in
as many processes as take part, each of which does all in turn again and again, so that whatever
else runs meanwhile falls on all of it; figures are means, which add up. An iteration is measured in
two ways: as the equation has it, giving in a thread beside computation, and as ``seasgd`` does it,
one exchange after computation.

Source: Ahn, Kim, Lim, Choi and Kang, ICDCS 2018; the speed-ups are those of the abstract.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from statistics import mean
from typing import Any, Final

import torch
from torch import Tensor

from ...gossip.effects.effects import Exchange, X
from ...sim import consensus, simulate
from ...train.runtime.segments import SharedSegments
from ...train.tensors.vector import Vector
from ..exchange.processes import Flat, Pipe, partners
from ..results import Result, Row, timed

__all__ = ["reproduce_shmcaffe"]

_ALPHA: Final = 0.2
"""Theirs."""

_PARAMETERS: Final = 2**22
_SIDE: Final = 384
_LOADS: Final = {"long steps": 24, "short steps": 2}
"""How often matrices of that side are multiplied in a step, by what that makes of it."""

_PROCESSES: Final = (1, 2, 4)
_TIMES: Final = 25
_PATIENCE_S: Final = 1800.0
"""On a machine that has other things to do."""

_INCARNATION: Final = 1
_SWARM: Final = b"shmcaffe"

_Seconds = Mapping[str, float]


def reproduce_shmcaffe(*, quick: bool = False) -> Result:
    """Iterations of 1, 2 and 4 processes: predicted by the equation, and measured.

    Args:
        quick: A small model, up to 2 processes, and few iterations.
    """
    parameters = _PARAMETERS // 64 if quick else _PARAMETERS
    rows: list[Row] = []
    alone: _Seconds = {}
    for load, multiplications in _LOADS.items():
        for processes in _PROCESSES[: 2 if quick else None]:
            found = _measured(processes, parameters, multiplications, 4 if quick else _TIMES)
            alone = alone or found
            count = f"{processes} process{'es' if processes > 1 else ''}"
            rows += _rows(f"{load}, {count}", found)
    return Result(
        name="shmcaffe",
        title="ShmCaffe: T_iter = max(T_comp, T_write + T_accumulate) + T_read + T_update on "
        f"shared segments of {parameters / 1e6:.1f} million float32; bytes between groups",
        columns=("what", "measured", "predicted", "ratio", "unit", "note"),
        rows=(*rows, _speedup(alone), *_between_groups()),
    )


def _rows(name: str, found: _Seconds) -> Iterator[Row]:
    """The iteration that gives while it computes, and the one that does not."""
    ms = {what: 1e3 * seconds for what, seconds in found.items()}
    moved = ms["read and update"]
    yield Row(
        name=f"{name}, giving beside computation",
        ours=ms["beside"],
        reference=max(ms["compute"], ms["give"]) + moved,
        unit="ms",
        note=f"T_comp {ms['compute']:.1f}, T_write + T_accumulate {ms['give']:.1f}, "
        f"T_read {ms['read']:.1f}, T_read + T_update {moved:.1f}",
    )
    yield Row(
        name=f"{name}, seasgd",
        ours=ms["in turn"],
        reference=ms["compute"] + ms["exchange"],
        unit="ms",
        note=f"T_comp + an exchange of {ms['exchange']:.1f}, which nothing hides",
    )


def _speedup(found: _Seconds) -> Row:
    """What the equation makes of 16 workers whose terms are those of one process here."""
    iteration_s = max(found["compute"], found["give"]) + found["read and update"]
    return Row(
        name="16 workers over one, ShmCaffe-A",
        ours=16 * found["compute"] / iteration_s,
        reference=11.5,
        unit="times",
        note="derived: long steps, whose length we chose, terms of 1 process, a machine each; 11.5 "
        "is published (abstract, Inception v1, 16 GPUs). 10.1 of ShmCaffe-H follows from no term "
        "measured here",
    )


def _measured(processes: int, parameters: int, multiplications: int, times: int) -> _Seconds:
    """Seconds of each term and of both iterations: means, over all times and processes."""
    given = [(rank, processes, parameters, multiplications, times) for rank in range(processes)]
    with partners(_serve, given) as others:
        for other in others:
            other.hear()
        for other in others:
            other.say("go")
        found = [other.hear(_PATIENCE_S) for other in others]
    return {what: mean(of_one[what] for of_one in found) for what in _WAYS}


def _serve(
    pipe: Pipe, rank: int, processes: int, parameters: int, multiplications: int, times: int
) -> None:
    """One process: do everything in turn, and tell how long each took in the mean."""
    lives = [(f"p{number}", _INCARNATION) for number in range(processes)]
    segments = SharedSegments(lives[rank], lambda: lives[:rank] + lives[rank + 1 :])
    vector = Vector(Flat(parameters))
    ways = {name: make(segments, vector, multiplications) for name, make in _WAYS.items()}
    for way in ways.values():
        way()
    pipe.send("ready")
    pipe.recv()
    taken = [{name: timed(way, 1)[0] for name, way in ways.items()} for _ in range(times)]
    pipe.send({name: mean(of_turn[name] for of_turn in taken) for name in ways})
    pipe.recv()
    segments.close()


def _exchange(taken: float, given: float) -> Callable[[SharedSegments, Vector, int], Any]:
    effect = Exchange(X, "center", taken, given, _SWARM)
    return lambda segments, vector, _: lambda: segments.exchange(effect, vector)


def _compute(_: SharedSegments, __: Vector, multiplications: int) -> Callable[[], Tensor]:
    """Work that touches no model, as long as a step."""
    matrix = torch.eye(_SIDE)

    def step() -> Tensor:
        product = matrix
        for _ in range(multiplications):
            product = product @ matrix
        return product

    return step


def _in_turn(segments: SharedSegments, vector: Vector, size: int) -> Callable[[], None]:
    """An iteration of seasgd."""
    step = _compute(segments, vector, size)
    exchange = _exchange(_ALPHA, _ALPHA)(segments, vector, size)

    def iterate() -> None:
        step()
        exchange()

    return iterate


def _beside(segments: SharedSegments, vector: Vector, size: int) -> Callable[[], None]:
    """An iteration of the equation: a thread gives what the last one came to, beside the step."""
    step = _compute(segments, vector, size)
    take = _exchange(_ALPHA, 0.0)(segments, vector, size)
    give = _exchange(0.0, _ALPHA)(segments, vector, size)
    thread = ThreadPoolExecutor(max_workers=1)

    def iterate() -> None:
        given = thread.submit(give)
        step()
        given.result()
        take()

    return iterate


_WAYS: Final[Mapping[str, Callable[[SharedSegments, Vector, int], Callable[[], Any]]]] = {
    "compute": _compute,
    "read": _exchange(1.0, 0.0),
    "read and update": _exchange(_ALPHA, 0.0),
    "give": _exchange(0.0, _ALPHA),
    "exchange": _exchange(_ALPHA, _ALPHA),
    "in turn": _in_turn,
    "beside": _beside,
}
"""What is timed. Each exchange also reads both to see that all numbers are finite."""

_WORKERS: Final = 16
_STEPS: Final = 50


def _between_groups() -> Iterator[Row]:
    """Pushes between machines under hybrid, over those of peers that push for themselves."""
    for size in (2, 4, 8):
        # What a group sends inside, it sends without exchanges between groups, too.
        group, inside, each = (
            _pushes(size, rule, **settings)
            for rule, settings in (
                ("hybrid", {}), ("hybrid:between=0", {}), ("gosgd", {"p": 1.0}),
            )
        )  # fmt: skip
        yield Row(
            name=f"bytes between groups of {size}, hybrid over gosgd:p=1",
            ours=(group - inside) / each,
            reference=1 / size,
            unit="",
            note=f"{group - inside:,.0f} of {each:,.0f} pushes, simulated; published: divided by "
            "the group's size",
        )


def _pushes(size: int, rule: str, **settings: Any) -> float:
    """Of 16 workers in groups of that size."""
    run = simulate(
        task=consensus(dim=8),
        rule=rule,
        topology=f"hosts:sizes={'x'.join([str(size)] * (_WORKERS // size))}",
        workers=_WORKERS,
        steps=_STEPS,
        eval_every=_STEPS,
        **settings,
    )
    return float(run.summary["pushes"])
