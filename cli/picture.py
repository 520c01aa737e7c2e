"""The picture of a run: loss, accuracy and consensus distance over the steps."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..train.durable import drafted
from .fault_marks import mark_faults
from .launch.summary import estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

Rows = Sequence[Mapping[str, Any]]

# Okabe and Ito 2008: told apart with any form of color blindness, and on paper.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
INK = "#333333"
GRID = "#E4E4E4"
ACCENT = "#B0300A"

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

# Room at the right for what came out at the end.
MARGIN = 0.18


def draw(summary: Mapping[str, Any], peers: Sequence[Rows], path: Path) -> None:
    """Draw a run.

    Args:
        summary: As `summarize` builds it.
        peers: Each peer's rows of metrics, in the order of the summary's ``peers_detail``.
        path: Where the PNG goes.

    Raises:
        OSError: It cannot be written; what was there still is.
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
        mark_faults((loss, quality, consensus), summary)
        loss.set_xlim(0, _last_step(peers) * (1 + MARGIN) or 1)
        for axes in (loss, consensus):
            axes.yaxis.set_major_formatter("{x:g}")
        figure.suptitle(_title(summary), x=0.01, ha="left", fontsize=11, fontweight="bold")
        with drafted(path) as draft:
            figure.savefig(draft, format="png")


def _draw_loss(axes: "Axes", summary: Mapping[str, Any], peers: Sequence[Rows]) -> None:
    axes.set_title("Training loss of each peer on its own batches")
    axes.set_ylabel("loss")
    axes.set_yscale("log")
    for index, rows in enumerate(peers):
        steps, values = _series(rows, "loss")
        color = _color(index, len(peers))
        axes.plot(*_by_life(steps, values), color=color, alpha=0.3, linewidth=0.8)
        steps, values = _by_life(steps, values, _smooth)
        axes.plot(steps, values, color=color, linewidth=1.5, label=_label(summary, index))
        _mark_end(axes, summary["peers_detail"][index], steps, values, color)
    if len(peers) <= len(PALETTE):
        axes.legend(loc="upper right", ncols=2)


def _draw_quality(axes: "Axes", summary: Mapping[str, Any], peers: Sequence[Rows]) -> None:
    measured = "loss" if summary["accuracy"] is None else "accuracy"
    axes.set_title(f"Held-out {measured} of each peer's own model, and of the merged one")
    axes.set_ylabel(measured)
    for index, rows in enumerate(peers):
        steps, values = _series(rows, "test_loss" if measured == "loss" else "accuracy")
        color = _color(index, len(peers))
        steps, values = _by_life(steps, values)
        axes.plot(steps, values, color=color, marker="o", markersize=3, linewidth=1.3)
        _mark_end(axes, summary["peers_detail"][index], steps, values, color)
    if measured == "loss":
        axes.set_yscale("log")
    if summary[measured] is not None:
        _mark_final(axes, _last_step(peers), summary[measured], f"merged\n{summary[measured]:.4g}")


def _draw_consensus(axes: "Axes", summary: Mapping[str, Any], peers: Sequence[Rows]) -> None:
    axes.set_title(f"Consensus distance, estimated from sketches of {_width(peers)} numbers")
    axes.set_ylabel("|x_i - mean| / |mean|, rms")
    axes.set_xlabel("optimizer steps of a peer")
    axes.set_yscale("log")
    steps, distances = estimate(peers)
    steps, distances = steps[distances > 0], distances[distances > 0]
    axes.plot(*_by_life(steps, distances), color=INK, marker="o", markersize=3, linewidth=1.3)
    final = summary["consensus_distance"]
    if final is None:
        return
    # Peers that merge at the end come orders of magnitude closer than while they train: to
    # scale, that one point would press all others into a line.
    floor = float(distances.min()) / 4 if len(distances) else max(final, 1e-9)
    text = f"at the end,\nexact: {final:.1e}" if final else "at the end:\nidentical"
    _mark_final(
        axes, _last_step(peers), max(final, floor), text, marker="D" if final >= floor else "v"
    )
    axes.set_ylim(bottom=min(floor, final) * 0.8 if final >= floor else floor * 0.8)


def _mark_final(axes: "Axes", step: float, value: float, text: str, marker: str = "D") -> None:
    axes.plot([step], [value], color=ACCENT, marker=marker, markersize=7, zorder=5)
    axes.annotate(
        text,
        (step, value),
        xytext=(9, 0),
        textcoords="offset points",
        va="center",
        color=ACCENT,
        fontweight="bold",
        annotation_clip=False,
    )


def _mark_end(
    axes: "Axes",
    detail: Mapping[str, Any],
    steps: NDArray[np.float64],
    values: NDArray[np.float64],
    color: Any,
) -> None:
    """A cross where a peer's life ended before its time."""
    if detail["state"] != "finished" and len(steps):
        axes.plot(steps[-1:], values[-1:], color=color, marker="X", markersize=8, zorder=4)


def _title(summary: Mapping[str, Any]) -> str:
    unit = "per step" if summary["emission"] == "per-step" else "per second"
    rate = "" if summary["p"] is None else f" with p = {summary['p']:g} {unit}"
    return (
        f"{summary['task']}, {summary['peers']} peers, {summary['topology']}, "
        f"{summary['rule']}{rate}"
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


def _by_life(
    steps: NDArray[np.float64],
    values: NDArray[np.float64],
    smooth: Callable[[NDArray[np.float64]], NDArray[np.float64]] = lambda values: values,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same with a gap wherever steps go back: there, a peer has begun its next life."""
    begins = np.flatnonzero(np.diff(steps) <= 0) + 1
    smoothed = np.concatenate([smooth(life) for life in np.split(values, begins)])
    return np.insert(steps, begins, np.nan), np.insert(smoothed, begins, np.nan)


def _smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """A centered moving mean over a fifteenth of the rows, over fewer at both ends."""
    kernel = np.ones(max(1, len(values) // 15) | 1)
    if len(values) < len(kernel):
        return values
    counts = np.convolve(np.ones(len(values)), kernel, "same")
    return np.convolve(values, kernel, "same") / counts


def _width(peers: Sequence[Rows]) -> int:
    return max((len(row.get("sketch") or ()) for rows in peers for row in rows), default=0)


def _last_step(peers: Sequence[Rows]) -> float:
    # A life that resumes begins at an earlier step than the last one ended.
    return float(max((row["step"] for rows in peers for row in rows), default=0))
