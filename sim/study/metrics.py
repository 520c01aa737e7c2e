"""Metrics: every figure of a trial, declared once for tables, charts, CSV and sentences.

An entry added to `METRICS` gets a column in ``summary.csv`` and in the tables of the report, and
a line over every axis of numbers, and points can be compared by it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from .results import Result, Results

__all__ = ["FACTS", "METRICS", "Metric", "metrics_known", "values_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One figure of a trial: where it comes from, how to compare, draw and format it."""

    name: str
    """Name of its column."""
    words: str
    """Name in the middle of a sentence."""
    source: Callable[[Result, float], Any]
    """Returns a trial's figure, a number or None, from its result and the target accuracy."""
    unit: str = ""
    """``s``, ``bytes``, ``steps``, ``%`` for fractions that are shown in percent, or nothing."""
    lower_is_better: bool = True
    is_ratio: bool = True
    """True if groups and noise are compared by a factor; False for a difference."""
    target_curve: str = ""
    """The curve whose value at the target it is; empty for figures of a whole run."""
    goal: str = ""
    """The curve that must reach the target. Its final value, a metric of the same name, compares
    trials that never do."""
    preference: int | None = None
    """Groups are compared by the available metric with the lowest value; None: only on request."""
    curve: str = ""
    """Title of its curve; empty if the report draws none."""
    hidden_by: str = ""
    """A metric that makes this one redundant: charts and tables hide it for tasks with both."""
    is_logarithmic: bool = False
    """True if its curve has a logarithmic axis."""
    is_column: bool = True
    """True if ``summary.csv`` has it."""
    is_shown: bool = True
    """True if tables and charts of the report show it even if the study does not name it."""

    @property
    def to_target(self) -> bool:
        """True if it is counted up to the target, which a trial may never reach."""
        return bool(self.goal)

    @property
    def title(self) -> str:
        """Title of its column."""
        return self.words[:1].upper() + self.words[1:]

    def of(self, result: Result, target: float) -> float | None:
        """Return the figure of a trial; None if missing, or if the target was never reached."""
        value = self.source(result, target)
        return None if value is None else float(value)


def values_of(results: Iterable[Result], metric: Metric, target: float) -> dict[int, float]:
    """Return a metric's values by seed, where a result has one."""
    found = {result.trial.seed: metric.of(result, target) for result in results}
    return {seed: value for seed, value in found.items() if value is not None}


def metrics_known(results: Results) -> tuple[Metric, ...]:
    """Return the metrics to show that some trial has, first those that the study names."""
    study, order = results.study, [*results.study.metrics, *METRICS]
    known = {
        name: METRICS[name]
        for name in dict.fromkeys(order)
        if (METRICS[name].is_shown or name in study.metrics)
        and any(METRICS[name].of(one, study.target) is not None for one in results.results)
    }
    return tuple(metric for metric in known.values() if metric.hidden_by not in known)


def _to_target(
    name: str, words: str, curve: str, unit: str, goal: str = "accuracy", **more: Any
) -> Metric:
    return Metric(
        name=name,
        words=words,
        source=lambda result, target: result.at_target(curve, target, goal),
        unit=unit,
        target_curve=curve,
        goal=goal,
        **more,
    )


def _at_end(name: str, words: str, unit: str = "", **more: Any) -> Metric:
    return Metric(
        name=name, words=words, source=lambda one, _: one.summary.get(name), unit=unit, **more
    )


def _to_loss(name: str, words: str, curve: str, unit: str, goal: str = "loss") -> Metric:
    return _to_target(name, words, curve, unit, goal, is_shown=False)


def _bytes_per_token(result: Result, _: float) -> float | None:
    sent, tokens = (result.summary.get(name) for name in ("bytes_sent", "tokens"))
    return sent / tokens if tokens else None


def _back_s(result: Result, _: float) -> Any:
    """Return the time from the start of a crashed worker's process until it rejoins the swarm."""
    restart_s = result.summary.get("restart_s_median")
    return result.summary.get("join_s_median") if restart_s is None else restart_s


