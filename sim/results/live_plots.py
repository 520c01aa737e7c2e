"""Pictures of live runs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...train.storage.files import drafted
from . import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

Summary = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]

Clock = Callable[[plots.Floats], plots.Floats]
"""Converts seconds since the Unix epoch to places on the time axis."""

# Units of the time axis; each is used from five of it on.
_UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))

# A peer was down if its own training time advances so much less than the calendar: a restarted
# process takes longer than this to begin, and clocks differ by less.
_DOWN_S = 1.0


def draw(
    summary: Summary,
    peers: Sequence[Rows],
    disagreement: tuple[plots.Floats, plots.Floats],
    path: Path,
) -> None:
    """Draw a live run: loss, accuracy and consensus distance of its peers.

    Args:
        summary: That of ``rumor launch``.
        peers: Each peer's rows of metrics, in the order of the summary's ``peers_detail``.
        disagreement: Instants, seconds since the Unix epoch, and the consensus distances estimated
            there.

    Raises:
        OSError: It cannot be written; the earlier content is kept.
    """
    from matplotlib import rc_context

    with rc_context(plots.STYLE | {"legend.fontsize": plots.STYLE["font.size"]}):
        # A script need not report its loss or accuracy.
        kinds = ("test_loss", "accuracy", "average_test_loss", "average_accuracy")
        evaluated = any(_has_column(peers, kind) for kind in kinds)
        figure = plots.new_figure(8, 8.2 if evaluated else 5.6, "constrained")
        loss, *middle, consensus = figure.subplots(3 if evaluated else 2, 1, sharex=True)
        clock, end, unit = _time_axis(peers)
        _draw_losses(loss, summary, peers, clock)
        for quality in middle:
            _draw_evaluations(quality, summary, peers, clock, end)
        _draw_sketched(consensus, summary, peers, (clock(disagreement[0]), disagreement[1]), end)
        consensus.set_xlabel(f"time since training began, {unit}")
        consensus.xaxis.set_major_formatter("{x:g}")
        loss.set_xlim(0, end)
        for axes in (loss, *middle, consensus):
            plots.mark_faults(axes, _faults_done(summary, clock, end), end, labels=axes is loss)
            if axes.get_yscale() == "log":
                low, high = axes.get_ylim()
                plots.plain_log_ticks(axes, high / low)
        unit = summary["emission"].replace("-", " ")
        rate = "" if summary["p"] is None else f" with p = {summary['p']:g} {unit}"
        what = (summary["task"], f"{summary['peers']} peers", summary["topology"], summary["rule"])
        title = ", ".join(map(str, what)) + rate
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        with drafted(path) as draft:
            figure.savefig(draft, format="png")


def _time_axis(peers: Sequence[Rows]) -> tuple[Clock, float, str]:
    """Return the clock, the end of the run on it, and its unit."""
    # A first row comes after the training that it reports.
    begin_s = min((r[0]["unix_s"] - r[0].get("time_s", 0.0) for r in peers if r), default=0.0)
    elapsed_s = max((r[-1]["unix_s"] for r in peers if r), default=begin_s) - begin_s
    size, unit = next((each for each in _UNITS if elapsed_s >= 5 * each[0]), _UNITS[-1])
    return lambda unix_s: (unix_s - begin_s) / size, elapsed_s / size or 1.0, unit


def _draw_losses(axes: "Axes", summary: Summary, peers: Sequence[Rows], clock: Clock) -> None:
    axes.set_title("Training loss of each peer on its own batches")
    if not _has_column(peers, "loss"):
        plots.say(axes, "the script reports no loss: peer.step(loss=loss)")
        return
    axes.set_ylabel("loss")
    shown: list[plots.Floats] = []
    for index, rows in enumerate(peers):
        color, detail = _color(index, len(peers)), summary["peers_detail"][index]
        ended = "" if detail["state"] == "finished" else f" ({detail['state']})"
        times, values = _column(rows, "loss", clock)
        axes.plot(times, values, color=color, alpha=0.3, linewidth=0.8)
        values = _smooth(values)
        axes.plot(times, values, color=color, linewidth=1.5, label=f"{detail['id']}{ended}")
        shown.append(values)
        _mark_death(axes, detail, times, values, color)
    plots.set_scale(axes, np.concatenate(shown))
    if len(peers) <= len(plots.PALETTE):
        axes.legend(loc="upper right", ncols=2)


def _draw_evaluations(
    axes: "Axes", summary: Summary, peers: Sequence[Rows], clock: Clock, end: float
) -> None:
    has_accuracy = _has_column(peers, "accuracy") or _has_column(peers, "average_accuracy")
    measured, own, average = "accuracy", "accuracy", "average_accuracy"
    if not has_accuracy:
        measured, own, average = "loss", "test_loss", "average_test_loss"
        axes.set_yscale("log")
    also = ["of the average of all (black)"] if _has_column(peers, average) else []
    also += [] if summary[measured] is None else ["of the merged model"]
    axes.set_title(" and ".join([f"Held-out {measured} of each peer", *also]))
    axes.set_ylabel(measured)
    for index, rows in enumerate(peers):
        color = _color(index, len(peers))
        times, values = _column(rows, own, clock)
        axes.plot(times, values, color=color, marker="o", markersize=3, linewidth=1.3)
        _mark_death(axes, summary["peers_detail"][index], times, values, color)
        # One peer measures it; if that peer dies, another one continues.
        times, values = _column(rows, average, clock)
        axes.plot(times, values, color=plots.INK, marker="D", markersize=3, linewidth=1.8, zorder=3)
    if summary[measured] is not None:
        plots.mark(axes, end, summary[measured], f"merged\n{summary[measured]:.4g}", size=7)


def _draw_sketched(
    axes: "Axes",
    summary: Summary,
    peers: Sequence[Rows],
    disagreement: tuple[plots.Floats, plots.Floats],
    end: float,
) -> None:
    width = max((len(row.get("sketch") or ()) for rows in peers for row in rows), default=0)
    axes.set_title(f"Consensus distance, estimated from sketches of {width} numbers")
    axes.set_ylabel("|x_i - mean| / |mean|, rms")
    axes.set_yscale("log")
    times, distances = disagreement
    times, distances = times[distances > 0], distances[distances > 0]
    final = summary["consensus_distance"]
    if not len(distances) and not final:
        words = "nothing was measured" if final is None else "at the end: identical"
        plots.say(axes, "one peer has nobody to differ from" if len(peers) == 1 else words)
        return
    axes.plot(times, distances, color=plots.INK, marker="o", markersize=3, linewidth=1.3)
    if final is None:
        return
    # Peers that merge at the end come orders of magnitude closer than while they train: to
    # scale, that one point would press all others into a line.
    floor = float(distances.min()) / 4 if len(distances) else max(final, 1e-9)
    text = f"at the end,\nexact: {final:.1e}" if final else "at the end:\nidentical"
    plots.mark(axes, end, max(final, floor), text, marker="D" if final >= floor else "v", size=7)
    axes.set_ylim(bottom=0.8 * floor)


def _mark_death(
    axes: "Axes", detail: Summary, times: plots.Floats, values: plots.Floats, color: Any
) -> None:
    """Draw a cross if a peer ended before its time."""
    if detail["state"] != "finished" and len(times):
        axes.plot(times[-1:], values[-1:], color=color, marker="X", markersize=8, zorder=4)


def _faults_done(summary: Summary, clock: Clock, end: float) -> list[dict[str, Any]]:
    """Return faults that were injected, at their places on the time axis."""
    found = []
    for fault in summary.get("faults", ()):
        if fault["done"]:
            first, last = clock(np.array([fault["done"][i]["unix_s"] for i in (0, -1)])).tolist()
            lasting = {} if fault.get("for_s") is None else {"for_s": last - first or end}
            found.append(fault | {"at_s": first} | lasting)
    return sorted(found, key=lambda fault: fault["at_s"])


def _color(index: int, count: int) -> Any:
    if count <= len(plots.PALETTE):
        return plots.PALETTE[index]
    from matplotlib import colormaps

    return colormaps["viridis"](index / (count - 1))


def _has_column(peers: Sequence[Rows], key: str) -> bool:
    return any(row.get(key) is not None for rows in peers for row in rows)


def _column(rows: Rows, key: str, clock: Clock) -> tuple[plots.Floats, plots.Floats]:
    """Return the values of one column and their times, with a gap wherever the peer was down."""
    known = [row for row in rows if row.get(key) is not None]
    values = np.array([row[key] for row in known], np.float64)
    unix_s = np.array([row["unix_s"] for row in known], np.float64)
    trained_s = np.array([row.get("time_s", row["unix_s"]) for row in known], np.float64)
    begins = np.flatnonzero(np.diff(unix_s - trained_s) > _DOWN_S) + 1
    return np.insert(clock(unix_s), begins, np.nan), np.insert(values, begins, np.nan)


def _smooth(values: plots.Floats) -> plots.Floats:
    """Return a centered moving mean over a fifteenth of the values, fewer at both ends."""
    if not len(values):
        return values
    kernel, known = np.ones(max(1, len(values) // 15) | 1), np.isfinite(values)
    sums = np.convolve(np.where(known, values, 0.0), kernel, "same")
    return np.where(known, sums / np.maximum(np.convolve(known, kernel, "same"), 1), np.nan)
