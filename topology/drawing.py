"""Pictures of topologies: the graph, or one panel per round, with three facts above it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import TopologyError
from .layout import Placement, bodies_of, links_of, place
from .topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

    from .analysis.facts import Facts

__all__ = ["FORMATS", "check_size", "draw", "headline"]

Floats = NDArray[np.float64]

FORMATS = (".png", ".svg", ".pdf")

NODES_MAX, PUSHES_MAX = 2000, 50_000
"""Nodes, and pushes per round, above which a picture is unreadable."""

ROUNDS_MAX, SAMPLES = 9, 4
"""Maximum rounds of a period, and random rounds, with a panel each."""

# Inches.
WIDTH, EDGE, HEADER, FOOTER = 5.0, 0.12, 0.62, 0.30
TITLE_MAX = 58

INK, DIM, ACCENT = "#333333", "#777777", "#B0300A"
LINE, GROUND = "#0072B2", "#EFF3F6"

# Points within a panel, like all lengths below.
MARGIN, STUB, LINE_WIDTH = 20.0, 13.0, 0.9
DIAMETER_MIN, DIAMETER_MAX = 1.8, 17.0
FONT_MIN, FONT_MAX = 5.0, 8.5
NAMED_MAX = 40
"""Number of nodes up to which names that do not fit inside stand above them."""

# Width of a digit, or of a letter of a name, over the font size.
DIGIT = 0.64

# Coverage of a panel by lines above which they become translucent, and the limit of that.
INK_FREE, ALPHA_MIN = 0.14, 0.035


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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height = HEADER + FOOTER + max(_height(len(_rounds(topology))) for topology, _ in several)
    figure = Figure(figsize=(WIDTH * len(several), height), dpi=dpi)
    FigureCanvasAgg(figure)
    parts = figure.subfigures(1, len(several), squeeze=False)[0]
    for (topology, facts), part in zip(several, parts, strict=True):
        _draw_one(part, height, topology, facts)
    figure.savefig(path)


def _rounds(topology: Topology) -> range:
    return range(SAMPLES if topology.period is None else min(topology.period, ROUNDS_MAX))


def _grid(panels: int) -> tuple[int, int]:
    columns = next(columns for columns in (1, 2, 3) if columns**2 >= panels)
    return -(-panels // columns), columns


def _height(panels: int) -> float:
    rows, columns = _grid(panels)
    return (WIDTH - 2 * EDGE) / columns * rows


def _draw_one(figure: SubFigure, height: float, topology: Topology, facts: Facts) -> None:
    rounds = _rounds(topology)
    rows, columns = _grid(len(rounds))
    bottom = height - HEADER - _height(len(rounds))
    frame: Any = {"left": EDGE / WIDTH, "right": 1 - EDGE / WIDTH, "wspace": 0, "hspace": 0}
    frame |= {"top": 1 - HEADER / height, "bottom": bottom / height}
    panels = figure.subplots(rows, columns, squeeze=False, gridspec_kw=frame).ravel()
    side = (WIDTH - 2 * EDGE) / columns * 72
    placed = place(topology).on_square(side, MARGIN)
    small: Any = {"fontsize": 7.5, "color": DIM, "va": "top"}
    for axes in panels:
        axes.set(xlim=(0, side), ylim=(0, side))
        axes.set_axis_off()
    for round, axes in zip(rounds, panels, strict=False):
        _draw_round(axes, side, placed, topology, round, facts)
        if topology.period != 1:
            axes.text(0.02, 0.985, f"round {round}", transform=axes.transAxes, **small)
    title = topology.spec
    if len(title) > TITLE_MAX:
        title = f"{title[:14]}...{title[-(TITLE_MAX - 17) :]}"
    title += f", n = {topology.n}"
    size = min(11.0, 11.0 * 44 / len(title))
    lines: list[tuple[float, str, Any]] = [
        (0.13, title, {"fontsize": size, "weight": "bold", "color": INK}),
        (0.36, headline(facts), {"fontsize": 9, "color": INK}),
        (height - bottom + 0.06, _note(topology, facts), small),
    ]
    for below, text, style in lines:
        at = EDGE / WIDTH, 1 - below / height
        # Paths may contain characters that matplotlib reads as mathematics.
        figure.text(*at, text, parse_math=False, **{"va": "top", **style})


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
    axes: Axes, side: float, placed: Placement, topology: Topology, round: int, facts: Facts
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Circle

    points = placed.points
    diameter = _diameter(points, side)
    for x, y, radius in placed.grounds(0.85 * diameter):
        axes.add_patch(Circle((x, y), radius, color=GROUND, linewidth=0, zorder=0))
    both_ways, one_way = links_of(topology, round)
    lines = bodies_of(both_ways, placed, STUB)
    arrows = points[np.array(one_way, np.int64).reshape(-1, 2)]
    length = sum(np.linalg.norm(x[:, 1] - x[:, 0], axis=1).sum() for x in (lines, arrows))
    alpha = np.clip(INK_FREE * side**2 / max(length * LINE_WIDTH, 1e-9), ALPHA_MIN, 0.95)
    style: Any = {"color": LINE, "alpha": float(alpha), "zorder": 1}
    axes.add_collection(LineCollection(list(lines), linewidths=LINE_WIDTH, **style))
    if len(arrows):
        # Arrows end at the rim of a node.
        along = arrows[:, 1] - arrows[:, 0]
        along *= 1 - (diameter / 2 + 0.5) / np.linalg.norm(along, axis=1, keepdims=True)
        style |= {"angles": "xy", "scale_units": "xy", "scale": 1, "units": "xy"}
        style |= {"width": LINE_WIDTH, "headwidth": 5, "headlength": 6}
        axes.quiver(*arrows[:, 0].T, *along.T, **style)
    cuts = {tuple(sorted(link)) for link in facts.bridges}
    red = [link for link in (*both_ways, *one_way) if tuple(sorted(link)) in cuts]
    split = points[np.array(red, np.int64).reshape(-1, 2)]
    axes.add_collection(LineCollection(list(split), linewidths=LINE_WIDTH, color=ACCENT, zorder=2))
    shades = np.where(np.isin(np.arange(topology.n), facts.articulation_points), ACCENT, INK)
    axes.scatter(
        points[:, 0], points[:, 1], s=diameter**2, c=shades.tolist(), linewidths=0, zorder=3
    )
    _label(axes, points, topology.names, diameter)


def _label(axes: Axes, points: Floats, names: Sequence[str], diameter: float) -> None:
    labels = names or [str(node) for node in range(len(points))]
    font = 0.86 * diameter / (DIGIT * max(map(len, labels)))
    style: Any = {"ha": "center", "va": "center_baseline", "color": "white"}
    above = 0.0
    if font < FONT_MIN:
        if not names or len(names) > NAMED_MAX:
            return
        style, above, font = {"ha": "center", "color": INK}, diameter / 2 + 1, FONT_MAX
    for (x, y), label in zip(points, labels, strict=True):
        # Names may contain characters that matplotlib reads as mathematics.
        axes.text(x, y + above, label, fontsize=min(font, FONT_MAX), parse_math=False, **style)


def _diameter(points: Floats, side: float) -> float:
    """Return the diameter that the nodes' distances allow, smaller on a small panel."""
    largest = min(DIAMETER_MAX, side / 14)
    if len(points) < 2:
        return largest
    from scipy.spatial import cKDTree

    nearest = float(np.quantile(cKDTree(points).query(points, k=2)[0][:, 1], 0.05))
    # Room for a number if it fits, or else for a dot.
    room = 0.62 * nearest if 0.62 * nearest > FONT_MIN * 2 * DIGIT else 0.42 * nearest
    return float(np.clip(room, DIAMETER_MIN, largest))