def _of_worker(name: str, words: str, unit: str = "%", *, lower_is_better: bool = False) -> Metric:
    """Return the metric of a quantile of the workers' own figures at the end."""
    return Metric(
        name=name,
        words=words,
        source=lambda one, _: (one.series.get(name) or (None,))[-1],
        unit=unit,
        lower_is_better=lower_is_better,
        is_ratio=False,
        is_shown=False,
    )


_GAP = "how far apart models are"

METRICS: Final[dict[str, Metric]] = {
    metric.name: metric
    for metric in (
        _to_target("time_to_target_s", "virtual time to target", "time_s", "s", preference=0),
        _to_target("bytes_to_target", "bytes to target", "bytes_sent", "bytes"),
        _to_target("steps_to_target", "steps to target", "steps", "steps", is_shown=False),
        _at_end("accuracy", "final accuracy", "%", lower_is_better=False, is_ratio=False,
                preference=1, curve="of the merged model"),
        _to_target("time_to_target_median_s", "virtual time to target of the median worker",
                   "time_s", "s", "accuracy_median", is_shown=False),
        _to_target("time_to_target_least_s", "virtual time to target of the worst worker",
                   "time_s", "s", "accuracy_least", is_shown=False),
        _of_worker("accuracy_median", "final accuracy of the median worker"),
        _of_worker("accuracy_least", "final accuracy of the worst worker"),
        _of_worker("loss_median", "final loss, median worker", "", lower_is_better=True),
        _at_end("loss", "final loss", preference=4, curve="of the merged model",
                hidden_by="accuracy"),
        _at_end("consensus_distance", "final consensus distance", preference=5, curve=_GAP,
                is_logarithmic=True),
        _at_end("disagreement", "final disagreement", preference=3, is_logarithmic=True,
                curve="squared distances from the mean, per coordinate"),
        _at_end("disagreement_stationary", "stationary disagreement", preference=2,
                is_column=False),
        _at_end("steps", "optimizer steps", "steps", is_shown=False),
        _at_end("virtual_time_s", "virtual time", "s", is_shown=False),
        _at_end("messages", "messages sent", is_shown=False),
        _at_end("bytes_sent", "bytes sent", "bytes"),
        _at_end("pushes", "pushes", is_shown=False),
        _at_end("skipped", "pushes skipped", is_shown=False),
        _at_end("staleness_steps", "staleness", "steps", is_shown=False),
        _at_end("idle", "time spent waiting", "%", is_ratio=False),
        _to_loss("time_to_loss_s", "virtual time to the loss", "time_s", "s"),
        _to_loss("bytes_to_loss", "bytes to the loss", "bytes_sent", "bytes"),
        _to_loss("time_to_loss_median_s", "time to the loss, median worker",
                 "time_s", "s", "loss_median"),
        _to_loss("bytes_to_loss_median", "bytes to the loss, median worker",
                 "bytes_sent", "bytes", "loss_median"),
        _at_end("tokens", "tokens", is_shown=False),
        Metric(name="bytes_per_token", words="bytes a token", source=_bytes_per_token,
               unit="bytes", is_shown=False),
        _at_end("utilization", "utilization", "%", lower_is_better=False, is_ratio=False,
                is_shown=False),
        _at_end("goodput", "goodput", "%", lower_is_better=False, is_ratio=False, is_shown=False),
        _at_end("participation", "members taking part", "%", lower_is_better=False,
                is_ratio=False, is_shown=False),
        _at_end("members_taking_part", "number of members taking part", lower_is_better=False,
                is_shown=False),
        _at_end("wait_s_longest", "longest pause", "s", is_ratio=False, is_shown=False),
        Metric(name="back_s", words="time until a victim is back", source=_back_s, unit="s",
               is_shown=False),
    )
}  # fmt: skip
"""Metrics by name. Metrics to the target are None for a trial that never reached it."""

FACTS: Final = {
    "spectral_gap": "spectral gap",
    "effective_neighbors": "effective neighbors",
    "contraction": "contraction",
    "degree_mean": "mean degree",
    "diameter": "diameter",
}
"""Facts about a trial's graph, known before training, with their words: columns that may predict
results."""
