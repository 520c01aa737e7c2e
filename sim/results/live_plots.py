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
"""Converts seconds since the Unix epoch to seconds since training began."""

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

    # A first row comes after the training that it reports.
    begin_s = min((r[0]["unix_s"] - r[0].get("time_s", 0.0) for r in peers if r), default=0.0)
    end_s = max((r[-1]["unix_s"] for r in peers if r), default=begin_s) - begin_s or 1.0

    def clock(unix_s: plots.Floats) -> plots.Floats:
        return unix_s - begin_s

    with rc_context(plots.STYLE | {"legend.fontsize": plots.STYLE["font.size"]}):
        figure = plots.new_figure(8, 8.2, "constrained")
        loss, quality, consensus = panels = figure.subplots(3, 1, sharex=True)
        _draw_losses(loss, summary, peers, clock)
        _draw_evaluations(quality, summary, peers, clock, end_s)
        _draw_sketched(consensus, summary, (clock(disagreement[0]), disagreement[1]), end_s)
        consensus.set_xlabel("time since training began, s")
        consensus.xaxis.set_major_formatter("{x:g}")
        loss.set_xlim(0, end_s)
        for axes in panels:
            plots.mark_faults(axes, _faults_done(summary, clock, end_s), end_s, labels=axes is loss)
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
    plots.set_scale(axes, np.concatenate(shown))
    if len(peers) <= len(plots.PALETTE):
        axes.legend(loc="upper right", ncols=2)


def _draw_evaluations(
    axes: "Axes", summary: Summary, peers: Sequence[Rows], clock: Clock, end_s: float
) -> None:
    measured, own, average = "accuracy", "accuracy", "average_accuracy"
    if not (_has_column(peers, own) or _has_column(peers, average)):
        measured, own, average = "loss", "test_loss", "average_test_loss"
        axes.set_yscale("log")
    also = ["of the average of all (black)"] if _has_column(peers, average) else []
    also += [] if summary[measured] is None else ["of the merged model"]
    axes.set_title(" and ".join([f"Held-out {measured} of each peer", *also]))
    if not (also or _has_column(peers, own)):
        plots.say(axes, "nothing was measured")
        return
    axes.set_ylabel(measured)
    line: Any = {"markersize": 3, "linewidth": 1.3}
    for index, rows in enumerate(peers):
        axes.plot(*_column(rows, own, clock), color=_color(index, len(peers)), marker="o", **line)
        # One peer measures it; if that peer dies, another one continues.
        axes.plot(*_column(rows, average, clock), color=plots.INK, marker="D", zorder=3, **line)
    if summary[measured] is not None:
        plots.mark(axes, end_s, summary[measured], f"merged\n{summary[measured]:.4g}", size=7)


def _draw_sketched(
    axes: "Axes", summary: Summary, disagreement: tuple[plots.Floats, plots.Floats], end_s: float
) -> None:
    axes.set_title("Consensus distance, estimated from sketches")
    axes.set_ylabel("|x_i - mean| / |mean|, rms")
    axes.set_yscale("log")
    times, distances = disagreement
    times, distances = times[distances > 0], distances[distances > 0]
    final = summary["consensus_distance"]
    if not len(distances) and not final:
        words = "nothing was measured" if final is None else "at the end: identical"
        plots.say(axes, words)
        return
    axes.plot(times, distances, color=plots.INK, marker="o", markersize=3, linewidth=1.3)
    if final is None:
        return
    # Peers that merge at the end come orders of magnitude closer than while they train: to
    # scale, that one point would press all others into a line.
    floor = float(distances.min()) / 4 if len(distances) else final
    text = f"at the end,\nexact: {final:.1e}" if final else "at the end:\nidentical"
    plots.mark(axes, end_s, max(final, floor), text, marker="D" if final >= floor else "v", size=7)


def _faults_done(summary: Summary, clock: Clock, end_s: float) -> list[dict[str, Any]]:
    """Return faults that were injected, at their places on the time axis."""
    found = []
    for fault in summary.get("faults", ()):
        if fault["done"]:
            first, last = clock(np.array([fault["done"][i]["unix_s"] for i in (0, -1)])).tolist()
            lasting = {} if fault.get("for_s") is None else {"for_s": last - first or end_s}
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
