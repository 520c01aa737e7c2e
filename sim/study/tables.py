"""Tables of a study: all curves, and a row for each trial."""

import csv
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from ...train.storage.files import drafted, write_json
from .metrics import FACTS, METRICS
from .results import CURVES, Result, Results

__all__ = ["axis_columns", "write_tables"]

FAILURES: Final = "failures.json"


def write_tables(results: Results, folder: Path) -> None:
    """Write ``curves.csv``, ``summary.csv``, and ``failures.json`` if trials failed: the same
    bytes whenever, wherever and in which order trials were computed.

    Raises:
        OSError: Writing failed; the earlier content is kept.
    """
    for name, text in (("curves.csv", _curves(results)), ("summary.csv", _summary(results))):
        with drafted(folder / name) as draft:
            draft.write_text(text, encoding="utf-8")
    if results.failures:
        write_json(folder / FAILURES, dict(results.failures))
    else:
        (folder / FAILURES).unlink(missing_ok=True)


def axis_columns(results: Results) -> dict[str, str]:
    """Return the column of each axis: its name, prefixed ``axis_`` if a curve or figure has it."""
    # An axis may be called loss, for the messages that the network loses.
    taken = {"seed", "trial", "evaluation", "digest", *CURVES, *_figures()}
    names = [axis.name for axis in results.study.axes]
    return {name: f"axis_{name}" if name in taken else name for name in names}


def _table(results: Results, heads: Iterable[str], rows: Callable[[Result], Iterable[Any]]) -> str:
    """Return a row for each result, after the labels of its trial, as CSV."""
    text, axes = io.StringIO(), axis_columns(results)
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*axes.values(), "seed", "trial", *heads])
    for result in results.results:
        trial = [*(result.trial.labels[axis] for axis in axes), result.trial.seed, result.key]
        # None becomes an empty cell.
        table.writerows([*trial, *row] for row in rows(result))
    return text.getvalue()


def _curves(results: Results) -> str:
    names = [name for name in CURVES if any(name in one.series for one in results.results)]

    def rows(result: Result) -> Iterable[Any]:
        nothing = [None] * len(result.series["time_s"])
        return zip(
            range(len(nothing)), *(result.series.get(name, nothing) for name in names), strict=True
        )

    return _table(results, ["evaluation", *names], rows)


def _figures() -> list[str]:
    """Return the columns of figures: at the end, at the target, and of the graph."""
    columns = [metric for metric in METRICS.values() if metric.is_column]
    columns.sort(key=lambda metric: metric.to_target)
    return [*(metric.name for metric in columns), *FACTS]


def _summary(results: Results) -> str:
    names = _figures()

    def rows(result: Result) -> Iterable[Any]:
        values = {n: metric.source(result, results.study.target) for n, metric in METRICS.items()}
        values |= result.facts
        yield [*(values.get(name) for name in names), result.summary.get("digest")]

    return _table(results, [*names, "digest"], rows)
