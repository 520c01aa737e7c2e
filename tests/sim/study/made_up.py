"""Made-up results of studies: curves and figures of the right form, from formulas."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rumor.sim.results.files import as_json
from rumor.sim.study.results import QUANTILES, Result, Results
from rumor.sim.study.study import Axis, Point, Study, Trial
from rumor.topology import facts as facts_of
from rumor.topology import parse

__all__ = ["Course", "results_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The course of the trials of a group."""

    rate_s: float = 2.0
    """Virtual seconds in which the accuracy approaches its ceiling by a factor of e."""
    ceiling: float = 0.97
    """Limit of the accuracy."""
    noise: float = 0.04
    """Spread of rates between seeds, as a fraction; ceilings and distances vary a tenth as much."""
    consensus_distance: float = 0.1
    bytes_s: float = 2e6
    """Bytes sent in a virtual second, by all workers together."""
    time_s: float = 20.0
    """Virtual seconds that the run takes."""


def results_of(
    grid: Mapping[str, Sequence[str | float | Point]],
    course: Callable[[Mapping[str, str]], Course | None] | None = None,
    *,
    seeds: int = 3,
    points: int = 41,
    target: float = 0.9,
    leave_out: Callable[[Trial], bool] | None = None,
    title: str = "A made-up study",
    question: str = "Which graph is the fastest?",
    **settings: Any,
) -> Results:
    """What `run_study` would return; default: digits on 16 workers.

    Args:
        course: Returns the course of a trial with these labels, None if it failed; default: the
            better its graph mixes, the sooner it reaches the target.
        leave_out: Trials that are missing without having failed: the study was interrupted.
    """
    axes = tuple(
        Axis(name, tuple(v if isinstance(v, Point) else Point(f"{v}", {name: v}) for v in values))
        for name, values in grid.items()
    )
    varied = {name for axis in axes for point in axis.points for name in point.settings}
    usual = {"task": "digits", "workers": 16}
    given = {name: usual[name] for name in usual if name not in varied} | settings
    words: dict[str, Any] = {"name": "made-up", "title": title, "question": question}
    study = Study(**words, settings=given, axes=axes, seeds=tuple(range(seeds)), target=target)
    found: list[Result] = []
    failed: dict[str, str] = {}
    for trial in study.trials():
        if leave_out is not None and leave_out(trial):
            continue
        course_of_cell = _usual(trial) if course is None else course(trial.labels)
        if course_of_cell is None:
            failed[str(trial)] = "peer-3 diverged at its step 2: lower the learning rate (10)"
        else:
            found.append(_result(trial, course_of_cell, points))
    return Results(study=study, results=tuple(found), failures=failed)


def _usual(trial: Trial) -> Course:
    facts = _facts(trial)
    return Course(
        rate_s=2.0 + 6.0 * facts["contraction"] ** 4,
        consensus_distance=0.02 + 0.5 * facts["contraction"],
        bytes_s=2e5 * facts["degree_mean"],
    )


def _result(trial: Trial, course: Course, points: int) -> Result:
    key = hashlib.blake2b(str(trial).encode(), digest_size=16).hexdigest()
    rng = np.random.default_rng(int(key[:8], 16))
    series = dict(_series(trial, course, points, rng))
    kept = {name: tuple(as_json(values)) for name, values in series.items()}
    summary = _summary(trial, series, key)
    return Result(
        trial=trial, key=key, summary=summary, series=kept, facts=_facts(trial), wall_s=2.5
    )


def _series(
    trial: Trial, course: Course, points: int, rng: np.random.Generator
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    time_s = np.linspace(0.0, course.time_s, points)
    rate_s = course.rate_s * math.exp(course.noise * rng.standard_normal())
    near = np.exp(-time_s / rate_s)
    yield "time_s", time_s
    yield "steps", np.round(time_s / 0.1)
    pushes = np.round(time_s * 16)
    for name, per_push in (("messages", 2), ("pushes", 1), ("skipped", 0), ("mixed", 1)):
        yield name, per_push * pushes
    yield "bytes_sent", np.round(time_s * course.bytes_s)
    yield "staleness_steps", np.where(time_s > 0, 1.2, np.nan)
    yield "idle", np.zeros(points)
    distance = course.consensus_distance * math.exp(course.noise * rng.standard_normal() / 10)
    if trial.settings["task"] in ("consensus", "noise"):
        yield "consensus_distance", distance + (1 - distance) * near
        yield "disagreement", 16 * near + distance**2
        return
    yield "consensus_distance", distance * (1 - near)
    ceiling = min(1.0, course.ceiling + course.noise / 10 * rng.standard_normal())
    accuracy = ceiling - (ceiling - 0.1) * near
    loss = 0.1 + 2.2 * near
    yield "accuracy", accuracy
    yield "loss", loss
    for name, factor in zip(QUANTILES, (0.8, 0.9, 0.95, 0.98, 1.0), strict=True):
        yield f"accuracy_{name}", accuracy * factor
        yield f"loss_{name}", loss * (1.8 - factor)
        yield f"weight_{name}", np.full(points, 0.1 + factor)


def _summary(trial: Trial, series: Mapping[str, NDArray[np.float64]], key: str) -> dict[str, Any]:
    ends = {name: float(values[-1]) for name, values in series.items()}
    found = {
        "steps": int(ends["steps"] * int(trial.settings["workers"])),
        "accuracy": ends.get("accuracy"),
        "loss": ends.get("loss"),
        "consensus_distance": ends.get("consensus_distance"),
        "messages": int(ends["messages"]),
        "bytes_sent": int(ends["bytes_sent"]),
        "pushes": int(ends["pushes"]),
        "skipped": int(ends["skipped"]),
        "mixed": int(ends["mixed"]),
        "staleness_steps": 1.2,
        "idle": 0.0,
        "virtual_time_s": ends["time_s"],
        "digest": key,
    }
    if "disagreement" in ends:
        found["disagreement"] = ends["disagreement"]
    return found


def _facts(trial: Trial) -> dict[str, Any]:
    spec = str(trial.settings.get("topology", "exponential"))
    return dict(_facts_of(spec, int(trial.settings["workers"]), trial.seed))


@cache
def _facts_of(spec: str, workers: int, seed: int) -> dict[str, Any]:
    return facts_of(parse(spec, workers, seed=seed)).as_json()
