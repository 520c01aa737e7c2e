"""The figures of a simulation, and what they mean."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ...gossip.weight import from_units

__all__ = ["Row", "describe_faults", "describe_run", "named", "sized"]


class Row(NamedTuple):
    """One figure, and what it means."""

    name: str
    value: str
    words: str


def sized(size_bytes: float) -> str:
    """A number of bytes with a unit.

    >>> sized(4_000_000), sized(1.5e9), sized(12)
    ('4 MB', '1.5 GB', '12 B')
    """
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if size_bytes >= 10**power:
            return f"{size_bytes / 10**power:.4g} {unit}"
    return f"{size_bytes:.4g} B"


def named(items: Sequence[str], most: int = 5) -> str:
    """The first of some names, and how many more there are.

    >>> named(["a", "b", "c"]), named(["a", "b", "c"], most=1)
    ('a, b, c', 'a and 2 more')
    """
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more:,} more" if more > 0 else "")


def describe_run(summary: dict[str, Any]) -> list[Row]:
    """The figures of a run in the order in which they are best understood."""
    return [
        *_quality(summary),
        *_agreement(summary),
        _weight(summary),
        _time(summary),
        *_reached(summary),
        *_traffic(summary),
        *_waiting(summary),
        *_seen(summary),
        *_stopped(summary),
        *describe_faults(summary),
        _speed(summary),
        Row("decided by", summary.get("decided") or "the protocols", ""),
        Row("engine", str(summary["engine"]), summary.get("engine_why") or ""),
        *_device(summary),
    ]


def _seen(summary: dict[str, Any]) -> Iterator[Row]:
    """How evenly samples were seen, where they are dealt by who is there."""
    if summary.get("sample_seen_mean") is None:
        return
    least, most = summary["sample_seen_min"], summary["sample_seen_max"]
    text = f"{summary['sample_seen_mean']:.3g} +- {summary['sample_seen_sd']:.2g}"
    yield Row("seen", text, f"times by which each sample was trained on, from {least} to {most}")
    if summary["epochs"]:
        part, worst = summary["epoch_seen_mean"], summary["epoch_seen_min"]
        words = f"of all samples, mean of {summary['epochs']} epochs; {worst:.3f} in the worst"
        yield Row("seen in an epoch", f"{part:.3f}", words)


def _device(summary: dict[str, Any]) -> Iterator[Row]:
    device = summary.get("device", "cpu")
    if device != "cpu":
        yield Row("device", device, "other last digits, and another digest, than on a CPU")


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
    rate = f", {sized(sent / seconds)} per virtual second" if seconds else ""
    yield Row("messages", f"{summary['messages']:,}", f"{sized(sent)}{rate}")
    skipped = summary["skipped"]
    more = f"; {skipped:,} more were skipped" if skipped else ""
    each = f", {summary['pushes'] / summary['steps']:.3g} a step" if summary["steps"] else ""
    words = f"of shares{each}; {summary['mixed']:,} were mixed in{more}"
    yield Row("pushes", f"{summary['pushes']:,}", words)
    staleness = summary.get("staleness_steps")
    if staleness is not None:
        words = "steps that shares were behind whoever mixed them in, on average"
        yield Row("staleness", f"{staleness:.3g}", words)


def _waiting(summary: dict[str, Any]) -> Iterator[Row]:
    idle = summary.get("idle")
    if idle is not None:
        words = "of the workers' time was spent waiting" if idle else "nobody ever waits"
        yield Row("idle", f"{100 * idle:.2g} %", words)


def _stopped(summary: dict[str, Any]) -> Iterator[Row]:
    if stopped := summary.get("stopped"):
        words = f"{named(stopped)}: loss or parameters not finite"
        yield Row("diverged", f"{len(stopped):,}", words)


def _speed(summary: dict[str, Any]) -> Row:
    peak = summary.get("peak_rss_mib")
    memory = f", at most {peak:,.0f} MiB of memory" if peak else ""
    words = f"{summary['steps']:,} steps in {summary['wall_s']:.3g} s{memory}"
    return Row("steps/s", f"{summary['steps_per_s']:,.0f}", words)


def describe_faults(summary: dict[str, Any]) -> Iterator[Row]:
    """The figures of what went wrong; none where nothing was to."""
    faults = summary.get("faults")
    if not faults:
        return
    late = summary["faults_after_end"]
    kinds = ", ".join(dict.fromkeys(fault["kind"] for fault in faults))
    more = f"; {late:,} of them after the end of the run" if late else ""
    yield Row("faults", f"{len(faults):,}", f"{kinds}{more}")
    yield from _crashes(summary)
    yield from _arrivals(summary, "join", "joins", "newcomers came")
    yield from _arrivals(summary, "restart", "restarts", "lives began anew")
    yield from _healing(summary)
    yield from _losses(summary)
    if stranded := summary["stranded"]:
        words = f"{named(stranded)}: found no swarm, or stood still"
        yield Row("stranded", f"{len(stranded):,}", words)
    rate = summary["membership_bytes_s"]
    words = "sent by each worker in a second, about who lives"
    yield Row("membership", f"{rate / 1e3:.3g} kB/s", words)


def _crashes(summary: dict[str, Any]) -> Iterator[Row]:
    if not summary["crashes"]:
        return
    first_s, last_s = summary["detect_s_first"], summary["detect_s_last"]
    words = "nobody has noticed"
    if first_s is not None:
        last = "not all noticed" if last_s is None else f"the last after {last_s:.4g} s"
        words = f"a survivor first considered one dead after {first_s:.4g} s, {last}"
    missed = summary["undetected"]
    more = f"; {missed:,} not noticed by all" if missed and first_s is not None else ""
    yield Row("crashes", f"{summary['crashes']:,}", words + more)


def _arrivals(summary: dict[str, Any], word: str, name: str, what: str) -> Iterator[Row]:
    count = summary[name]
    if not count:
        return
    median_s, most_s = summary[f"{word}_s_median"], summary[f"{word}_s_most"]
    words = f"{what}; none was admitted"
    if median_s is not None:
        words = f"{what} and belonged to it after {median_s:.4g} s (median), {most_s:.4g} s at most"
    failed = summary[f"{word}s_failed"]
    more = f"; {failed:,} never" if failed and median_s is not None else ""
    yield Row(name, f"{count:,}", words + more)


def _healing(summary: dict[str, Any]) -> Iterator[Row]:
    heal_s, unhealed = summary["heal_s"], summary["unhealed"]
    if heal_s is not None:
        words = "at most, from the end of a cut until no running worker was considered dead"
        yield Row("healed after", f"{heal_s:.4g} s", words)
    elif unhealed:
        yield Row("healed", "no", "a running worker was still considered dead at the end")
    parts = summary.get("accuracy_of_groups")
    if parts:
        values = " and ".join(f"{value:.4f}" for value in parts)
        yield Row("before healing", values, "accuracy of what each part had merged")


def _losses(summary: dict[str, Any]) -> Iterator[Row]:
    names = ("weight_units_died", "weight_units_burned")
    lost = sum(from_units(summary[name]) for name in names)
    if lost:
        part = lost / from_units(summary["weight_units_expected"])
        founders = part * summary["weight_expected"]
        yield Row("weight lost", f"{founders:.4g}", "founders, with those that crashed or diverged")
