"""The charts of a study: curves with bands, rankings with intervals, figures over an axis."""

import io
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from textwrap import fill, shorten
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...results.plots import BLUE, DIM, PALETTE, STYLE, new_figure, plain_log_ticks
from ..analysis.ranking import Comparison, by_metric
from ..format import listed, scale_of
from ..metrics import METRICS, Metric, values_of
from ..results import Result, Results
from ..statistics import Interval, exp, interval
from ..study import Axis, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    *("curves", "curves_of", "number_axis", "png", "ranking", "response", "seeds_over_time"),
    "standing",
]

Color = Any

_WIDTH, _MUTED = 10.0, "#C3C9D1"
_COLORS: Final = PALETTE[:6]

# A logarithmic axis shows values above this part of the largest one.
_CLIFF = 1e-5

# If one value is this many times another, the axis is logarithmic.
_RESPONSE_WIDE, _RANKING_WIDE = 10.0, 30.0

# Panels of a ranking, side by side.
_PANELS_MAX: Final = 5

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
    labels: Sequence[str] = main.labels
    if main.numbers is not None and len(labels) > 2:
        shades = colormaps["viridis"](np.linspace(0.0, 0.85, len(labels)))
        return dict(zip(labels, map(tuple, shades), strict=True))
    if len(labels) > len(_COLORS):
        # The best at the first place, and the last for the spread.
        ranked = [row.label for row in found[0].rows]
        labels = [*ranked[: len(_COLORS) - 1], *ranked[len(_COLORS) - 1 :][-1:]]
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
    there = {
        label: found
        for label, group in comparison.groups.items()
        if (found := seeds_over_time(group, metric.name)) is not None
    }
    # A logarithmic axis has no place for workers that are all equal at most moments.
    alike = [label for label, (_, rows) in there.items() if is_log and np.median(rows) <= 0]
    if alike:
        text = fill(f"0, all alike: {listed(alike)}", 48)
        axes.annotate(text, (0.01, 0.02), xycoords="axes fraction", fontsize=8, color=DIM)
    there = {label: found for label, found in there.items() if label not in alike}
    end = max((times[-1] for times, _ in there.values()), default=0.0)
    unit, size = scale_of("s", end)
    times = 0.01 if metric.unit == "%" else 1.0
    means = {}
    # Highlighted lines are drawn last, above the rest.
    for label in sorted(there, key=colors.__contains__):
        (x, rows), color = there[label], colors.get(label)
        x, rows = x / size, rows / times
        means[label] = mean = rows.mean(axis=0)
        # A curve that starts at 0 has no beginning on a logarithmic axis.
        there_is = mean > 0 if is_log else np.full(len(mean), True)
        axes.plot(x[there_is], mean[there_is], color=color or _MUTED, lw=1.8 if color else 0.7)
        if color and len(rows) > 1:
            band = rows.min(axis=0), rows.max(axis=0)
            axes.fill_between(x, *band, color=color, alpha=0.12, linewidth=0)
    axes.set_xlabel(f"virtual time, {unit}")
    axes.set_xlim(0, end / size or 1.0)
    y = np.concatenate([*means.values()] or [np.ones(1)])
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
            last = max(mean[-1] for mean in means.values())
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
        values = values_of(comparison.groups[row.label], metric, comparison.study.target)
        found = _of_logs(values.values()) if is_log else figure
        color = BLUE if judged[row.label].may_be_first else DIM
        axes.errorbar(found.mean / size, at, xerr=_bars(found, size), fmt="o", color=color, ms=4.5)
    means = [found.mean / size for _, _, found in there]
    if is_log:
        axes.set_xscale("log")
    elif there:
        # One long interval would squeeze all the others.
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
        if metric.name not in row.figures:
            arrived = row.arrived.get(metric.name)
            yield at, "–" if arrived is None else f"{arrived} of {row.n} seeds"
    for at in range(len(comparison.missing)):
        yield len(comparison.rows) + at, "no result"


def _draw_response(axes: "Axes", results: Results, metric: Metric) -> None:
    study, axis = results.study, number_axis(results.study)
    assert axis is not None and axis.numbers is not None
    numbers = dict(zip(axis.labels, axis.numbers, strict=True))
    lines: dict[str, list[tuple[float, Interval]]] = {}
    for found in results.groups().values():
        values, labels = values_of(found, metric, study.target), dict(found[0].trial.labels)
        number = numbers[labels.pop(axis.name)]
        if values and len(values) == len(found):
            line = lines.setdefault(", ".join(labels.values()) or axis.name, [])
            line.append((number, interval(values.values())))
    lines = {name: sorted(line, key=lambda point: point[0]) for name, line in lines.items()}
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


def _of_logs(values: Collection[float]) -> Interval:
    """Return the geometric mean with the interval of the logarithms, which does not reach 0; the
    usual one if a value has no logarithm."""
    if min(values) <= 0:
        return interval(values)
    logs = interval(map(math.log, values))
    return replace(logs, mean=exp(logs.mean), low=exp(logs.low), high=exp(logs.high))


def _bars(found: Interval, size: float) -> Any:
    """Return the lengths of an error bar, below and above; 0 if the noise is unknown."""
    ends = np.array([[found.mean - found.low], [found.high - found.mean]]) / size
    return np.where(np.isfinite(ends), ends, 0.0)


def _is_wide(values: Sequence[float], times: float) -> bool:
    """True if all values are above 0 and the largest is at least *times* the smallest."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > times


def seeds_over_time(results: Sequence[Result], y: str) -> tuple[Floats, Floats] | None:
    """Return virtual times that all seeds of a group cover, and the curve *y* there, axes ``(seed,
    time)``; None if a seed lacks it, or the curves have no range in common."""
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
    return x, np.array([np.interp(x, at, values) for at, values in curves])
