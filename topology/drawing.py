"""Pictures of topologies: the graph, or one panel per round, with three facts above it.

Lengths are points (1/72 inch) within a panel and inches elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import TopologyError
from .layout import Links, Placement, links_of, place, wrapped
from .topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import SubFigure

    from .analysis.facts import Facts

__all__ = ["FORMATS", "Panel", "check_size", "draw", "headline", "scale_of"]

Floats = NDArray[np.float64]

FORMATS = (".png", ".svg", ".pdf")
"""Suffixes of the files that can be written."""

NODES_MAX, PUSHES_MAX = 2000, 50_000
"""Nodes, and pushes per round, beyond which a picture shows nothing but ink."""

PERIOD_MAX = 9
"""Rounds of a period that get a panel each; of a longer one, all but the last panel do."""

SAMPLES, SAMPLES_AMONG = 4, 32
"""Random rounds that are shown: the first ones that differ, among so many."""

WIDTH, EDGE, HEADER, FOOTER = 5.0, 0.12, 0.62, 0.30
TITLE_MAX = 58
BORDER: Any = {"left": EDGE / WIDTH, "right": 1 - EDGE / WIDTH, "wspace": 0, "hspace": 0}

INK, DIM, ACCENT = "#333333", "#777777", "#B0300A"
STRONG, WEAK, GROUND = "#0072B2", "#8FBBD6", "#EFF3F6"
STYLE: Any = {"font.size": 9.5, "text.color": INK}

MARGIN, STUB = 13.0, 13.0
DIAMETER_MIN, DIAMETER_MAX, RIMMED_FROM = 1.8, 17.0, 3.5
LINE_WIDTH_MIN = 0.35
FONT_MIN, FONT_MAX, NAME_SIZE = 5.0, 8.5, 7.5

# Names fit beside nodes for up to so many of them, on a panel at least so large.
NAMED_MAX, SIDE_NAMED = 40, 200.0

# Width of a digit, or of a letter of a name, over the font size.
DIGIT = 0.64

# How much of a panel lines may cover before they become translucent, and the limit of that.
INK_FREE, ALPHA_MIN = 0.14, 0.035


def scale_of(values: Floats, *, is_log: bool) -> Normalize:
    """Strengths of lines in (0, 1] by their values, the same in all rounds of a picture.

    Args:
        values: Of all lines that are drawn.
        is_log: Of bandwidths, which span orders of magnitude.
    """
    from matplotlib.colors import LogNorm, Normalize

    if is_log and _differ(values):
        # The least is half as strong as the most.
        return LogNorm(values.min() ** 2 / values.max(), values.max())
    return Normalize(0.0, values.max(initial=0.0))


def _differ(values: Floats) -> bool:
    return len(values) > 0 and bool(np.ptp(values) > 1e-9 * values.max())


class Panel:
    """A square with the nodes of a topology, on which rounds are drawn.

    Args:
        placement: Positions of the nodes, in any unit.
        side: Of the square, in points.
        names: Of the nodes; numbers where there are none.
        cut_nodes: Nodes to highlight.
        cut_links: Pairs to highlight.
    """

    def __init__(
        self,
        placement: Placement,
        side: float,
        names: Sequence[str] = (),
        cut_nodes: Sequence[int] = (),
        cut_links: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.side = side
        n = len(placement.points)
        self._labels = list(names) or [str(node) for node in range(n)]
        self._group = np.zeros(n, np.int64)
        for index, group in enumerate(placement.groups):
            self._group[list(group)] = index
        self._shades = np.where(np.isin(np.arange(n), cut_nodes), ACCENT, INK)
        self._cut_links = {tuple(sorted(link)) for link in cut_links}
        self._written = bool(names) and n <= NAMED_MAX and side > SIDE_NAMED
        more = STUB if placement.groups or np.isfinite(placement.reach) else 0.0
        if self._written:
            more = max(more, DIGIT * NAME_SIZE * min(12, max(map(len, names))))
        self._placed = placement.on_square(side, MARGIN + more)
        self._points = self._placed.points
        self._diameter = _diameter(self._points, side)

    def draw(self, axes: Axes, links: Links, scale: Normalize) -> None:
        """Draw one round.

        Args:
            axes: Its unit becomes the point.
            links: Of the round.
            scale: Of the picture.
        """
        from matplotlib.patches import Circle

        axes.set_xlim(0, self.side)
        axes.set_ylim(0, self.side)
        axes.set_axis_off()
        for x, y, radius in self._placed.grounds(0.85 * self._diameter):
            axes.add_patch(Circle((x, y), radius, color=GROUND, linewidth=0, zorder=0))
        if len(links.low):
            self._draw_links(axes, links, np.asarray(scale(links.values)))
        self._draw_nodes(axes, links)

    def _draw_links(self, axes: Axes, links: Links, strength: Floats) -> None:
        bodies = self._points[np.stack([links.low, links.high], axis=1)]
        along = np.abs(bodies[:, 1] - bodies[:, 0])
        widths = strength * float(np.clip(0.15 * self._diameter, 0.8, 1.6))
        widths = np.maximum(LINE_WIDTH_MIN, widths)
        covered = float((np.linalg.norm(along, axis=1) * widths).sum()) / self.side**2
        alpha = float(np.clip(0.95 * INK_FREE / max(covered, 1e-9), ALPHA_MIN, 0.95))
        colors = self._colors(links, strength, alpha)
        # Few links leave a group; they must not fade among the many inside.
        colors[self._group[links.low] != self._group[links.high], 3] = 0.95
        far = along.max(axis=1) > self._placed.reach
        if (links.up != links.down).any():
            for tip, ahead in ((1, links.up & ~far), (0, links.down & ~far)):
                self._draw_heads(axes, bodies, ahead, tip, colors)
        _draw_lines(axes, bodies[~far], widths[~far], colors[~far])
        stubs = wrapped(bodies[far], self._diameter / 2 + STUB)
        _draw_lines(axes, stubs, np.tile(widths[far], 2), np.tile(colors[far], (2, 1)))

    def _draw_heads(
        self, axes: Axes, bodies: Floats, ahead: NDArray[np.bool_], tip: int, colors: Floats
    ) -> None:
        """Draw arrowheads, and shorten the lines that end in them."""
        from matplotlib.collections import PolyCollection

        tips, tails = bodies[ahead, tip], bodies[ahead, 1 - tip]
        distance = np.maximum(np.linalg.norm(tips - tails, axis=1, keepdims=True), 1e-9)
        along = (tips - tails) / distance
        gap = self._diameter / 2 + 0.5
        # There is less room between close nodes.
        room = np.maximum(distance - 2 * gap, 0)
        size = np.minimum(np.clip(0.5 * self._diameter, 2.6, 6.5), 0.5 * room)
        front = tips - gap * along
        back = front - size * along
        side = 0.4 * size * along[:, ::-1] * (-1, 1)
        corners = list(np.stack([front, back + side, back - side], axis=1))
        shades = np.minimum(colors[ahead] * (1, 1, 1, 1.8), 1.0)
        axes.add_collection(PolyCollection(corners, facecolors=shades, linewidths=0, zorder=2))
        bodies[ahead, tip] = back

    def _colors(self, links: Links, strength: Floats, alpha: float) -> Floats:
        from matplotlib.colors import to_rgb

        weak, strong = np.array(to_rgb(WEAK)), np.array(to_rgb(STRONG))
        rgb = weak + strength[:, None] * (strong - weak)
        rgb[[pair in self._cut_links for pair in links.pairs()]] = to_rgb(ACCENT)
        return np.column_stack([rgb, np.full(len(rgb), alpha)])

    def _draw_nodes(self, axes: Axes, links: Links) -> None:
        font = 0.86 * self._diameter / (DIGIT * max(map(len, self._labels)))
        beside = font < FONT_MIN and self._written
        diameter = min(self._diameter, 9.0) if beside else self._diameter
        rim = min(0.8, 0.12 * diameter) if diameter > RIMMED_FROM else 0.0
        look: Any = {"c": self._shades, "linewidths": rim, "edgecolors": "white", "zorder": 3}
        axes.scatter(self._points[:, 0], self._points[:, 1], s=diameter**2, **look)
        if font >= FONT_MIN:
            size = min(font, FONT_MAX, 0.62 * self._diameter)
            style: Any = {"fontsize": size, "color": "white", "va": "center_baseline"}
            self._label(axes, self._points, style)
        elif beside:
            from matplotlib.patheffects import withStroke

            halo = [withStroke(linewidth=2.5, foreground="white")]
            style = {"fontsize": NAME_SIZE, "va": "center", "zorder": 4, "path_effects": halo}
            self._label(axes, self._beside(links, diameter / 2), style)

    def _label(self, axes: Axes, points: Floats, style: Any) -> None:
        for (x, y), label in zip(points, self._labels, strict=True):
            # Names may contain what matplotlib would read as mathematics.
            axes.text(x, y, label, ha="center", parse_math=False, **style)

    def _beside(self, links: Links, radius: float) -> Floats:
        """Where labels stand, on the side of each node away from its neighbors."""
        away = np.zeros_like(self._points)
        for one, other in ((links.low, links.high), (links.high, links.low)):
            np.add.at(away, one, self._points[one] - self._points[other])
        away /= np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-9)
        half = NAME_SIZE * np.array([(0.5 * DIGIT * len(label), 0.6) for label in self._labels])
        points: Floats = np.clip(self._points + away * (half + radius + 1), half, self.side - half)
        return points


def _diameter(points: Floats, side: float) -> float:
    """The diameter of nodes that their distances allow, smaller on a small panel."""
    largest = min(DIAMETER_MAX, side / 14)
    if len(points) < 2:
        return largest
    from scipy.spatial import cKDTree

    nearest = float(np.quantile(cKDTree(points).query(points, k=2)[0][:, 1], 0.05))
    # Room for a number, or else for a dot.
    room = 0.62 * nearest if 0.62 * nearest > FONT_MIN * 2 * DIGIT else 0.42 * nearest
    return float(np.clip(room, DIAMETER_MIN, largest))


def _draw_lines(axes: Axes, lines: Floats, widths: Floats, colors: Floats) -> None:
    """Draw lines, axes ``(line, end, x and y)``."""
    from matplotlib.collections import LineCollection

    axes.add_collection(
        LineCollection(list(lines), linewidths=widths, colors=colors, capstyle="butt", zorder=1)
    )


def check_size(topology: Topology) -> None:
    """Reject graphs of which a picture would show nothing.

    Raises:
        TopologyError: Too many nodes, or too many edges.
    """
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
        path: Where the picture goes; its suffix is one of `FORMATS`.
        dpi: Dots per inch.

    Raises:
        OSError: It cannot be written.
    """
    # Without pyplot: no backend is chosen, and no state outlives the call.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cards = [_Card(topology, facts) for topology, facts in several]
    with rc_context(STYLE):
        height = max(card.height for card in cards)
        figure = Figure(figsize=(WIDTH * len(cards), height), dpi=dpi)
        FigureCanvasAgg(figure)
        parts = figure.subfigures(1, len(cards), squeeze=False)[0]
        for card, part in zip(cards, parts, strict=True):
            card.draw(part, height)
        figure.savefig(path)


