"""What a simulation came to, as a person reads it: figures, and what they mean."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .simulate_faults import Row, describe_faults

__all__ = ["Row", "describe_run", "print_run"]

LISTED_MAX = 5
"""Workers that a sentence names before it counts the rest."""

UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def print_run(summary: dict[str, Any], console: Console) -> None:
    """Print how a simulation went.

    Args:
        summary: Of a run, with ``out``, the folder that it was kept in, if any.
        console: Where to.
    """
    # Here, because the package that it lies in imports torch.
    from ..sim.title import describe

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True)
    table.add_column()
    for row in describe_run(summary):
        table.add_row(*(Text(cell) for cell in row))
    console.print()
    console.print(Text(describe(summary), style="bold"), soft_wrap=True)
    console.print(table)
    if summary["out"] is not None:
        console.print()
        # A path that is folded cannot be copied.
        console.print(f"Folder: {summary['out']}", highlight=False, markup=False, soft_wrap=True)


def describe_run(summary: dict[str, Any]) -> list[Row]:
    """The figures of a run in the order in which they are best understood.

    Args:
        summary: Of a run.
    """
    return [
        *_quality(summary),
        *_agreement(summary),
        _weight(summary),
        _time(summary),
        *_reached(summary),
        *_traffic(summary),
        *_waiting(summary),
        *_stopped(summary),
        *describe_faults(summary),
        _speed(summary),
        Row("engine", str(summary["engine"]), summary.get("engine_why") or ""),
    ]


def _quality(summary: dict[str, Any]) -> Iterator[Row]:
    accuracy, loss = summary.get("accuracy"), summary.get("loss")
    if accuracy is not None:
        yield Row("accuracy", f"{accuracy:.4f}", "of the merged model, on held-out data")
    if loss is not None:
        words = "of the merged model, on held-out data" if accuracy is None else "likewise"
        yield Row("loss", f"{loss:.4g}", words)
    elif summary.get("model_digest") is not None:
        yield Row("loss", "not finite", "of the merged model, on held-out data")


def _agreement(summary: dict[str, Any]) -> Iterator[Row]:
    distance = summary.get("consensus_distance")
    disagreement = summary.get("disagreement")
    # Of vectors around 0, the norm of the mean says nothing.
    if distance is not None and disagreement is None and summary["workers"] > 1:
        words = "of its norm: how far models are from their mean" if distance else "all alike"
        yield Row("consensus distance", f"{distance:.3g}", words)
    if disagreement is not None:
        words = "squared distances from the mean, per coordinate, summed over the workers"
        yield Row("disagreement", f"{disagreement:.4g}", words)
    stationary = summary.get("disagreement_stationary")
    if stationary is not None:
        yield Row("stationary", f"{stationary:.4g}", "its mean where it has settled")


def _weight(summary: dict[str, Any]) -> Row:
    total, expected = summary["weight_units_total"], summary["weight_units_expected"]
    if total == expected:
        held = f"{summary['weight_total']:,.6g}"
        return Row("weight", "exact", f"{total} units ({held} founders), as there should be")
    words = f"{total} units are there and {expected} should be"
    return Row("weight", "NOT EXACT", words)


def _time(summary: dict[str, Any]) -> Row:
    per_worker = summary["steps"] / summary["workers"]
    words = f"in which workers take {per_worker:.5g} steps on average"
    return Row("virtual time", f"{summary['virtual_time_s']:.5g} s", words)


def _reached(summary: dict[str, Any]) -> Iterator[Row]:
    times: dict[str, float | None] = summary.get("time_to") or {}
    reached = [(level, at_s) for level, at_s in times.items() if at_s is not None]
    if reached:
        *before, (best, at_s) = reached
        never = " and ".join(level for level in times if times[level] is None)
        earlier = ", ".join(f"{level} after {earlier_s:.4g} s" for level, earlier_s in before)
        words = [f"to accuracy {best}", earlier, f"{never} never" if never else ""]
        yield Row("reached after", f"{at_s:.4g} s", "; ".join(filter(None, words)))


def _traffic(summary: dict[str, Any]) -> Iterator[Row]:
    seconds, sent = summary["virtual_time_s"], summary["bytes_sent"]
    rate = f", {_bytes(sent / seconds)} per virtual second" if seconds else ""
    yield Row("messages", f"{summary['messages']:,}", f"{_bytes(sent)}{rate}")
    skipped = summary["skipped"]
    more = f"; {skipped:,} more were skipped" if skipped else ""
    words = f"{summary['mixed']:,} shares were mixed in{more}"
    yield Row("pushes", f"{summary['pushes']:,}", words)
    staleness = summary.get("staleness_steps")
    if staleness is not None:
        words = "steps that a share's sender was behind who mixed it in, on average"
        yield Row("staleness", f"{staleness:.3g}", words)


def _waiting(summary: dict[str, Any]) -> Iterator[Row]:
    idle = summary.get("idle")
    if idle is not None:
        words = "of the workers' time was spent waiting" if idle else "nobody ever waits"
        yield Row("idle", f"{100 * idle:.2g} %", words)


def _stopped(summary: dict[str, Any]) -> Iterator[Row]:
    stopped = summary.get("stopped") or []
    if stopped:
        named = ", ".join(stopped[:LISTED_MAX])
        more = f" and {len(stopped) - LISTED_MAX:,} more" if len(stopped) > LISTED_MAX else ""
        yield Row("diverged", f"{len(stopped):,}", f"{named}{more}: loss or parameters not finite")


def _speed(summary: dict[str, Any]) -> Row:
    peak = summary.get("peak_rss_mib")
    memory = f", at most {peak:,.0f} MiB of memory" if peak else ""
    words = f"{summary['steps']:,} steps in {summary['wall_s']:.3g} s{memory}"
    return Row("steps/s", f"{summary['steps_per_s']:,.0f}", words)


def _bytes(count: float) -> str:
    unit, name = next((pair for pair in UNITS if count >= pair[0]), UNITS[-1])
    return f"{count / unit:.4g} {name}"
