"""Pictures of topologies: the graph, or one panel per round, with three facts above it.

Lengths are points (1/72 inch) within a panel and inches elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .errors import TopologyError
from .layout import Links, Placement, links_of, place
from .topology import Topology

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .analysis.facts import Facts

__all__ = [
    "FORMATS",
    "Panel",
    "Scale",
    "check_size",
    "draw",
    "draw_side_by_side",
    "headline",
]

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
INK_FREE = 0.14
ALPHA_MIN = 0.035


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Width and shade of a line by its value, the same in all rounds of a picture."""

    least: float
    most: float
    is_log: bool = False
    """Bandwidths span orders of magnitude."""

    @property
    def is_flat(self) -> bool:
        """Whether all lines look the same."""
        return self.most - self.least <= 1e-9 * self.most

    def strength(self, values: Floats) -> Floats:
        """In (0, 1], 1 for the strongest."""
        if self.is_flat:
            return np.ones_like(values)
        if self.is_log:
            values = np.log(values / self.least)
            return np.asarray(0.35 + 0.65 * values / np.log(self.most / self.least))
        return values / self.most

    @staticmethod
    def over(rounds: Sequence[Links], *, is_log: bool) -> Scale:
        """The scale that fits these rounds."""
        values = np.concatenate([np.empty(0), *(links.values for links in rounds)])
        if not len(values):
            return Scale(least=1.0, most=1.0)
        return Scale(least=float(values.min()), most=float(values.max()), is_log=is_log)


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
        self._n = len(placement.points)
        self._names = names
        self._groups = placement.groups
        self._group = np.zeros(self._n, np.int64)
        for index, group in enumerate(placement.groups):
            self._group[list(group)] = index
        self._cut_nodes = np.isin(np.arange(self._n), cut_nodes)
        self._cut_links = {tuple(sorted(link)) for link in cut_links}
        self._written = bool(names) and self._n <= NAMED_MAX and side > SIDE_NAMED
        more = STUB if placement.groups or np.isfinite(placement.reach) else 0.0
        if self._written:
            more = max(more, DIGIT * NAME_SIZE * min(12, max(map(len, names))))
        self._points, scale = _fit(placement.points, side, MARGIN + more)
        self._reach = scale * placement.reach
        self._diameter = _diameter(self._points, side)

    def draw(self, axes: Axes, links: Links, scale: Scale) -> None:
        """Draw one round.

        Args:
            axes: Its unit becomes the point.
            links: Of the round.
            scale: Of the picture.
        """
        axes.set_xlim(0, self.side)
        axes.set_ylim(0, self.side)
        axes.set_axis_off()
        self._draw_grounds(axes)
        self._draw_links(axes, links, scale)
        self._draw_nodes(axes, links)

    def _draw_grounds(self, axes: Axes) -> None:
        from matplotlib.patches import Circle

        for group in self._groups:
            points = self._points[list(group)]
            center = points.mean(axis=0)
            radius = np.linalg.norm(points - center, axis=1).max() + 0.85 * self._diameter
            axes.add_patch(Circle(tuple(center), radius, color=GROUND, linewidth=0, zorder=0))

    def _draw_links(self, axes: Axes, links: Links, scale: Scale) -> None:
        if not len(links.low):
            return
        bodies = np.stack([self._points[links.low], self._points[links.high]], axis=1)
        along = np.abs(bodies[:, 1] - bodies[:, 0])
        strength = scale.strength(links.values)
        widths = np.maximum(
            LINE_WIDTH_MIN, strength * float(np.clip(0.15 * self._diameter, 0.8, 1.6))
        )
        covered = float((np.linalg.norm(along, axis=1) * widths).sum()) / self.side**2
        alpha = float(np.clip(0.95 * INK_FREE / max(covered, 1e-9), ALPHA_MIN, 0.95))
        colors = self._colors(links, strength, alpha)
        # Few links leave a group; they must not fade among the many inside.
        colors[self._group[links.low] != self._group[links.high], 3] = 0.95
        far = along.max(axis=1) > self._reach
        if (links.up != links.down).any():
            for tip, ahead in ((1, links.up & ~far), (0, links.down & ~far)):
                self._draw_heads(axes, bodies, ahead, tip, colors)
        _draw_lines(axes, bodies[~far], widths[~far], colors[~far])
        stubs = _stubs(bodies[far], self._diameter / 2 + STUB)
        _draw_lines(axes, stubs, np.tile(widths[far], 2), np.tile(colors[far], (2, 1)))

    def _draw_heads(
        self, axes: Axes, bodies: Floats, ahead: NDArray[np.bool_], tip: int, colors: Floats
    ) -> None:
        """Draw arrowheads, and shorten the lines that end in them."""
        from matplotlib.collections import PolyCollection

        tips, tails = bodies[ahead, tip], bodies[ahead, 1 - tip]
        along = tips - tails
        distance = np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-9)
        along = along / distance
        across = along[:, ::-1] * (-1, 1)
        gap = self._diameter / 2 + 0.5
        # There is less room between close nodes.
        room = np.maximum(distance - 2 * gap, 0)
        size = np.minimum(np.clip(0.5 * self._diameter, 2.6, 6.5), 0.5 * room)
        front = tips - gap * along
        back = front - size * along
        corners = [front, back + 0.4 * size * across, back - 0.4 * size * across]
        shades = colors[ahead] * (1, 1, 1, 1.8)
        axes.add_collection(
            PolyCollection(
                list(np.stack(corners, axis=1)),
                facecolors=np.minimum(shades, 1.0),
                linewidths=0,
                zorder=2,
            )
        )
        bodies[ahead, tip] = back

    def _colors(self, links: Links, strength: Floats, alpha: float) -> Floats:
        from matplotlib.colors import to_rgb

        weak, strong = np.array(to_rgb(WEAK)), np.array(to_rgb(STRONG))
        rgb = weak + strength[:, None] * (strong - weak)
        pairs = zip(links.low.tolist(), links.high.tolist(), strict=True)
        cut = np.array([pair in self._cut_links for pair in pairs], bool)
        rgb[cut] = to_rgb(ACCENT)
        return np.column_stack([rgb, np.full(len(rgb), alpha)])

    def _draw_nodes(self, axes: Axes, links: Links) -> None:
        labels = list(self._names) or [str(node) for node in range(self._n)]
        font = self._diameter / (DIGIT * max(map(len, labels))) * 0.86
        beside = font < FONT_MIN and self._written
        diameter = min(self._diameter, 9.0) if beside else self._diameter
        colors: Any = np.where(self._cut_nodes, ACCENT, INK)
        axes.scatter(
            self._points[:, 0],
            self._points[:, 1],
            s=diameter**2,
            c=colors,
            linewidths=min(0.8, 0.12 * diameter) if diameter > RIMMED_FROM else 0.0,
            edgecolors="white",
            zorder=3,
        )
        if font >= FONT_MIN:
            self._label_inside(axes, labels, min(font, FONT_MAX, 0.62 * self._diameter))
        elif beside:
            self._label_beside(axes, labels, links, diameter / 2)

    def _label_inside(self, axes: Axes, labels: Sequence[str], font: float) -> None:
        for (x, y), label in zip(self._points, labels, strict=True):
            style: Any = {"fontsize": font, "color": "white", "va": "center_baseline"}
            axes.text(x, y, label, ha="center", parse_math=False, **style)

    def _label_beside(self, axes: Axes, labels: Sequence[str], links: Links, radius: float) -> None:
        """Write on the side of a node away from its neighbors."""
        from matplotlib.patheffects import withStroke

        away = np.zeros_like(self._points)
        for one, other in ((links.low, links.high), (links.high, links.low)):
            np.add.at(away, one, self._points[one] - self._points[other])
        away /= np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-9)
        for point, way, label in zip(self._points, away, labels, strict=True):
            half = np.array([0.5 * DIGIT * len(label), 0.6]) * NAME_SIZE
            x, y = np.clip(point + way * (half + radius + 1), half, self.side - half)
            style: Any = {"fontsize": NAME_SIZE, "ha": "center", "va": "center", "zorder": 4}
            halo = [withStroke(linewidth=2.5, foreground="white")]
            axes.text(x, y, label, parse_math=False, path_effects=halo, **style)


