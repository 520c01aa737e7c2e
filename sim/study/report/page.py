"""The report of a study: one file that needs nothing but a browser."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from ....train.storage.files import drafted
from ..analysis.predictors import Prediction, graph_axis
from ..analysis.ranking import Comparison, Row, comparisons
from ..analysis.search import Search, searched
from ..analysis.verdicts import headlines, p_words, verdict_words
from ..execution.trial import code_version, versions
from ..format import count, listed, number, percent, signed
from ..metrics import METRICS, Metric, metrics_known
from ..results import Results
from ..study import Axis, Study
from .charts import (
    PLACES,
    correlations,
    curve_panels,
    graphs_of,
    heatmaps,
    key_of,
    number_axis,
    prediction_panels,
    ranking_panels,
    response_panel,
    sketch_of,
    standing,
)
from .commands import asked, command
from .panels import Matrix, Panel

__all__ = ["page", "write_report"]


def write_report(results: Results, folder: Path) -> Path:
    """Write ``report.html``, which opens without a network, to a study's folder; trials may be
    missing. Nothing in it depends on the machine or the time that it is written on.

    Raises:
        OSError: It cannot be written; an older page is kept.
    """
    path = folder / "report.html"
    with drafted(path) as draft:
        draft.write_text(page(results), encoding="utf-8")
    return path


def page(results: Results) -> str:
    """Write the page as HTML that holds everything a browser needs to show it."""
    from jinja2 import Environment
    from plotly.offline import get_plotlyjs

    # All that compares does so at the best value of what the study tunes.
    best, search = searched(results)
    study, found = results.study, comparisons(best)
    book = _Book(best, found, search)
    sections = book.sections() if found else []
    template = Environment(autoescape=True, trim_blocks=True).from_string(_asset("page.html"))
    libraries = ", ".join(f"{name} {version}" for name, version in versions().items() if version)
    return template.render(
        study=study,
        css=_asset("page.css"),
        warning=_warning(results),
        failures=results.failures,
        headlines=headlines(best),
        facts=_facts(results),
        labels=best.study.axes[0].labels,
        further={str(at): _choices(axis) for at, axis in enumerate(best.study.axes[1:])},
        axes={str(at): _choices(axis) for at, axis in enumerate(study.axes)},
        seeds={str(seed): str(seed) for seed in study.seeds},
        missing=_missing(best.study, found) if found else (),
        sections=sections,
        asked=list(asked(study)),
        commands={
            f"{key_of(study, trial.labels)}-{trial.seed}": command(trial)
            for trial in study.trials()
        },
        code_version=code_version(),
        libraries=libraries,
        data=_inside_script({"figures": book.figures, "standing": book.colors}),
        plotly=get_plotlyjs() if found else "",
        script=_asset("page.js"),
    )


class _Book:
    """The sections of a page, as its template has them, and the charts in them."""

    def __init__(
        self, results: Results, found: Sequence[Comparison], search: Search | None
    ) -> None:
        self.figures: dict[str, Any] = {}
        """What the page's script draws, by key."""
        self.colors = standing(results.study, found) if found else {}
        """Labels that stand out, and their colors."""
        self._results = results
        self._study = results.study
        self._search = search
        self._places = {key_of(self._study, one.at): one for one in found}

    def sections(self) -> list[dict[str, Any]]:
        """All that the study has something to say on, in order."""
        graphs = self._graphs()
        parts = [self._curves(), self._ranking(), self._predictions(), self._response(),
                 self._heatmaps(), self._searched(), self._table()]  # fmt: skip
        # One graph for all is worth a look, but a later one.
        at = len(parts) if graph_axis(self._study) is None else -1
        parts.insert(at, graphs)
        return [part for part in parts if part is not None]

    def _figure(self, show: str, drawn: Panel | Matrix, words: str = "") -> dict[str, Any]:
        key = f"figure-{len(self.figures)}"
        self.figures[key] = asdict(drawn)
        figure = {"key": key, "show": show, "title": drawn.title, "words": words}
        if isinstance(drawn, Matrix):
            height, width = 50 + 30 * len(drawn.rows), 150 + 92 * len(drawn.columns)
            return figure | {"height": height, "width": width}
        height = 76 + 25 * len(drawn.y.ticks) if drawn.kind == "rows" else 340
        return figure | {"height": height, "note": drawn.note}

    def _curves(self) -> dict[str, Any]:
        seeds = len(self._study.seeds)
        words = f"Lines are means over {seeds} seeds, bands are their 95 % intervals."
        if seeds < 3:
            words = "Lines are means of two seeds, bands reach from one to the other."
        if seeds == 1:
            words = "There is one seed, so how much of a difference is noise is not known."
        if len(self.colors) < len(self._study.axes[0].points):
            words += " The best stand out; choose others by name, or click a line."
        figures = [
            self._figure(f"facet={key} x={place}", panel)
            for key, comparison in self._places.items()
            for place in PLACES
            for panel in curve_panels(comparison, place, self.colors)
        ]
        choosers = [("x", "Over", {place: names[0] for place, names in PLACES.items()}, "")]
        return _section("curves", "Curves", "How it went", words,
                        figures=figures, choosers=choosers)  # fmt: skip

    def _ranking(self) -> dict[str, Any]:
        to_target = any(comparison.metric.to_target for comparison in self._places.values())
        words = (
            "Dots are means, lines are 95 % intervals over seeds; on a logarithmic axis both are "
            "those of the logarithms. Blue: no significant difference from the first in the "
            "figure that is drawn, which does not mean as good."
        )
        if len(self._study.seeds) == 1:
            words = "One seed only: which differences are noise is not known."
        goal, target = self._study.goal, self._study.target
        soon = f"a loss of {number(target)}" if goal == "loss" else f"{percent(target)} accuracy"
        title = f"How soon it reaches {soon}" if to_target else "What is ahead"
        figures = [
            self._figure(f"facet={key}", panel)
            for key, comparison in self._places.items()
            for panel in ranking_panels(comparison)
        ]
        return _section("ranking", "Ranking", title, words, figures=figures)

    def _predictions(self) -> dict[str, Any] | None:
        found = prediction_panels(self._results, self.colors)
        graphs = graph_axis(self._study)
        if not found or graphs is None:
            return None
        own = graphs.name != self._study.axes[0].name
        place = "place" if own else "facet"
        others = [axis for axis in self._study.axes if axis.name != graphs.name]
        choosers = _choosers("place", others) if own and len(found) > 1 else []
        names: dict[str, str] = {}
        figures = []
        for key, several in found.items():
            matrix = correlations([one for one, _ in several])
            figures.append(self._figure(f"{place}={key}", matrix))
            for one, panel in several:
                pair = f"{one.fact}-{one.metric.name}"
                names[pair] = f"{one.words} and {one.metric.words}"
                figures.append(self._figure(f"{place}={key} pair={pair}", panel, _chance(one)))
        words = (
            "Rank correlation (Spearman's ρ) of facts that are known before anything is trained "
            "with the results, over all graphs, and the points behind one of them. The more one "
            "tries, the more chance finds: p is of one alone."
        )
        choosers.append(("pair", "Show", names, ""))
        return _section("predictions", "Predictions", "What the graph predicts", words,
                        figures=figures, choosers=choosers)  # fmt: skip

    def _response(self) -> dict[str, Any] | None:
        axis, metrics = number_axis(self._study), metrics_known(self._results)
        if axis is None or not metrics:
            return None
        words = "Dots are means over seeds, bars their 95 % intervals."
        if any(metric.to_target for metric in metrics):
            words += " Where not every seed reaches the target there is no dot."
        choosers = [("response", "Show", {one.name: one.title for one in metrics}, "")]
        figures = [
            self._figure(f"response={one.name}", response_panel(self._results, one))
            for one in metrics
        ]
        return _section("response", "Response", f"What {axis.name} does", words,
                        figures=figures, choosers=choosers)  # fmt: skip

    def _heatmaps(self) -> dict[str, Any] | None:
        further = self._study.axes[2:]
        figures, names = [], {}
        for labels in product(*(axis.labels for axis in further)):
            at = {axis.name: label for axis, label in zip(further, labels, strict=True)}
            place = f" heat-place={key_of(self._study, at)}" if at else ""
            for name, matrix in heatmaps(self._results, at).items():
                names[name] = METRICS[name].title
                figures.append(self._figure(f"heat={name}{place}", matrix))
        if not figures:
            return None
        rows, columns = (axis.name for axis in self._study.axes[:2])
        words = f"Means over seeds, {rows} by {columns}. Stronger colors are larger figures."
        choosers = [("heat", "Show", names, ""), *_choosers("heat-place", further)]
        return _section("heat", "Combinations", "Every combination", words,
                        figures=figures, choosers=choosers, is_wide=True)  # fmt: skip

    def _searched(self) -> dict[str, Any] | None:
        if self._search is None:
            return None
        name, tables = self._search.axis.name, []
        for key, comparison in self._places.items():
            heads, lines = self._search.table(comparison.at)
            rows = [{"is_even": False, "cells": [(text, text) for text in line]} for line in lines]
            tables.append({"show": f"facet={key}", "heads": heads, "rows": rows})
        return _section("search", f"Search of {name}", f"The best {name}", self._search.words,
                        tables=tables)  # fmt: skip

    def _graphs(self) -> dict[str, Any] | None:
        found = graphs_of(self._results)
        if not found:
            return None
        words = "Who may push to whom, with the number of links in a round."
        if any(result.facts.get("period", 1) != 1 for result in found.values()):
            words += (
                " Where links change from round to round, those of the first are drawn in blue and "
                "those of others in gray."
            )
        if len(self._study.seeds) > 1:
            words += " Graphs that are drawn at random are those of the first seed."
        link = "Graphs" if len(found) > 1 else "Graph"
        cards = [
            {"name": name, "sketch": sketch_of(result), "nodes": f"{int(result.facts['n']):,}",
             "lines": list(_lines(result.facts))}
            for name, result in found.items()
        ]  # fmt: skip
        return _section("graphs", link, f"The {link.lower()}", words, cards=cards)

    def _table(self) -> dict[str, Any]:
        words = (
            "Means over seeds ± 95 % intervals (Student's t). Differences from the first are "
            "tested pair by pair on the same seeds, corrected for there being several (Holm, 5 %). "
            "Detectable: the smallest true difference that would be significant in 4 of 5 studies."
        )
        if self._study.reference:
            words += (
                f" Where {self._study.reference} is first, the study's reference, as many "
                "comparisons count as there are other points; else all pairs."
            )
        if len(self._study.seeds) == 1:
            words = "One seed each, so no intervals, and no word on what is noise."
        tables = [
            {"show": f"facet={key}", **_table_of(self._results, comparison)}
            for key, comparison in self._places.items()
        ]
        return _section("table", "Figures", "All figures", words, tables=tables)


