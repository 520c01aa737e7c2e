"""All figures in a table that can be sorted, and what in it is noise."""

import math
from collections.abc import Iterator, Sequence

from .. import words
from ..comparison import Comparison, Row
from ..measures import MEASURES, Measure
from ..result import Results
from ..statistics import Interval
from .controls import section
from .facets import Facet
from .figures import heading, is_part, shown, spread
from .html import Html, join, tag

__all__ = ["against_best", "results_table"]

_COLUMNS = (
    *("time_to_target_s", "bytes_to_target", "accuracy", "loss"),
    *("disagreement", "disagreement_stationary", "consensus_distance", "bytes_sent"),
    "idle",
)


def results_table(results: Results, facets: Sequence[Facet]) -> Html:
    """The section with a table for every facet."""
    seeds = len(results.study.seeds)
    text = (
        "Means over seeds ± 95 % intervals (Student's t). Whether a difference to the best is "
        "noise is judged pair by pair on the same seeds, corrected for there being several "
        "(Holm, 5 %)."
    )
    if seeds == 1:
        text = "One seed each, so no intervals, and no word on what is noise."
    return section("table", "All figures", text, *(_table(facet) for facet in facets))


def _table(facet: Facet) -> Html:
    comparison = facet.comparison
    measures = _measures(comparison)
    heads = [
        _head(comparison.axis),
        tag("th", "Against the best", scope="col", class_="words"),
        _head("Seeds at target") if comparison.has_target else None,
        *(_head(heading(measure)) for measure in measures),
    ]
    rows = [_row(rank, row, comparison, measures) for rank, row in enumerate(comparison.rows, 1)]
    table = tag(
        "table",
        tag("caption", f"All figures {facet.title}".strip(), class_="out-of-sight"),
        tag("thead", tag("tr", *heads)),
        tag("tbody", join(rows)),
        class_="table",
    )
    return tag(
        "div",
        tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="All figures"),
        data_show=f"facet={facet.key}",
    )


def _measures(comparison: Comparison) -> list[Measure]:
    """Those that somebody has, and that say something: not 0 everywhere."""
    found: list[Measure] = []
    for name in _COLUMNS:
        # Where there is an accuracy, the loss says nothing that a table needs.
        if name == "loss" and comparison.has_target:
            continue
        values = [row.figures[name].mean for row in comparison.rows if name in row.figures]
        if any(values) or (values and name in ("accuracy", comparison.measure.name)):
            found.append(MEASURES[name])
    return found


def _head(title: str) -> Html:
    return tag("th", tag("button", title, type="button"), scope="col")


def _row(rank: int, row: Row, comparison: Comparison, measures: Sequence[Measure]) -> Html:
    cells = [
        # Whoever sorts by name gets the ranking back.
        tag("th", row.label, scope="row", data_value=rank),
        tag("td", against_best(rank, row, comparison), class_="words"),
        tag("td", f"{row.reached} of {row.n}", data_value=row.reached)
        if comparison.has_target
        else None,
        *_figures(row, measures),
    ]
    return tag("tr", *cells, class_="even" if row.as_good_as_best else None)


def _figures(row: Row, measures: Sequence[Measure]) -> Iterator[Html]:
    for measure in measures:
        found = row.figures.get(measure.name)
        text = spread(measure, found)
        if found is None and measure.curve is not None and not row.missing:
            text = "not always" if row.reached else "never"
        yield tag("td", text, data_value=_sortable(found))


def _sortable(found: Interval | None) -> str | None:
    return None if found is None or not math.isfinite(found.mean) else f"{found.mean:.6g}"


def against_best(rank: int, row: Row, comparison: Comparison) -> str:
    """How a row compares with the first, in words."""
    measure = comparison.measure
    if row.missing:
        return row.seeds
    if measure.name not in row.figures:
        return "target not always reached" if measure.curve is not None else "no figure"
    if rank == 1:
        return "the best" if comparison.noise_known else "first"
    if row.as_good_as_best:
        return "as good, within the noise"
    if row.gap is None:
        return ""
    by = _gap(row, measure)
    return by if math.isfinite(row.p) else f"{by}; noise unknown"


def _gap(row: Row, measure: Measure) -> str:
    assert row.gap is not None
    mean, low, high = row.gap.mean, row.gap.low, row.gap.high
    if not measure.is_ratio:
        if is_part(measure):
            return f"{words.number(100 * mean, 2)} points{_around(100 * low, 100 * high)}"
        return f"{shown(measure, mean)}{_around(low, high)}"
    return f"{words.number(mean, 3)} ×{_around(low, high)}"


def _around(low: float, high: float) -> str:
    if not math.isfinite(low) or not math.isfinite(high):
        return ""
    return f" ({words.number(low, 3)} to {words.number(high, 3)})"