def _fit(points: Floats, side: float, margin: float) -> tuple[Floats, float]:
    """Points on a square, and the factor between their units."""
    low, high = points.min(axis=0), points.max(axis=0)
    scale = (side - 2 * margin) / max(float((high - low).max()), 1e-9)
    return (points - (low + high) / 2) * scale + side / 2, scale


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


def _stubs(bodies: Floats, length: float) -> Floats:
    """The two ends of lines that wrap around, axes ``(stub, end, x and y)``."""
    starts, ends = bodies[:, 0], bodies[:, 1]
    along = ends - starts
    main = np.abs(along) == np.abs(along).max(axis=1, keepdims=True)
    out = np.sign(along) * main * length
    return np.concatenate(
        [np.stack([starts, starts - out], axis=1), np.stack([ends, ends + out], axis=1)]
    )


def check_size(topology: Topology) -> None:
    """Reject graphs of which a picture would show nothing.

    Raises:
        TopologyError: Too many nodes, or too many edges.
    """
    n = topology.n
    if n > NODES_MAX:
        raise TopologyError(
            f"{n:,} nodes would be one blot of ink: a picture takes at most {NODES_MAX:,}"
        )
    pushes = topology.matrix().nnz - n
    if pushes > PUSHES_MAX:
        raise TopologyError(
            f"{pushes:,} edges would be one blot of ink: a picture takes at most {PUSHES_MAX:,}"
        )


