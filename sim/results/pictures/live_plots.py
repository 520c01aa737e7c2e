"""The picture of a live run: loss, accuracy and consensus distance over time."""

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
    mark,
    new_figure,
    plain_log_ticks,
    say,
)
from .plots import mark_faults, set_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

Rows = Sequence[Mapping[str, Any]]

UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))
"""Unit of the time axis."""

UNITS_MIN = 5.0
"""Length of a run from which a unit is used."""

DOWN_S = 1.0
"""How much less than the calendar a peer's own training time advances between two of its rows where
it was down: a restarted process takes longer than this to begin, and clocks differ by less."""


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
        disagreement: Instants, seconds since the Unix epoch, and the consensus distances estimated
            there; float64, ``(n_points,)`` each.
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
        clock, end, unit = _time_axis(peers)
        _draw_loss(loss, summary, peers, clock)
        for quality in middle:
            _draw_quality(quality, summary, peers, clock, end)
        _draw_consensus(consensus, summary, peers, (clock(disagreement[0]), disagreement[1]), end)
        consensus.set_xlabel(f"time since training began, {unit}")
        consensus.xaxis.set_major_formatter("{x:g}")
        loss.set_xlim(0, end)
        for axes in (loss, *middle, consensus):
            mark_faults(axes, _faults(summary, clock, end), end, labels=axes is loss)
        for axes in (loss, *middle, consensus):
            if axes.get_yscale() == "log":
                low, high = axes.get_ylim()
                plain_log_ticks(axes, high / low)
        figure.suptitle(_title(summary), x=0.01, ha="left", fontsize=11, fontweight="bold")
        with drafted(path) as draft:
            figure.savefig(draft, format="png")


Clock = Callable[[Floats], Floats]
"""Turns seconds since the Unix epoch into places on the time axis."""


def _time_axis(peers: Sequence[Rows]) -> tuple[Clock, float, str]:
    """The clock, the end of the run on it, and its unit."""
    seen: list[tuple[float, float]] = []
    for rows in peers:
        unix_s, down_s = _calendar(rows)
        # A first row comes after the training that it reports.
        seen += [(row["unix_s"] - row.get("time_s", 0.0), 0.0) for row in rows[:1]]
        seen += zip(unix_s.tolist(), down_s.tolist(), strict=True)
    knots, down_s = np.array(sorted(seen) or [(0.0, 0.0)]).T
    gaps = np.diff(knots)
    for index in np.argsort(-gaps):
        # A run that is resumed days later would be two slivers at the edges.
        if gaps[index] > gaps.sum() / 2 and down_s[index + 1] > gaps[index] / 2:
            gaps[index] = 0.0
    elapsed = np.concatenate([[0.0], np.cumsum(gaps)])
    long = (each for each in UNITS if elapsed[-1] >= UNITS_MIN * each[0])
    size, unit = next(long, UNITS[-1])
    end = float(elapsed[-1] / size) or 1.0
    return lambda unix_s: np.interp(unix_s, knots, elapsed / size), end, unit


def _calendar(rows: Rows) -> tuple[Floats, Floats]:
    """When each row was written, and for how long the peer was down before, seconds."""
    unix_s = np.array([row["unix_s"] for row in rows], np.float64)
    trained_s = np.array([row.get("time_s", row["unix_s"]) for row in rows], np.float64)
    return unix_s, np.diff(unix_s - trained_s, prepend=(unix_s - trained_s)[:1])


def _draw_loss(
    axes: "Axes", summary: Mapping[str, Any], peers: Sequence[Rows], clock: Clock
) -> None:
    axes.set_title("Training loss of each peer on its own batches")
    if not _are_told(peers, "loss"):
        say(axes, "the script tells no loss: peer.step(loss=loss)")
        return
    axes.set_ylabel("loss")
    shown: list[Floats] = []
    for index, rows in enumerate(peers):
        color = _color(index, len(peers))
        axes.plot(*_series(rows, "loss", clock), color=color, alpha=0.3, linewidth=0.8)
        times, values = _series(rows, "loss", clock, _smooth)
        axes.plot(times, values, color=color, linewidth=1.5, label=_label(summary, index))
        shown.append(values)
        _mark_end(axes, summary["peers_detail"][index], times, values, color)
    set_scale(axes, np.concatenate(shown))
    if len(peers) <= len(PALETTE):
        axes.legend(loc="upper right", ncols=2)


