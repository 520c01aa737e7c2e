"""Tables of a study: all curves, and a row for each trial."""

import csv
import io
from pathlib import Path
from typing import Final

from ...train.storage.files import drafted, write_json
from .metrics import FACTS, METRICS
from .results import CURVES, Results

__all__ = ["CURVES_FILE", "FAILURES", "SUMMARY", "axis_columns", "write_tables"]

CURVES_FILE: Final = "curves.csv"
SUMMARY: Final = "summary.csv"
FAILURES: Final = "failures.json"


def write_tables(results: Results, folder: Path) -> None:
    """Write tables in which nothing depends on when, where and in which order trials were computed.

    ``curves.csv`` has a row for each trial and evaluation: a column for each axis, ``seed``,
    ``trial`` (its name in the store), ``evaluation`` (counted from 0) and the
    curves. ``summary.csv`` has a row for each trial. ``failures.json`` says which trials failed,
    and why; it exists only if some did.

    Raises:
        OSError: One cannot be written; what was there still is.
    """
    with drafted(folder / CURVES_FILE) as draft:
        draft.write_text(_curves(results), encoding="utf-8")
    with drafted(folder / SUMMARY) as draft:
        draft.write_text(_summary(results), encoding="utf-8")
    if results.failures:
        write_json(folder / FAILURES, dict(results.failures))
    else:
        (folder / FAILURES).unlink(missing_ok=True)


def axis_columns(results: Results) -> dict[str, str]:
    """The column of each axis: its name, with ``axis_`` before it where a curve or figure has it.

    An axis may be called ``loss``, for what the network loses.
    """
    taken = {"seed", "trial", "evaluation", "digest", *CURVES, *_figures()}
    names = [axis.name for axis in results.study.axes]
    return {name: f"axis_{name}" if name in taken else name for name in names}


def _curves(results: Results) -> str:
    axes = axis_columns(results)
    curves = [name for name in CURVES if any(name in one.series for one in results.results)]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*axes.values(), "seed", "trial", "evaluation", *curves])
    for result in results.results:
        trial = [*(result.trial.labels[axis] for axis in axes), result.trial.seed, result.key]
        for index in range(len(result.series["time_s"])):
            row = [result.series[name][index] if name in result.series else "" for name in curves]
            table.writerow([*trial, index, *row])
    return text.getvalue()


def _figures() -> list[str]:
    """Names of the columns of figures: at the end, at the target, and of the graph."""
    columns = [metric for metric in METRICS.values() if metric.is_column]
    columns.sort(key=lambda metric: metric.to_target)
    return [*(metric.name for metric in columns), *FACTS]


def _summary(results: Results) -> str:
    axes, figures, target = axis_columns(results), _figures(), results.study.target
    sources = METRICS | FACTS
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*axes.values(), "seed", "trial", *figures, "digest"])
    for result in results.results:
        values = [sources[name].source(result, target) for name in figures]
        trial = [*(result.trial.labels[axis] for axis in axes), result.trial.seed, result.key]
        row = [*trial, *values, result.summary.get("digest")]
        table.writerow(["" if value is None else value for value in row])
    return text.getvalue()
