"""The charts of a study: curves with bands, rankings with intervals, figures over an axis."""

import io
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from textwrap import fill, shorten
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...results.plots import BLUE, DIM, PALETTE, STYLE, new_figure, plain_log_ticks
from ..analysis.ranking import Comparison, by_metric
from ..format import listed, scale_of, shown
from ..metrics import METRICS, Metric, values_of
from ..results import Result, Results
from ..statistics import Interval, interval, quantile
from ..study import Axis, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Band",
    "band",
    "curves",
    "curves_of",
    "number_axis",
    "png",
    "ranking",
    "response",
    "standing",
]

Color = Any

_WIDTH, _MUTED = 10.0, "#C3C9D1"
_COLORS: Final = PALETTE[:6]
_STANDING_MAX = 6

# A logarithmic axis shows values above this part of the largest one.
_CLIFF = 1e-5

# If one line lasts this many times as long as another, the axis is logarithmic.
_SPREAD_MIN = 8.0

# If one value is this many times another, the axis is logarithmic.
_RESPONSE_WIDE, _RANKING_WIDE = 10.0, 30.0

# Panels of a ranking, side by side.
_PANELS_MAX: Final = 5

# With fewer seeds, a band is a range: from the lowest to the highest.
_SEEDS_MIN: Final = 3

# Bounds that a mean's interval must not cross, whatever Student's t gives.
_BOUNDS: Final = {"accuracy": (0.0, 1.0), "loss": (-np.inf, np.inf)}

Floats = NDArray[np.float64]


def png(figure: "Figure") -> bytes:
    """Return a figure as PNG, the same to the bit at every call."""
    drawn = io.BytesIO()
    with warnings.catch_warnings():
        # A very long name, or one in letters that no font has, is still drawn.
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(drawn, format="png", metadata={"Software": None})
    return drawn.getvalue()


def curves_of(results: Iterable[Result]) -> tuple[Metric, ...]:
    """Return the metrics whose curves a study shows: model quality, and distance of models."""
    there = {name for result in results for name in result.series}
    known = [
        metric
        for metric in METRICS.values()
        if metric.curve and metric.name in there and metric.hidden_by not in there
    ]
    return tuple(sorted(known, key=lambda metric: metric.preference or 0))


def number_axis(study: Study) -> Axis | None:
    """Return the first axis of at least three numbers; None without one."""
    return next((a for a in study.axes if len(a.points) > 2 and a.numbers), None)


def standing(study: Study, found: Sequence[Comparison]) -> dict[str, Color]:
    """Return the labels of the first axis that stand out among many lines, with their colors."""
    from matplotlib import colormaps

    main = study.axes[0]
    ordered = main.numbers is not None and len(main.points) > 2
    labels: Collection[str] = main.labels
    # If there are many labels: the best of every place, and the last of the first, for the spread.
    if len(labels) > (2 * _STANDING_MAX if ordered else len(_COLORS)):
        ranked = [[row.label for row in comparison.rows] for comparison in found]
        wanted = [label for one in ranked for label in one[: 4 if len(found) == 1 else 2]]
        labels = dict.fromkeys([*list(dict.fromkeys(wanted))[: _STANDING_MAX - 1], ranked[0][-1]])
    if ordered:
        shades = colormaps["viridis"](np.linspace(0.0, 0.85, len(labels)))
        return dict(zip(labels, map(tuple, shades), strict=True))
    return dict(zip(labels, _COLORS, strict=False))


def curves(places: Sequence[Comparison], colors: Mapping[str, Color]) -> "Figure":
    """Draw a row of panels over virtual time for each place, with a line for each point."""
    rows = []
    for one in places:
        metrics = curves_of(result for found in one.groups.values() for result in found)
        if one.study.goal == "loss":
            metrics = tuple(METRICS["loss"] if m.name == "accuracy" else m for m in metrics)
        rows.append(
            [
                (
                    m.title.removeprefix("Final ").capitalize(),
                    lambda axes, one=one, m=m: _draw_curves(axes, one, m, colors),
                )
                for m in metrics
            ]
        )
    figure = _grid(places, rows, [2.7] * len(rows))
    if len(colors) > 1:
        from matplotlib.lines import Line2D

        lines = [Line2D([], [], color=color, linewidth=1.8) for color in colors.values()]
        names = [shorten(label, 40, placeholder="…") for label in colors]
        figure.legend(lines, names, loc="outside lower center", ncols=min(6, len(names)),
                      frameon=False)  # fmt: skip
    return figure


