"""What facts about graphs foretell: correlations, and the scatter plot behind each."""

import math
from collections.abc import Sequence
from typing import Any

from .. import words
from ..measures import MEASURES, values_of
from ..predictions import FACTS, Prediction, graph_axis, predictions
from ..result import Results
from ..statistics import Interval, interval
from .controls import chooser, section
from .facets import group_of, key_of
from .figures import heading, is_part
from .heats import shade_class
from .html import Html, join, tag

__all__ = ["is_wide", "predicted", "spots_of", "strongest_first"]

# No correlation has more of the strongest color than that.
_PALE = 0.7


def predicted(results: Results) -> Html | None:
    """The section; None where no axis changes graphs."""
    found = _by_place(results)
    if not found:
        return None
    blocks = [
        tag("div", _matrix(key, several), data_show=f"{_name(results)}={key}")
        for key, several in found.items()
    ]
    note = tag("p", id="prediction-words", class_="note", aria_live="polite")
    plot = tag("div", class_="plot tall", id="prediction", role="img", aria_label="Scatter plot")
    return section(
        "predictions",
        "What the graph foretells",
        "Rank correlation (Spearman's ρ) of facts that are known before anything is trained with "
        "what came out, over all graphs. Choose one to see its points. The more one tries, the "
        "more chance finds: p is of one alone.",
        _place_bar(results, list(found)),
        tag("div", tag("div", *blocks, class_="scroll"), tag("div", plot, note), class_="predict"),
    )


def spots_of(results: Results) -> dict[str, list[dict[str, Any]]]:
    """The points of every scatter plot, by place, as the page's script wants them."""
    return {
        key: [_as_json(results, one) for one in strongest_first(several)]
        for key, several in _by_place(results).items()
    }


def _by_place(results: Results) -> dict[str, list[Prediction]]:
    found: dict[str, list[Prediction]] = {}
    for one in predictions(results):
        found.setdefault(key_of(results, one.at), []).append(one)
    return found


def _name(results: Results) -> str:
    """The control that says where to look: the page's own where the first axis has the graphs."""
    graphs = graph_axis(results.study)
    return "facet" if graphs and graphs.name == results.study.axes[0].name else "place"


def _place_bar(results: Results, keys: Sequence[str]) -> Html | None:
    graphs = graph_axis(results.study)
    others = [axis for axis in results.study.axes if graphs and axis.name != graphs.name]
    if _name(results) == "facet" or len(keys) < 2:
        return None
    controls = [
        chooser("place", axis.name, {str(i): text for i, text in enumerate(axis.labels)}, str(at))
        for at, axis in enumerate(others)
    ]
    return tag("div", *controls, class_="controls", hidden=True, data_script=True)


def strongest_first(several: Sequence[Prediction]) -> list[Prediction]:
    """What the study asks about first, then the rest; the strongest correlation of either first."""
    asked = several[0].measure.name if several else ""
    return sorted(several, key=lambda one: (one.measure.name != asked, -_strength(one)))


def _strength(one: Prediction) -> float:
    """Of a correlation, whichever its sign; below all others where there is none."""
    return abs(one.rho) if math.isfinite(one.rho) else -1.0


def _matrix(key: str, several: Sequence[Prediction]) -> Html:
    by_place = {(one.fact, one.measure.name): one for one in several}
    observed = dict.fromkeys(one.measure.name for one in several)
    first = strongest_first(several)[0]
    rows = [
        tag(
            "tr",
            tag("th", FACTS[fact], scope="row"),
            *(_entry(key, by_place.get((fact, name)), first) for name in observed),
        )
        for fact in dict.fromkeys(one.fact for one in several)
    ]
    heads = (tag("th", heading(MEASURES[name]), scope="col") for name in observed)
    return tag(
        "table",
        tag("caption", "Rank correlations of facts with outcomes", class_="out-of-sight"),
        tag("thead", tag("tr", tag("td"), *heads)),
        tag("tbody", join(rows)),
        class_="matrix",
    )


def _entry(key: str, one: Prediction | None, first: Prediction) -> Html:
    if one is None or not math.isfinite(one.rho):
        return tag("td", tag("span", "–", class_="badge"))
    strength = abs(one.rho)
    button = tag(
        "button",
        _signed(one.rho),
        type="button",
        style=f"--v:{_PALE * strength:.3f}",
        data_facet=key,
        data_prediction=_key(one),
        aria_pressed="true" if one is first else "false",
        aria_label=f"{one.words} and {one.measure.words}: {_signed(one.rho)}",
        title=_words(one),
    )
    return tag("td", button, class_=shade_class(_PALE * strength))


def _key(one: Prediction) -> str:
    return f"{one.fact}/{one.measure.name}"


def _words(one: Prediction) -> str:
    """What was found, and how sure that is."""
    parts = [f"ρ = {_signed(one.rho)} ({_chance(one.p)}, {words.count(one.n, 'graph')})"]
    if math.isfinite(one.pearson):
        of = "logarithms" if one.logs else "values"
        parts.append(f"Pearson's r of the {of} {_signed(one.pearson)}")
    text = f"{one.words[0].upper()}{one.words[1:]} and {one.measure.words}: {', '.join(parts)}."
    if one.censored:
        several = "does" if len(one.censored) == 1 else "do"
        text += (
            f" {words.listed(one.censored)} {several} not always reach the target: counted as the "
            "slowest, not drawn."
        )
    return text


def _chance(p: float) -> str:
    if not math.isfinite(p):
        return "p unknown"
    return "p < 0.001" if p < 0.001 else f"p = {words.number(p, 2)}"


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _as_json(results: Results, one: Prediction) -> dict[str, Any]:
    y_title = heading(one.measure)
    known = _intervals(results, one)
    there = [(spot.label, spot.x, spot.y) for spot in one.spots if spot.y is not None]
    return {
        "key": _key(one),
        "words": _words(one),
        "x_title": one.words,
        "y_title": y_title,
        "y_unit": "%" if is_part(one.measure) else one.measure.unit,
        "log_x": is_wide([x for _, x, _ in there]),
        "log_y": one.measure.is_ratio and is_wide([y for _, _, y in there]),
        "points": [
            {
                "label": label,
                "x": x,
                "y": y,
                "low": _finite(known[label].low, one),
                "high": _finite(known[label].high, one),
            }
            for label, x, y in there
        ],
    }


def _intervals(results: Results, one: Prediction) -> dict[str, Interval]:
    """Of what was observed, for each graph."""
    graphs, groups = graph_axis(results.study), results.groups()
    assert graphs is not None
    found = {}
    for spot in one.spots:
        here = groups[group_of(results.study, {**one.at, graphs.name: spot.label})]
        values = values_of(here, one.measure, results.study.target)
        found[spot.label] = interval(values.values())
    return found


def _finite(value: float, one: Prediction) -> float | None:
    if not math.isfinite(value):
        return None
    # A logarithmic axis has no place for 0 and below.
    return max(value, 0.0) or None if one.measure.is_ratio else value


def is_wide(values: Sequence[float]) -> bool:
    """Whether they span more than a linear axis can show."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > 10
