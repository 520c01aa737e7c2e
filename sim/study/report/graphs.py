"""Small drawings of the graphs that a study ran on: where the lines go, and as SVG."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....topology import Topology
from ....topology.layout import Placement, place
from .html import Html, join, tag

__all__ = ["NODES_MAX", "Sketch", "draw", "sketch"]

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


def sketch(topology: Topology) -> Sketch:
    """Say where everything goes.

    Args:
        topology: Of `NODES_MAX` nodes at most.
    """
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


def draw(topology: Topology) -> Html:
    """Draw a graph as SVG: links of its first round strong, those of other rounds faint."""
    drawn = sketch(topology)
    # What it shows is said in words beside it.
    return tag(
        "svg",
        *(
            tag("circle", cx=f"{x:g}", cy=f"{y:g}", r=f"{radius:g}", class_="ground")
            for x, y, radius in drawn.grounds
        ),
        _path("later", drawn.later, drawn.width * 0.8),
        _path("now", drawn.first, drawn.width),
        _dots(drawn),
        viewBox=f"0 0 {_SIDE:g} {_SIDE:g}",
        class_="graph",
        aria_hidden="true",
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


def _path(kind: str, lines: _Lines, width: float) -> Html | None:
    if not lines:
        return None
    way = "".join(f"M{a:g} {b:g}L{c:g} {d:g}" for (a, b), (c, d) in lines)
    return tag("path", d=way, class_=kind, stroke_width=f"{width:.2f}")


def _dots(drawn: Sketch) -> Html:
    """Lines without a length whose ends are round: the shortest way to say circles."""
    spots = join([Html("".join(f"M{x:g} {y:g}h0" for x, y in drawn.nodes))])
    return tag("path", d=spots, class_="nodes", stroke_width=f"{drawn.dot:.2f}")
