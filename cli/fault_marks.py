"""Where in the picture of a run something was done to it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["mark_faults"]

_COLOR: Final = "#8C5A8C"

# More would be on top of one another.
_NAMED_MAX: Final = 12


def mark_faults(panels: "Sequence[Axes]", summary: Mapping[str, Any]) -> None:
    """Draw a line through all panels where each fault began, and name it in the first.

    Steps are of the peer that it was done to, else of the one in the middle.

    Args:
        panels: Over the same steps, the uppermost first.
        summary: As `summarize` builds it.
    """
    kinds: dict[int, list[str]] = {}
    for fault in summary.get("faults", ()):
        if fault["done"]:
            named = kinds.setdefault(fault["done"][0]["step"], [])
            peer = fault.get("peer")
            named.append(fault["kind"] if peer is None else f"{fault['kind']} {peer}")
    for step, names in sorted(kinds.items()):
        for axes in panels:
            axes.axvline(step, color=_COLOR, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1.5)
        if len(kinds) <= _NAMED_MAX:
            panels[0].annotate(
                ", ".join(names),
                (step, 0.02),
                xycoords=("data", "axes fraction"),
                xytext=(2, 0),
                textcoords="offset points",
                rotation=90,
                va="bottom",
                fontsize=7,
                color=_COLOR,
            )
