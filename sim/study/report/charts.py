"""Every chart of a report, declared once: the page and the pictures draw the same panels."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from ..analysis.curves import Band, band
from ..analysis.heatmap import Heatmap, heatmap
from ..analysis.predictors import Prediction, graph_axis, predictions
from ..analysis.ranking import Comparison, Row
from ..format import listed, scale_of, signed
from ..metrics import FACTS, METRICS, Metric, metrics_known, values_of
from ..results import Results
from ..statistics import Interval, interval
from ..study import Axis
from .facets import Facet, key_of

__all__ = [
    "PLACES",
    "Matrix",
    "Panel",
    "Scale",
    "Series",
    "correlations",
    "curve_panels",
    "curves_of",
    "heatmaps",
    "log_ticks",
    "number_axis",
    "places_of",
    "prediction_panels",
    "ranking_panels",
    "response_panel",
    "standing",
]

PLACES: Final = {
    "steps": ("steps", "steps of each worker", ""),
    "time_s": ("virtual time", "virtual time", "s"),
    "bytes_sent": ("bytes", "sent by all workers", "bytes"),
}
"""What curves may be drawn over: a name, a title and a unit for each."""

# Who is ahead after so many steps is not the question where these differ.
_CLOCKS: Final = frozenset(
    ("speeds", "slow", "pace", "time_s", "emission", "latency_s", "bandwidth_mbit", "faults")
) | {"loss"}

_COLORS = 7
_STANDING_MAX = 6
_POINTS_MAX = 120
_WIDE = 10.0
_TICKS_MIN, _TICKS_MAX = 3, 7

# Differences that take all colors: relative to the largest figure, and of fractions.
_RATIO_MIN, _FRACTIONS_MIN = 0.3, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """An axis of a panel."""

    title: str
    low: float
    high: float
    is_log: bool = False
    suffix: str = ""
    """Behind the figures of its ticks."""

    ticks: tuple[tuple[float, str], ...] = ()
    """Where ticks are and what they say; left to the drawing library if empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line, or points, with intervals."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float | None, ...] = ()
    """Ends of intervals, along y, or along x where the panel is one of rows."""

    high: tuple[float | None, ...] = ()
    color: str = "dim"
    """``c0`` to ``c6``, ``shade:`` and a part of a scale of colors, or a color's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart."""

    kind: str
    """``curves`` (lines with bands), ``points``, ``linked`` (points on a line with error bars) or
    ``rows`` (labels down, values across)."""

    title: str
    note: str = ""
    """Beside the title."""

    x: Scale
    y: Scale
    series: tuple[Series, ...]
    target: float | None = None
    """Where the target lies on the y axis."""

    remarks: tuple[tuple[float, str], ...] = ()
    """Words in place of values: at which row, or, of curves, at the bottom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A table of colors with a figure in each."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    shades: tuple[tuple[float | None, ...], ...]
    """From 0 to 1; None where there is no figure."""

    texts: tuple[tuple[str, ...], ...]


def curves_of(results: Results) -> tuple[Metric, ...]:
    """The metrics whose curves a study is about: how good models are, and how far apart."""
    there = {name for result in results.results for name in result.series}
    known = [
        metric
        for metric in METRICS.values()
        if metric.curve and metric.name in there and metric.hidden_by not in there
    ]
    return tuple(sorted(known, key=lambda metric: metric.preference or 0))


def places_of(results: Results) -> tuple[str, ...]:
    """What curves may be drawn over; first what tells the trials of this study apart."""
    study = results.study
    points = [point for axis in study.axes for point in axis.points]
    given = set(study.settings).union(*(point.settings for point in points))
    return ("time_s", "steps", "bytes_sent") if given & _CLOCKS else tuple(PLACES)


def standing(facets: Sequence[Facet]) -> dict[str, str]:
    """Labels of the first axis that stand out among many lines, and their colors.

    All of a few; else the best of every facet, and the last of the first to show how far it goes.
    """
    main = facets[0].results.study.axes[0]
    ordered = main.numbers is not None and len(main.points) > 2
    if len(main.points) <= (2 * _STANDING_MAX if ordered else _COLORS):
        labels: Iterable[str] = main.labels
    else:
        ranked = [[row.label for row in facet.comparison.rows] for facet in facets]
        wanted = [label for one in ranked for label in one[: 4 if len(facets) == 1 else 2]]
        labels = dict.fromkeys([*list(dict.fromkeys(wanted))[: _STANDING_MAX - 1], ranked[0][-1]])
    return dict(zip(labels, _colors(len(tuple(labels)), ordered=ordered), strict=True))


def curve_panels(facet: Facet, place: str, colors: dict[str, str]) -> list[Panel]:
    """For each curve of a study a panel with a line for each point of the first axis."""
    return [_curve_panel(facet, metric, place, colors) for metric in curves_of(facet.results)]


def _curve_panel(facet: Facet, metric: Metric, place: str, colors: dict[str, str]) -> Panel:
    bands = {
        label: drawn
        for label, found in facet.groups.items()
        if (drawn := band(found, metric.name, place)) is not None
    }
    is_log = metric.is_logarithmic
    alike = [label for label, drawn in bands.items() if is_log and _is_nothing(drawn)]
    there = {label: drawn for label, drawn in bands.items() if label not in alike}
    _, title, unit = PLACES[place]
    unit, size = scale_of(unit, max((one.x[-1] for one in there.values()), default=0.0))
    times = 0.01 if metric.unit == "%" else 1.0
    series = [
        _line(label, drawn, size, times, is_log, colors.get(label, "muted"))
        for label, drawn in there.items()
    ]
    # What stands out is drawn last, above the rest.
    series.sort(key=lambda one: one.label in colors)
    target = facet.results.study.target / times if metric.name == "accuracy" else None
    x, y = [0.0, *(v for one in series for v in one.x)], [v for one in series for v in one.y]
    name = METRICS[metric.name].title.removeprefix("Final ")
    return Panel(
        kind="curves",
        title=name[:1].upper() + name[1:],
        note=f"{metric.curve}, logarithmic" if is_log else metric.curve,
        x=_scale(f"{title}, {unit}" if unit else title, x, room=0.0),
        y=_scale("", [*y, *([] if target is None else [target])], is_log=is_log,
                 suffix=" %" if metric.unit == "%" else ""),
        series=tuple(series),
        target=target,
        remarks=((0.0, f"0, all alike: {listed(alike)}"),) if alike else (),
    )  # fmt: skip


def _is_nothing(drawn: Band) -> bool:
    """Whether workers are all alike at most moments: a logarithmic axis has no place for that."""
    return sum(mean <= 0 for mean in drawn.mean) > len(drawn.mean) / 2


def _line(label: str, drawn: Band, size: float, times: float, is_log: bool, color: str) -> Series:
    there = [i for i, mean in enumerate(drawn.mean) if not is_log or mean > 0]
    step = -(-len(there) // _POINTS_MAX)
    # The last evaluation is what everybody looks at.
    kept = sorted({*there[::step], there[-1]})
    least = min(drawn.mean[i] for i in there) / 10 if is_log else -math.inf
    has_band = drawn.kind != "single"
    return Series(
        label=label,
        x=tuple(_short(drawn.x[i] / size) for i in kept),
        y=tuple(_short(drawn.mean[i] / times) for i in kept),
        low=tuple(_short(max(drawn.low[i], least) / times) for i in kept) if has_band else (),
        high=tuple(_short(drawn.high[i] / times) for i in kept) if has_band else (),
        color=color,
    )


def ranking_panels(facet: Facet) -> list[Panel]:
    """What rows are ranked by, and the traffic that goes with it: means with intervals."""
    comparison = facet.comparison
    traffic = "bytes_to_target" if comparison.metric.to_target else "bytes_sent"
    metrics = dict.fromkeys((comparison.metric.name, traffic))
    return [_ranking_panel(comparison, METRICS[name]) for name in metrics]


def _ranking_panel(comparison: Comparison, metric: Metric) -> Panel:
    rows = comparison.rows
    means = [row.figures[metric.name].mean for row in rows if metric.name in row.figures]
    most = max(means, default=1.0)
    unit, size = scale_of(metric.unit, most)
    is_log = metric.is_ratio and bool(means) and min(means) > 0 and most / min(means) > 30
    # Room for the intervals, but not for one that would squeeze all the others.
    found = [row.figures[metric.name] for row in rows if metric.name in row.figures]
    ends = [min(one.high, 1.6 * abs(most)) for one in found if math.isfinite(one.high)]
    values = [value / size for value in (*means, *ends)]
    if not is_log and metric.lower_is_better:
        values.append(0.0)
    series = [
        _dot(at, row, row.figures[metric.name], size)
        for at, row in enumerate(rows)
        if metric.name in row.figures
    ]
    labels = [*(row.label for row in rows), *comparison.missing]
    return Panel(
        kind="rows",
        title=metric.title,
        note="logarithmic" if is_log else "",
        x=_scale("" if unit == "%" else unit, values, is_log=is_log,
                 suffix=" %" if unit == "%" else ""),
        y=Scale(title="", low=len(labels) - 0.5, high=-0.5,
                ticks=tuple((float(at), label) for at, label in enumerate(labels))),
        series=tuple(series),
        remarks=tuple(_remarks(comparison, metric)),
    )  # fmt: skip


def _dot(at: int, row: Row, found: Interval, size: float) -> Series:
    ends = [_finite(found.low, size), _finite(found.high, size)]
    return Series(
        label=row.label,
        x=(_short(found.mean / size),),
        y=(float(at),),
        low=(ends[0],),
        high=(ends[1],),
        color="accent" if row.as_good_as_best else "dim",
    )


def _remarks(comparison: Comparison, metric: Metric) -> Iterator[tuple[float, str]]:
    """Why rows have no mean to show."""
    for at, row in enumerate(comparison.rows):
        if metric.name in row.figures:
            continue
        if row.reached:
            yield at, f"{row.reached} of {row.n} seeds only"
        else:
            accuracy = row.figures.get("accuracy")
            # Once is enough: beside what rows are ranked by.
            ends = ""
            if accuracy is not None and metric.name == comparison.metric.name:
                ends = f", ends at {METRICS['accuracy'].shown(accuracy.mean)}"
            yield at, f"never{ends}" if metric.to_target else "–"
    for at in range(len(comparison.missing)):
        yield len(comparison.rows) + at, "no result"


def number_axis(results: Results) -> Axis | None:
    """The first axis of at least three numbers; None where there is none."""
    return next((a for a in results.study.axes if len(a.points) > 2 and a.numbers), None)


def response_panel(results: Results, metric: Metric) -> Panel:
    """How a metric depends on an axis of numbers: a line for every combination of the others."""
    axis = number_axis(results)
    assert axis is not None and axis.numbers is not None
    lines = list(_responses(results, metric, axis))
    means = [found.mean for _, points in lines for _, found in points]
    is_log = metric.is_ratio and _is_wide(means)
    unit, size = scale_of(metric.unit, max(means, default=0.0))
    few = len(lines) <= _COLORS
    least = min(means) / 2 if is_log else -math.inf
    series = [
        Series(
            label=label,
            x=tuple(at for at, _ in points),
            y=tuple(_short(found.mean / size) for _, found in points),
            low=tuple(_finite(max(found.low, least), size) for _, found in points),
            high=tuple(_finite(found.high, size) for _, found in points),
            color=f"c{index}" if few else "dim",
        )
        for index, (label, points) in enumerate(lines)
    ]
    known = [v for one in series for v in (*one.y, *one.low, *one.high) if v is not None]
    title = f"{metric.title}, {unit}" if unit else metric.title
    return Panel(
        kind="linked",
        title=metric.title,
        x=_scale(
            axis.name,
            axis.numbers,
            is_log=min(axis.numbers) > 0 and max(axis.numbers) / min(axis.numbers) >= _WIDE,
            ticks=tuple(zip(axis.numbers, axis.labels, strict=True)),
        ),
        y=_scale(title, known, is_log=is_log),
        series=tuple(series),
    )


def _responses(
    results: Results, metric: Metric, axis: Axis
) -> Iterator[tuple[str, list[tuple[float, Interval]]]]:
    """The lines, in the order of the other axes, with the points at which all seeds have it."""
    others = [other for other in results.study.axes if other is not axis]
    groups, target = results.groups(), results.study.target
    for labels in product(*(other.labels for other in others)):
        at = {other.name: label for other, label in zip(others, labels, strict=True)}
        points = []
        for number, text in sorted(zip(axis.numbers or (), axis.labels, strict=True)):
            here = {**at, axis.name: text}
            found = groups.get(tuple(here[one.name] for one in results.study.axes), ())
            values = values_of(found, metric, target)
            if values and len(values) == len(found):
                points.append((number, interval(values.values())))
        if points:
            yield ", ".join(labels) or axis.name, points


def heatmaps(results: Results, at: dict[str, str]) -> dict[str, Matrix]:
    """For each metric that a study has, its means over the first two axes, at a place of others."""
    if len(results.study.axes) < 2 or len(results.study.axes[1].points) < 2:
        return {}
    found = {one.name: heatmap(results, one.name, at=at) for one in metrics_known(results)}
    return {
        name: _matrix(one)
        for name, one in found.items()
        if one is not None and any(value is not None for row in one.values for value in row)
    }


def _matrix(found: Heatmap) -> Matrix:
    known = [value for row in found.values for value in row if value is not None]
    least, most = min(known), max(known)
    if found.metric.is_ratio and _is_wide(known):
        span, middle = math.log(most / least), math.log(most * least) / 2
        shades = [[None if v is None else math.log(v) for v in row] for row in found.values]
    else:
        # Entries that hardly differ have hardly different colors.
        smallest = _FRACTIONS_MIN if found.metric.unit == "%" else _RATIO_MIN * abs(most)
        span, middle = max(most - least, smallest) or 1.0, (least + most) / 2
        shades = [list(row) for row in found.values]
    return Matrix(
        title=found.metric.title,
        rows=found.rows,
        columns=found.columns,
        shades=tuple(
            tuple(None if v is None else _short(0.5 + (v - middle) / span) for v in row)
            for row in shades
        ),
        texts=tuple(
            tuple(why if value is None else found.metric.shown(value)
                  for value, why in zip(values, missing, strict=True))
            for values, missing in zip(found.values, found.missing, strict=True)
        ),
    )  # fmt: skip


def correlations(found: Sequence[Prediction]) -> Matrix:
    """Rank correlations of facts with outcomes at one place."""
    facts = tuple(dict.fromkeys(one.fact for one in found))
    names = tuple(dict.fromkeys(one.metric.name for one in found))
    known = {(one.fact, one.metric.name): one.rho for one in found}
    rhos = [[known.get((fact, name), math.nan) for name in names] for fact in facts]
    return Matrix(
        title="Rank correlations",
        rows=tuple(FACTS[fact].words for fact in facts),
        columns=tuple(METRICS[name].title for name in names),
        shades=tuple(tuple(_finite(abs(rho)) for rho in row) for row in rhos),
        texts=tuple(tuple(signed(r) if math.isfinite(r) else "–" for r in row) for row in rhos),
    )


def prediction_panels(
    results: Results, colors: dict[str, str]
) -> dict[str, list[tuple[Prediction, Panel]]]:
    """The scatter plot behind every correlation, by place: the strongest first."""
    found: dict[str, list[Prediction]] = {}
    for one in predictions(results):
        found.setdefault(key_of(results, one.at), []).append(one)
    return {
        key: [(one, _scatter(results, one, colors)) for one in sorted(several, key=_weakness)]
        for key, several in found.items()
    }


def _weakness(one: Prediction) -> float:
    return -abs(one.rho) if math.isfinite(one.rho) else 1.0


def _scatter(results: Results, one: Prediction, colors: dict[str, str]) -> Panel:
    graphs, groups, target = graph_axis(results.study), results.groups(), results.study.target
    assert graphs is not None
    spots = [(spot.label, spot.x, spot.y) for spot in one.spots if spot.y is not None]
    unit, size = scale_of(one.metric.unit, max((y for _, _, y in spots), default=0.0))
    x, y = [x for _, x, _ in spots], [y / size for _, _, y in spots]
    series = []
    for label, at, mean in spots:
        here = {**one.at, graphs.name: label}
        group = groups[tuple(here[axis.name] for axis in results.study.axes)]
        found = interval(values_of(group, one.metric, target).values())
        series.append(
            Series(
                label=label,
                x=(_short(at),),
                y=(_short(mean / size),),
                low=(_finite(found.low, size),),
                high=(_finite(found.high, size),),
                color=colors.get(label, "dim"),
            )
        )
    return Panel(
        kind="points",
        title=f"ρ = {signed(one.rho)}",
        x=_scale(one.words, x, is_log=_is_wide(x)),
        y=_scale(f"{one.metric.title}, {unit}" if unit else one.metric.title, y,
                 is_log=one.metric.is_ratio and _is_wide(y), room=0.12),
        series=tuple(series),
    )  # fmt: skip


def _scale(
    title: str,
    values: Sequence[float],
    *,
    is_log: bool = False,
    suffix: str = "",
    ticks: tuple[tuple[float, str], ...] = (),
    room: float = 0.06,
) -> Scale:
    """An axis that all values are on, with some room around them."""
    usable = [value for value in values if math.isfinite(value) and (value > 0 or not is_log)]
    if not usable:
        return Scale(title=title, low=0.1 if is_log else 0.0, high=1.0, is_log=is_log, ticks=ticks)
    low, high = min(usable), max(usable)
    if is_log:
        factor = max((high / low) ** room, 1.1 if room else 1.0)
        low, high = low / factor, high * factor
        ticks = ticks or tuple((tick, _tick(tick)) for tick in log_ticks(low, high))
    else:
        extra = room * (high - low) or (0.1 * abs(high) or 0.1)
        low, high = (low if low == 0 or not room else low - extra), high + (extra if room else 0)
        high = high if high > low else low + 1
    return Scale(title=title, low=low, high=high, is_log=is_log, suffix=suffix, ticks=ticks)


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers for a logarithmic axis: three at least where there is room for them.

    >>> log_ticks(0.03, 0.6), log_ticks(0.2, 5000)
    ([0.05, 0.1, 0.2, 0.5], [1.0, 10.0, 100.0, 1000.0])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = (float(f"{step}e{power}") for power in powers for step in steps)
        found = [tick for tick in ticks if low <= tick <= high]
        if len(found) >= _TICKS_MIN:
            break
    return found[:: -(-len(found) // _TICKS_MAX)] if found else found


def _tick(value: float) -> str:
    """In few letters, so that ticks do not touch."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if 10 * size <= value < 1000 * size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _colors(count: int, *, ordered: bool) -> list[str]:
    """Names of colors; numbers have shades of one scale, from the first to the last."""
    if ordered and count > 2:
        return [f"shade:{i / (count - 1):.3f}" for i in range(count)]
    return [f"c{i % _COLORS}" for i in range(count)]


def _is_wide(values: Sequence[float]) -> bool:
    """Whether they span more than a linear axis can show."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > _WIDE


def _short(value: float) -> float:
    """Nobody sees more digits, and they are most of the page's data."""
    return float(f"{value:.4g}")


def _finite(value: float, size: float = 1.0) -> float | None:
    return _short(value / size) if math.isfinite(value) else None
