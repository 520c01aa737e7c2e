"""The picture of who gets there first, and with how many bytes."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..comparison import Comparison, Row
from ..measures import Measure
from .drawing import ACCENT, DIM, MUTED, logarithmic, paper, save
from .facets import Facet
from .figures import heading, is_part
from .ranking import measures_of, why

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_ranking"]

_WIDTH, _ROW, _HEAD = 10.0, 0.2, 0.85
_UNITS = {"bytes": ("MB", 1e6), "s": ("s", 1.0)}


def draw_ranking(facets: Sequence[Facet], path: Path) -> None:
    """Dots with 95 % intervals, the best on top, a chart for every facet."""
    heights = [_HEAD + _ROW * len(facet.comparison.rows) for facet in facets]
    with paper(_WIDTH, sum(heights)) as figure:
        grid = figure.subplots(len(facets), 2, squeeze=False, height_ratios=heights, sharey="row")
        for row, facet in zip(grid, facets, strict=True):
            for axes, measure in zip(row, measures_of(facet.comparison), strict=True):
                _draw(axes, facet.comparison, measure)
            row[0].set_title(facet.title or f"By {facet.comparison.measure.words}")
        save(figure, path)


def _draw(axes: "Axes", comparison: Comparison, measure: Measure) -> None:
    unit, size = ("%", 0.01) if is_part(measure) else _UNITS.get(measure.unit, ("", 1.0))
    found = [
        row.figures[measure.name].mean for row in comparison.rows if measure.name in row.figures
    ]
    least, most = min(found, default=0.0), max(found, default=0.0)
    if measure.is_ratio and least > 0 and most / least > 30:
        axes.set_xscale("log")
    for at, row in enumerate(comparison.rows):
        _mark(axes, at, row, measure, size)
    axes.set_yticks(range(len(comparison.rows)), [row.label for row in comparison.rows])
    axes.set_ylim(len(comparison.rows) - 0.5, -0.5)
    if axes.get_xscale() == "log":
        logarithmic(axes, "x")
    axes.grid(axis="y", visible=False)
    if measure.name != "accuracy" and axes.get_xscale() == "linear":
        axes.set_xlim(left=0)
    axes.set_xlabel(f"{heading(measure)}, {unit}" if unit else heading(measure))


def _mark(axes: "Axes", at: int, row: Row, measure: Measure, size: float) -> None:
    interval = row.figures.get(measure.name)
    color = ACCENT if row.as_good_as_best else DIM
    if interval is None:
        axes.annotate(
            why(row, measure), (0.02, at), xycoords=("axes fraction", "data"), va="center",
            fontsize=8, color=DIM,
        )  # fmt: skip
        return
    if math.isfinite(interval.low):
        high = min(interval.high, 1.0) if is_part(measure) else interval.high
        ends = [max(interval.low, 0.0) / size, high / size]
        axes.plot(ends, [at, at], color=color if row.as_good_as_best else MUTED, linewidth=1.4)
    axes.plot([interval.mean / size], [at], "o", color=color, markersize=5)
