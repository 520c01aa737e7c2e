"""Every chart of a report, as panels and matrices, and its graphs."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from ....topology import parse
from ....topology.layout import SKETCH_NODES_MAX, Sketch, sketch
from ..analysis.curves import Band, band
from ..analysis.predictors import Prediction, predictions
from ..analysis.ranking import Comparison, by_metric
from ..format import listed, of_seeds, scale_of, signed
from ..metrics import FACTS, METRICS, Metric, metrics_known, values_of
from ..results import Result, Results, seeds_tried
from ..statistics import Interval, interval
from ..study import Axis, Study
from .panels import COLORS, Matrix, Panel, Scale, Series, finite, is_wide, scale_over, shades, short

__all__ = [
    "PLACES",
    "correlations",
    "curve_panels",
    "curves_of",
    "graphs_of",
    "heatmaps",
    "key_of",
    "number_axis",
    "prediction_panels",
    "ranking_panels",
    "response_panel",
    "sketch_of",
    "standing",
]

PLACES: Final = {
    "time_s": ("virtual time", "virtual time", "s"),
    "steps": ("steps", "steps of each worker", ""),
    "bytes_sent": ("bytes", "sent by all workers", "bytes"),
}
"""What curves may be drawn over: a name, a title and a unit for each."""

# What stands for 0 on a logarithmic axis, far below all that is drawn.
_LEAST: Final = 1e-300

# A logarithmic axis shows what is above this part of the largest value.
_CLIFF = 1e-5

# Means of which one is so many times the other are drawn on a logarithmic axis.
_DECADES_MIN = 30.0

_STANDING_MAX = 6
_POINTS_MAX = 120

# Lines of which one lasts so many times as long as another are drawn over a logarithmic axis.
_SPREAD_MIN = 8.0

# Differences that take all colors: relative to the largest figure, and of fractions.
_RATIO_MIN, _FRACTIONS_MIN = 0.3, 0.1


def key_of(study: Study, at: Mapping[str, str]) -> str:
    """Positions of labels on the axes that they are of, as in ``0-2``; ``all`` for none."""
    axes = {axis.name: axis.labels for axis in study.axes}
    return "-".join(str(axes[name].index(label)) for name, label in at.items()) or "all"


def curves_of(results: Iterable[Result]) -> tuple[Metric, ...]:
    """The metrics whose curves a study is about: how good models are, and how far apart."""
    there = {name for result in results for name in result.series}
    known = [
        metric
        for metric in METRICS.values()
        if metric.curve and metric.name in there and metric.hidden_by not in there
    ]
    return tuple(sorted(known, key=lambda metric: metric.preference or 0))


def standing(study: Study, found: Sequence[Comparison]) -> dict[str, str]:
    """Labels of the first axis that stand out among many lines, and their colors.

    All of a few; else the best of every place, and the last of the first to show how far it goes.
    """
    main = study.axes[0]
    ordered = main.numbers is not None and len(main.points) > 2
    labels: Collection[str] = main.labels
    if len(labels) > (2 * _STANDING_MAX if ordered else COLORS):
        ranked = [[row.label for row in comparison.rows] for comparison in found]
        wanted = [label for one in ranked for label in one[: 4 if len(found) == 1 else 2]]
        labels = dict.fromkeys([*list(dict.fromkeys(wanted))[: _STANDING_MAX - 1], ranked[0][-1]])
    return dict(zip(labels, shades(len(labels), ordered=ordered), strict=True))


def curve_panels(comparison: Comparison, place: str, colors: Mapping[str, str]) -> list[Panel]:
    """For each curve of a study a panel with a line for each point of the first axis."""
    metrics = curves_of(one for found in comparison.groups.values() for one in found)
    if comparison.study.goal == "loss":
        metrics = tuple(METRICS["loss"] if one.name == "accuracy" else one for one in metrics)
    return [_curve_panel(comparison, metric, place, colors) for metric in metrics]


def _curve_panel(
    comparison: Comparison, metric: Metric, place: str, colors: Mapping[str, str]
) -> Panel:
    is_log, study = metric.is_logarithmic, comparison.study
    found = {
        label: band(group, metric.name, place, in_logs=is_log)
        for label, group in comparison.groups.items()
    }
    bands = {label: drawn for label, drawn in found.items() if drawn is not None}
    # A logarithmic axis has no place for workers that are all alike at most moments.
    alike = [
        label
        for label, drawn in bands.items()
        if is_log and sum(mean <= 0 for mean in drawn.mean) > len(drawn.mean) / 2
    ]
    there = {label: drawn for label, drawn in bands.items() if label not in alike}
    _, title, unit = PLACES[place]
    ends = sorted(one.x[-1] for one in there.values()) or [0.0]
    # Where one line goes on for much longer than another, the beginning of both is the question.
    spread = ends[0] > 0 and ends[-1] / ends[0] >= _SPREAD_MIN
    unit, size = scale_of(unit, ends[0] if spread else ends[-1])
    times = 0.01 if metric.unit == "%" else 1.0
    lines = [
        _line(label, drawn, size, times, colors.get(label, "muted"), log_x=spread, log_y=is_log)
        for label, drawn in there.items()
    ]
    # What stands out is drawn last, above the rest.
    series = sorted((line for line in lines if line.x), key=lambda one: one.label in colors)
    y = [v for one in series for v in one.y]
    if is_log:
        # A merge makes models alike but for rounding, and decades would be empty for that.
        y = [v for v in y if v >= _CLIFF * max(y)]
    target = study.target / times if metric.name == study.goal else None
    if target is not None and metric.lower_is_better and y:
        # The steep start of a loss would leave no room for its end.
        most = max(2 * target - min(y), *(one.y[-1] for one in series))
        y = [*(value for value in y if value <= most), target, most]
    elif target is not None:
        y.append(target)
    words = (title, unit, "logarithmic" if spread else "")
    name = metric.title.removeprefix("Final ")
    return Panel(
        kind="curves",
        title=name[:1].upper() + name[1:],
        note=f"{metric.curve}, logarithmic" if is_log else metric.curve,
        x=scale_over(
            ", ".join(filter(None, words)),
            [0.0, *(v for one in series for v in one.x)],
            is_log=spread,
            room=0.0,
        ),
        y=scale_over("", y, is_log=is_log, suffix=" %" if metric.unit == "%" else ""),
        series=tuple(series),
        target=target,
        falls=metric.lower_is_better,
        remarks=((0.0, f"0, all alike: {listed(alike)}"),) if alike else (),
    )


def _line(
    label: str, drawn: Band, size: float, times: float, color: str, *, log_x: bool, log_y: bool
) -> Series:
    pairs = enumerate(zip(drawn.x, drawn.mean, strict=True))
    there = [i for i, (x, y) in pairs if (x > 0 or not log_x) and (y > 0 or not log_y)]
    step = max(1, -(-len(there) // _POINTS_MAX))
    # The last evaluation matters most.
    kept = sorted({*there[::step], *there[-1:]})
    # Where some seed is at 0, and only there, the band has no lower end on a logarithmic axis.
    least = _LEAST if log_y else -math.inf
    banded = kept if drawn.n > 1 else ()
    return Series(
        label=label,
        x=tuple(short(drawn.x[i] / size) for i in kept),
        y=tuple(short(drawn.mean[i] / times) for i in kept),
        low=tuple(short(max(drawn.low[i], least) / times) for i in banded),
        high=tuple(short(drawn.high[i] / times) for i in banded),
        color=color,
    )


def ranking_panels(comparison: Comparison) -> list[Panel]:
    """What rows are ranked by, what else the study names, and the traffic that goes with it.

    Means with intervals, in the order of the first panel; each panel judges by its own metric.
    """
    traffic = "bytes_to_target" if comparison.metric.to_target else "bytes_sent"
    traffic = "bytes_to_loss" if comparison.study.goal == "loss" else traffic
    metrics = dict.fromkeys((comparison.metric.name, *comparison.study.metrics, traffic))
    return [_ranking_panel(comparison, METRICS[name]) for name in metrics]


def _ranking_panel(comparison: Comparison, metric: Metric) -> Panel:
    name, judged = metric.name, {row.label: row for row in by_metric(comparison, metric).rows}
    there = [(at, r, r.figures[name]) for at, r in enumerate(comparison.rows) if name in r.figures]
    is_log = metric.is_ratio and is_wide([found.mean for _, _, found in there], _DECADES_MIN)
    if is_log:
        there = [(at, row, found.in_logs) for at, row, found in there]
    unit, size = scale_of(metric.unit, max((found.mean for _, _, found in there), default=1.0))
    values = [value / size for value in _extent([found for _, _, found in there], is_log=is_log)]
    # Of a loss only differences say something: its zero is of no interest.
    if not is_log and metric.lower_is_better and name != "loss":
        values.append(0.0)
    labels = [*(row.label for row in comparison.rows), *comparison.missing]
    suffix = " %" if unit == "%" else ""
    return Panel(
        kind="rows",
        title=metric.title,
        note="logarithmic, geometric means" if is_log else "",
        x=scale_over("" if suffix else unit, values, is_log=is_log, suffix=suffix),
        y=Scale(
            title="",
            low=len(labels) - 0.5,
            high=-0.5,
            ticks=tuple((float(at), label) for at, label in enumerate(labels)),
        ),
        series=tuple(
            _dot(
                row.label,
                0.0,
                found,
                size,
                "accent" if judged[row.label].may_be_first else "dim",
                row=at,
            )
            for at, row, found in there
        ),
        remarks=tuple(_remarks(comparison, metric)),
    )


def _extent(found: Sequence[Interval], *, is_log: bool) -> list[float]:
    """Values that an axis is to show: means, and intervals but for one that would squeeze all the
    others, whose end is marked as cut."""
    means = [one.mean for one in found]
    least, most = min(means, default=0.0), max(means, default=0.0)
    lowest = least / 1.6 if is_log else least - 0.6 * abs(most)
    # An axis of values that are never negative does not go below 0.
    lowest = max(0.0, lowest) if least >= 0 else lowest
    known = [one for one in found if math.isfinite(one.low) and math.isfinite(one.high)]
    lows = [max(one.low, lowest) for one in known]
    return [*means, *lows, *(min(one.high, most + 0.6 * abs(most)) for one in known)]


def _remarks(comparison: Comparison, metric: Metric) -> Iterator[tuple[float, str]]:
    """Why rows have no mean to show."""
    for at, row in enumerate(comparison.rows):
        if metric.name in row.figures:
            continue
        text = "never" if metric.to_target else "–"
        # Once is enough: next to what rows are ranked by.
        end = row.figures.get(metric.end) if metric.name == comparison.metric.name else None
        if arrived := row.arrived.get(metric.name, 0):
            text = f"{arrived} of {row.n} seeds only"
        elif end is not None:
            text += f", ends at {METRICS[metric.end].shown(end.mean)}"
        yield at, text
    for at in range(len(comparison.missing)):
        yield len(comparison.rows) + at, "no result"


def number_axis(study: Study) -> Axis | None:
    """The first axis of at least three numbers; None where there is none."""
    return next((a for a in study.axes if len(a.points) > 2 and a.numbers), None)


def response_panel(results: Results, metric: Metric) -> Panel:
    """How a metric depends on an axis of numbers: a line for every combination of the others, with
    the points at which all seeds have the metric."""
    study, axis = results.study, number_axis(results.study)
    assert axis is not None and axis.numbers is not None
    others, groups = [other for other in study.axes if other is not axis], results.groups()
    points = sorted(zip(axis.numbers, axis.labels, strict=True))
    lines: dict[str, list[tuple[float, Interval]]] = {}
    for labels in product(*(other.labels for other in others)):
        at = {other.name: label for other, label in zip(others, labels, strict=True)}
        for number, text in points:
            here = {**at, axis.name: text}
            found = groups.get(tuple(here[one.name] for one in study.axes), ())
            values = values_of(found, metric, study.target)
            if values and len(values) == len(found):
                line = lines.setdefault(", ".join(labels) or axis.name, [])
                line.append((number, interval(values.values())))
    means = [found.mean for line in lines.values() for _, found in line]
    is_log = metric.is_ratio and is_wide(means)
    unit, size = scale_of(metric.unit, max(means, default=0.0))
    series = []
    for index, (label, line) in enumerate(lines.items()):
        intervals = [found.in_logs if is_log else found for _, found in line]
        series.append(
            Series(
                label=label,
                x=tuple(at for at, _ in line),
                y=tuple(short(found.mean / size) for found in intervals),
                low=tuple(finite(found.low, size) for found in intervals),
                high=tuple(finite(found.high, size) for found in intervals),
                color=f"c{index}" if len(lines) <= COLORS else "dim",
            )
        )
    known = [v for one in series for v in (*one.y, *one.low, *one.high) if v is not None]
    return Panel(
        kind="linked",
        title=metric.title,
        x=scale_over(
            axis.name,
            axis.numbers,
            is_log=is_wide(axis.numbers),
            ticks=tuple(zip(axis.numbers, axis.labels, strict=True)),
        ),
        y=scale_over(f"{metric.title}, {unit}" if unit else metric.title, known, is_log=is_log),
        series=tuple(series),
    )


def heatmaps(results: Results, at: Mapping[str, str]) -> dict[str, Matrix]:
    """For each metric that a study has, its means over the first two axes.

    Args:
        at: A label for each further axis.
    """
    study, groups = results.study, results.groups()
    if len(study.axes) < 2 or len(study.axes[1].points) < 2:
        return {}
    down, across = study.axes[:2]
    # Each place by the seeds that were run there, as its ranking has it.
    asked: dict[tuple[str, ...], frozenset[int]] = {}
    for column in across.labels:
        asked |= seeds_tried(results, {**at, across.name: column})
    further = tuple(at[axis.name] for axis in study.axes[2:])
    found: dict[str, Matrix] = {}
    for metric in metrics_known(results):
        entries = []
        for row in down.labels:
            places = [(row, column, *further) for column in across.labels]
            entries.append(
                [_entry(groups.get(p, ()), asked.get(p), metric, study.target) for p in places]
            )
        if any(isinstance(entry, float) for row in entries for entry in row):
            found[metric.name] = _matrix(metric, down.labels, across.labels, entries)
    return found


def _entry(
    found: Sequence[Result], asked: Collection[int] | None, metric: Metric, target: float
) -> float | str:
    """A mean over seeds, or why there is none."""
    if asked is None:
        return "left out"
    if not found:
        return "no result"
    values = values_of(found, metric, target)
    if metric.to_target and values and len(found) < len(asked):
        return of_seeds(len(found), len(asked))
    if len(values) == len(found):
        return sum(values.values()) / len(values)
    if not metric.to_target:
        return "none"
    return f"{len(values)} of {len(found)} seeds reached it" if values else "never reached"


def _matrix(
    metric: Metric,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    entries: Sequence[Sequence[float | str]],
) -> Matrix:
    known = [value for row in entries for value in row if isinstance(value, float)]
    is_log = metric.is_ratio and is_wide(known)
    low, high = (math.log(v) if is_log else v for v in (min(known), max(known)))
    # Entries that hardly differ have hardly different colors.
    least = _FRACTIONS_MIN if metric.unit == "%" else _RATIO_MIN * abs(high)
    span = high - low if is_log else max(high - low, least) or 1.0

    def shade(value: float) -> float:
        return short(0.5 + ((math.log(value) if is_log else value) - (low + high) / 2) / span)

    return Matrix(
        title=metric.title,
        rows=rows,
        columns=columns,
        shades=tuple(
            tuple(None if isinstance(v, str) else shade(v) for v in row) for row in entries
        ),
        texts=tuple(
            tuple(v if isinstance(v, str) else metric.shown(v) for v in row) for row in entries
        ),
    )


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
        shades=tuple(tuple(finite(abs(rho)) for rho in row) for row in rhos),
        texts=tuple(tuple(signed(r) if math.isfinite(r) else "–" for r in row) for row in rhos),
    )


def prediction_panels(
    results: Results, colors: Mapping[str, str]
) -> dict[str, list[tuple[Prediction, Panel]]]:
    """The scatter plot behind every correlation, by place: the strongest first."""
    found: dict[str, list[tuple[Prediction, Panel]]] = {}
    for one in predictions(results):
        panels = found.setdefault(key_of(results.study, one.at), [])
        panels.append((one, _scatter(one, colors)))
    for panels in found.values():
        panels.sort(key=lambda pair: -abs(pair[0].rho) if math.isfinite(pair[0].rho) else 0.0)
    return found


def _scatter(one: Prediction, colors: Mapping[str, str]) -> Panel:
    found = [(spot, spot.found) for spot in one.spots if spot.found is not None]
    unit, size = scale_of(one.metric.unit, max((mean.mean for _, mean in found), default=0.0))
    is_log = one.metric.is_ratio and is_wide([mean.mean for _, mean in found])
    if is_log:
        found = [(spot, mean.in_logs) for spot, mean in found]
    x = [spot.x for spot, _ in found]
    y = [value / size for value in _extent([mean for _, mean in found], is_log=is_log)]
    return Panel(
        kind="points",
        title=f"ρ = {signed(one.rho)}",
        x=scale_over(one.words, x, is_log=is_wide(x)),
        y=scale_over(f"{one.metric.title}, {unit}" if unit else one.metric.title, y,
                     is_log=is_log, room=0.12),
        series=tuple(
            _dot(spot.label, spot.x, mean, size, colors.get(spot.label, "dim"))
            for spot, mean in found
        ),
    )  # fmt: skip


def graphs_of(results: Results) -> dict[str, Result]:
    """A result on each graph, by what to call the graph."""
    found: dict[tuple[str, int, str], Result] = {}
    for result in results.results:
        facts = result.facts
        if facts:  # there are none of a graph on which workers never agree
            key = (str(facts.get("spec")), int(facts.get("n", 0)), str(facts.get("mixing")))
            found.setdefault(key, result)
    # The axis that sets the topology alone names graphs as its points.
    axis = next(
        (
            axis.name
            for axis in results.study.axes
            if all(set(point.settings) == {"topology"} for point in axis.points)
        ),
        None,
    )
    named: dict[str, Result] = {}
    for (spec, n, mixing), result in found.items():
        name = spec if axis is None else result.trial.labels[axis]
        name += f", n = {n}" if len({key[1] for key in found}) > 1 else ""
        mixed = len({key[2] for key in found if key[:2] == (spec, n)}) > 1
        named.setdefault(f"{name}, {mixing}" if mixed else name, result)
    return named


def sketch_of(result: Result) -> Sketch | None:
    """The graph that a trial ran on; None if it has too many nodes to draw."""
    facts = result.facts
    n, seed = int(facts["n"]), int(facts["seed"])
    if n > SKETCH_NODES_MAX:
        return None
    return sketch(parse(str(facts["spec"]), n, seed=seed, mixing=facts.get("mixing")))


def _dot(
    label: str, x: float, found: Interval, size: float, color: str, *, row: int | None = None
) -> Series:
    """A mean with its interval: along y at a place, or along x in a row."""
    mean = short(found.mean / size)
    return Series(
        label=label,
        x=(short(x),) if row is None else (mean,),
        y=(mean,) if row is None else (float(row),),
        low=(finite(found.low, size),),
        high=(finite(found.high, size),),
        color=color,
    )