def ranking(places: Sequence[Comparison]) -> "Figure":
    """Draw a row of panels for each place: the metric of the ranking, other metrics that the study
    names, and the traffic; each panel judges by its own metric."""
    rows, heights = [], []
    for one in places:
        traffic = "bytes_to_target" if one.metric.to_target else "bytes_sent"
        traffic = "bytes_to_loss" if one.study.goal == "loss" else traffic
        names = [*dict.fromkeys((one.metric.name, *one.study.metrics))]
        if not any(name.startswith("bytes_to") for name in names):
            names.append(traffic)
        names = [*names[: _PANELS_MAX - 1], names[-1]] if len(names) > _PANELS_MAX else names
        rows.append(
            [
                (METRICS[n].title, lambda axes, one=one, n=n: _draw_ranking(axes, one, METRICS[n]))
                for n in names
            ]
        )
        heights.append(0.9 + 0.2 * (len(one.rows) + len(one.missing)))
    return _grid(places, rows, heights, sharey="row")


def response(results: Results, metrics: Sequence[Metric]) -> "Figure":
    """Draw metrics over the axis of numbers: a line for every combination of the other axes, of
    the points at which all seeds have the metric."""
    draw = [(m.title, lambda axes, m=m: _draw_response(axes, results, m)) for m in metrics]
    return _grid([None], [draw], [3.4])


