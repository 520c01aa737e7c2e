"""The report of a study: one file that needs nothing but a browser, and its pictures."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from itertools import count as counter
from itertools import product
from pathlib import Path
from typing import Any

from ....train.storage.files import drafted
from ..analysis.findings import findings, margin
from ..analysis.predictors import Prediction, graph_axis
from ..analysis.ranking import Comparison, Row
from ..execution.cache_key import code_version, versions
from ..format import count, listed, number, percent, signed
from ..metrics import METRICS, Metric, metrics_known
from ..results import Result, Results
from ..study import Axis, Study, Trial
from .charts import (
    PLACES,
    Matrix,
    Panel,
    correlations,
    curve_panels,
    heatmaps,
    number_axis,
    places_of,
    prediction_panels,
    ranking_panels,
    response_panel,
    standing,
)
from .commands import asked, command
from .facets import Facet, facets_of, key_of, missing_of
from .graphs import graphs_of, sketch_of
from .pictures import draw_pictures

__all__ = ["page", "write_report"]

# Chance is judged at one place in a thousand at most.
_P_LEAST = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """A chart on the page."""

    key: str
    show: str
    title: str
    note: str = ""
    words: str = ""
    height: int
    width: int = 0


@dataclass(slots=True, kw_only=True)
class _Section:
    """A part of the page with its heading, and a sentence on how to read it."""

    key: str
    link: str
    title: str
    words: str
    choosers: list[tuple[str, str, dict[str, str], str]] = field(default_factory=list)
    figures: list[_Figure] = field(default_factory=list)
    is_wide: bool = False
    notes: list[tuple[str, str]] = field(default_factory=list)
    cards: list[dict[str, Any]] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)


def write_report(results: Results, folder: Path) -> Path:
    """Write a report that opens without a network, and its pictures as PNG.

    Nothing in it depends on the machine or the time that it is written on.

    Args:
        results: Of a study; some or all trials may be missing.
        folder: The study's; ``report.html`` and ``pictures`` in it are replaced.

    Returns:
        Where the page is.

    Raises:
        OSError: It cannot be written; an older page is kept.
    """
    facets = facets_of(results)
    if facets:
        draw_pictures(results, facets, folder / "pictures")
    path = folder / "report.html"
    with drafted(path) as draft:
        draft.write_text(page(results), encoding="utf-8")
    return path


def page(results: Results) -> str:
    """Write the page as HTML that holds everything a browser needs to show it."""
    from jinja2 import Environment
    from plotly.offline import get_plotlyjs

    study, facets = results.study, facets_of(results)
    book = _Book(results, facets)
    sections = list(book.sections()) if facets else []
    template = Environment(autoescape=True, trim_blocks=True).from_string(_asset("page.html"))
    libraries = ", ".join(f"{name} {version}" for name, version in versions().items() if version)
    return template.render(
        study=study,
        css=_asset("page.css"),
        warning=_warning(results),
        failures=results.failures,
        findings=findings(results) if results.results else (),
        facts=_facts(results),
        further={str(at): _choices(axis) for at, axis in enumerate(study.axes[1:])},
        axes={str(at): _choices(axis) for at, axis in enumerate(study.axes)},
        seeds={str(seed): str(seed) for seed in study.seeds},
        missing=missing_of(results, facets) if facets else (),
        sections=sections,
        asked=list(asked(study)),
        commands={_trial_key(study, trial): command(trial) for trial in study.trials()},
        code_version=code_version(),
        libraries=libraries,
        data=_inside_script({"figures": book.figures, "standing": book.colors}),
        plotly=get_plotlyjs() if facets else "",
        script=_asset("page.js"),
    )


class _Book:
    """The sections of a page, and the charts in them."""

    def __init__(self, results: Results, facets: Sequence[Facet]) -> None:
        self.figures: dict[str, Any] = {}
        """What the page's script draws, by key."""
        self.colors = standing(facets) if facets else {}
        """Labels that stand out, and their colors."""
        self._results = results
        self._facets = facets
        self._numbers = counter()

    def sections(self) -> Iterator[_Section]:
        """All that the study is good for, in order."""
        is_about_graphs = graph_axis(self._results.study) is not None
        graphs = list(self._graphs())
        yield self._curves()
        yield self._ranking()
        yield from self._predictions()
        yield from self._response()
        yield from self._heatmaps()
        yield from graphs if is_about_graphs else ()
        yield self._table()
        # One graph for all is worth a look, but a later one.
        yield from () if is_about_graphs else graphs

    def _figure(self, show: str, drawn: Panel | Matrix, words: str = "") -> _Figure:
        key = f"figure-{next(self._numbers)}"
        self.figures[key] = asdict(drawn)
        if isinstance(drawn, Matrix):
            height, width = 50 + 30 * len(drawn.rows), 150 + 92 * len(drawn.columns)
            return _Figure(
                key=key, show=show, title=drawn.title, height=height, width=width, words=words
            )
        height = 76 + 25 * len(drawn.y.ticks) if drawn.kind == "rows" else 340
        return _Figure(
            key=key, show=show, title=drawn.title, note=drawn.note, height=height, words=words
        )

    def _curves(self) -> _Section:
        results = self._results
        seeds = len(results.study.seeds)
        around = f"Lines are means over {seeds} seeds, bands are their 95 % intervals."
        if seeds < 3:
            around = "Lines are means of two seeds, bands reach from one to the other."
        if seeds == 1:
            around = "There is one seed, so how much of a difference is noise is not known."
        if len(self.colors) < len(results.study.axes[0].points):
            around += " The best stand out; choose others by name, or click a line."
        places = places_of(results)
        figures = [
            self._figure(f"facet={facet.key} x={place}", panel)
            for facet in self._facets
            for place in places
            for panel in curve_panels(facet, place, self.colors)
        ]
        choosers = [("x", "Over", {place: PLACES[place][0] for place in places}, "")]
        return _Section(key="curves", link="Curves", title="How it went", words=around,
                        figures=figures, choosers=choosers)  # fmt: skip

    def _ranking(self) -> _Section:
        to_target = any(facet.comparison.metric.to_target for facet in self._facets)
        target = percent(self._results.study.target)
        words = (
            "Dots are means, lines are 95 % intervals over seeds. Blue: as good as the best, "
            "within the noise."
        )
        if len(self._results.study.seeds) == 1:
            words = "One seed only: which differences are noise is not known."
        return _Section(
            key="ranking",
            link="Ranking",
            title=f"How soon it is {target} accurate" if to_target else "Who is ahead",
            words=words,
            figures=[
                self._figure(f"facet={facet.key}", panel)
                for facet in self._facets
                for panel in ranking_panels(facet)
            ],
            notes=[
                (f"facet={one.key}", _capitalized(margin(one.comparison))) for one in self._facets
            ],
        )

    def _predictions(self) -> Iterator[_Section]:
        results = self._results
        found = prediction_panels(results, self.colors)
        graphs = graph_axis(results.study)
        if not found or graphs is None:
            return
        own = graphs.name != results.study.axes[0].name
        place = "place" if own else "facet"
        others = [axis for axis in results.study.axes if axis.name != graphs.name]
        choosers = [
            ("place", axis.name, _choices(axis)["choices"], str(at))
            for at, axis in enumerate(others)
            if own and len(found) > 1
        ]
        every = [one for several in found.values() for one, _ in several]
        keys: dict[tuple[str, str], str] = {}
        names: dict[str, str] = {}
        for one in every:
            key = keys.setdefault((one.fact, one.metric.name), str(len(keys)))
            names[key] = f"{one.words} and {one.metric.words}"
        choosers.append(("pair", "Show", names, ""))
        figures = []
        for key, several in found.items():
            figures.append(
                self._figure(f"{place}={key}", correlations([one for one, _ in several]))
            )
            figures += [
                self._figure(
                    f"{place}={key} pair={keys[one.fact, one.metric.name]}", panel, _chance(one)
                )
                for one, panel in several
            ]
        yield _Section(
            key="predictions",
            link="Predictions",
            title="What the graph predicts",
            words="Rank correlation (Spearman's ρ) of facts that are known before anything is "
            "trained with what came out, over all graphs, and the points behind one of them. The "
            "more one tries, the more chance finds: p is of one alone.",
            choosers=choosers,
            figures=figures,
        )

    def _response(self) -> Iterator[_Section]:
        axis, metrics = number_axis(self._results), metrics_known(self._results)
        if axis is None or not metrics:
            return
        words = "Dots are means over seeds, bars their 95 % intervals."
        if any(metric.to_target for metric in metrics):
            words += " Where not every seed reaches the target there is no dot."
        yield _Section(
            key="response",
            link="Response",
            title=f"What {axis.name} does",
            words=words,
            choosers=[("response", "Show", _titles(metrics), "")],
            figures=[
                self._figure(f"response={one.name}", response_panel(self._results, one))
                for one in metrics
            ],
        )

    def _heatmaps(self) -> Iterator[_Section]:
        study = self._results.study
        figures, names = [], {}
        for labels in product(*(axis.labels for axis in study.axes[2:])):
            at = {axis.name: label for axis, label in zip(study.axes[2:], labels, strict=True)}
            place = f" heat-place={key_of(self._results, at)}" if at else ""
            for name, matrix in heatmaps(self._results, at).items():
                names[name] = METRICS[name].title
                figures.append(self._figure(f"heat={name}{place}", matrix))
        if not figures:
            return
        further = [
            ("heat-place", axis.name, _choices(axis)["choices"], str(at))
            for at, axis in enumerate(study.axes[2:])
        ]
        rows, columns = (axis.name for axis in study.axes[:2])
        yield _Section(
            key="heat",
            link="Combinations",
            title="Every combination",
            words=f"Means over seeds, {rows} by {columns}. The stronger the color, the larger the "
            "figure.",
            choosers=[("heat", "Show", names, ""), *further],
            figures=figures,
            is_wide=True,
        )

    def _graphs(self) -> Iterator[_Section]:
        found = graphs_of(self._results)
        if not found:
            return
        words = "Who may push to whom, with the number of links in a round."
        if any(result.facts.get("period", 1) != 1 for result in found.values()):
            words += (
                " Where links change from round to round, those of the first are drawn in blue and "
                "those of others in gray."
            )
        if len(self._results.study.seeds) > 1:
            words += " Graphs that are drawn at random are those of the first seed."
        title = "The graphs" if len(found) > 1 else "The graph"
        yield _Section(
            key="graphs",
            link="Graphs" if len(found) > 1 else "Graph",
            title=title,
            words=words,
            cards=[_card(name, result) for name, result in found.items()],
        )

    def _table(self) -> _Section:
        words = (
            "Means over seeds ± 95 % intervals (Student's t). Whether a difference to the best is "
            "noise is judged pair by pair on the same seeds, corrected for there being several "
            "(Holm, 5 %)."
        )
        if len(self._results.study.seeds) == 1:
            words = "One seed each, so no intervals, and no word on what is noise."
        return _Section(
            key="table",
            link="Figures",
            title="All figures",
            words=words,
            tables=[_table_of(facet) for facet in self._facets],
        )


