"""What a study came to as tables that others read: a Parquet file of all curves, a CSV of cells."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ...train.durable import DRAFT, publish, write_json
from .result import CURVES, Result, Results

__all__ = ["CURVES_FILE", "FACTS", "FAILURES", "SUMMARY", "axis_columns", "write_tables"]

CURVES_FILE: Final = "results.parquet"
SUMMARY: Final = "summary.csv"
FAILURES: Final = "failures.json"

FACTS: Final = (
    *("spectral_gap", "effective_neighbors", "contraction", "degree_mean", "diameter"),
    "rounds_to_1e-3",
)
"""Facts of a graph that have a column in the table of cells."""

_FIGURES: Final = (
    *("accuracy", "loss", "consensus_distance", "disagreement", "steps", "virtual_time_s"),
    *("messages", "bytes_sent", "pushes", "skipped", "staleness_steps", "idle"),
)

_AT_TARGET: Final = {
    "time_to_target_s": "time_s",
    "bytes_to_target": "bytes_sent",
    "steps_to_target": "steps",
}

_TAKEN: Final = {"seed", "cell", "evaluation", "digest", *CURVES, *_FIGURES, *_AT_TARGET, *FACTS}


def write_tables(results: Results, folder: Path) -> None:
    """Write tables in which nothing depends on when, where and in which order cells were computed.

    ``results.parquet`` has a row for each cell and evaluation: a column of text for each axis,
    ``seed``, ``cell`` (its name in the store), ``evaluation`` (counted from 0) and the curves.
    ``summary.csv`` has a row for each cell. ``failures.json`` is there if some cells failed: what
    they are, and why.

    Args:
        results: Of a study.
        folder: Where they go.

    Raises:
        OSError: One cannot be written; what was there still is.
    """
    _write(folder / CURVES_FILE, lambda draft: _write_curves(results, draft))
    _write(folder / SUMMARY, lambda draft: draft.write_text(_summary(results), encoding="utf-8"))
    if results.failures:
        write_json(folder / FAILURES, dict(results.failures))
    else:
        (folder / FAILURES).unlink(missing_ok=True)


def axis_columns(results: Results) -> dict[str, str]:
    """The column of each axis: its name, with ``axis_`` before it where a curve or figure has it.

    An axis may be called ``loss``, for what the network loses.
    """
    names = [axis.name for axis in results.study.axes]
    return {name: f"axis_{name}" if name in _TAKEN else name for name in names}


def _write(path: Path, write: Callable[[Path], object]) -> None:
    draft = path.with_name(path.name + DRAFT)
    try:
        write(draft)
        publish(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


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
        columns[column] = pa.array([r.cell.labels[axis] for r, _ in rows], pa.string())
    columns["seed"] = pa.array([r.cell.seed for r, _ in rows], pa.int64())
    columns["cell"] = pa.array([r.key for r, _ in rows], pa.string())
    columns["evaluation"] = pa.array([index for _, index in rows], pa.int64())
    for curve in CURVES:
        if any(curve in result.series for result in results.results):
            values = [r.series[curve][i] if curve in r.series else None for r, i in rows]
            columns[curve] = pa.array(values, pa.float64())
    parquet.write_table(pa.table(columns), path)


def _summary(results: Results) -> str:
    axes, target = axis_columns(results), results.study.target
    text = io.StringIO()
    columns = (*axes.values(), "seed", "cell", *_FIGURES, *_AT_TARGET, *FACTS, "digest")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    for result in results.results:
        figures = _figures(result, target) | {
            axes[axis]: label for axis, label in result.cell.labels.items()
        }
        table.writerow(["" if (value := figures.get(c)) is None else value for c in columns])
    return text.getvalue()


def _figures(result: Result, target: float) -> dict[str, Any]:
    return {
        "seed": result.cell.seed,
        "cell": result.key,
        **{name: result.summary.get(name) for name in (*_FIGURES, "digest")},
        **{name: result.at_target(curve, target) for name, curve in _AT_TARGET.items()},
        **{name: result.facts.get(name) for name in FACTS},
    }
