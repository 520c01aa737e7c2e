"""What went wrong when, in the panels of a run's picture."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Mark", "mark_faults", "marks"]

COLOR = "#AA4499"

CLOSE = 0.02
"""Faults nearer to one another than this part of the run share a line."""

LABELS_MAX = 16
"""Lines that are labelled; of more, none could be read."""

PLURALS = {"crash": "crashes", "mass-restart": "mass restarts", "pause": "pauses", "loss": "loss"}

NOT_SHADED = ("slow", "delay", "loss", "duplicate", "replay", "reset")
"""Kinds that often last for most of a run."""


class Mark(NamedTuple):
    """One line in the picture."""

    time_s: float
    text: str


def mark_faults(
    axes: "Axes", faults: Sequence[Mapping[str, Any]], end_s: float, *, labels: bool
) -> None:
    """Draw a line for each fault, and shade the time that one lasts.

    Args:
        axes: Where.
        faults: As a file of them has them.
        end_s: When the run ended, virtual seconds; what comes after it is not drawn.
        labels: Whether to write what they are.
    """
    before = axes.get_ylim()
    for fault in faults:
        start_s, for_s = fault["at_s"], fault.get("for_s")
        if for_s is not None and start_s < end_s and fault["kind"] not in NOT_SHADED:
            stop_s = min(start_s + for_s, end_s)
            axes.axvspan(start_s, stop_s, color=COLOR, alpha=0.07, linewidth=0, zorder=0)
    found = marks(faults, end_s)
    for time_s, text in found:
        axes.axvline(time_s, color=COLOR, linewidth=0.9, linestyle=":", zorder=1)
        if labels and len(found) <= LABELS_MAX:
            axes.annotate(
                text,
                (time_s, 0.03),
                xycoords=("data", "axes fraction"),
                xytext=(-2, 0),
                textcoords="offset points",
                rotation=90,
                ha="right",
                va="bottom",
                fontsize=7.5,
                color=COLOR,
            )
    axes.set_ylim(before)


def marks(faults: Sequence[Mapping[str, Any]], end_s: float) -> list[Mark]:
    """Say what is written where; faults that are close to one another share a line.

    Args:
        faults: As a file of them has them, in order of time.
        end_s: When the run ended.

    >>> marks([{"at_s": 1.0, "kind": "crash", "peer": 2}, {"at_s": 1.5, "kind": "crash", "peer": 3},
    ...        {"at_s": 50.0, "kind": "heal"}], 100.0)
    [Mark(time_s=1.0, text='2 crashes'), Mark(time_s=50.0, text='heal')]
    """
    groups: list[list[Mapping[str, Any]]] = []
    for fault in faults:
        if fault["at_s"] > end_s:
            break
        if groups and fault["at_s"] - groups[-1][0]["at_s"] < CLOSE * end_s:
            groups[-1].append(fault)
        else:
            groups.append([fault])
    return [Mark(group[0]["at_s"], _words(group)) for group in groups]


def _words(group: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter[str]()
    for fault in group:
        counts[fault["kind"]] += fault.get("count", 1)
    if len(group) == 1 and "peer" in group[0]:
        return f"{group[0]['kind']} {group[0]['peer']}"
    parts = [
        kind if count == 1 else f"{count} {PLURALS.get(kind, kind + 's')}"
        for kind, count in counts.items()
    ]
    return ", ".join(parts)
