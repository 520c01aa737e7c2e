"""Who stands out in a chart of many lines, until a reader chooses others."""

from collections.abc import Sequence

from .facets import Facet
from .response import numbers_of

__all__ = ["FEW", "standing"]

FEW = 7
"""Lines of which each may have a color of its own."""

_MOST = 6

# Numbers have shades of one scale, which are told apart by their order.
_IN_ORDER = 12


def standing(facets: Sequence[Facet]) -> tuple[str, ...]:
    """Labels of the first axis, in the order of their colors.

    All of a few; else the best of every facet, and the last of the first to show how far it goes.
    """
    main = facets[0].results.study.axes[0]
    if len(main.points) <= (_IN_ORDER if numbers_of(main) else FEW):
        return main.labels
    each = 4 if len(facets) == 1 else 2
    ranked = [[row.label for row in facet.comparison.rows] for facet in facets]
    wanted = [label for labels in ranked for label in labels[:each]]
    found = list(dict.fromkeys(wanted))[: _MOST - 1]
    return tuple(dict.fromkeys([*found, ranked[0][-1]]))
