"""Who gets there first, and with how many bytes: dots with intervals, the best on top."""

import math
from collections.abc import Iterator, Sequence

from .. import words
from ..comparison import Comparison, Row
from ..measures import MEASURES, Measure, values_of
from ..result import Result, Results
from .controls import section
from .facets import Facet
from .figures import heading, is_part, shown, spread
from .html import Html, join, tag

__all__ = ["measures_of", "ranking", "why"]

_TICKS = 4


def ranking(results: Results, facets: Sequence[Facet]) -> Html:
    """The section with a chart for every facet."""
    charts = (_chart(facet) for facet in facets)
    to_target = any(facet.comparison.measure.curve for facet in facets)
    target = words.percent(results.study.target)
    title = f"How soon it is {target} accurate" if to_target else "Who is ahead"
    note = (
        "Dots are means, lines are 95 % intervals over seeds. Blue and bold: as good as the best, "
        "within the noise."
    )
    if len(results.study.seeds) == 1:
        note = "One seed only: which differences are noise cannot be said."
    return section("ranking", title, note, *charts)


def measures_of(comparison: Comparison) -> tuple[Measure, ...]:
    """What the chart shows: what rows are ranked by, and the traffic that goes with it."""
    if comparison.measure.curve:
        return comparison.measure, MEASURES["bytes_to_target"]
    return comparison.measure, MEASURES["bytes_sent"]


def _chart(facet: Facet) -> Html:
    comparison = facet.comparison
    measures = measures_of(comparison)
    scales = [_Scale(comparison, measure) for measure in measures]
    groups = facet.groups
    rows = [_row(row, groups[row.label], comparison, scales) for row in comparison.rows]
    head = tag(
        "tr",
        tag("th", comparison.axis, scope="col"),
        *(cell for scale in scales for cell in _head(scale)),
    )
    missing = [_missing(label, len(scales)) for label in comparison.missing]
    table = tag(
        "table",
        _caption(measures),
        tag("thead", head),
        tag("tbody", join(rows), join(missing)),
        class_="rank",
    )
    ties = tag("p", comparison.ties, class_="note")
    return tag("div", table, ties, data_show=f"facet={facet.key}")


def _caption(measures: Sequence[Measure]) -> Html:
    """For those who see no heads of columns: on a phone, and where a page is read out."""
    first, second = (heading(measure) for measure in measures)
    return tag("caption", f"{first}, below it {second[0].lower()}{second[1:]}")


class _Scale:
    """From a measure's values to places on a track, from 0 to 100."""

    def __init__(self, comparison: Comparison, measure: Measure) -> None:
        self.measure = measure
        self.has_intervals = comparison.noise_known
        found = [
            row.figures[measure.name] for row in comparison.rows if measure.name in row.figures
        ]
        means = [one.mean for one in found]
        most = max(means, default=1.0) or 1.0
        # Room for the intervals, but not for one that would squeeze all the others.
        ends = [one.high for one in found if math.isfinite(one.high)]
        most = min(max([most, *ends]), 1.6 * most)
        least = min((mean for mean in means if mean > 0), default=most)
        # Beyond two orders of magnitude all but a few dots would be one.
        self.is_log = measure.is_ratio and most / least > 30
        start = 0.0
        if measure.name == "accuracy":
            start = max(
                0.0, min(means, default=0.0) - 0.15 * (most - min(means, default=0.0)) - 0.01
            )
        most = min(most, 1.0) if is_part(measure) else most
        self.low = math.log10(least) - 0.1 if self.is_log else start
        high = math.log10(most) + 0.1 if self.is_log else most
        self.high = max(high, self.low + 1e-12) + (0.0 if self.is_log else 0.06 * (high - self.low))

    def at(self, value: float) -> float:
        """Its place, in percent of the track."""
        if self.is_log:
            value = math.log10(max(value, 1e-300))
        return min(100.0, max(0.0, 100 * (value - self.low) / (self.high - self.low)))

    def is_beyond(self, value: float) -> bool:
        """Whether the track ends before it."""
        return (math.log10(max(value, 1e-300)) if self.is_log else value) > self.high

    def ticks(self) -> list[float]:
        """Round values, ascending."""
        if self.is_log:
            powers = range(math.ceil(self.low), math.floor(self.high) + 1)
            return [10.0**power for power in powers]
        rough = (self.high - self.low) / _TICKS
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
        first = math.ceil(self.low / step - 1e-9)
        return [step * i for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _head(scale: _Scale) -> Iterator[Html]:
    labels = (
        tag("span", shown(scale.measure, value), style=f"left:{scale.at(value):.1f}%")
        for value in scale.ticks()
    )
    axis = tag("div", *labels, class_="axis", aria_hidden="true")
    by = tag("span", heading(scale.measure))
    log = tag("small", ", logarithmic") if scale.is_log else None
    yield tag("th", by, log, axis, scope="col", class_="track")
    text = "mean ± 95 %" if scale.has_intervals else "one seed"
    yield tag("th", text, scope="col", class_="figure")


def _row(
    row: Row, found: Sequence[Result], comparison: Comparison, scales: Sequence[_Scale]
) -> Html:
    cells = [cell for scale in scales for cell in _cells(row, found, comparison, scale)]
    is_even = row.as_good_as_best
    if not any(scale.measure.name in row.figures for scale in scales):
        return tag("tr", tag("th", row.label, scope="row"), *cells, class_="never")
    return tag("tr", tag("th", row.label, scope="row"), *cells, class_="even" if is_even else None)


def _cells(
    row: Row, found: Sequence[Result], comparison: Comparison, scale: _Scale
) -> Iterator[Html]:
    lines = join(tag("i", style=f"left:{scale.at(value):.1f}%") for value in scale.ticks())
    interval = row.figures.get(scale.measure.name)
    if interval is not None:
        marks = [_interval(interval.low, interval.high, scale), _dot(interval.mean, scale)]
        yield tag("td", lines, *marks, class_="track", aria_hidden="true")
        yield tag("td", spread(scale.measure, interval), class_="figure")
        return
    lucky = values_of(found, scale.measure, comparison.target).values()
    yield tag("td", lines, join(_dot(one, scale, "some") for one in lucky), class_="track")
    yield tag("td", tag("span", why(row, scale.measure), class_="badge"), class_="figure")


def why(row: Row, measure: Measure) -> str:
    """Why a row has no mean to show."""
    if measure.curve is None:
        return "–"
    if row.reached:
        return f"{row.reached} of {words.count(row.n, 'seed')} only"
    accuracy = row.figures.get("accuracy")
    ends = f", ends at {words.percent(accuracy.mean)}" if accuracy else ""
    return f"never{ends}" if measure.name == "time_to_target_s" else "never"


def _dot(value: float, scale: _Scale, kind: str | None = None) -> Html:
    return tag("s", class_=kind, style=f"left:{scale.at(value):.2f}%")


def _interval(low: float, high: float, scale: _Scale) -> Html | None:
    if not math.isfinite(low) or not math.isfinite(high):
        return None
    start, end = scale.at(low), scale.at(high)
    # One that goes on beyond the track fades out there.
    kind = "beyond" if scale.is_beyond(high) else None
    return tag("b", class_=kind, style=f"left:{start:.2f}%;width:{end - start:.2f}%")


def _missing(label: str, scales: int) -> Html:
    words = tag("td", tag("span", "no result", class_="badge"), colspan=2 * scales)
    return tag("tr", tag("th", label, scope="row"), words, class_="never")
