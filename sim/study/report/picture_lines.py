"""The picture of curves over virtual time, facet by facet."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import words
from ..curves import band
from ..result import Result, Results
from .drawing import DIM, MUTED, colors_of, label_ends, logarithmic, paper, save
from .facets import Facet
from .lines import COURSES, courses_of
from .response import numbers_of
from .standing import standing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_lines"]

_WIDTH, _HEIGHT = 10.0, 2.9


def draw_lines(results: Results, facets: Sequence[Facet], path: Path) -> None:
    """A row for every facet, a column for how good models are, and one for how far apart."""
    courses = courses_of(results)
    named = standing(facets)
    with paper(_WIDTH, _HEIGHT * len(facets) + 0.3) as figure:
        grid = figure.subplots(len(facets), len(courses), squeeze=False)
        ends = []
        for row, facet in zip(grid, facets, strict=True):
            for axes, name in zip(row, courses, strict=True):
                title = COURSES[name][0]
                axes.set_title(f"{title}, {facet.title}" if facet.title else title)
                ends.append(_draw(axes, facet, name, named))
        for axes in grid[-1]:
            axes.set_xlabel("virtual time, s")
        # Where labels go depends on how high axes are, and that on everything else.
        figure.draw_without_rendering()
        for axes, several in zip(grid.flat, ends, strict=True):
            label_ends(axes, several)
        save(figure, path)


def _draw(
    axes: "Axes", facet: Facet, name: str, named: Sequence[str]
) -> list[tuple[str, float, str]]:
    """Draw, and say where which line ends."""
    _, _, unit, is_log = COURSES[name]
    times = 100.0 if unit == "%" else 1.0
    ordered = numbers_of(facet.results.study.axes[0]) is not None
    colors = dict(zip(named, colors_of(len(named), ordered=ordered), strict=True))
    ends, alike = [], []
    # Those that stand out come last, above the others.
    for label, found in sorted(facet.groups.items(), key=lambda one: one[0] in colors):
        drawn = _line(axes, found, name, times, colors.get(label), is_log)
        if drawn is not None and is_log and drawn == 0:
            alike.append(label)
        elif drawn is not None and label in colors:
            ends.append((label, drawn, colors[label]))
    _scale(axes, facet, name, is_log)
    if alike:
        color = colors.get(alike[0], DIM) if len(alike) == 1 else DIM
        text = f"0, all alike: {words.listed(alike)}"
        axes.text(0.01, 0.02, text, transform=axes.transAxes, fontsize=8.5, color=color)
    return ends


def _line(
    axes: "Axes",
    found: Sequence[Result],
    name: str,
    times: float,
    color: str | None,
    is_log: bool,
) -> float | None:
    drawn = band(found, name)
    if drawn is None:
        return None
    there = [i for i, mean in enumerate(drawn.mean) if not is_log or mean > 0]
    # Workers that are all alike at most moments have no line where there is no 0.
    if is_log and len(there) < len(drawn.mean) / 2:
        return 0.0
    x, mean, low, high = (
        [of[i] * scale for i in there]
        for of, scale in (
            (drawn.x, 1.0),
            (drawn.mean, times),
            (drawn.low, times),
            (drawn.high, times),
        )
    )
    if not x:
        return None
    if is_log:
        low = [max(value, min(mean) / 10) for value in low]
    style: dict[str, Any] = {"color": color or MUTED, "linewidth": 1.8 if color else 0.7}
    axes.plot(x, mean, **style)
    if color and drawn.kind != "single":
        axes.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
    return mean[-1]


def _scale(axes: "Axes", facet: Facet, name: str, is_log: bool) -> None:
    axes.margins(x=0)
    axes.set_xlim(left=0)
    if is_log:
        logarithmic(axes, "y")
    if name == "accuracy":
        axes.yaxis.set_major_formatter("{x:g} %")
        target = 100 * facet.results.study.target
        axes.axhline(target, color=DIM, linewidth=0.8, linestyle=":")
        is_end = _has_room_below(axes, target)
        axes.annotate(
            f"target {target:g} %",
            (0.99 if is_end else 0.01, target),
            xycoords=("axes fraction", "data"),
            xytext=(0, -3 if is_end else 2),
            textcoords="offset points",
            ha="right" if is_end else "left",
            va="top" if is_end else "bottom",
            fontsize=8,
            color=DIM,
            bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5},
        )


def _has_room_below(axes: "Axes", target: float) -> bool:
    """Whether fewer lines are below the target at the end than above it at the start."""
    drawn = [np.asarray(line.get_ydata(), np.float64) for line in axes.lines]
    curves = [curve for curve in drawn if len(curve) > 2]
    later = sum(_is_near(curve, target) for curve in curves)
    early = sum(bool(curve[int(0.12 * len(curve))] > target) for curve in curves)
    return later < early or (later == early and any(curve[-1] > target for curve in curves))


def _is_near(curve: NDArray[np.float64], target: float) -> bool:
    ends = curve[[int(0.85 * len(curve)), -1]]
    return bool(((ends <= target) & (ends > target - 10)).any())
