"""Conditions on a cell, as study files have them: which cells to leave out."""

import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

__all__ = ["Condition"]

# Longer ones first: "<=" begins with "<".
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
)


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds for some cells of a study.

    >>> many = Condition({"rule": ["dpsgd", "allreduce"], "workers": ">=512"})
    >>> many.holds({"rule": "dpsgd", "workers": 1024}, {})
    True
    >>> many.holds({"rule": "sgp", "workers": 1024}, {})
    False
    """

    wanted: Mapping[str, Any]
    """For each name, a value, a list of values of which one must fit, or a text: a pattern with
    ``*`` and ``?``, a comparison with a number such as ``">=512"``, or ``"!=ring"``. A name that
    is that of an axis and of an argument means either."""

    def holds(self, settings: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
        """Whether all that is wanted fits.

        Args:
            settings: Of a cell; what it leaves to `rumor.sim.SimulationConfig` fits nothing.
            labels: Of its points, by axis.
        """
        for name, wanted in self.wanted.items():
            found = [values[name] for values in (labels, settings) if name in values]
            if not found or not _fit(found, wanted):
                return False
        return True

    def __str__(self) -> str:
        return ", ".join(f"{name} = {json.dumps(value)}" for name, value in self.wanted.items())


def _fit(found: list[Any], wanted: Any) -> bool:
    if isinstance(wanted, list):
        return any(_fit(found, one) for one in wanted)
    if isinstance(wanted, str) and wanted.startswith("!="):
        return not _fit(found, wanted.removeprefix("!=").strip())
    return any(_fits(value, wanted) for value in found)


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(value, tuple):
        return any(_fits(one, wanted) for one in value)
    if not isinstance(wanted, str):
        return bool(value == wanted) and isinstance(value, bool) is isinstance(wanted, bool)
    for sign, compare in _COMPARISONS.items():
        if wanted.startswith(sign):
            limit = _number(wanted.removeprefix(sign))
            number = _number(value)
            return None not in (number, limit) and compare(number, limit)  # type: ignore[arg-type]
    if not isinstance(value, bool | str) and _number(wanted) is not None:
        return _number(value) == _number(wanted)
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return _pattern(wanted).fullmatch(text) is not None


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _pattern(text: str) -> re.Pattern[str]:
    """Only ``*`` and ``?`` stand for something: specs may have brackets."""
    parts = (".*" if mark == "*" else "." if mark == "?" else re.escape(mark) for mark in text)
    return re.compile("".join(parts), re.DOTALL)
