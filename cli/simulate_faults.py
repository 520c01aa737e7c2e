"""What became of the faults of a simulation, as a person reads it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..gossip.weight import from_units

__all__ = ["Row", "describe_faults"]


class Row(NamedTuple):
    """One thing to know of a run."""

    name: str
    value: str
    words: str


def describe_faults(summary: dict[str, Any]) -> Iterator[Row]:
    """The figures of what went wrong; none where nothing was to.

    Args:
        summary: Of a run.
    """
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
    stranded = summary["stranded"]
    if stranded:
        named = ", ".join(stranded[:5]) + (" and others" if len(stranded) > 5 else "")
        yield Row("stranded", f"{len(stranded):,}", f"{named}: found no swarm, or stood still")
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
        words = f"the first survivor held one for dead after {first_s:.4g} s, {last}"
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
        words = "at most, from the end of a cut until nobody was held for dead who ran"
        yield Row("healed after", f"{heal_s:.4g} s", words)
    elif unhealed:
        yield Row("healed", "no", "somebody was still held for dead at the end who ran")
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
