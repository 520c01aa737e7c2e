"""Results of a trial, and of all trials of a study."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from .study import Study, Trial

__all__ = ["CURVES", "QUANTILES", "Result", "Results"]

QUANTILES: Final = ("least", "quarter", "median", "three_quarters", "most")

CURVES: Final = (
    *("time_s", "steps", "loss", "accuracy", "consensus_distance", "disagreement", "messages"),
    *("bytes_sent", "pushes", "skipped", "mixed", "staleness_steps", "idle", "members"),
    *(f"{of}_{at}" for of in ("loss", "accuracy", "weight") for at in QUANTILES),
)
"""Curves that a result may have: those of `rumor.sim.Run.series`, quantiles one by one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """The result of one trial: reproducible to the bit, except `wall_s`."""

    trial: Trial
    key: str
    """Name in the store: a hash of the trial's arguments and of the code, hexadecimal."""
    summary: Mapping[str, Any]
    """`rumor.sim.Run.summary` without the fields that depend on the machine."""
    series: Mapping[str, tuple[float | None, ...]]
    """For some of `CURVES` a value for each evaluation; None for missing ones."""
    facts: Mapping[str, Any]
    """`rumor.topology.Facts` of its graph, as JSON."""
    wall_s: float
    """Time to compute it, seconds."""

    def reached(self, target: float, goal: str = "accuracy") -> int | None:
        """Return the first evaluation at which a curve reached the target: a loss from above,
        others from below. None if never."""
        is_loss = goal.startswith("loss")
        for index, value in enumerate(self.series.get(goal, ())):
            if value is not None and (value <= target if is_loss else value >= target):
                return index
        return None

    def at_target(self, curve: str, target: float, goal: str = "accuracy") -> float | None:
        """Return the value of one of `CURVES` at the evaluation `reached`; None if never."""
        index = self.reached(target, goal)
        return None if index is None else self.series[curve][index]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Results:
    """All results of a study."""

    study: Study
    results: tuple[Result, ...]
    """Results in the order of `Study.trials`, without failed trials."""
    failures: Mapping[str, str]
    """Reasons of failed trials, by their descriptions."""

    def groups(self) -> dict[tuple[str, ...], tuple[Result, ...]]:
        """Return results that differ in the seed only, by the labels of their points, in order."""
        found: dict[tuple[str, ...], list[Result]] = {}
        for result in self.results:
            found.setdefault(result.trial.group, []).append(result)
        return {group: tuple(results) for group, results in found.items()}

    def where(self, **labels: str) -> "Results":
        """Return only the results whose trials stand at these points of these axes."""
        there = (one for one in self.results if labels.items() <= one.trial.labels.items())
        return replace(self, results=tuple(there))