def _grid(
    places: Sequence[Comparison | None],
    rows: Sequence[Sequence[tuple[str, Callable[["Axes"], None]]]],
    heights: Sequence[float],
    **shared: Any,
) -> "Figure":
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure = new_figure(_WIDTH, sum(heights) + 0.5, "constrained", dpi=110)
        columns = max(map(len, rows))
        grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights, **shared)
        for line, where, panels in zip(grid, places, rows, strict=True):
            for axes in line[len(panels) :]:
                axes.set_axis_off()
            for axes, (title, draw) in zip(line, panels, strict=False):
                at = "" if where is None else ", ".join(where.at.values())
                axes.set_title(fill(f"{title}, {at}" if at else title, 96 // columns))
                draw(axes)
    return figure


def _draw_curves(
    axes: "Axes", comparison: Comparison, metric: Metric, colors: Mapping[str, Color]
) -> None:
    is_log, study = metric.is_logarithmic, comparison.study
    bands = {
        label: found
        for label, group in comparison.groups.items()
        if (found := band(group, metric.name, in_logs=is_log)) is not None
    }
    # A logarithmic axis has no place for workers that are all equal at most moments.
    alike = [label for label, found in bands.items() if is_log and np.median(found.mean) <= 0]
    there = {label: found for label, found in bands.items() if label not in alike}
    if alike:
        text = fill(f"0, all alike: {listed(alike)}", 48)
        axes.annotate(text, (0.01, 0.02), xycoords="axes fraction", fontsize=8, color=DIM)
    ends = sorted(found.x[-1] for found in there.values()) or [0.0]
    # If one line lasts much longer than another, the beginning of both matters.
    is_spread = ends[0] > 0 and ends[-1] / ends[0] >= _SPREAD_MIN
    unit, size = scale_of("s", ends[0] if is_spread else ends[-1])
    times = 0.01 if metric.unit == "%" else 1.0
    # Highlighted lines are drawn last, above the rest.
    for label in sorted(there, key=colors.__contains__):
        found, color = there[label], colors.get(label)
        x, mean = found.x / size, found.mean / times
        # A curve that starts at 0 has no beginning on a logarithmic axis.
        there_is = mean > 0 if is_log else np.full(len(mean), True)
        axes.plot(x[there_is], mean[there_is], color=color or _MUTED, lw=1.8 if color else 0.7)
        if color and found.n > 1:
            band_ends = found.low / times, found.high / times
            axes.fill_between(x, *band_ends, color=color, alpha=0.12, linewidth=0)
    axes.set_xlabel(f"virtual time, {unit}")
    if is_spread:
        axes.set_xscale("log")
    else:
        axes.set_xlim(0, ends[-1] / size or 1.0)
    y = np.concatenate([found.mean / times for found in there.values()] or [np.ones(1)])
    axes.yaxis.set_major_formatter("{x:g} %" if metric.unit == "%" else "{x:g}")
    if is_log and (y > 0).any():
        # After a merge models differ by rounding only, which would leave decades of the axis empty.
        kept = y[y >= _CLIFF * y.max()]
        axes.set_yscale("log")
        axes.set_ylim(0.8 * kept.min(), 1.25 * kept.max())
        plain_log_ticks(axes, kept.max() / kept.min())
    if metric.name == study.goal:
        target = study.target / times
        if metric.lower_is_better and there:
            # The steep start of a loss would leave no room for its end.
            last = max(found.mean[-1] for found in there.values())
            axes.set_ylim(min(y.min(), target) * 0.97, max(2 * target - y.min(), last) * 1.03)
        axes.axhline(target, color=DIM, linewidth=0.8, linestyle=":")
        style: Any = {"textcoords": "offset points", "fontsize": 8, "color": DIM}
        axes.annotate(f"target {study.target:g}", (0, target), (3, 2), **style)


def _draw_ranking(axes: "Axes", comparison: Comparison, metric: Metric) -> None:
    name, judged = metric.name, {row.label: row for row in by_metric(comparison, metric).rows}
    there = [(at, r, r.figures[name]) for at, r in enumerate(comparison.rows) if name in r.figures]
    is_log = metric.is_ratio and _is_wide([found.mean for _, _, found in there], _RANKING_WIDE)
    unit, size = scale_of(metric.unit, max((found.mean for _, _, found in there), default=1.0))
    for at, row, figure in there:
        found = figure.in_logs if is_log else figure
        color = BLUE if judged[row.label].may_be_first else DIM
        axes.errorbar(found.mean / size, at, xerr=_bars(found, size), fmt="o", color=color, ms=4.5)
    if is_log:
        axes.set_xscale("log")
    elif there:
        # One long interval would squeeze all the others.
        means = [found.mean / size for _, _, found in there]
        low, high = axes.get_xlim()
        room = 0.6 * max(map(abs, means)) or 1.0
        low, high = max(low, min(means) - room), min(high, max(means) + room)
        # Only differences of a loss are meaningful: its zero is not.
        is_from_0 = metric.lower_is_better and name != "loss" and min(means) >= 0
        axes.set_xlim(0.0 if is_from_0 else low, high)
    labels = [*(row.label for row in comparison.rows), *comparison.missing]
    axes.set_yticks(range(len(labels)), [shorten(label, 40, placeholder="…") for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(", ".join(filter(None, [unit, "logarithmic" * is_log])))
    for at, text in _remarks(comparison, metric):
        axes.text(0.02, at, text, transform=axes.get_yaxis_transform(), fontsize=8, color=DIM,
                  va="center")  # fmt: skip


def _remarks(comparison: Comparison, metric: Metric) -> Iterable[tuple[int, str]]:
    """Yield why rows have no mean to show."""
    for at, row in enumerate(comparison.rows):
        if metric.name in row.figures:
            continue
        text = "never" if metric.to_target else "–"
        # Once is enough: next to the metric of the ranking.
        end = row.figures.get(metric.goal) if metric.name == comparison.metric.name else None
        if arrived := row.arrived.get(metric.name, 0):
            text = f"{arrived} of {row.n} seeds only"
        elif end is not None:
            text += f", ends at {shown(end.mean, METRICS[metric.goal].unit)}"
        yield at, text
    for at in range(len(comparison.missing)):
        yield len(comparison.rows) + at, "no result"


def _draw_response(axes: "Axes", results: Results, metric: Metric) -> None:
    study, axis = results.study, number_axis(results.study)
    assert axis is not None and axis.numbers is not None
    others, groups = [other for other in study.axes if other is not axis], results.groups()
    lines: dict[str, list[tuple[float, Interval]]] = {}
    for labels in product(*(other.labels for other in others)):
        at = {other.name: label for other, label in zip(others, labels, strict=True)}
        for number, text in sorted(zip(axis.numbers, axis.labels, strict=True)):
            here = {**at, axis.name: text}
            found = groups.get(tuple(here[one.name] for one in study.axes), ())
            values = values_of(found, metric, study.target)
            if values and len(values) == len(found):
                line = lines.setdefault(", ".join(labels) or axis.name, [])
                line.append((number, interval(values.values())))
    means = [found.mean for line in lines.values() for _, found in line]
    unit, size = scale_of(metric.unit, max(means, default=0.0))
    if metric.is_ratio and _is_wide(means, _RESPONSE_WIDE):
        axes.set_yscale("log")
        plain_log_ticks(axes, max(means) / min(means))
    for index, (label, line) in enumerate(lines.items()):
        middles = [found.mean / size for _, found in line]
        bars = np.hstack([_bars(found, size) for _, found in line])
        color = _COLORS[index] if len(lines) <= len(_COLORS) else DIM
        axes.errorbar([at for at, _ in line], middles, yerr=bars, fmt="o-", color=color,
                      markersize=4.5, label=shorten(label, 30, placeholder="…"))  # fmt: skip
    if len(lines) > 1:
        axes.legend()
    if _is_wide(axis.numbers, _RESPONSE_WIDE):
        axes.set_xscale("log")
    axes.set_xticks(axis.numbers, axis.labels)
    axes.set_xticks([], minor=True)
    axes.set_xlabel(axis.name)
    axes.set_ylabel(unit)


def _bars(found: Interval, size: float) -> Any:
    """Return the lengths of an error bar, below and above; 0 if the noise is unknown."""
    ends = np.array([[found.mean - found.low], [found.high - found.mean]]) / size
    return np.where(np.isfinite(ends), ends, 0.0)


def _is_wide(values: Sequence[float], times: float) -> bool:
    """True if all values are above 0 and the largest is at least *times* the smallest."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > times


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The mean curve of a group's seeds, and the 95 % interval of the mean around it; float64, all
    of one length."""

    x: Floats
    """Ascending, over the range that all seeds cover."""
    mean: Floats
    low: Floats
    high: Floats
    n: int
    """Number of seeds."""


def band(results: Sequence[Result], y: str, *, in_logs: bool = False) -> Band | None:
    """Average the curve *y* of a group's seeds over virtual time; None if a seed lacks it, or the
    curves have no range in common.

    Args:
        in_logs: Average logarithms, for a logarithmic axis, wherever all values are above 0.
    """
    curves = []
    for result in results:
        pairs = zip(result.series.get("time_s", ()), result.series.get(y, ()), strict=False)
        # The last of several values at a place.
        found = {at: value for at, value in pairs if at is not None and value is not None}
        curves.append(np.array(sorted(found.items()), np.float64).reshape(-1, 2).T)
    if not curves or any(not len(at) for at, _ in curves):
        return None
    start, end = max(at[0] for at, _ in curves), min(at[-1] for at, _ in curves)
    if start > end:
        return None
    x = curves[0][0]
    if not all(np.array_equal(x, at) for at, _ in curves):
        x = np.unique(np.linspace(start, end, max(len(at) for at, _ in curves)))
    rows = np.array([np.interp(x, at, values) for at, values in curves])
    mean = rows.mean(axis=0)
    low, high = _around(rows, *_BOUNDS.get(y, (0.0, np.inf)))
    if in_logs:
        # An interval cut at 0 extends infinitely far down on a logarithmic axis.
        above = (rows > 0).all(axis=0)
        logs = np.log(rows[:, above])
        mean[above] = np.exp(logs.mean(axis=0))
        low[above], high[above] = np.exp(_around(logs, -np.inf, np.inf))
    return Band(x=x, mean=mean, low=low, high=high, n=len(rows))


def _around(rows: Floats, least: float, most: float) -> tuple[Floats, Floats]:
    if len(rows) < _SEEDS_MIN:
        return rows.min(axis=0), rows.max(axis=0)
    mean = rows.mean(axis=0)
    half = quantile(len(rows) - 1) * rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    low, high = np.maximum(mean - half, least), np.minimum(mean + half, most)
    return np.minimum(low, mean), np.maximum(high, mean)