def _draw_quality(
    axes: "Axes", summary: Mapping[str, Any], peers: Sequence[Rows], clock: Clock, end: float
) -> None:
    has_accuracy = _are_told(peers, "accuracy") or _are_told(peers, "average_accuracy")
    measured = "accuracy" if has_accuracy else "loss"
    averages = "average_test_loss" if measured == "loss" else "average_accuracy"
    also = [] if not _are_told(peers, averages) else ["of the average of all (black)"]
    also += [] if summary[measured] is None else ["of the merged model"]
    axes.set_title(" and ".join([f"Held-out {measured} of each peer", *also]))
    axes.set_ylabel(measured)
    for index, rows in enumerate(peers):
        color = _color(index, len(peers))
        times, values = _series(rows, "test_loss" if measured == "loss" else "accuracy", clock)
        axes.plot(times, values, color=color, marker="o", markersize=3, linewidth=1.3)
        _mark_end(axes, summary["peers_detail"][index], times, values, color)
    for rows in peers:
        # One peer measures it; where that one died, another one goes on.
        times, values = _series(rows, averages, clock)
        axes.plot(times, values, color=INK, marker="D", markersize=3, linewidth=1.8, zorder=3)
    if measured == "loss":
        axes.set_yscale("log")
    if summary[measured] is not None:
        mark(axes, end, summary[measured], f"merged\n{summary[measured]:.4g}", size=7)


def _draw_consensus(
    axes: "Axes",
    summary: Mapping[str, Any],
    peers: Sequence[Rows],
    disagreement: tuple[Floats, Floats],
    end: float,
) -> None:
    axes.set_title(f"Consensus distance, estimated from sketches of {_width(peers)} numbers")
    axes.set_ylabel("|x_i - mean| / |mean|, rms")
    axes.set_yscale("log")
    times, distances = disagreement
    times, distances = times[distances > 0], distances[distances > 0]
    final = summary["consensus_distance"]
    if not len(distances) and not final:
        words = "nothing was measured" if final is None else "at the end: identical"
        say(axes, "one peer has nobody to differ from" if len(peers) == 1 else words)
        return
    axes.plot(times, distances, color=INK, marker="o", markersize=3, linewidth=1.3)
    if final is None:
        return
    # Peers that merge at the end come orders of magnitude closer than while they train: to
    # scale, that one point would press all others into a line.
    floor = float(distances.min()) / 4 if len(distances) else max(final, 1e-9)
    text = f"at the end,\nexact: {final:.1e}" if final else "at the end:\nidentical"
    marker = "D" if final >= floor else "v"
    mark(axes, end, max(final, floor), text, marker=marker, size=7)
    axes.set_ylim(bottom=min(floor, final) * 0.8 if final >= floor else floor * 0.8)


def _mark_end(
    axes: "Axes", detail: Mapping[str, Any], times: Floats, values: Floats, color: Any
) -> None:
    """A cross where a peer's life ended before its time."""
    if detail["state"] != "finished" and len(times):
        axes.plot(times[-1:], values[-1:], color=color, marker="X", markersize=8, zorder=4)


def _faults(summary: Mapping[str, Any], clock: Clock, end: float) -> list[dict[str, Any]]:
    """Those that were done, at their places on the time axis."""
    found = []
    for fault in summary.get("faults", ()):
        if fault["done"]:
            first, last = clock(np.array([fault["done"][i]["unix_s"] for i in (0, -1)])).tolist()
            lasting = {} if fault.get("for_s") is None else {"for_s": last - first or end}
            found.append(fault | {"at_s": first} | lasting)
    return sorted(found, key=lambda fault: fault["at_s"])


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


def _series(
    rows: Rows, key: str, clock: Clock, smooth: Callable[[Floats], Floats] = lambda values: values
) -> tuple[Floats, Floats]:
    """The values of one column and their times, with a gap wherever the peer was down."""
    unix_s, down_s = _calendar(rows)
    life = np.cumsum(down_s > DOWN_S)
    known = [index for index, row in enumerate(rows) if row.get(key) is not None]
    values = np.array([rows[index][key] for index in known], np.float64)
    begins = np.flatnonzero(np.diff(life[known])) + 1
    smoothed = np.concatenate([smooth(part) for part in np.split(values, begins)])
    return np.insert(clock(unix_s[known]), begins, np.nan), np.insert(smoothed, begins, np.nan)


def _smooth(values: Floats) -> Floats:
    """A centered moving mean over a fifteenth of the rows, over fewer at both ends."""
    kernel = np.ones(max(1, len(values) // 15) | 1)
    if len(values) < len(kernel):
        return values
    counts = np.convolve(np.ones(len(values)), kernel, "same")
    return np.convolve(values, kernel, "same") / counts


def _width(peers: Sequence[Rows]) -> int:
    return max((len(row.get("sketch") or ()) for rows in peers for row in rows), default=0)
