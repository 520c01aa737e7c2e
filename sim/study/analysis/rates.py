"""How often a study tells apart what is alike, and how often it sees what is not: made-up studies.

Whoever changes how points are compared sees here what that costs: `rates_of` draws studies whose
truth is known, has them judged by `compare`, and counts.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from ..results import Result, Results
from ..study import Axis, Point, Study, Trial
from .ranking import Comparison, Row, Verdict, compare

__all__ = ["Judge", "Rates", "World", "is_apart", "made_up", "rates_of"]

Judge: TypeAlias = Callable[[Row, Comparison], bool]
"""Says whether a row is told apart from the first of its comparison."""

_TARGET: Final = 0.9
_ENDS_S: Final = 60.0

# What trials come to at the end that arrive, that nearly do, and that are stuck.
_ARRIVED, _NEARLY, _STUCK = 0.95, 0.88, 0.3
_ENDS_NOISE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What made-up studies are drawn from: the points of one axis, under each seed once.

    The first point is what the others are held against: it is no worse than any. The last ``worse``
    points are slower, or arrive less often.
    """

    points: int = 5
    """Of which the axis is made."""

    seeds: int = 3
    """Under which each point is run."""

    noise: float = 0.1
    """Standard deviation of the logarithms of times to the target, between trials of a point."""

    shared: float = 0.1
    """Likewise, of what a seed does to all points alike."""

    miss: float = 0.0
    """Probability that a trial does not arrive."""

    is_stuck: bool = False
    """Whether trials that do not arrive end far below the target, as after a collapse; else they
    are nearly there."""

    worse: int = 0
    """Points that are worse than the others, in fact."""

    slower: float = 1.0
    """By this factor, in time to the target."""

    misses_of_worse: float | None = None
    """Probability that a trial of theirs does not arrive; as that of the others unless given."""

    has_reference: bool = False
    """Whether the study names the first point as its reference beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What many studies of one world said."""

    studies: int

    wrong: float
    """Part of the studies that tell apart two points that are alike: of which the first, or the one
    that is called worse, is no worse in fact than the other."""

    seen: float
    """Part of the worse points that are told apart from the first; NaN where none is worse."""


def is_apart(row: Row, comparison: Comparison) -> bool:
    """Whether a study says that a row is worse than the first."""
    return row.verdict is Verdict.APART


def rates_of(
    world: World, studies: int, judges: Sequence[Judge], seed: int = 0
) -> tuple[Rates, ...]:
    """Draw studies of a world, and count what several judges say of the same ones."""
    rng = np.random.Generator(np.random.PCG64(seed))
    wrong, seen = [0] * len(judges), [0] * len(judges)
    worse = {_label(n) for n in range(world.points - world.worse, world.points)}
    for _ in range(studies):
        found = compare(made_up(world, rng))
        first_is_worse = found.rows[0].label in worse
        for index, judge in enumerate(judges):
            apart = {row.label for row in found.rows if judge(row, found)}
            # Of two that are both worse, or both not, neither is.
            wrong[index] += any((label in worse) <= first_is_worse for label in apart)
            seen[index] += 0 if first_is_worse else len(apart & worse)
    total = studies * world.worse
    return tuple(
        Rates(studies=studies, wrong=w / studies, seen=s / total if total else math.nan)
        for w, s in zip(wrong, seen, strict=True)
    )


def made_up(world: World, rng: np.random.Generator) -> Results:
    """Draw the results of one study."""
    axis = Axis("way", tuple(Point(_label(n), {"p": (n + 1) / 1000}) for n in range(world.points)))
    study = Study(
        name="made-up",
        title="Made up",
        question="Who is worse?",
        settings={},
        axes=(axis,),
        seeds=tuple(range(world.seeds)),
        target=_TARGET,
        reference=_label(0) if world.has_reference else "",
    )
    trials = study.trials()
    return Results(study=study, results=tuple(_drawn(world, rng, trials)), failures={})


def _drawn(world: World, rng: np.random.Generator, trials: Iterator[Trial]) -> Iterator[Result]:
    of_seeds = world.shared * rng.standard_normal(world.seeds)
    for index, trial in enumerate(trials):
        is_worse = index // world.seeds >= world.points - world.worse
        miss = world.miss
        if is_worse and world.misses_of_worse is not None:
            miss = world.misses_of_worse
        log_s = math.log(5.0) + of_seeds[trial.seed] + world.noise * rng.standard_normal()
        at_s = math.exp(log_s) * (world.slower if is_worse else 1.0)
        has_missed = rng.random() < miss
        yield _result(trial, None if has_missed else at_s, world, rng)


def _result(trial: Trial, at_s: float | None, world: World, rng: np.random.Generator) -> Result:
    """A trial that is at the target then, or never."""
    level = _ARRIVED if at_s is not None else _STUCK if world.is_stuck else _NEARLY
    end = float(np.clip(level + _ENDS_NOISE * rng.standard_normal(), 0.0, 1.0))
    # On its side of the target, whatever the noise.
    end = max(end, _TARGET) if at_s is not None else min(end, math.nextafter(_TARGET, 0.0))
    time_s = (0.0, _ENDS_S, _ENDS_S) if at_s is None else (at_s * (1 - 1e-9), at_s, _ENDS_S)
    series: dict[str, tuple[float | None, ...]] = {
        "time_s": time_s,
        "steps": time_s,
        "bytes_sent": time_s,
        "accuracy": (0.1, 0.1 if at_s is None else _TARGET, end),
    }
    return Result(
        trial=trial,
        key=str(trial),
        summary={"accuracy": end},
        series=series,
        facts={},
        wall_s=0.0,
        peak_rss_mib=0.0,
    )


def _label(n: int) -> str:
    return f"way {n}"