def _section(key: str, link: str, title: str, words: str, **parts: Any) -> dict[str, Any]:
    return {"key": key, "link": link, "title": title, "words": words, **parts}


def _missing(study: Study, found: Sequence[Comparison]) -> list[str]:
    """Keys of the combinations that a reader may choose, and that have no results."""
    places = product(*(range(len(axis.points)) for axis in study.axes[1:]))
    there = {key_of(study, comparison.at) for comparison in found}
    keys = ("-".join(map(str, at)) or "all" for at in places)
    return [key for key in keys if key not in there]


def _warning(results: Results) -> str:
    """What to say of trials that are missing; nothing where none is."""
    failed = len(results.failures)
    unrun = sum(1 for _ in results.study.trials()) - len(results.results) - failed
    parts = [f"{count(failed, 'trial')} failed"] if failed else []
    if unrun > 0:
        parts.append(f"{count(unrun, 'trial')} {'has' if unrun == 1 else 'have'} not run")
    return " and ".join(parts)


def _facts(results: Results) -> dict[str, str]:
    study, known = results.study, {}
    # As trials had them, and where they come from.
    for name, words in (("optimizer", "Optimizer"), ("momentum", "Momentum"),
                        ("lr", "Learning rate")):  # fmt: skip
        values = dict.fromkeys(one.summary.get(name) for one in results.results)
        shown = [v if isinstance(v, str) else number(v) for v in values if v is not None]
        if shown:
            known[words] = listed(shown)
    if known and study.source:
        known["Source"] = study.source
    grid = [f"{axis.name} ({len(axis.points)})" for axis in study.axes]
    known["Trials"] = f"{len(results.results):,} of {sum(1 for _ in study.trials()):,}"
    known["Grid"] = " × ".join([*grid, count(len(study.seeds), "seed")])
    known["Failed"] = str(len(results.failures)) if results.failures else "none"
    if any(study.goal in result.series for result in results.results):
        target = (number if study.goal == "loss" else percent)(study.target)
        known[f"Target {study.goal}"] = target
    return known


