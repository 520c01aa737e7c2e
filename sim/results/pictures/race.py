"""The picture of swarms that train side by side: how good they are, and how peers come and go."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ....train.storage.files import drafted
from .curves import ACCENT, BLUE, DIM, FAULT_COLOR, INK, PALETTE, STYLE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Contestant", "Event", "LifeLine", "draw_race"]

COLORS = (BLUE, PALETTE[5], DIM)


class Event(NamedTuple):
    """Something that happened to a peer."""

    time_s: float
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One way to train, over time."""

    name: str
    times_s: Sequence[float]
    """When its model was measured, seconds since its training began."""
    losses: Sequence[float]
    """On held-out data."""
    accuracies: Sequence[float]
    reached_s: float | None
    """When it reached the target; None if never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeLine:
    """When a peer was there."""

    name: str
    spans_s: Sequence[tuple[float, float]]
    """Begin and end of each of its lives, seconds."""
    events: Sequence[Event]


def draw_race(
    contestants: Sequence[Contestant],
    lines: Sequence[LifeLine],
    target: float,
    title: str,
    note: str,
    path: Path,
) -> None:
    """Draw loss and accuracy of all, and below that the peers of the first one.

    Args:
        contestants: Three at most.
        lines: Of the first one's peers, from top to bottom.
        target: Accuracy to reach, in [0, 1].
        title: Above all.
        note: Below all.
        path: Where the PNG goes.

    Raises:
        OSError: It cannot be written; what was there still is.
    """
    from matplotlib import rc_context

    with rc_context(STYLE | {"legend.fontsize": STYLE["font.size"]}):
        figure = new_figure(9, 7.6, "constrained")
        heights = (3, 3, 0.45 * len(lines) + 0.3)
        loss, accuracy, lives = figure.subplots(3, 1, sharex=True, height_ratios=heights)
        loss.set_title("Loss on held-out data")
        accuracy.set_title(f"Accuracy on held-out data, and when it reached {target:g}")
        for each, color in zip(contestants, COLORS, strict=False):
            width = 2.2 if color == BLUE else 1.5
            loss.plot(each.times_s, each.losses, color=color, linewidth=width, label=each.name)
            never = each.reached_s is None
            when = "not reached" if never else f"{each.reached_s:.1f} s"
            accuracy.plot(
                *(each.times_s, each.accuracies), color=color, linewidth=width, label=when
            )
            if not never:
                accuracy.plot(
                    [each.reached_s], [target], color=color, marker="D", markersize=8, zorder=5
                )
        accuracy.axhline(target, color=INK, linewidth=0.8, linestyle=":")
        accuracy.set_ylim(top=1.0)
        loss.legend(loc="upper right")
        accuracy.legend(loc="lower right")
        _draw_lives(lives, lines)
        lives.set_xlabel("wall clock since training began, s")
        lives.set_xlim(left=0.0)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        figure.supxlabel(note, x=0.01, ha="left", fontsize=STYLE["font.size"])
        with drafted(path) as draft:
            figure.savefig(draft, format="png")


def _draw_lives(axes: "Axes", lines: Sequence[LifeLine]) -> None:
    axes.set_title("Who was there")
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(lines)), [line.name for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    for row, line in enumerate(lines):
        for begin_s, end_s in line.spans_s:
            axes.barh(row, end_s - begin_s, left=begin_s, height=0.42, color=BLUE, alpha=0.75)
        for event in line.events:
            is_end = event.what.startswith("killed")
            color = ACCENT if is_end else FAULT_COLOR
            marker = "X" if is_end else ">"
            axes.plot([event.time_s], [row], color=color, marker=marker, markersize=8, zorder=5)
            axes.annotate(
                event.what,
                (event.time_s, row),
                xytext=(-7 if is_end else 7, 0),
                textcoords="offset points",
                ha="right" if is_end else "left",
                va="center",
                fontsize=8.5,
                color="white",
                fontweight="bold",
            )
