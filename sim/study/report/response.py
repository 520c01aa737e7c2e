"""How outcomes depend on an axis of numbers: one line for every combination of the others."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from ..measures import MEASURES, Measure, values_of
from ..result import Result, Results
from ..statistics import Interval, interval
from ..study import Axis
from .controls import chooser, section
from .facets import group_of
from .figures import heading, is_part
from .html import Html, tag

__all__ = [
    "Response",
    "is_spread",
    "number_axis",
    "numbers_of",
    "response",
    "responses_as_json",
    "responses_of",
]

_SHOWN = (
    *("time_to_target_s", "bytes_to_target", "accuracy", "loss", "disagreement_stationary"),
    *("disagreement", "consensus_distance", "bytes_sent"),
)
_POINTS_MIN = 3
_NUMBER = re.compile(
    r"([-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[-+]?[0-9]+)?)\s*(%|x|ms|s)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """One line of such a chart."""

    label: str
    """Of its place on the other axes."""

    points: tuple[tuple[float, Interval], ...]
    """Places on the axis of numbers, ascending, and what came out there; those are missing where
    there is no result, or where not every seed reached the target."""


def numbers_of(axis: Axis) -> tuple[float, ...] | None:
    """Its points as numbers; None where some of them is none, or units differ."""
    found = [_NUMBER.fullmatch(label.strip()) for label in axis.labels]
    if not all(found) or len({match[2] for match in found if match}) > 1:
        return None
    numbers = tuple(float(match[1]) for match in found if match)
    # Two points at one place would be one.
    are_apart = len(set(numbers)) == len(numbers) and all(map(math.isfinite, numbers))
    return numbers if are_apart else None


def number_axis(results: Results) -> Axis | None:
    """The first axis of at least three numbers; None where there is none."""
    for axis in results.study.axes:
        if len(axis.points) >= _POINTS_MIN and numbers_of(axis) is not None:
            return axis
    return None


def response(results: Results) -> Html | None:
    """The section; None where no axis is of numbers."""
    axis, measures = number_axis(results), _measures(results)
    if axis is None or not measures:
        return None
    choices = {measure.name: heading(measure) for measure in measures}
    control = chooser("response", "Show", choices)
    bar = tag("div", control, class_="controls", hidden=True, data_script=True)
    words = "Dots are means over seeds, bars their 95 % intervals."
    if any(measure.curve for measure in measures):
        words += " Where not every seed reaches the target there is no dot."
    figure = tag(
        "div", class_="plot tall", id="response-plot", role="img", aria_label=f"By {axis.name}"
    )
    return section("response", f"What {axis.name} does", words, bar, figure)


def responses_of(results: Results, measure: Measure) -> tuple[Response, ...]:
    """The lines for one measure, in the order of the other axes."""
    axis = number_axis(results)
    assert axis is not None
    numbers = dict(zip(axis.labels, numbers_of(axis) or (), strict=True))
    others = [other for other in results.study.axes if other is not axis]
    groups = results.groups()
    found = []
    for labels in product(*(other.labels for other in others)):
        at = {other.name: label for other, label in zip(others, labels, strict=True)}
        here = {
            number: groups[group]
            for text, number in numbers.items()
            if (group := group_of(results.study, at | {axis.name: text})) in groups
        }
        points = tuple(_points(here, measure, results.study.target))
        if points:
            found.append(Response(label=", ".join(labels) or axis.name, points=points))
    return tuple(found)


def responses_as_json(results: Results) -> dict[str, Any] | None:
    """What the page's script draws; None where no axis is of numbers."""
    axis, measures = number_axis(results), _measures(results)
    if axis is None or not measures:
        return None
    return {
        "axis": axis.name,
        "numbers": numbers_of(axis),
        "labels": axis.labels,
        "log": is_spread(numbers_of(axis) or ()),
        "of_main": axis is results.study.axes[0],
        "measures": {
            measure.name: {
                "title": heading(measure),
                "unit": "%" if is_part(measure) else measure.unit,
                "ratio": measure.is_ratio,
                "lines": [_line(one) for one in responses_of(results, measure)],
            }
            for measure in measures
        },
    }


def is_spread(numbers: tuple[float, ...]) -> bool:
    """Whether a logarithmic axis shows them better."""
    return min(numbers) > 0 and max(numbers) / min(numbers) >= 10


def _measures(results: Results) -> list[Measure]:
    target = results.study.target
    there = partial(_is_there, results, target)
    return [MEASURES[name] for name in _SHOWN if there(MEASURES[name])]


def _is_there(results: Results, target: float, measure: Measure) -> bool:
    return any(measure.of(result, target) is not None for result in results.results)


def _points(
    found: Mapping[float, Sequence[Result]], measure: Measure, target: float
) -> Iterator[tuple[float, Interval]]:
    for number, results in sorted(found.items()):
        values = values_of(results, measure, target)
        if values and len(values) == len(results):
            yield number, interval(values.values())


def _line(one: Response) -> dict[str, Any]:
    return {
        "label": one.label,
        "points": [
            [
                at,
                *(
                    float(f"{value:.5g}") if math.isfinite(value) else None
                    for value in (found.mean, found.low, found.high)
                ),
            ]
            for at, found in one.points
        ],
    }