def _table_of(results: Results, comparison: Comparison) -> dict[str, Any]:
    rows = comparison.rows
    there = (one for found in comparison.groups.values() for one in found)
    metrics = [
        metric
        for metric in metrics_known(replace(results, results=tuple(there)))
        # What is 0 everywhere says nothing, unless it is what rows are ranked by.
        if metric.name == comparison.metric.name
        or any(row.figures[metric.name].mean for row in rows if metric.name in row.figures)
    ]
    heads = [comparison.axis, "Compared with the first"]
    heads += ["Seeds at target"] * comparison.has_target
    lines = []
    for rank, row in enumerate(rows, 1):
        # Whoever sorts by name gets the ranking back.
        cells: list[tuple[Any, str]] = [
            (rank, row.label),
            (rank, verdict_words(row, comparison)),
        ]
        if comparison.has_target:
            reached = comparison.reached(row)
            cells.append((reached, f"{reached} of {row.n}"))
        cells += [_cell(row, metric) for metric in metrics]
        lines.append({"is_even": row.may_be_first, "cells": cells})
    return {"heads": heads + [metric.title for metric in metrics], "rows": lines}


def _cell(row: Row, metric: Metric) -> tuple[str, str]:
    """The value to sort by, and what is shown."""
    found = row.figures.get(metric.name)
    if found is None and metric.to_target and not row.missing:
        return "", "not always" if row.arrived.get(metric.name) else "never"
    value = "" if found is None or not math.isfinite(found.mean) else f"{found.mean:.6g}"
    return value, metric.spread(found)


