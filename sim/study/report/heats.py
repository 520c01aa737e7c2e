"""A figure over two axes, as a table whose cells are the darker the more there is."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from ..heat import Heat, heat
from ..measures import MEASURES
from ..result import Results
from .controls import chooser, section
from .facets import key_of
from .figures import even, heading, is_part, shown
from .html import Html, join, tag

__all__ = ["heats", "shade_class", "shades"]

_VALUES = (
    *("time_to_target_s", "bytes_to_target", "accuracy", "loss", "disagreement_stationary"),
    *("disagreement", "consensus_distance", "bytes_sent"),
)
# From where on letters must change to be read: by night sooner than by day.
_MIDDLE_FROM, _STRONG_FROM = 0.54, 0.72

# Differences that take all colors: of a figure relative to the largest, and of a part of a whole.
_RATIO_MIN, _PARTS_MIN = 0.3, 0.1


def heats(results: Results) -> Html | None:
    """The section; None for a study with one axis, or one whose second has one point."""
    if len(results.study.axes) < 2 or len(results.study.axes[1].points) < 2:
        return None
    places = list(_places(results))
    drawn = [
        (name, key, found)
        for name in _VALUES
        for key, at in places
        if (found := heat(results, name, at=at)) is not None
    ]
    there = {
        name for name, _, found in drawn if any(v is not None for row in found.values for v in row)
    }
    names = [name for name in _VALUES if name in there]
    if not names:
        return None
    rows, columns = (axis.name for axis in results.study.axes[:2])
    tables = [
        tag("div", _table(found), _scale(found), data_show=_shown_for(name, key))
        for name, key, found in drawn
        if name in there
    ]
    choices = {name: heading(MEASURES[name]) for name in names}
    bar = tag(
        "div", chooser("heat", "Show", choices), *_more(results),
        class_="controls", hidden=True, data_script=True,
    )  # fmt: skip
    words = f"Means over seeds, {rows} by {columns}. The stronger the color, the larger the figure."
    return section("heat", "Every combination", words, bar, tag("div", *tables, class_="scroll"))


def shades(found: Heat) -> list[list[float | None]]:
    """How strong the color of each entry is, from 0 to 1, by logarithms where they span much.

    Entries that hardly differ have hardly different colors.
    """
    shade = _shade(found)
    return [[None if value is None else shade(value) for value in row] for row in found.values]


def shade_class(strength: float) -> str | None:
    """The class of an entry whose color is so strong, which its letters' color follows from."""
    if strength > _STRONG_FROM:
        return "strong"
    return "middle" if strength > _MIDDLE_FROM else None


def _known(found: Heat) -> list[float]:
    return [value for row in found.values for value in row if value is not None]


def _shade(found: Heat) -> Callable[[float], float]:
    known = _known(found)
    least, most = min(known, default=0.0), max(known, default=1.0)
    if found.measure.is_ratio and least > 0 and most / least > 10:
        return lambda value: math.log(value / least) / math.log(most / least)
    span_min = _PARTS_MIN if is_part(found.measure) else _RATIO_MIN * abs(most)
    span = max(most - least, span_min) or 1.0
    middle = (least + most) / 2
    return lambda value: 0.5 + (value - middle) / span


def _places(results: Results) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Where to look on the axes behind the second."""
    more = results.study.axes[2:]
    for labels in product(*(axis.labels for axis in more)):
        at = {axis.name: label for axis, label in zip(more, labels, strict=True)}
        if not at or results.where(**at).results:
            yield key_of(results, at), at


def _more(results: Results) -> Iterator[Html]:
    for at, axis in enumerate(results.study.axes[2:]):
        choices = {str(i): label for i, label in enumerate(axis.labels)}
        yield chooser("heat-place", axis.name, choices, str(at))


def _shown_for(name: str, key: str) -> str:
    return f"heat={name}" if key == "all" else f"heat={name} heat-place={key}"


def _table(found: Heat) -> Html:
    heads = (tag("th", label, scope="col") for label in found.columns)
    rows = (
        tag("tr", tag("th", label, scope="row"), *_entries(found, values, strengths, why))
        for label, values, strengths, why in zip(
            found.rows, found.values, shades(found), found.missing, strict=True
        )
    )
    return tag(
        "table",
        tag("caption", heading(found.measure), class_="out-of-sight"),
        tag("thead", tag("tr", tag("td", class_="none", style="background:none"), *heads)),
        tag("tbody", join(rows)),
        class_="heat",
    )


def _entries(
    found: Heat,
    values: Sequence[float | None],
    strengths: Sequence[float | None],
    missing: Sequence[str],
) -> Iterator[Html]:
    for value, strength, why in zip(values, strengths, missing, strict=True):
        if value is None or strength is None:
            yield tag("td", why or "–", class_="none")
        else:
            kind = shade_class(strength)
            yield tag("td", even(found.measure, value), class_=kind, style=f"--v:{strength:.3f}")


def _scale(found: Heat) -> Html:
    known = _known(found)
    if len(known) < 2:
        return tag("div")
    shade = _shade(found)
    ends = [(shown(found.measure, value), shade(value)) for value in (min(known), max(known))]
    (least, start), (most, end) = ends
    ramp = tag("i", style=f"--from:{start:.3f};--to:{end:.3f}")
    return tag("div", least, ramp, most, class_="scale", aria_hidden="true")
