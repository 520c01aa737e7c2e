"""Small drawings of the graphs that a study ran on: where nodes and links go."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....topology import Topology, parse
from ....topology.layout import Placement, place
from ..results import Result, Results

__all__ = ["NODES_MAX", "Sketch", "graphs_of", "sketch", "sketch_of"]

NODES_MAX = 64
"""Nodes beyond which a small drawing shows nothing but ink."""

_SIDE, _MARGIN = 100.0, 6.0
_ROUNDS_MAX, _SAMPLES = 16, 4
_STUB = 0.45

_Points = NDArray[np.float64]
_Lines = tuple[tuple[tuple[float, float], tuple[float, float]], ...]
_Pairs = set[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sketch:
    """A graph on a square of 100 by 100, y pointing down."""

    nodes: tuple[tuple[float, float], ...]

    first: _Lines
    """Links of the first round, from point to point."""

    later: _Lines
    """Links of other rounds only."""

    grounds: tuple[tuple[float, float, float], ...]
    """Circles around nodes that belong together: center and radius."""

    width: float
    """Of lines."""

    dot: float
    """Diameter of nodes."""


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
    if n > NODES_MAX:
        return None
    return sketch(parse(str(facts["spec"]), n, seed=seed, mixing=facts.get("mixing")))


def _label(results: Results, result: Result) -> str | None:
    """Of the point that sets the topology alone; None where something else changes with it."""
    for axis in results.study.axes:
        if all(set(point.settings) == {"topology"} for point in axis.points):
            return result.trial.labels[axis.name]
    return None


def sketch(topology: Topology) -> Sketch:
    """A graph as the report draws it."""
    placed = place(topology)
    points, scale = _on_paper(placed)
    first, later = _links(topology)
    ink = max(1.0, len(first) + 0.3 * len(later))
    return Sketch(
        nodes=tuple(map(_place, points)),
        first=_lines(first, placed, points, scale),
        later=_lines(later, placed, points, scale),
        grounds=tuple(_ground(points[list(group)]) for group in placed.groups),
        width=float(np.clip(1.15 - 0.2 * np.log10(ink) ** 1.5, 0.22, 0.9)),
        dot=float(1.2 + 12 / np.sqrt(topology.n)),
    )


def _links(topology: Topology) -> tuple[_Pairs, _Pairs]:
    """Pairs that are linked in the first round, and in others only."""
    rounds = _SAMPLES if topology.period is None else min(topology.period, _ROUNDS_MAX)
    first = _pairs(topology, 0)
    later = set().union(*(_pairs(topology, round) for round in range(1, rounds)))
    return first, later - first


def _pairs(topology: Topology, round: int) -> _Pairs:
    receivers, senders = topology.matrix(round).tocoo().coords
    return {
        (min(pair), max(pair))
        for pair in zip(receivers.tolist(), senders.tolist(), strict=True)
        if pair[0] != pair[1]
    }


def _on_paper(placed: Placement) -> tuple[_Points, float]:
    """Points on the square, and how long a unit of theirs is there."""
    points = placed.points * [1.0, -1.0]
    # Links around the border need room to leave it.
    room = _STUB if np.isfinite(placed.reach) else 0.0
    low, high = points.min(axis=0) - room, points.max(axis=0) + room
    scale = (_SIDE - 2 * _MARGIN) / max(float((high - low).max()), 1e-9)
    return (points - (low + high) / 2) * scale + _SIDE / 2, scale


def _lines(
    pairs: Iterable[tuple[int, int]], placed: Placement, points: _Points, scale: float
) -> _Lines:
    reach = placed.reach * scale
    return tuple(
        line for a, b in sorted(pairs) for line in _line(points[a], points[b], reach, scale)
    )


def _line(start: _Points, end: _Points, reach: float, scale: float) -> _Lines:
    """From one node to another; around the border where the way is too long."""
    off = end - start
    far = np.abs(off) > reach
    if not far.any():
        return ((_place(start), _place(end)),)
    stub = -np.sign(off) * far * _STUB * scale
    return (_place(start), _place(start + stub)), (_place(end), _place(end - stub))


def _ground(members: _Points) -> tuple[float, float, float]:
    center = members.mean(axis=0)
    radius = float(np.linalg.norm(members - center, axis=1).max()) + 4.5
    return (*_place(center), round(radius, 1))


def _place(point: _Points) -> tuple[float, float]:
    # Adding 0 makes 0 of what is -0.
    x, y = (round(float(value), 1) + 0.0 for value in point)
    return x, y
