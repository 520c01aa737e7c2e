"""The picture of the graphs that a study ran on."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ....topology import parse
from .. import words
from ..result import Result
from .drawing import ACCENT, DIM, INK, MUTED, paper, save
from .graphs import NODES_MAX, Sketch, sketch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_graphs"]

_COLUMNS, _SIDE, _WORDS = 6, 1.6, 0.55


def draw_graphs(found: Mapping[str, Result], path: Path) -> None:
    """All of them, each with its name and its spectral gap.

    Args:
        found: A result on each graph, by what to call the graph.
        path: Where the PNG goes.
    """
    columns = min(_COLUMNS, len(found))
    rows = -(-len(found) // columns)
    with paper(max(columns, 2) * _SIDE, rows * (_SIDE + _WORDS)) as figure:
        places = figure.subplots(rows, columns, squeeze=False).flat
        for axes in places:
            axes.set_axis_off()
        for axes, (name, result) in zip(figure.axes, found.items(), strict=False):
            _draw(axes, result)
            gap = words.number(result.facts["spectral_gap"])
            axes.set_title(name, fontsize=8.5, loc="center")
            axes.text(50, 112, f"spectral gap {gap}", fontsize=7.5, color=DIM, ha="center")
        save(figure, path)


def _draw(axes: "Axes", result: Result) -> None:
    facts = result.facts
    n = int(facts["n"])
    axes.set_xlim(0, 100)
    axes.set_ylim(114, 0)
    axes.set_aspect("equal")
    if n > NODES_MAX:
        axes.text(50, 50, f"{n:,} nodes", fontsize=8, color=DIM, ha="center")
        return
    seed, mixing = int(facts["seed"]), facts.get("mixing")
    _lay(axes, sketch(parse(str(facts["spec"]), n, seed=seed, mixing=mixing)))


def _lay(axes: "Axes", drawn: Sketch) -> None:
    from matplotlib.collections import LineCollection

    for lines, color in ((drawn.later, MUTED), (drawn.first, ACCENT)):
        if lines:
            axes.add_collection(
                LineCollection(list(lines), colors=color, linewidths=drawn.width, alpha=0.8)
            )
    x, y = zip(*drawn.nodes, strict=True)
    axes.scatter(x, y, s=drawn.dot**2, color=INK, linewidths=0, zorder=3)
