"""GoSGD's figure of consensus under noise: how far workers drift apart where steps are noise."""

from collections.abc import Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Final

from ...sim import noise, simulate
from ..results import Result, Row

__all__ = ["reproduce_noise"]

_WORKERS: Final = 8
_SEEDS: Final = 8

_GOSGD: Final = (
    ("complete", 0.01, 1398.0, "+- 56"),
    ("complete", 0.4, 36.5, "+- .3"),
    ("ring", 0.01, 2230.0, ""),
    ("ring", 0.4, 55.4, ""),
)
"""Graph, p, and what an independent Monte Carlo of the equations gave."""

_TAUS: Final = (2, 7)


def reproduce_noise(*, quick: bool = False) -> Result:
    """Stationary disagreement V / d of 8 workers, one unit of noise per coordinate and step.

    Args:
        quick: Pushes with p = .4 and averages only, and two seeds.

    Source: Blot et al. 2016, section on consensus under noise; closed forms for averages.
    """
    seeds = range(2 if quick else _SEEDS)
    rows = [
        _row(f"gosgd, p {p:g}, {graph}", figure, f"Monte Carlo {within}".strip(), found)
        for graph, p, figure, within in _GOSGD
        if not quick or p > 0.1
        for found in [_gosgd(graph, p, seeds)]
    ]
    for tau in _TAUS:
        found = [_averaged(tau, seed) for seed in seeds]
        closed = (_WORKERS - 1) * (tau + 1) / 2
        rows.append(_row(f"average every {tau} steps", closed, "(M - 1)(tau + 1) / 2", found))
    return Result(
        name="noise",
        title="Consensus under noise, 8 workers: the stationary sum of squared distances from the "
        "mean, per coordinate",
        columns=("way", "measured", "derived", "ratio", "unit", "note"),
        rows=tuple(rows),
    )


def _row(name: str, figure: float, source: str, found: Sequence[float]) -> Row:
    error = stdev(found) / sqrt(len(found))
    note = f"{source}; ours +- {error:.2g}, {len(found)} seeds"
    return Row(name=name, ours=mean(found), reference=figure, unit="", note=note)


def _gosgd(graph: str, p: float, seeds: Sequence[int]) -> list[float]:
    is_rare = p < 0.1
    return [
        float(
            simulate(
                task=noise(dim=32),
                rule="gosgd",
                topology=graph,
                p=p,
                workers=_WORKERS,
                steps=20_000 if is_rare else 5000,
                eval_every=50 if is_rare else 2,
                network="ideal",
                seed=seed,
            ).summary["disagreement_stationary"]
        )
        for seed in seeds
    ]


def _averaged(tau: int, seed: int) -> float:
    """Local steps with an average every *tau* of them, read right after each step."""
    run = simulate(
        task=noise(dim=256),
        rule=f"local-sgd:h={tau}",
        topology="complete",
        workers=_WORKERS,
        steps=60 * tau,
        eval_every=1,
        network="ideal",
        seed=seed,
    )
    # What is read after a round has been averaged: a step of noise is on top of it.
    found = run.series["disagreement"][tau:]
    return float(found.mean()) + (_WORKERS - 1)
