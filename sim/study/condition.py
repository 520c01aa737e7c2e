"""Conditions on a cell, as study files have them: which cells to leave out."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

__all__ = ["Condition"]

# Longer ones first: "<=" begins with "<".
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {
        "<=": operator.le,
        ">=": operator.ge,
        "!=": operator.ne,
        "<": operator.lt,
        ">": operator.gt,
    }
)


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that holds for some cells of a study.

    >>> few = Condition({"rule": ["dpsgd", "allreduce"], "workers": ">=512"})
    >>> few.holds({"rule": "dpsgd", "workers": 1024}, {})
    True
    >>> few.holds({"rule": "sgp", "workers": 1024}, {})
    False
    """

    wanted: Mapping[str, Any]
    """For each name, a value, a list of values of which one must fit, or a text: a pattern with
    ``*`` and ``?``, or a comparison with a number such as ``">=512"``."""

    def holds(self, settings: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
        """Whether all that is wanted fits.

        Args:
            settings: Of a cell; what it leaves to `rumor.sim.SimulationConfig` fits nothing.
            labels: Of its points, for axes with names of their own.
        """
        found = {**labels, **settings}
        return all(
            name in found and _fits(found[name], wanted) for name, wanted in self.wanted.items()
        )


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return any(_fits(value, one) for one in wanted)
    if not isinstance(wanted, str):
        return bool(value == wanted)
    sign = next((sign for sign in _COMPARISONS if wanted.startswith(sign)), None)
    if sign is None:
        return fnmatchcase(str(value), wanted)
    limit = wanted.removeprefix(sign).strip()
    try:
        return _COMPARISONS[sign](float(value), float(limit))
    except (TypeError, ValueError):
        return sign == "!=" and str(value) != limit
