"""One round of a topology on paper: nodes, edges and arrows. All lengths are points, 1/72 inch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from ..sim.results.curves import ACCENT, INK, PALETTE
from ..topology.placement import Placement
from .graph_links import Links, Scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Panel"]

Floats = NDArray[np.float64]

STRONG, WEAK = PALETTE[0], "#8FBBD6"
GROUND = "#EFF3F6"

MARGIN = 13.0
STUB = 13.0
DIAMETER_MIN, DIAMETER_MAX, RIMMED_FROM = 1.8, 17.0, 3.5
WIDTH_MIN = 0.35
FONT_MIN, FONT_MAX, NAME_SIZE = 5.0, 8.5, 7.5

# Where names have room beside nodes: up to so many of them, on paper so large.
NAMED_MAX, SIDE_NAMED = 40, 200.0

# Width of a digit, and of a letter of a name, over the size of the font.
DIGIT = 0.64

# How much of the paper lines may cover before they turn translucent, and how far they do.
INK_FREE = 0.14
ALPHA_MIN = 0.035


class Panel:
    """A square of paper with all nodes of a topology on it.

    Args:
        placement: Where the nodes are, in any unit.
        side: Of the square.
        names: Of the nodes; numbers where there are none.
        cut_nodes: Nodes to stress.
        cut_links: Pairs to stress.
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

    def draw(self, axes: "Axes", links: Links, scale: Scale) -> None:
        """Draw one round.

        Args:
            axes: Whose unit is made to be the point.
            links: Of the round.
            scale: Of the picture.
        """
        axes.set_xlim(0, self.side)
        axes.set_ylim(0, self.side)
        axes.set_axis_off()
        self._draw_grounds(axes)
        self._draw_links(axes, links, scale)
        self._draw_nodes(axes, links)

    def _draw_grounds(self, axes: "Axes") -> None:
        from matplotlib.patches import Circle

        for group in self._groups:
            points = self._points[list(group)]
            center = points.mean(axis=0)
            radius = np.linalg.norm(points - center, axis=1).max() + 0.85 * self._diameter
            axes.add_patch(Circle(tuple(center), radius, color=GROUND, linewidth=0, zorder=0))

    def _draw_links(self, axes: "Axes", links: Links, scale: Scale) -> None:
        if not len(links.low):
            return
        bodies = np.stack([self._points[links.low], self._points[links.high]], axis=1)
        along = np.abs(bodies[:, 1] - bodies[:, 0])
        strength = scale.strength(links.values)
        widths = np.maximum(WIDTH_MIN, strength * float(np.clip(0.15 * self._diameter, 0.8, 1.6)))
        covered = float((np.linalg.norm(along, axis=1) * widths).sum()) / self.side**2
        alpha = float(np.clip(0.95 * INK_FREE / max(covered, 1e-9), ALPHA_MIN, 0.95))
        colors = self._colors(links, strength, alpha)
        # Few links leave a group; among the many inside they must not fade.
        colors[self._group[links.low] != self._group[links.high], 3] = 0.95
        far = along.max(axis=1) > self._reach
        if (links.up != links.down).any():
            for tip, ahead in ((1, links.up & ~far), (0, links.down & ~far)):
                self._draw_heads(axes, bodies, ahead, tip, colors)
        _draw_lines(axes, bodies[~far], widths[~far], colors[~far])
        stubs = _stubs(bodies[far], self._diameter / 2 + STUB)
        _draw_lines(axes, stubs, np.tile(widths[far], 2), np.tile(colors[far], (2, 1)))

    def _draw_heads(
        self, axes: "Axes", bodies: Floats, ahead: NDArray[np.bool_], tip: int, colors: Floats
    ) -> None:
        """Draw arrowheads, and shorten the lines that end in them."""
        from matplotlib.collections import PolyCollection

        tips, tails = bodies[ahead, tip], bodies[ahead, 1 - tip]
        along = tips - tails
        distance = np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-9)
        along = along / distance
        across = along[:, ::-1] * (-1, 1)
        gap = self._diameter / 2 + 0.5
        # Between near nodes there is less room.
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

    def _draw_nodes(self, axes: "Axes", links: Links) -> None:
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

    def _label_inside(self, axes: "Axes", labels: Sequence[str], font: float) -> None:
        for (x, y), label in zip(self._points, labels, strict=True):
            axes.text(
                x,
                y,
                label,
                fontsize=font,
                color="white",
                ha="center",
                va="center_baseline",
                parse_math=False,
            )

    def _label_beside(
        self, axes: "Axes", labels: Sequence[str], links: Links, radius: float
    ) -> None:
        """Write on that side of a node where it has no neighbors."""
        from matplotlib.patheffects import withStroke

        away = np.zeros_like(self._points)
        for one, other in ((links.low, links.high), (links.high, links.low)):
            np.add.at(away, one, self._points[one] - self._points[other])
        away /= np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-9)
        for point, way, label in zip(self._points, away, labels, strict=True):
            half = np.array([0.5 * DIGIT * len(label), 0.6]) * NAME_SIZE
            x, y = np.clip(point + way * (half + radius + 1), half, self.side - half)
            axes.text(
                x,
                y,
                label,
                fontsize=NAME_SIZE,
                ha="center",
                va="center",
                zorder=4,
                parse_math=False,
                path_effects=[withStroke(linewidth=2.5, foreground="white")],
            )


def _fit(points: Floats, side: float, margin: float) -> tuple[Floats, float]:
    """Points on a square of paper, and how many of its units one of theirs is."""
    low, high = points.min(axis=0), points.max(axis=0)
    scale = (side - 2 * margin) / max(float((high - low).max()), 1e-9)
    return (points - (low + high) / 2) * scale + side / 2, scale


def _diameter(points: Floats, side: float) -> float:
    """Of a node: as much as its neighbors on paper leave, and less on small paper."""
    largest = min(DIAMETER_MAX, side / 14)
    if len(points) < 2:
        return largest
    nearest = float(np.quantile(cKDTree(points).query(points, k=2)[0][:, 1], 0.05))
    # Room for a number, or else a dot.
    room = 0.62 * nearest if 0.62 * nearest > FONT_MIN * 2 * DIGIT else 0.42 * nearest
    return float(np.clip(room, DIAMETER_MIN, largest))


def _draw_lines(axes: "Axes", lines: Floats, widths: Floats, colors: Floats) -> None:
    """Draw lines, axes ``(line, end, x and y)``."""
    from matplotlib.collections import LineCollection

    axes.add_collection(
        LineCollection(list(lines), linewidths=widths, colors=colors, capstyle="butt", zorder=1)
    )


def _stubs(bodies: Floats, length: float) -> Floats:
    """Both ends of lines that leave the paper, axes ``(stub, end, x and y)``."""
    starts, ends = bodies[:, 0], bodies[:, 1]
    along = ends - starts
    main = np.abs(along) == np.abs(along).max(axis=1, keepdims=True)
    out = np.sign(along) * main * length
    return np.concatenate(
        [np.stack([starts, starts - out], axis=1), np.stack([ends, ends + out], axis=1)]
    )
