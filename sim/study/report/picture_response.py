"""The picture of what an axis of numbers does."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from ..measures import MEASURES, Measure
from ..result import Results
from ..study import Axis
from .drawing import DIM, colors_of, label_ends, logarithmic, paper, save
from .figures import heading, is_part
from .response import Response, is_spread, number_axis, numbers_of, responses_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_response"]

_WIDTH, _HEIGHT = 10.0, 3.6
_NAMED_MAX = 7


def draw_response(results: Results, measure: Measure, path: Path) -> None:
    """What is compared, and what it costs or how far models are apart, over the numbers."""
    more = "bytes_to_target" if measure.curve else "consensus_distance"
    axis = number_axis(results)
    assert axis is not None
    with paper(_WIDTH, _HEIGHT) as figure:
        places = figure.subplots(1, 2)
        ends = []
        for axes, one in zip(places, (measure, MEASURES[more]), strict=True):
            ends.append(_draw(axes, responses_of(results, one), one))
            _number(axes, axis)
        figure.draw_without_rendering()
        for axes, several in zip(places, ends, strict=True):
            label_ends(axes, several)
        save(figure, path)


def _number(axes: "Axes", axis: Axis) -> None:
    """The numbers of the study below, whether there is anything above them or not."""
    numbers = numbers_of(axis) or ()
    if is_spread(numbers):
        logarithmic(axes, "x")
        axes.set_xlim(min(numbers) / 1.3, max(numbers) * 1.3)
    else:
        room = 0.05 * (max(numbers) - min(numbers))
        axes.set_xlim(min(numbers) - room, max(numbers) + room)
    axes.set_xticks(numbers, axis.labels)
    axes.set_xticks([], minor=True)
    axes.set_xlabel(axis.name)


def _draw(
    axes: "Axes", lines: tuple[Response, ...], measure: Measure
) -> list[tuple[str, float, str]]:
    """Draw, and say where which line ends."""
    times = 100.0 if is_part(measure) else 1e-6 if measure.unit == "bytes" else 1.0
    unit = "%" if is_part(measure) else {"s": "s", "bytes": "MB"}.get(measure.unit, "")
    axes.set_title(f"{heading(measure)}, {unit}" if unit else heading(measure))
    few = len(lines) <= _NAMED_MAX
    colors = colors_of(len(lines)) if few else [DIM] * len(lines)
    for line, color in zip(lines, colors, strict=True):
        mean = [found.mean * times for _, found in line.points]
        halves = [found.half * times for _, found in line.points]
        bars = [half if math.isfinite(half) else 0.0 for half in halves]
        # On a logarithmic axis a bar that reaches 0 would have no end.
        below = [min(bar, 0.9 * abs(at)) for bar, at in zip(bars, mean, strict=True)]
        x = [at for at, _ in line.points]
        axes.errorbar(
            x, mean, yerr=(below, bars), color=color, marker="o", markersize=4, linewidth=1.6
        )
    means = [found.mean for line in lines for _, found in line.points]
    if measure.is_ratio and means and min(means) > 0 and max(means) / min(means) > 10:
        logarithmic(axes, "y")
    if len(lines) < 2 or not few:
        return []
    return [
        (line.label, line.points[-1][1].mean * times, color)
        for line, color in zip(lines, colors, strict=True)
    ]
