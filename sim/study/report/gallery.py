"""The graphs that a study ran on, each drawn small, with a few facts."""

from collections.abc import Iterator, Mapping
from typing import Any

from ....topology import parse
from .. import words
from ..result import Result, Results
from .controls import section
from .graphs import NODES_MAX, draw
from .html import Html, join, tag

__all__ = ["gallery", "graphs_of"]


def gallery(results: Results) -> Html | None:
    """The section; None where nothing has run."""
    found = graphs_of(results)
    if not found:
        return None
    cards = (tag("li", *_card(name, result)) for name, result in found.items())
    title = "The graphs" if len(found) > 1 else "The graph"
    several = any(_period(result.facts) != 1 for result in found.values())
    text = "Who may push to whom, with the number of links in a round."
    if several:
        text += (
            " Where links change from round to round, those of the first are drawn in blue and "
            "those of others in gray."
        )
    if _differ(found):
        text += " Graphs that are drawn at random are those of the first seed."
    return section("graphs", title, text, tag("ul", join(cards), class_="cards"))


def graphs_of(results: Results) -> dict[str, Result]:
    """A result on each graph, by what to call the graph."""
    found: dict[tuple[str, int, str], Result] = {}
    for result in results.results:
        facts = result.facts
        if not facts:
            continue  # there are none of a graph on which workers never agree
        key = (str(facts.get("spec")), int(facts.get("n", 0)), str(facts.get("mixing")))
        found.setdefault(key, result)
    named: dict[str, Result] = {}
    for (spec, n, mixing), result in found.items():
        several = len({key[1] for key in found}) > 1
        mixed = len({key[2] for key in found if key[:2] == (spec, n)}) > 1
        name = _label(results, result) or spec
        name += f", n = {n}" if several else ""
        name += f", {mixing}" if mixed else ""
        named.setdefault(name, result)
    return named


def _label(results: Results, result: Result) -> str | None:
    """Of the point that sets the topology alone; None where something else changes with it."""
    for axis in results.study.axes:
        if all(set(point.settings) == {"topology"} for point in axis.points):
            return result.cell.labels[axis.name]
    return None


def _card(name: str, result: Result) -> Iterator[Html]:
    facts = result.facts
    n = int(facts["n"])
    if n > NODES_MAX:
        yield tag("div", f"{n:,} nodes are too many to draw", class_="blank")
    else:
        seed, mixing = int(facts["seed"]), facts.get("mixing")
        yield draw(parse(str(facts["spec"]), n, seed=seed, mixing=mixing))
    yield tag("h3", name)
    yield join([tag("span", line) for line in _lines(facts)], tag("br"))


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    least, most = int(facts["degree_min"]), int(facts["degree_max"])
    pushes = f"{most}" if least == most else f"{least} to {most}"
    ways = ", one way" if facts["directed"] else ""
    yield f"{pushes} {'link' if pushes == '1' else 'links'} each{ways}"
    period = _period(facts)
    if period is None:
        yield "drawn anew each round"
    elif period > 1:
        yield f"repeats after {period} rounds"
    yield f"spectral gap {words.number(facts['spectral_gap'])}"
    yield f"{words.number(facts['effective_neighbors'])} effective neighbors"
    if facts.get("rounds_to_exact") is not None:
        yield f"exact after {words.count(int(facts['rounds_to_exact']), 'round')}"
    elif facts.get("diameter") is not None:
        yield f"diameter {facts['diameter']}"
    elif not facts["connected"]:
        yield "not connected"


def _period(facts: Mapping[str, Any]) -> int | None:
    period = facts.get("period", 1)
    return None if period is None else int(period)


def _differ(found: Mapping[str, Result]) -> bool:
    random = (
        "random",
        "erdos",
        "small-world",
        "scale-free",
        "epidemic",
        "equi",
        "od-equi",
        "d-equi",
    )
    return any(str(result.facts.get("spec")).startswith(random) for result in found.values())
