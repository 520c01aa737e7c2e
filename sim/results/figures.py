"""The figures of a simulation in words: its settings, its results, and their meaning."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...gossip.weight import from_units
from ...gossip.wire.formats import NATIVE

if TYPE_CHECKING:
    from ..batched.schedule import Cost

__all__ = [
    "Row",
    "describe",
    "describe_cost",
    "describe_faults",
    "describe_run",
    "describe_world",
    "duration",
    "named",
    "sized",
]

# Keys of a summary that describe the workers' environment.
_WORLD = (
    *("network", "network_latency_s", "network_bandwidth_mbit", "network_loss"),
    *("network_duplicates", "step_s", "pace", "speeds", "slow", "partition", "seed"),
)


# Settings of shares that are told unless they have these values.
_SHARES = {"wire": NATIVE, "shards": 1, "shards_per_push": 1}


def describe(settings: Mapping[str, Any]) -> str:
    """Describe the task, the number of workers, and how they exchange, from a run's summary or the
    fields of its configuration.

    >>> describe({"task": "digits", "workers": 8, "topology": "ring", "rule": "gosgd", "p": 0.5})
    'digits on 8 workers, ring, gosgd:p=0.5'
    >>> describe({"task": "digits", "workers": 8, "topology": "ring", "rule": "sgp",
    ...           "wire": "int8", "shards": 4})
    'digits on 8 workers, ring, sgp, wire int8, shards 4'
    """
    workers = settings["workers"]
    several = "1 worker" if workers == 1 else f"{workers:,} workers"
    # A summary has the rule's own name next to the spec.
    rule = settings.get("rule_spec") or settings["rule"]
    if ":" not in rule and settings.get("p") is not None:
        rule += f":p={settings['p']:g}"
    parts = [f"{settings['task']} on {several}", settings["topology"], rule]
    parts += [
        f"{k} {settings[k]}" for k, usual in _SHARES.items() if settings.get(k, usual) != usual
    ]
    return ", ".join(parts)


def describe_world(settings: Mapping[str, Any]) -> str:
    """Describe the workers' environment: network, speeds, data, faults.

    >>> describe_world({"network": "lan", "step_s": 0.1, "slow": ["3:10"], "seed": 0})
    'network lan, step_s 0.1, slow 3:10, seed 0'
    """
    parts: list[str] = []
    for name in _WORLD:
        value = settings.get(name)
        if value is not None and value not in ([], ()):
            text = " ".join(value) if isinstance(value, list | tuple) else value
            parts.append(f"{name} {text}")
    if faults := len(settings.get("faults") or ()):
        several = "1 fault" if faults == 1 else f"{faults:,} faults"
        parts.append(f"{several}, timing {settings.get('timing')}")
    return ", ".join(parts)


class Row(NamedTuple):
    """One figure, and its meaning."""

    name: str
    value: str
    words: str = ""


def sized(size_bytes: float) -> str:
    """Format a number of bytes with a unit.

    >>> sized(4_000_000), sized(1.5e9), sized(12)
    ('4 MB', '1.5 GB', '12 B')
    """
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if size_bytes >= 10**power:
            return f"{size_bytes / 10**power:.4g} {unit}"
    return f"{size_bytes:.4g} B"


def duration(seconds: float) -> str:
    """Format a duration, roughly.

    >>> duration(42.3), duration(400.0), duration(9000.0)
    ('42 s', '7 min', '2.5 h')
    """
    if seconds < 100:
        return f"{max(1.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.2g} h"


def describe_cost(cost: "Cost") -> str:
    """Say what a run will take."""
    parts = [
        f"about {duration(cost.wall_s)} and {cost.memory_gib:.1f} GiB",
        f"{cost.steps:,} steps at {cost.steps_per_s:,.0f} a second",
        f"engine {cost.engine} ({cost.engine_why})",
    ]
    # Shorter measurements are worth no advice.
    if cost.measuring_s > max(10.0, cost.wall_s / 2):
        several = f"measurements take {duration(cost.measuring_s)} of it"
        parts.append(f"{several}, less with eval_every, tested and workers_tested")
    return "; ".join(parts)


def named(items: Sequence[str], most: int = 5) -> str:
    """Join the first *most* names, and count the rest.

    >>> named(["a", "b", "c"]), named(["a", "b", "c"], most=1)
    ('a, b, c', 'a and 2 more')
    """
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more:,} more" if more > 0 else "")


def describe_run(summary: Mapping[str, Any]) -> list[Row]:
    """Return the figures of a run in the order in which they are easiest to understand."""
    return [
        *_of_models(summary),
        *_of_time(summary),
        *_of_exchange(summary),
        *describe_faults(summary),
        *_of_computing(summary),
    ]


def _of_models(summary: Mapping[str, Any]) -> Iterator[Row]:
    accuracy, loss = summary.get("accuracy"), summary.get("loss")
    if accuracy is not None:
        yield Row("accuracy", f"{accuracy:.4f}", "of the merged model, on held-out data")
    if loss is not None:
        yield Row("loss", f"{loss:.4g}", "of the merged model, on held-out data")
    elif summary.get("model_digest") is not None:
        yield Row("loss", "not finite", "of the merged model, on held-out data")
    distance, disagreement = summary.get("consensus_distance"), summary.get("disagreement")
    # The norm of a mean near 0 says nothing.
    if distance is not None and disagreement is None and summary["workers"] > 1:
        words = "of its norm: how far models are from their mean" if distance else "all alike"
        yield Row("consensus distance", f"{distance:.3g}", words)
    if disagreement is not None:
        words = "squared distances from the mean, per coordinate, summed over the workers"
        yield Row("disagreement", f"{disagreement:.4g}", words)
    if (stationary := summary.get("disagreement_stationary")) is not None:
        yield Row("stationary", f"{stationary:.4g}", "its mean where it has settled")
    total, expected = summary["weight_units_total"], summary["weight_units_expected"]
    if total == expected:
        held = f"{summary['weight_total']:,.6g}"
        yield Row("weight", "exact", f"{total} units ({held} founders), as there should be")
    else:
        yield Row("weight", "NOT EXACT", f"{total} units are held, and {expected} should be")


def _of_time(summary: Mapping[str, Any]) -> Iterator[Row]:
    per_worker = summary["steps"] / summary["workers"]
    words = f"in which workers take {per_worker:.5g} steps on average"
    yield Row("virtual time", f"{summary['virtual_time_s']:.5g} s", words)
    times: Mapping[str, float | None] = summary.get("time_to") or {}
    reached = [(level, at_s) for level, at_s in times.items() if at_s is not None]
    if reached:
        *before, (best, best_s) = reached
        never = " and ".join(level for level in times if times[level] is None)
        earlier = ", ".join(f"{level} after {at_s:.4g} s" for level, at_s in before)
        parts = [f"to accuracy {best}", earlier, f"{never} never" if never else ""]
        yield Row("reached after", f"{best_s:.4g} s", "; ".join(filter(None, parts)))


def _of_exchange(summary: Mapping[str, Any]) -> Iterator[Row]:
    seconds, sent = summary["virtual_time_s"], summary["bytes_sent"]
    rate = f", {sized(sent / seconds)} per virtual second" if seconds else ""
    yield Row("messages", f"{summary['messages']:,}", f"{sized(sent)}{rate}")
    skipped = summary["skipped"]
    more = f"; {skipped:,} more were skipped" if skipped else ""
    each = f", {summary['pushes'] / summary['steps']:.3g} a step" if summary["steps"] else ""
    words = f"of shares{each}; {summary['mixed']:,} were mixed in{more}"
    yield Row("pushes", f"{summary['pushes']:,}", words)
    if (staleness := summary.get("staleness_steps")) is not None:
        words = "steps that shares were behind the worker that mixed them in, on average"
        yield Row("staleness", f"{staleness:.3g}", words)
    if (idle := summary.get("idle")) is not None:
        words = "of the workers' time was spent waiting" if idle else "no worker ever waits"
        yield Row("idle", f"{100 * idle:.2g} %", words)


def _of_computing(summary: Mapping[str, Any]) -> Iterator[Row]:
    peak = summary.get("peak_rss_mib")
    memory = f", at most {peak:,.0f} MiB of memory" if peak else ""
    words = f"{summary['steps']:,} steps in {summary['wall_s']:.3g} s{memory}"
    yield Row("steps/s", f"{summary['steps_per_s']:,.0f}", words)
    yield Row("decided by", summary.get("decided") or "the protocols")
    yield Row("engine", str(summary["engine"]), summary.get("engine_why") or "")
    device = summary.get("device", "cpu")
    if device != "cpu":
        yield Row("device", device, "other last digits, and another digest, than on a CPU")


def describe_faults(summary: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the figures of faults; nothing without faults."""
    faults = summary.get("faults")
    if not faults:
        return
    late = summary["faults_after_end"]
    kinds = ", ".join(dict.fromkeys(fault["kind"] for fault in faults))
    more = f"; {late:,} of them after the end of the run" if late else ""
    yield Row("faults", f"{len(faults):,}", f"{kinds}{more}")
    if summary["crashes"]:
        yield Row("crashes", f"{summary['crashes']:,}", _detection(summary))
    yield from _arrivals(summary, "join", "joins", "newcomers came")
    yield from _arrivals(summary, "restart", "restarts", "peers started again")
    if summary["heal_s"] is not None:
        words = "at most, from the end of a cut until no running worker was considered dead"
        yield Row("healed after", f"{summary['heal_s']:.4g} s", words)
    elif summary["unhealed"]:
        yield Row("healed", "no", "a running worker was still considered dead at the end")
    if parts := summary.get("accuracy_of_groups"):
        values = " and ".join(f"{value:.4f}" for value in parts)
        yield Row("before healing", values, "accuracy of what each part had merged")
    lost = from_units(summary["weight_units_died"]) + from_units(summary["weight_units_burned"])
    if lost:
        part = lost / from_units(summary["weight_units_expected"])
        words = "founders, with those that crashed or diverged"
        yield Row("weight lost", f"{part * summary['weight_expected']:.4g}", words)
    if stranded := summary["stranded"]:
        words = f"{named(stranded)}: found no swarm, or stood still"
        yield Row("stranded", f"{len(stranded):,}", words)
    rate = summary["membership_bytes_s"]
    words = "sent by each worker in a second, about who lives"
    yield Row("membership", f"{rate / 1e3:.3g} kB/s", words)


def _detection(summary: Mapping[str, Any]) -> str:
    first_s, last_s = summary["detect_s_first"], summary["detect_s_last"]
    if first_s is None:
        return "no survivor has noticed"
    last = "not all noticed" if last_s is None else f"the last after {last_s:.4g} s"
    missed = f"; {summary['undetected']:,} not noticed by all" if summary["undetected"] else ""
    return f"a survivor first considered one dead after {first_s:.4g} s, {last}{missed}"


def _arrivals(summary: Mapping[str, Any], word: str, name: str, what: str) -> Iterator[Row]:
    if not summary[name]:
        return
    median_s, most_s = summary[f"{word}_s_median"], summary[f"{word}_s_most"]
    words = f"{what}; none was admitted"
    if median_s is not None:
        words = f"{what} and belonged to it after {median_s:.4g} s (median), {most_s:.4g} s at most"
        if failed := summary[f"{word}s_failed"]:
            words += f"; {failed:,} never"
    yield Row(name, f"{summary[name]:,}", words)
