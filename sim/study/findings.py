"""What came out, in three sentences made from the data."""

from collections.abc import Sequence

from .changes import changes
from .comparison import Comparison, Row, compare, comparisons
from .costs import cost, costs, lacking, traffic
from .dependence import foretold, trend
from .measures import MEASURES
from .naming import named, place
from .predictions import predictions
from .result import Results
from .winners import named_row, winner
from .words import count, listed, number, percent

__all__ = ["findings"]


def findings(results: Results) -> tuple[str, str, str]:
    """Say what came out: who is first, what it costs or who falls behind, and what it depends on.

    Args:
        results: Of a study; some or all cells may be missing.

    Returns:
        Three sentences in plain text, for people.
    """
    found = comparisons(results)
    if not found:
        return _nothing(results)
    if len(found) == 1:
        second, spare = cost(results, found[0]), ""
    else:
        spare = costs(results, found)
        second = changes(results) or spare
        spare = "" if second == spare else spare
        second = _with_missing(second, found)
    third = foretold(predictions(results), found) or _trended(results, found) or spare
    return (
        winner(found),
        second or _at_the_end(results, found),
        third or _at_the_end(results, found),
    )


def _with_missing(sentence: str, found: Sequence[Comparison]) -> str:
    """A sentence, and behind it who has no results at any place, or lacks seeds at some."""
    missing = [
        named(found[0].axis, label)
        for label in found[0].missing
        if all(label in comparison.missing for comparison in found)
    ]
    clauses = [f"there are no results of {listed(missing)}"] if missing else []
    rows = [
        (f"{named_row(one, row)} with {place(one.at)}", row)
        for one in found
        for row in one.incomplete
    ]
    if rows:
        clauses.append(lacking(rows))
    text = "; ".join([sentence.removesuffix(".")] * bool(sentence) + clauses)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _trended(results: Results, found: Sequence[Comparison]) -> str | None:
    """Where a number goes, and, of many places, who needs the fewest bytes."""
    said = trend(found)
    sent = "; ".join(traffic(results, found)) if len(found) > 1 else ""
    return f"{said.removesuffix('.')}; {sent}." if said and sent else said


def _nothing(results: Results) -> tuple[str, str, str]:
    cells = count(sum(1 for _ in results.study.cells()), "cell")
    failed = f"{len(results.failures):,}" if results.failures else "none"
    return (
        "There is nothing to say yet: no cell has a result.",
        f"The study asks for {cells}, of which {failed} failed.",
        "Why they failed stands with the failures; cells that have not run can still be run.",
    )


def _at_the_end(results: Results, found: Sequence[Comparison]) -> str:
    """How accurate and how much of one mind the workers are in the end."""
    comparison = found[0]
    known = {name for row in comparison.rows for name in row.figures} - {comparison.measure.name}
    name = next((name for name in ("accuracy", "consensus_distance") if name in known), None)
    if not known and not comparison.ranked:
        return "There is no other figure to compare either."
    if name is None:
        return "No other figure tells more."
    ends = compare(results, at=comparison.at, measure=name)
    rows = ends.ranked
    shown = percent if name == "accuracy" else number
    where = f"With {place(comparison.at)}, final" if len(found) > 1 else "Final"
    what = f"{where} {'accuracies' if name == 'accuracy' else 'consensus distances'} lie between"
    low, high = sorted((rows[0], rows[-1]), key=lambda row: row.figures[name].mean)
    if len(rows) == 1:
        return f"{where} {MEASURES[name].words.removeprefix('final ')} is {_mean(low, name)}."
    noise = ""
    if any(row.is_behind for row in rows):
        noise = ", further apart than the noise"
    elif ends.noise_known:
        noise = ", noise not known" if ends.unknown else ", no further apart than the noise"
    return (
        f"{what} {shown(low.figures[name].mean)} ({named_row(ends, low)}) "
        f"and {shown(high.figures[name].mean)} ({named_row(ends, high)}){noise}."
    )


def _mean(row: Row, name: str) -> str:
    found = row.figures[name]
    shown = percent(found.mean) if name == "accuracy" else number(found.mean)
    return f"{shown} (mean of {count(found.n, 'seed')})" if found.n > 1 else shown