def draw(topology: Topology, facts: Facts, path: Path) -> None:
    """Draw a topology.

    Args:
        topology: One that passes `check_size`.
        facts: Of the topology.
        path: Where the picture goes; its suffix is one of `FORMATS`.

    Raises:
        OSError: It cannot be written.
    """
    draw_side_by_side([(topology, facts)], path)


def draw_side_by_side(
    several: Sequence[tuple[Topology, Facts]], path: Path, dpi: float = 150
) -> None:
    """Draw topologies in one picture, from left to right.

    Args:
        several: Topologies with their facts.
        path: Where the picture goes.
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
        height = HEADER + max(card.height for card in cards) + FOOTER
        figure = Figure(figsize=(WIDTH * len(cards), height), dpi=dpi)
        FigureCanvasAgg(figure)
        for index, card in enumerate(cards):
            card.draw(figure, WIDTH * index)
        figure.savefig(path)


class _Card:
    """One topology's part of a picture."""

    def __init__(self, topology: Topology, facts: Facts) -> None:
        self.topology = topology
        self.facts = facts
        self.rounds = _samples(topology) if topology.period is None else _rounds(topology.period)
        self.columns, rows = _shape(len(self.rounds), topology.period)
        self.side = (WIDTH - 2 * EDGE) / self.columns
        self.height = self.side * rows

    def draw(self, figure: Figure, left: float) -> None:
        width, height = figure.get_size_inches()
        links = [links_of(self.topology, round) for round in self.rounds]
        scale = Scale.over(links, is_log=self.topology.bandwidth is not None)
        panel = Panel(
            place(self.topology),
            self.side * 72,
            self.topology.names,
            self.facts.articulation_points,
            self.facts.bridges,
        )
        top = height - HEADER
        for index in range(len(self.rounds) + 1):
            row, column = divmod(index, self.columns)
            corner = left + EDGE + column * self.side, top - (row + 1) * self.side
            if index == len(self.rounds):
                self._say_more(figure, corner)
                break
            axes = figure.add_axes(
                (corner[0] / width, corner[1] / height, self.side / width, self.side / height)
            )
            panel.draw(axes, links[index], scale)
            if self.topology.period != 1:
                style: Any = {"fontsize": 7.5, "color": DIM, "va": "top"}
                where = axes.transAxes
                text = f"round {self.rounds[index]}"
                axes.text(0.02, 0.985, text, transform=where, parse_math=False, **style)
        self._write(figure, left, scale)

    def _write(self, figure: Figure, left: float, scale: Scale) -> None:
        height = figure.get_size_inches()[1]
        title = f"{_shortened(self.topology.spec)}, n = {self.topology.n}"
        size = min(11.0, 11.0 * 44 / len(title))
        _text(figure, left + EDGE, height - 0.13, title, size=size, weight="bold")
        _text(figure, left + EDGE, height - 0.36, headline(self.facts), size=9)
        note = self._note(scale)
        _text(figure, left + EDGE, height - HEADER - self.height - 0.06, note, size=7.5, color=DIM)

    def _say_more(self, figure: Figure, corner: tuple[float, float]) -> None:
        period = self.topology.period
        if period is not None and period > len(self.rounds):
            x, y = corner[0] + 0.3 * self.side, corner[1] + self.side / 2
            _text(figure, x, y, f"... of {period} rounds", size=9, color=DIM)

    def _note(self, scale: Scale) -> str:
        parts = []
        if self.topology.period is None:
            parts.append("samples: each round is drawn anew")
        if not scale.is_flat:
            span = f"weight {scale.least:.3g} to {scale.most:.3g}"
            if scale.is_log:
                span = f"bandwidth {scale.least:,.6g} to {scale.most:,.6g} Mbit/s"
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


def _shape(panels: int, period: int | None) -> tuple[int, int]:
    """Columns and rows of panels."""
    places = panels + (period is not None and period > panels)
    columns = next(columns for columns in (1, 2, 3) if columns**2 >= places)
    return columns, -(-places // columns)


def _shortened(spec: str) -> str:
    if len(spec) <= TITLE_MAX:
        return spec
    return f"{spec[:14]}...{spec[-(TITLE_MAX - 17) :]}"


def _text(figure: Figure, x: float, y: float, text: str, *, size: float, **more: Any) -> None:
    width, height = figure.get_size_inches()
    # Names and paths may contain what matplotlib would read as mathematics.
    figure.text(x / width, y / height, text, fontsize=size, va="top", parse_math=False, **more)
