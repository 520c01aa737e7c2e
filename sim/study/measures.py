"""What cells are compared by: times, bytes, accuracy, agreement."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from . import words
from .result import Result

__all__ = ["MEASURES", "Measure", "values_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure of a cell."""

    name: str
    """A key: of a summary, or ``CURVE_to_target``."""

    words: str
    """What to call it, in the middle of a sentence."""

    unit: str
    """``s``, ``bytes``, ``steps``, or nothing for bare numbers."""

    is_lower_better: bool

    is_ratio: bool
    """Whether groups differ by a factor, and noise is one too; else by a difference."""

    curve: str | None = None
    """Whose value at the target it is; None for figures at the end of a run."""

    def of(self, result: Result, target: float) -> float | None:
        """The figure of a cell; None where it has none, or never reached the target.

        Args:
            result: The cell's.
            target: Accuracy.
        """
        if self.curve is not None:
            return result.at_target(self.curve, target)
        value = result.summary.get(self.name)
        return None if value is None else float(value)

    def shown(self, value: float | None) -> str:
        """A value with its unit, in three significant digits."""
        if self.unit == "s":
            return words.seconds(value)
        if self.unit == "bytes":
            return words.size(value)
        text = words.number(value)
        return f"{text} {self.unit}" if self.unit and value is not None else text


def values_of(results: Iterable[Result], measure: Measure, target: float) -> dict[int, float]:
    """For each seed of a group that has one, the value of a measure.

    Args:
        results: Of the group.
        measure: Which.
        target: Accuracy.
    """
    found = {result.cell.seed: measure.of(result, target) for result in results}
    return {seed: value for seed, value in found.items() if value is not None}


def _at_target(curve: str, name: str, words: str, unit: str) -> Measure:
    return Measure(
        name=name, words=words, unit=unit, is_lower_better=True, is_ratio=True, curve=curve
    )


def _at_end(name: str, words: str, unit: str = "", *, ratio: bool = True) -> Measure:
    lower = name != "accuracy"
    return Measure(name=name, words=words, unit=unit, is_lower_better=lower, is_ratio=ratio)


MEASURES: Final[Mapping[str, Measure]] = MappingProxyType(
    {
        measure.name: measure
        for measure in (
            _at_target("time_s", "time_to_target_s", "virtual time to the target", "s"),
            _at_target("bytes_sent", "bytes_to_target", "bytes to the target", "bytes"),
            _at_target("steps", "steps_to_target", "steps to the target", "steps"),
            _at_end("accuracy", "final accuracy", ratio=False),
            _at_end("loss", "final loss"),
            _at_end("consensus_distance", "final consensus distance"),
            _at_end("disagreement", "final disagreement"),
            _at_end("disagreement_stationary", "stationary disagreement"),
            _at_end("bytes_sent", "bytes sent", "bytes"),
            _at_end("virtual_time_s", "virtual time", "s"),
            _at_end("staleness_steps", "staleness", "steps"),
            _at_end("idle", "part of the time spent waiting", ratio=False),
        )
    }
)
"""By name. The three to the target are None for a cell that never reached it."""
