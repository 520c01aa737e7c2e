"""Pictures of topologies: the graph, or one panel per round, with three facts above it."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from .errors import TopologyError
from .topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

    from .analysis.facts import Facts

__all__ = ["FORMATS", "check_size", "draw", "headline"]

FORMATS = (".png", ".svg", ".pdf")

NODES_MAX, PUSHES_MAX = 500, 5000
"""Nodes, and pushes per round, above which a picture is unreadable."""

ROUNDS_MAX, SAMPLES = 9, 4
"""Maximum rounds of a period, and random rounds, with a panel each."""

INK, DIM, ACCENT, LINE = "#333333", "#777777", "#B0300A", "#0072B2"

# Inches.
WIDTH, HEIGHT = 5.0, 5.8

# Font size of a label, and the width of a letter, in points.
FONT, LABEL = 6.0, 4.0

Places = dict[int, tuple[float, float]]
"""x and y of each node."""

ARROWS_MAX = 1000
"""One-way pushes above which lines have no heads."""

TITLE_MAX = 48
"""Characters of a spec that fit above a picture."""


def check_size(topology: Topology) -> None:
    """Raise TopologyError for graphs with too many nodes or edges for a picture."""
    blot = "{:,} {} would be one blot of ink: a picture takes at most {:,}"
    if topology.n > NODES_MAX:
        raise TopologyError(blot.format(topology.n, "nodes", NODES_MAX))
    pushes = topology.matrix().nnz - topology.n
    if pushes > PUSHES_MAX:
        raise TopologyError(blot.format(pushes, "edges", PUSHES_MAX))


def draw(several: Sequence[tuple[Topology, Facts]], path: Path, dpi: float = 150) -> None:
    """Draw topologies in one picture, from left to right.

    Args:
        several: Topologies that pass `check_size`, with their facts.
        path: File to write; its suffix is one of `FORMATS`.

    Raises:
        OSError: It cannot be written.
    """
    # Without pyplot: no backend is chosen, and no state outlives the call.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH * len(several), HEIGHT), dpi=dpi, layout="constrained")
    parts = figure.subfigures(1, len(several), squeeze=False)[0]
    for (topology, facts), part in zip(several, parts, strict=True):
        _draw_one(part, topology, facts)
    figure.savefig(path)


def _draw_one(figure: SubFigure, topology: Topology, facts: Facts) -> None:
    rounds = range(SAMPLES if topology.period is None else min(topology.period, ROUNDS_MAX))
    columns = ceil(sqrt(len(rounds)))
    panels = figure.subplots(ceil(len(rounds) / columns), columns, squeeze=False).ravel()
    places = _places(topology)
    side, n = 72 * WIDTH / columns, topology.n
    distance = 2.6 * side / n if topology.layout == "circle" else 0.5 * side / sqrt(n)
    diameter = float(np.clip(0.65 * distance, 2.0, 16.0))
    for axes in panels:
        axes.set_axis_off()
        axes.set_aspect("equal")
    for round, axes in zip(rounds, panels, strict=False):
        _draw_round(axes, topology, round, facts, places, diameter)
        if topology.period != 1:
            axes.set_title(f"round {round}", fontsize=7.5, color=DIM)
    spec = topology.spec
    if len(spec) > TITLE_MAX:
        spec = f"{spec[:14]}...{spec[17 - TITLE_MAX :]}"
    # Paths may contain characters that matplotlib reads as mathematics.
    title = f"{spec}, n = {topology.n}\n{headline(facts)}"
    figure.suptitle(title, fontsize=7.5, color=INK, parse_math=False)
    figure.supxlabel(_note(topology, facts), fontsize=7.5, color=DIM)


def _places(topology: Topology) -> Places:
    """Place the nodes according to the family's layout."""
    graph = topology.graph()
    if topology.layout == "circle":
        places: Places = nx.circular_layout(graph)
    else:
        # Weights are not lengths.
        places = nx.kamada_kawai_layout(graph, weight=None)
    return places


def _note(topology: Topology, facts: Facts) -> str:
    parts = []
    if topology.period is None:
        parts.append("samples: each round is drawn anew")
    elif topology.period > ROUNDS_MAX:
        parts.append(f"the first {ROUNDS_MAX} of {topology.period} rounds")
    if facts.articulation_points or facts.bridges:
        parts.append("red: losing it splits the graph")
    return "; ".join(parts)


def headline(facts: Facts) -> str:
    """Return the three facts that fit above a picture."""
    least, most = facts.degree_min, facts.degree_max
    degree = f"{most}" if least == most else f"{least} to {most}"
    pushes = "push" if degree == "1" else "pushes"
    if facts.rounds_to_exact is not None:
        rounds = "round" if facts.rounds_to_exact == 1 else "rounds"
        mixing = f"exact after {facts.rounds_to_exact} {rounds}"
    else:
        mixing = f"spectral gap {facts.spectral_gap:.3g}"
    few = facts.effective_neighbors < 1000
    effective = f"{facts.effective_neighbors:{'.3g' if few else ',.0f'}} effective neighbors"
    return f"{degree} {pushes} a round  ·  {mixing}  ·  {effective}"


def _draw_round(
    axes: Axes,
    topology: Topology,
    round: int,
    facts: Facts,
    places: Places,
    diameter: float,
) -> None:
    """Draw the graph of a round, with nodes of a *diameter* in points."""
    graph = topology.graph(round)
    if graph.is_directed() and nx.overall_reciprocity(graph) == 1:
        graph = graph.to_undirected()
    cuts = {frozenset(link) for link in facts.bridges}
    # Arrows are drawn one by one.
    arrows = graph.is_directed() and len(graph.edges) <= ARROWS_MAX
    style: Any = {"arrowsize": 6} if arrows else {"arrows": False}
    nx.draw_networkx_edges(
        graph,
        places,
        ax=axes,
        edge_color=[ACCENT if frozenset(link) in cuts else LINE for link in graph.edges],
        alpha=float(np.clip(200 / (len(graph.edges) + 1), 0.1, 0.9)),
        node_size=diameter**2,
        **style,
    )
    points = set(facts.articulation_points)
    shades = [ACCENT if node in points else INK for node in graph]
    nx.draw_networkx_nodes(
        graph, places, ax=axes, node_size=diameter**2, node_color=shades, linewidths=0
    )
    names = topology.names or [str(node) for node in range(topology.n)]
    fits = diameter > max(FONT, LABEL * max(map(len, names)))
    for node, (x, y) in places.items():
        if fits or topology.names:
            axes.annotate(
                names[node],
                (x, y),
                xytext=(0, 0 if fits else diameter / 2 + FONT / 2),
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=FONT,
                color="white" if fits else INK,
                parse_math=False,
            )