class _Card:
    """One topology's part of a picture."""

    def __init__(self, topology: Topology, facts: Facts) -> None:
        self.topology = topology
        self.facts = facts
        self.rounds = _samples(topology) if topology.period is None else _rounds(topology.period)
        self.is_cut_short = topology.period is not None and topology.period > len(self.rounds)
        panels = len(self.rounds) + self.is_cut_short
        self.columns = next(columns for columns in (1, 2, 3) if columns**2 >= panels)
        self.rows = -(-panels // self.columns)
        self.side = (WIDTH - 2 * EDGE) / self.columns
        self.height = HEADER + self.side * self.rows + FOOTER

    def draw(self, figure: SubFigure, height: float) -> None:
        """Draw on a part of a figure, so many inches high."""
        links = [links_of(self.topology, round) for round in self.rounds]
        values = np.concatenate([np.empty(0), *(one.values for one in links)])
        scale = scale_of(values, is_log=self.topology.bandwidth is not None)
        cuts = self.facts.articulation_points, self.facts.bridges
        panel = Panel(place(self.topology), self.side * 72, self.topology.names, *cuts)
        bottom = height - HEADER - self.side * self.rows
        grid = figure.add_gridspec(
            self.rows, self.columns, top=1 - HEADER / height, bottom=bottom / height, **BORDER
        )
        small: Any = {"fontsize": 7.5, "color": DIM, "va": "top"}
        for index, one in enumerate(links):
            axes = figure.add_subplot(grid[divmod(index, self.columns)])
            panel.draw(axes, one, scale)
            if self.topology.period != 1:
                text = f"round {self.rounds[index]}"
                axes.text(0.02, 0.985, text, transform=axes.transAxes, **small)
        if self.is_cut_short:
            axes = figure.add_subplot(grid[divmod(len(links), self.columns)])
            axes.set_axis_off()
            axes.text(0.3, 0.5, f"... of {self.topology.period} rounds", fontsize=9, color=DIM)
        title = f"{_shortened(self.topology.spec)}, n = {self.topology.n}"
        lines: list[tuple[float, str, Any]] = [
            (0.13, title, {"fontsize": min(11.0, 11.0 * 44 / len(title)), "weight": "bold"}),
            (0.36, headline(self.facts), {"fontsize": 9}),
            (height - bottom + 0.06, self._note(values), small),
        ]
        for below, text, style in lines:
            at = EDGE / WIDTH, 1 - below / height
            # Paths may contain what matplotlib would read as mathematics.
            figure.text(*at, text, parse_math=False, **{"va": "top", **style})

    def _note(self, values: Floats) -> str:
        parts = []
        if self.topology.period is None:
            parts.append("samples: each round is drawn anew")
        if _differ(values):
            span = f"weight {values.min():.3g} to {values.max():.3g}"
            if self.topology.bandwidth is not None:
                span = f"bandwidth {values.min():,.6g} to {values.max():,.6g} Mbit/s"
            parts.append(f"width and shade: {span}")
        if self.facts.articulation_points or self.facts.bridges:
            parts.append("red: losing it splits the graph")
        return "; ".join(parts)


def headline(facts: Facts) -> str:
    """The three facts that fit above a picture."""
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


def _rounds(period: int) -> Sequence[int]:
    return range(period if period <= PERIOD_MAX else PERIOD_MAX - 1)


def _samples(topology: Topology) -> Sequence[int]:
    """Random rounds that differ from each other, so that each panel shows something new."""
    rounds: list[int] = []
    for round in range(SAMPLES_AMONG):
        if len(rounds) < SAMPLES and not any(_alike(topology, round, other) for other in rounds):
            rounds.append(round)
    return rounds


def _alike(topology: Topology, round: int, other: int) -> bool:
    return not (topology.matrix(round) != topology.matrix(other)).nnz


def _shortened(spec: str) -> str:
    if len(spec) <= TITLE_MAX:
        return spec
    return f"{spec[:14]}...{spec[-(TITLE_MAX - 17) :]}"
