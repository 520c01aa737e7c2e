"""Tables of a study: a Parquet file of all curves, a CSV of trials."""

import csv
import io
from pathlib import Path
from typing import Any, Final

from ...train.storage.files import drafted, write_json
from .metrics import FACTS, METRICS
from .results import CURVES, Results

__all__ = ["CURVES_FILE", "FAILURES", "SUMMARY", "axis_columns", "write_tables"]

CURVES_FILE: Final = "results.parquet"
SUMMARY: Final = "summary.csv"
FAILURES: Final = "failures.json"


def write_tables(results: Results, folder: Path) -> None:
    """Write tables in which nothing depends on when, where and in which order trials were computed.

    ``results.parquet`` has a row for each trial and evaluation: a column of text for each axis,
    ``seed``, ``cell`` (the trial's name in the store), ``evaluation`` (counted from 0) and the
    curves. ``summary.csv`` has a row for each trial. ``failures.json`` says which trials failed,
    and why; it exists only if some did.

    Raises:
        OSError: One cannot be written; what was there still is.
    """
    with drafted(folder / CURVES_FILE) as draft:
        _write_curves(results, draft)
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
    taken = {"seed", "cell", "evaluation", "digest", *CURVES, *_figures()}
    names = [axis.name for axis in results.study.axes]
    return {name: f"axis_{name}" if name in taken else name for name in names}


def _write_curves(results: Results, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    columns: dict[str, Any] = {}
    rows = [
        (result, index)
        for result in results.results
        for index in range(len(result.series["time_s"]))
    ]
    for axis, column in axis_columns(results).items():
        columns[column] = pa.array([r.trial.labels[axis] for r, _ in rows], pa.string())
    columns["seed"] = pa.array([r.trial.seed for r, _ in rows], pa.int64())
    columns["cell"] = pa.array([r.key for r, _ in rows], pa.string())
    columns["evaluation"] = pa.array([index for _, index in rows], pa.int64())
    for curve in CURVES:
        if any(curve in result.series for result in results.results):
            values = [r.series[curve][i] if curve in r.series else None for r, i in rows]
            columns[curve] = pa.array(values, pa.float64())
    parquet.write_table(pa.table(columns), path)


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
    table.writerow([*axes.values(), "seed", "cell", *figures, "digest"])
    for result in results.results:
        values = [sources[name].source(result, target) for name in figures]
        trial = [*(result.trial.labels[axis] for axis in axes), result.trial.seed, result.key]
        row = [*trial, *values, result.summary.get("digest")]
        table.writerow(["" if value is None else value for value in row])
    return text.getvalue()
