"""The picture of a live run: loss, accuracy and consensus distance over the steps."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....train.storage.files import drafted
from .curves import (
    INK,
    PALETTE,
    STYLE,
    Floats,
    Mark,
    mark,
    mark_lines,
    new_figure,
    plain_log_ticks,
    say,
)
from .plots import set_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

Rows = Sequence[Mapping[str, Any]]

# Room at the right for what came out at the end.
MARGIN = 0.21


def draw(
    summary: Mapping[str, Any],
    peers: Sequence[Rows],
    disagreement: tuple[Floats, Floats],
    path: Path,
) -> None:
    """Draw a run.

    Args:
        summary: As `summarize` builds it.
        peers: Each peer's rows of metrics, in the order of the summary's ``peers_detail``.
        disagreement: Steps, and the consensus distances estimated there; float64,
            ``(n_points,)`` each.
        path: Where the PNG goes.

    Raises:
        OSError: It cannot be written; what was there still is.
    """
    from matplotlib import rc_context

    with rc_context(STYLE | {"legend.fontsize": STYLE["font.size"]}):
        # A script need not tell what it measures.
        kinds = ("test_loss", "accuracy", "average_test_loss", "average_accuracy")
        evaluated = any(_are_told(peers, kind) for kind in kinds)
        figure = new_figure(8, 8.2 if evaluated else 5.6, "constrained")
        loss, *middle, consensus = figure.subplots(3 if evaluated else 2, 1, sharex=True)
        _draw_loss(loss, summary, peers)
        for quality in middle:
            _draw_quality(quality, summary, peers)
        _draw_consensus(consensus, summary, peers, disagreement)
        for axes in (loss, *middle, consensus):
            mark_lines(axes, _faults(summary), labels=axes is loss)
        loss.set_xlim(0, _last_step(peers) * (1 + MARGIN) or 1)
        for axes in (loss, *middle, consensus):
            if axes.get_yscale() == "log":
                low, high = axes.get_ylim()
                plain_log_ticks(axes, high / low)
        figure.suptitle(_title(summary), x=0.01, ha="left", fontsize=11, fontweight="bold")
        with drafted(path) as draft:
            figure.savefig(draft, format="png")


def _draw_loss(axes: "Axes", summary: Mapping[str, Any], peers: Sequence[Rows]) -> None:
    axes.set_title("Training loss of each peer on its own batches")
    if not _are_told(peers, "loss"):
        say(axes, "the script tells no loss: peer.step(loss=loss)")
        return
    axes.set_ylabel("loss")
    shown: list[Floats] = []
    for index, rows in enumerate(peers):
        steps, values = _series(rows, "loss")
        color = _color(index, len(peers))
        axes.plot(*_by_life(steps, values), color=color, alpha=0.3, linewidth=0.8)
        steps, values = _by_life(steps, values, _smooth)
        axes.plot(steps, values, color=color, linewidth=1.5, label=_label(summary, index))
        shown.append(values)
        _mark_end(axes, summary["peers_detail"][index], steps, values, color)
    set_scale(axes, np.concatenate(shown))
    if len(peers) <= len(PALETTE):
        axes.legend(loc="upper right", ncols=2)


def _draw_quality(axes: "Axes", summary: Mapping[str, Any], peers: Sequence[Rows]) -> None:
    has_accuracy = _are_told(peers, "accuracy") or _are_told(peers, "average_accuracy")
    measured = "accuracy" if has_accuracy else "loss"
    averages = "average_test_loss" if measured == "loss" else "average_accuracy"
    also = ", the average of all (black)" if _are_told(peers, averages) else ""
    also += "" if summary[measured] is None else ", the merged model"
    axes.set_title(f"Held-out {measured} of each peer{also}")
    axes.set_ylabel(measured)
    for index, rows in enumerate(peers):
        steps, values = _series(rows, "test_loss" if measured == "loss" else "accuracy")
        color = _color(index, len(peers))
        steps, values = _by_life(steps, values)
        axes.plot(steps, values, color=color, marker="o", markersize=3, linewidth=1.3)
        _mark_end(axes, summary["peers_detail"][index], steps, values, color)
    for rows in peers:
        # One peer measures it; where that one died, another one goes on.
        steps, values = _by_life(*_series(rows, averages))
        axes.plot(steps, values, color=INK, marker="D", markersize=3, linewidth=1.8, zorder=3)
    if measured == "loss":
        axes.set_yscale("log")
    if summary[measured] is not None:
        text = f"merged\n{summary[measured]:.4g}"
        mark(axes, _last_step(peers), summary[measured], text, size=7)


def _draw_consensus(
    axes: "Axes",
    summary: Mapping[str, Any],
    peers: Sequence[Rows],
    disagreement: tuple[Floats, Floats],
) -> None:
    axes.set_title(f"Consensus distance, estimated from sketches of {_width(peers)} numbers")
    axes.set_ylabel("|x_i - mean| / |mean|, rms")
    axes.set_xlabel("optimizer steps of a peer")
    axes.set_yscale("log")
    steps, distances = disagreement
    steps, distances = steps[distances > 0], distances[distances > 0]
    final = summary["consensus_distance"]
    if not len(distances) and not final:
        words = "nothing was measured" if final is None else "at the end: identical"
        say(axes, "one peer has nobody to differ from" if len(peers) == 1 else words)
        return
    axes.plot(*_by_life(steps, distances), color=INK, marker="o", markersize=3, linewidth=1.3)
    if final is None:
        return
    # Peers that merge at the end come orders of magnitude closer than while they train: to
    # scale, that one point would press all others into a line.
    floor = float(distances.min()) / 4 if len(distances) else max(final, 1e-9)
    text = f"at the end,\nexact: {final:.1e}" if final else "at the end:\nidentical"
    marker = "D" if final >= floor else "v"
    mark(axes, _last_step(peers), max(final, floor), text, marker=marker, size=7)
    axes.set_ylim(bottom=min(floor, final) * 0.8 if final >= floor else floor * 0.8)


def _mark_end(
    axes: "Axes", detail: Mapping[str, Any], steps: Floats, values: Floats, color: Any
) -> None:
    """A cross where a peer's life ended before its time."""
    if detail["state"] != "finished" and len(steps):
        axes.plot(steps[-1:], values[-1:], color=color, marker="X", markersize=8, zorder=4)