def _chance(one: Prediction) -> str:
    """A correlation, and how sure it is."""
    graphs = count(len(one.spots), "graph")
    text = f"ρ = {signed(one.rho)} ({p_words(one.p, 0.001)}, {graphs})."
    if one.censored:
        verb = "does" if len(one.censored) == 1 else "do"
        text += (
            f" {listed(one.censored)} {verb} not always reach the target: ranked last, not drawn."
        )
    return text


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    least, most = int(facts["degree_min"]), int(facts["degree_max"])
    pushes = f"{most}" if least == most else f"{least} to {most}"
    ways = ", one way" if facts["directed"] else ""
    yield f"{pushes} {'link' if pushes == '1' else 'links'} each{ways}"
    period = facts.get("period", 1)
    if period is None:
        yield "drawn anew each round"
    elif period > 1:
        yield f"repeats after {period} rounds"
    yield f"spectral gap {number(facts['spectral_gap'])}"
    yield f"{number(facts['effective_neighbors'])} effective neighbors"
    if facts.get("rounds_to_exact") is not None:
        yield f"exact after {count(int(facts['rounds_to_exact']), 'round')}"
    elif facts.get("diameter") is not None:
        yield f"diameter {facts['diameter']}"
    elif not facts["connected"]:
        yield "not connected"


def _choices(axis: Axis) -> dict[str, Any]:
    return {"name": axis.name, "choices": {str(i): text for i, text in enumerate(axis.labels)}}


def _choosers(name: str, axes: Sequence[Axis]) -> list[tuple[str, str, dict[str, str], str]]:
    """One for each axis; what is chosen is the position on all of them."""
    return [(name, axis.name, _choices(axis)["choices"], str(at)) for at, axis in enumerate(axes)]


def _inside_script(data: dict[str, Any]) -> str:
    """JSON that no browser takes for markup."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
