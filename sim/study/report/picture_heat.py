"""The picture of a figure over two axes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..heat import Heat
from .drawing import DIM, INK, paper, save
from .figures import even, heading
from .heats import shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_heat"]

_CELL_WIDTH, _CELL_HEIGHT, _NAMES, _HEAD = 0.85, 0.27, 2.0, 0.8
_DARK_FROM = 0.72


def draw_heat(found: Sequence[Heat], path: Path) -> None:
    """One table beside the other."""
    columns, rows = len(found[0].columns), len(found[0].rows)
    width = _NAMES + len(found) * columns * _CELL_WIDTH + 0.4 * len(found)
    with paper(max(6.0, width), _HEAD + rows * _CELL_HEIGHT) as figure:
        grid = figure.subplots(1, len(found), squeeze=False, sharey="row")
        for axes, one in zip(grid[0], found, strict=True):
            _draw(axes, one)
        save(figure, path)


def _draw(axes: "Axes", found: Heat) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    ramp = LinearSegmentedColormap.from_list("ramp", ["#eef4f9", "#0a4f86"])
    strengths = np.array(shades(found), dtype=np.float64)
    axes.set_facecolor("#f4f6f8")
    axes.imshow(np.ma.masked_invalid(strengths), cmap=ramp, vmin=0, vmax=1, aspect="auto")
    for row, values in enumerate(found.values):
        for column, value in enumerate(values):
            text = found.missing[row][column] if value is None else even(found.measure, value)
            is_dark = value is not None and strengths[row, column] > _DARK_FROM
            color = "white" if is_dark else INK if value is not None else DIM
            axes.text(
                column, row, text, ha="center", va="center", color=color,
                fontsize=8.5 if value is not None else 7,
            )  # fmt: skip
    axes.set_xticks(range(len(found.columns)), found.columns)
    axes.set_yticks(range(len(found.rows)), found.rows)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.set_xticks([i - 0.5 for i in range(1, len(found.columns))], minor=True)
    axes.set_yticks([i - 0.5 for i in range(1, len(found.rows))], minor=True)
    axes.tick_params(which="minor", length=0)
    axes.grid(visible=False)
    axes.grid(which="minor", color="white", linewidth=2)
    axes.spines[:].set_visible(False)
    axes.set_title(heading(found.measure), pad=8)
