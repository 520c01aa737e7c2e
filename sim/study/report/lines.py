"""Curves over steps, virtual time and bytes: what the page says of them, and their data."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..curves import Band, band
from ..result import Result, Results
from ..study import Axis
from .controls import chooser, section
from .facets import Facet
from .html import Html, join, tag
from .standing import FEW

__all__ = ["COURSES", "PLACES", "courses_of", "curves_of", "lines", "places_of"]

PLACES = {
    "steps": ("steps", "steps of each worker", ""),
    "time_s": ("virtual time", "virtual time", "s"),
    "bytes_sent": ("bytes", "sent by all workers", "bytes"),
}
"""What curves may be drawn over: a name, a title and a unit for each."""

COURSES = {
    "accuracy": ("Accuracy", "of the merged model", "%", False),
    "loss": ("Loss", "of the merged model", "", False),
    "disagreement": ("Disagreement", "squared distances from the mean, per coordinate", "", True),
    "consensus_distance": ("Consensus distance", "how far apart models are", "", True),
}  # fmt: skip
"""What may be drawn: a title, what it is, a unit, and whether the axis is logarithmic."""

_POINTS_MAX = 120

# Who is ahead after so many steps is not the question where these differ.
_CLOCKS = frozenset(
    (
        "speeds",
        "slow",
        "pace",
        "time_s",
        "emission",
        "latency_s",
        "bandwidth_mbit",
        "faults",
        "loss",
    )
)


def courses_of(results: Results) -> tuple[str, ...]:
    """Which curves this study is about: how good models are, and how far apart."""
    there = {name for result in results.results for name in result.series}
    main = [name for name in ("accuracy", "loss", "disagreement") if name in there][:1]
    return (*main, *({"consensus_distance"} & there))


def places_of(results: Results) -> tuple[str, ...]:
    """What curves may be drawn over; first what tells the cells of this study apart."""
    study = results.study
    given = {
        *study.settings,
        *(name for axis in study.axes for p in axis.points for name in p.settings),
    }
    if given & _CLOCKS:
        return ("time_s", "steps", "bytes_sent")
    return tuple(PLACES)


def lines(results: Results) -> Html:
    """The section of curves."""
    courses = courses_of(results)
    figures = [_figure(name) for name in courses]
    log = tag("input", type="checkbox", id="log-x", autocomplete="off")
    places = {key: PLACES[key][0] for key in places_of(results)}
    return section(
        "curves",
        "How it went",
        _words(results),
        tag(
            "div",
            chooser("x", "Over", places),
            tag("label", log, "logarithmic", class_="tick"),
            class_="controls",
            hidden=True,
            data_script=True,
        ),
        tag("div", *figures, class_="plots"),
        _legend(results),
    )


def curves_of(facet: Facet, courses: Iterable[str]) -> list[dict[str, Any]]:
    """For each point of the first axis its curves, as the page's script wants them."""
    ranks = {row.label: rank for rank, row in enumerate(facet.comparison.rows)}
    found = []
    for label, results in facet.groups.items():
        bands = {
            y: {x: drawn for x in PLACES if (drawn := band(results, y, x)) is not None}
            for y in courses
        }
        kinds = [one.kind for by_place in bands.values() for one in by_place.values()]
        found.append(
            {
                "label": label,
                "rank": ranks.get(label),
                "kind": kinds[0] if kinds else "single",
                "curves": {
                    y: {x: _rows(drawn) for x, drawn in by_place.items()}
                    for y, by_place in bands.items()
                },
            }
        )
    return found


def _words(results: Results) -> str:
    seeds = len(results.study.seeds)
    if seeds == 1:
        around = "There is one seed, so how much of a difference is noise cannot be seen."
    elif seeds == 2:
        around = "Lines are means of two seeds, bands reach from one to the other."
    else:
        around = f"Lines are means over {seeds} seeds, bands are their 95 % intervals."
    if len(results.study.axes[0].points) > FEW:
        around += " The best stand out; choose others by name, or click a line."
    return around


def _figure(name: str) -> Html:
    title, words, _, is_log = COURSES[name]
    words = f"{words}, logarithmic" if is_log else words
    return tag(
        "figure",
        tag("figcaption", title, tag("small", words)),
        tag("div", class_="plot", data_y=name, role="img", aria_label=f"{title}, {words}"),
    )


def _legend(results: Results) -> Html:
    main = results.study.axes[0]
    families = [
        tag(
            "div",
            tag("span", family) if family else None,
            tag("div", *(_chip(label) for label in labels), class_="chips"),
            class_="family" if family else None,
        )
        for family, labels in _families(main, results).items()
    ]
    if len(main.points) > FEW:
        best = tag("button", "Best only", type="button", class_="plain", id="best")
        nobody = tag("button", "None", type="button", class_="plain", id="nobody")
        families.append(tag("div", best, nobody, class_="controls"))
    return tag(
        "div",
        join(families),
        class_="legend",
        role="group",
        aria_label=f"Which {main.name} stand out",
        hidden=True,
        data_script=True,
    )


def _chip(label: str) -> Html:
    return tag(
        "button", label, type="button", class_="chip", data_label=label, aria_pressed="false"
    )


def _families(main: Axis, results: Results) -> Mapping[str, list[str]]:
    """Labels by what their graphs do from round to round; all together where that is one thing."""
    first: dict[str, Result] = {}
    for result in results.results:
        first.setdefault(result.cell.group[0], result)
    varies = len(main.points) > FEW and any("topology" in point.settings for point in main.points)
    found: dict[str, list[str]] = {}
    for label in main.labels:
        if label in first:
            found.setdefault(_family(first[label]) if varies else "", []).append(label)
    return (
        found if len(found) > 1 else {"": [label for labels in found.values() for label in labels]}
    )


def _family(result: Result) -> str:
    period = result.facts.get("period", 1)
    if period is None:
        return "Drawn anew each round"
    return "The same each round" if period == 1 else "Other links each round"


def _rows(drawn: Band) -> list[list[float | None]]:
    step = -(-len(drawn.x) // _POINTS_MAX)
    # The last evaluation is what everybody looks at.
    kept = sorted({*range(0, len(drawn.x), step), len(drawn.x) - 1})
    return [_rounded([of[i] for i in kept]) for of in (drawn.x, drawn.mean, drawn.low, drawn.high)]


def _rounded(values: Sequence[float]) -> list[float | None]:
    """Nobody sees more digits, and they are most of the page's data."""
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]