def _warning(results: Results) -> str:
    """Trials that are missing, said so that nobody overlooks it; nothing where none is."""
    failed = len(results.failures)
    unrun = sum(1 for _ in results.study.trials()) - len(results.results) - failed
    parts = [f"{count(failed, 'trial')} failed"] if failed else []
    if unrun > 0:
        parts.append(f"{count(unrun, 'trial')} {'has' if unrun == 1 else 'have'} not run")
    return " and ".join(parts)


def _facts(results: Results) -> dict[str, str]:
    study = results.study
    grid = [f"{axis.name} ({len(axis.points)})" for axis in study.axes]
    known = {
        "Trials": f"{len(results.results):,} of {sum(1 for _ in study.trials()):,}",
        "Grid": " × ".join([*grid, count(len(study.seeds), "seed")]),
        "Failed": str(len(results.failures)) if results.failures else "none",
    }
    if any("accuracy" in result.series for result in results.results):
        known["Target accuracy"] = percent(study.target)
    return known


def _table_of(facet: Facet) -> dict[str, Any]:
    comparison = facet.comparison
    metrics = [
        metric
        for metric in metrics_known(facet.results)
        # What is 0 everywhere says nothing, unless it is what rows are ranked by.
        if any(row.figures[metric.name].mean for row in comparison.rows
               if metric.name in row.figures) or metric.name == comparison.metric.name
    ]  # fmt: skip
    heads = [comparison.axis, "Against the best", *(["Seeds at target"] * comparison.has_target)]
    rows = []
    for rank, row in enumerate(comparison.rows, 1):
        # Whoever sorts by name gets the ranking back.
        cells: list[tuple[Any, str]] = [(rank, row.label), (rank, _standing(rank, row, comparison))]
        if comparison.has_target:
            cells.append((row.reached, f"{row.reached} of {row.n}"))
        cells += [_cell(row, metric) for metric in metrics]
        rows.append({"is_even": row.as_good_as_best, "cells": cells})
    heads += [metric.title for metric in metrics]
    return {"show": f"facet={facet.key}", "heads": heads, "rows": rows}


