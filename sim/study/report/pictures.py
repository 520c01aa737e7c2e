"""The same charts as the page's, as PNG on white paper."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..heat import Heat, heat
from ..predictions import predictions
from ..result import Results
from .facets import Facet
from .gallery import graphs_of
from .picture_graphs import draw_graphs
from .picture_heat import draw_heat
from .picture_lines import draw_lines
from .picture_predicted import draw_predicted
from .picture_ranking import draw_ranking
from .picture_response import draw_response
from .response import number_axis

__all__ = ["draw_pictures"]

_Part = TypeVar("_Part")

_FACETS_MAX = 6
"""Facets to a picture; the rest goes to another."""


def draw_pictures(results: Results, facets: Sequence[Facet], folder: Path) -> list[Path]:
    """Draw them all.

    Args:
        results: Of a study.
        facets: Of them, at least one.
        folder: Where they go; it is made. Older pictures that this study no longer has are removed.

    Returns:
        Their paths.

    Raises:
        OSError: One cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, draw in _pictures(results, facets):
        draw(folder / f"{name}.png")
        paths.append(folder / f"{name}.png")
    for path in sorted(set(folder.glob("*.png")) - set(paths)):
        path.unlink()
    return paths


def _pictures(
    results: Results, facets: Sequence[Facet]
) -> Iterator[tuple[str, Callable[[Path], None]]]:
    for number, several in enumerate(_parted(facets), 1):
        of = "" if number == 1 else f"-{number}"
        yield f"curves{of}", partial(draw_lines, results, several)
        yield f"ranking{of}", partial(draw_ranking, several)
    found = predictions(results)
    places = list(dict.fromkeys(tuple(one.at.items()) for one in found))
    for number, some in enumerate(_parted(places), 1):
        of = "" if number == 1 else f"-{number}"
        here = [one for one in found if tuple(one.at.items()) in some]
        yield f"predictions{of}", partial(draw_predicted, here)
    if number_axis(results) is not None:
        yield "response", partial(draw_response, results, facets[0].comparison.measure)
    tables = _tables(results, facets[0])
    if tables:
        yield "heat", partial(draw_heat, tables)
    if graphs := graphs_of(results):
        yield "graphs", partial(draw_graphs, graphs)


def _parted(several: Sequence[_Part]) -> Iterator[Sequence[_Part]]:
    for start in range(0, len(several), _FACETS_MAX):
        yield several[start : start + _FACETS_MAX]


def _tables(results: Results, facet: Facet) -> list[Heat]:
    """What is compared, and how far models are apart, at the first place of further axes."""
    axes = results.study.axes
    if len(axes) < 2 or len(axes[1].points) < 2:
        return []
    at = {axis.name: axis.labels[0] for axis in axes[2:]}
    names = dict.fromkeys((facet.comparison.measure.name, "accuracy", "consensus_distance"))
    drawn = (heat(results, name, at=at) for name in names)
    found = [one for one in drawn if one and any(v is not None for row in one.values for v in row)]
    return found[:2]
