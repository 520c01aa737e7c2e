"""The picture of what facts about graphs foretell: the strongest one for each outcome."""

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..predictions import Prediction
from .drawing import ACCENT, DIM, logarithmic, paper, save
from .figures import heading, is_part
from .predicted import is_wide, strongest_first

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_predicted"]

_WIDTH, _HEIGHT = 10.0, 3.3
_NAMED_MAX = 12
_TITLE_LETTERS = 26


def draw_predicted(found: Sequence[Prediction], path: Path) -> None:
    """A row for every place, a column for every outcome."""
    places = list(dict.fromkeys(tuple(one.at.items()) for one in found))
    names = list(dict.fromkeys(one.measure.name for one in found))
    with paper(_WIDTH, _HEIGHT * len(places)) as figure:
        grid = figure.subplots(len(places), len(names), squeeze=False)
        for row, place in zip(grid, places, strict=True):
            for axes, name in zip(row, names, strict=True):
                _draw(axes, _strongest(found, place, name))
        save(figure, path)


def _strongest(
    found: Iterable[Prediction], place: tuple[tuple[str, str], ...], name: str
) -> Prediction | None:
    here = [one for one in found if tuple(one.at.items()) == place and one.measure.name == name]
    return strongest_first(here)[0] if here else None


def _draw(axes: "Axes", one: Prediction | None) -> None:
    if one is None:
        axes.set_axis_off()
        return
    times = 100.0 if is_part(one.measure) else 1e-6 if one.measure.unit == "bytes" else 1.0
    spots = [(spot.label, spot.x, spot.y * times) for spot in one.spots if spot.y is not None]
    axes.plot([x for _, x, _ in spots], [y for _, _, y in spots], "o", color=ACCENT, markersize=4.5)
    if is_wide([x for _, x, _ in spots]):
        logarithmic(axes, "x")
    if len(spots) <= _NAMED_MAX:
        for label, x, y in spots:
            axes.annotate(
                label, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7.5, color=DIM
            )
    # Next to it there is another title.
    where = textwrap.wrap(", ".join(one.at.values()), _TITLE_LETTERS)
    axes.set_title("\n".join([*where, f"ρ = {one.rho:.2f}".replace("-", "−")]))
    axes.set_xlabel(one.words)
    unit = {"s": ", s", "bytes": ", MB"}.get(one.measure.unit, "")
    axes.set_ylabel(heading(one.measure) + (", %" if is_part(one.measure) else unit))