def _cell(row: Row, metric: Metric) -> tuple[str, str]:
    """The value to sort by, and what is shown."""
    found = row.figures.get(metric.name)
    if found is None and metric.to_target and not row.missing:
        return "", "not always" if row.reached else "never"
    value = "" if found is None or not math.isfinite(found.mean) else f"{found.mean:.6g}"
    return value, metric.spread(found)


def _standing(rank: int, row: Row, comparison: Comparison) -> str:
    """How a row compares with the first, in words."""
    metric = comparison.metric
    if row.missing:
        return row.seeds
    if metric.name not in row.figures:
        return "target not always reached" if metric.to_target else "no figure"
    if rank == 1:
        return "the best" if comparison.noise_known else "first"
    if row.as_good_as_best:
        return "as good, within the noise"
    if row.gap is None:
        return ""
    scale, unit = (1.0, "×") if metric.is_ratio else (1.0, metric.unit)
    if unit == "%":
        scale, unit = 100.0, "points"
    low, high = row.gap.low * scale, row.gap.high * scale
    around = f" ({number(low)} to {number(high)})" if math.isfinite(low) else "; noise unknown"
    return f"{number(row.gap.mean * scale)} {unit}".strip() + around


def _chance(one: Prediction) -> str:
    """A correlation, and how sure it is."""
    p = "p < 0.001" if one.p < _P_LEAST else f"p = {number(one.p, 2)}"
    parts = [f"ρ = {signed(one.rho)} ({p}, {count(one.n, 'graph')})"]
    if math.isfinite(one.pearson):
        of = "logarithms" if one.logs else "values"
        parts.append(f"Pearson's r of the {of} {signed(one.pearson)}")
    text = f"{', '.join(parts)}."
    if one.censored:
        verb = "does" if len(one.censored) == 1 else "do"
        text += (
            f" {listed(one.censored)} {verb} not always reach the target: ranked last, not drawn."
        )
    return text


def _card(name: str, result: Result) -> dict[str, Any]:
    return {
        "name": name,
        "sketch": sketch_of(result),
        "nodes": f"{int(result.facts['n']):,}",
        "lines": list(_lines(result.facts)),
    }


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


def _titles(metrics: Sequence[Metric]) -> dict[str, str]:
    return {metric.name: metric.title for metric in metrics}


def _trial_key(study: Study, trial: Trial) -> str:
    places = [str(axis.labels.index(trial.labels[axis.name])) for axis in study.axes]
    return "-".join([*places, str(trial.seed)])


def _capitalized(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _inside_script(data: dict[str, Any]) -> str:
    """JSON that no browser takes for markup."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
