"""The picture of a run: loss, accuracy and consensus distance over the steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .disagreement import estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

Rows = Sequence[Mapping[str, Any]]

# Okabe and Ito 2008: told apart with any form of color blindness, and on paper.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
INK = "#333333"
GRID = "#E4E4E4"

STYLE: Any = {
    "font.size": 9.5,
    "axes.edgecolor": "#AAAAAA",
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelcolor": INK,
    "legend.frameon": False,
}

SMOOTHING_ROWS = 5


def draw(summary: Mapping[str, Any], peers: Sequence[Rows], path: Path) -> None:
    """Draw a run.

    Args:
        summary: As `summarize` builds it.
        peers: Each peer's rows of metrics, in the order of the summary's ``peers_detail``.
        path: Where the PNG goes.

    Raises:
        OSError: It cannot be written.
    """
    # The object-oriented way: no backend, no state that outlives the call.
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(8, 8.2), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        loss, quality, consensus = figure.subplots(3, 1, sharex=True)
        _draw_loss(loss, summary, peers)
        _draw_quality(quality, summary, peers)
        _draw_consensus(consensus, summary, peers)
        figure.suptitle(_title(summary), x=0.01, ha="left", fontsize=11, fontweight="bold")
        figure.savefig(path)


def _draw_loss(axes: "Axes", summary: Mapping[str, Any], peers: Sequence[Rows]) -> None:
    axes.set_title("Training loss, each peer on its own batches")
    for index, rows in enumerate(peers):
        steps, values = _series(rows, "loss")
        axes.plot(steps, values, color=_color(index, len(peers)), alpha=0.25, linewidth=0.8)
        axes.plot(
            steps,
            _smooth(values),
            color=_color(index, len(peers)),
            linewidth=1.6,
            label=_label(summary, index),
        )
    axes.set_yscale("log")
    axes.set_ylabel("loss")
    if len(peers) <= len(PALETTE):
        axes.legend(loc="upper right", ncols=2 if len(peers) > 4 else 1)


def _draw_quality(axes: "Axes", summary: Mapping[str, Any], peers: Sequence[Rows]) -> None:
    key = "accuracy" if summary["accuracy"] is not None else "test_loss"
    final = summary["accuracy"] if key == "accuracy" else summary["loss"]
    what = "accuracy" if key == "accuracy" else "loss"
    axes.set_title(f"Held-out {what} of each peer's own model, and of the merged one")
    axes.set_ylabel("fraction right" if key == "accuracy" else "loss")
    for index, rows in enumerate(peers):
        steps, values = _series(rows, key)
        axes.plot(
            steps, values, color=_color(index, len(peers)), marker="o", markersize=3, linewidth=1.4
        )
    if key == "test_loss":
        axes.set_yscale("log")
    if final is not None:
        _mark_final(axes, _last_step(peers), final, f"merged {final:.4g}")


def _draw_consensus(axes: "Axes", summary: Mapping[str, Any], peers: Sequence[Rows]) -> None:
    axes.set_title("Consensus distance: sqrt(mean |x_i - mean|²) / |mean|")
    axes.set_ylabel("relative distance")
    axes.set_xlabel("optimizer steps of a peer")
    steps, distances = estimate(peers)
    seen = distances > 0
    axes.plot(
        steps[seen],
        distances[seen],
        color=INK,
        marker="o",
        markersize=3,
        linewidth=1.4,
        label="estimated from sketches of 256 numbers",
    )
    final = summary["consensus_distance"]
    if final:
        _mark_final(axes, _last_step(peers), final, f"at the end, exact {final:.2g}")
    if seen.any() or final:
        axes.set_yscale("log")
        axes.legend(loc="upper right")


def _mark_final(axes: "Axes", step: float, value: float, text: str) -> None:
    axes.plot([step], [value], color="#D55E00", marker="D", markersize=7, clip_on=False, zorder=5)
    axes.annotate(
        text,
        (step, value),
        xytext=(-8, -14),
        textcoords="offset points",
        ha="right",
        color="#D55E00",
        fontweight="bold",
    )


def _title(summary: Mapping[str, Any]) -> str:
    unit = "per step" if summary["emission"] == "per-step" else "per second"
    return (
        f"{summary['task']}, {summary['peers']} peers, {summary['topology']}, "
        f"{summary['rule']} with p = {summary['p']:g} {unit}"
    )


def _label(summary: Mapping[str, Any], index: int) -> str:
    detail = summary["peers_detail"][index]
    ended = "" if detail["state"] == "finished" else f" ({detail['state']})"
    return f"{detail['id']}{ended}"


def _color(index: int, count: int) -> Any:
    if count <= len(PALETTE):
        return PALETTE[index]
    from matplotlib import colormaps

    return colormaps["viridis"](index / (count - 1))


def _series(rows: Rows, key: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    pairs = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    array = np.array(pairs, np.float64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """A centered moving mean, over fewer rows at both ends."""
    kernel = np.ones(min(SMOOTHING_ROWS, len(values)) or 1)
    if not len(values):
        return values
    return np.convolve(values, kernel, "same") / np.convolve(np.ones(len(values)), kernel, "same")


def _last_step(peers: Sequence[Rows]) -> float:
    return float(max((rows[-1]["step"] for rows in peers if rows), default=0))
