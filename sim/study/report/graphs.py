"""The graphs that a study ran on, and their thumbnails."""

from ....topology import parse
from ....topology.layout import SKETCH_NODES_MAX, Sketch, sketch
from ..results import Result, Results

__all__ = ["graphs_of", "sketch_of"]


def graphs_of(results: Results) -> dict[str, Result]:
    """A result on each graph, by what to call the graph."""
    found: dict[tuple[str, int, str], Result] = {}
    for result in results.results:
        facts = result.facts
        if facts:  # there are none of a graph on which workers never agree
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


def sketch_of(result: Result) -> Sketch | None:
    """The graph that a trial ran on; None if it has too many nodes to draw."""
    facts = result.facts
    n, seed = int(facts["n"]), int(facts["seed"])
    if n > SKETCH_NODES_MAX:
        return None
    return sketch(parse(str(facts["spec"]), n, seed=seed, mixing=facts.get("mixing")))


def _label(results: Results, result: Result) -> str | None:
    """Of the point that sets the topology alone; None where something else changes with it."""
    for axis in results.study.axes:
        if all(set(point.settings) == {"topology"} for point in axis.points):
            return result.trial.labels[axis.name]
    return None
