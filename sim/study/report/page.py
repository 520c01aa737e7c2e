"""The page: one file that needs nothing but a browser."""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from ..code_version import code_version, versions
from ..predictions import graph_axis
from ..result import Results
from .arguments import arguments
from .controls import bar
from .facets import Facet, facets_of, missing_of
from .gallery import gallery
from .head import head
from .heats import heats
from .html import Html, tag
from .lines import COURSES, PLACES, courses_of, curves_of, lines, places_of
from .predicted import predicted, spots_of
from .ranking import ranking
from .response import numbers_of, response, responses_as_json
from .results_table import results_table
from .standing import standing

__all__ = ["page"]

# In an order in which each knows those that it needs.
_SCRIPTS = ("page.js", "paint.js", "choice.js", "curves.js", "spots.js", "response.js", "charts.js")


def page(results: Results) -> str:
    """Write the page.

    Args:
        results: Of a study; some or all cells may be missing.

    Returns:
        HTML, in which everything is that a browser needs to show it.
    """
    from plotly.offline import get_plotlyjs

    facets = facets_of(results)
    content = _sections(results, facets) if facets else [arguments(results)]
    scripts = [
        tag("script", _inside_script(_data(results, facets)), type="application/json", id="data"),
        *(tag("script", Html(text)) for text in (get_plotlyjs(), *map(_asset, _SCRIPTS))),
        tag("script", Html("page.start(); charts.start();")),
    ]
    body = tag(
        "body",
        tag("a", "Skip to what came out", href="#content", class_="skip"),
        _top(results),
        tag("main", head(results), *content, id="content"),
        _footer(),
        *(scripts if facets else [tag("script", Html(_asset("page.js") + "page.start();"))]),
    )
    return "<!DOCTYPE html>\n" + tag("html", _metadata(results), body, lang="en")


def _sections(results: Results, facets: Sequence[Facet]) -> list[Html]:
    graphs, is_about_graphs = gallery(results), graph_axis(results.study) is not None
    found = [
        ("curves", "Curves", lines(results)),
        ("ranking", "Ranking", ranking(results, facets)),
        ("predictions", "Predictions", predicted(results)),
        ("response", "Response", response(results)),
        ("heat", "Combinations", heats(results)),
        ("graphs", "Graphs", graphs if is_about_graphs else None),
        ("table", "Figures", results_table(results, facets)),
        # One graph for all is worth a look, but a later one.
        ("graphs", "Graph", None if is_about_graphs else graphs),
        ("arguments", "Commands", arguments(results)),
    ]
    links = {key: title for key, title, part in found if part is not None}
    parts = [part for _, _, part in found if part is not None]
    nothing = "Nothing has a result here: the study leaves this combination out, or it failed."
    gaps = [
        tag("p", nothing, class_="gap", data_show=f"facet={key}", hidden=True)
        for key in missing_of(results, facets)
    ]
    return [bar(results.study.axes[1:], links), *gaps, *parts]


def _metadata(results: Results) -> Html:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="description", content=results.study.question),
        # Nothing may be asked for from anywhere, not even an icon.
        tag("link", rel="icon", href="data:,"),
        tag("title", results.study.title),
        tag("style", Html(_asset("page.css"))),
    )


def _top(results: Results) -> Html:
    theme = tag("button", "Dark", type="button", class_="plain", id="theme", hidden=True)
    return tag("div", tag("span", f"rumor study {results.study.name}"), theme, class_="top")


def _footer() -> Html:
    libraries = ", ".join(f"{name} {version}" for name, version in versions().items() if version)
    return tag(
        "footer",
        tag("p", "Code version ", tag("code", code_version())),
        tag("p", libraries),
        tag("p", "Times are virtual: what clocks on the workers' walls would show."),
    )


def _data(results: Results, facets: Sequence[Facet]) -> dict[str, Any]:
    """What the page's script draws."""
    courses = courses_of(results)
    with_target = any(facet.comparison.has_target for facet in facets)
    return {
        "target": results.study.target,
        "standing": standing(facets) if facets else (),
        "xs": [
            {"key": key, "title": PLACES[key][1], "unit": PLACES[key][2]}
            for key in places_of(results)
        ],
        "ys": [
            {
                "key": key,
                "unit": COURSES[key][2],
                "log": COURSES[key][3],
                "target": with_target and key == "accuracy",
            }
            for key in courses
        ],
        "facets_in_order": [facet.key for facet in facets],
        "facets": {facet.key: {"groups": curves_of(facet, courses)} for facet in facets},
        "ordered": numbers_of(results.study.axes[0]) is not None,
        "predictions": spots_of(results),
        "response": responses_as_json(results),
    }


def _inside_script(data: dict[str, Any]) -> Html:
    """JSON that no browser takes for the end of the script."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return Html(text.replace("<", "\\u003c"))


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