def _faults(summary: Mapping[str, Any]) -> list[Mark]:
    """Where each fault began: the step of the peer that it was done to, else of the median one."""
    kinds: dict[int, list[str]] = {}
    for fault in summary.get("faults", ()):
        if fault["done"]:
            named = kinds.setdefault(fault["done"][0]["step"], [])
            peer = fault.get("peer")
            named.append(fault["kind"] if peer is None else f"{fault['kind']} {peer}")
    return [Mark(step, ", ".join(names)) for step, names in sorted(kinds.items())]


def _title(summary: Mapping[str, Any]) -> str:
    unit = "per step" if summary["emission"] == "per-step" else "per second"
    rate = "" if summary["p"] is None else f" with p = {summary['p']:g} {unit}"
    what = (summary["task"], f"{summary['peers']} peers", summary["topology"], summary["rule"])
    return ", ".join(map(str, what)) + rate


def _label(summary: Mapping[str, Any], index: int) -> str:
    detail = summary["peers_detail"][index]
    ended = "" if detail["state"] == "finished" else f" ({detail['state']})"
    return f"{detail['id']}{ended}"


def _color(index: int, count: int) -> Any:
    if count <= len(PALETTE):
        return PALETTE[index]
    from matplotlib import colormaps

    return colormaps["viridis"](index / (count - 1))


def _are_told(peers: Sequence[Rows], key: str) -> bool:
    return any(row.get(key) is not None for rows in peers for row in rows)


def _series(rows: Rows, key: str) -> tuple[Floats, Floats]:
    pairs = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    array = np.array(pairs, np.float64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _by_life(
    steps: Floats, values: Floats, smooth: Callable[[Floats], Floats] = lambda values: values
) -> tuple[Floats, Floats]:
    """The same with a gap wherever steps go back: there, a peer has begun its next life."""
    begins = np.flatnonzero(np.diff(steps) <= 0) + 1
    smoothed = np.concatenate([smooth(life) for life in np.split(values, begins)])
    return np.insert(steps, begins, np.nan), np.insert(smoothed, begins, np.nan)


def _smooth(values: Floats) -> Floats:
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
