"""What comes first: the question, three findings, and what was run."""

from collections.abc import Iterator

from .. import words
from ..findings import findings
from ..result import Results
from .html import Html, join, tag

__all__ = ["head", "size_of"]


def head(results: Results) -> Html:
    """The top of the page."""
    study = results.study
    return tag(
        "header",
        tag("h1", study.title),
        tag("p", study.question, class_="question") if study.question else None,
        _warning(results),
        _findings(results),
        tag("dl", *_facts(results), class_="run"),
        class_="head",
    )


def size_of(results: Results) -> str:
    """How large the grid is: its axes, and the seeds."""
    study = results.study
    parts = [f"{axis.name} ({len(axis.points)})" for axis in study.axes]
    return " × ".join([*parts, words.count(len(study.seeds), "seed")])


def _findings(results: Results) -> Html | None:
    if not results.results:
        return None
    items = (tag("li", tag("span", sentence)) for sentence in findings(results))
    return tag("ol", *items, class_="findings", aria_label="What came out")


def _facts(results: Results) -> Iterator[Html]:
    cells = sum(1 for _ in results.study.cells())
    known = {
        "Cells": f"{len(results.results):,} of {cells:,}",
        "Grid": size_of(results),
        "Failed": str(len(results.failures)) if results.failures else "none",
    }
    if _has_accuracy(results):
        known["Target accuracy"] = words.percent(results.study.target)
    for name, value in known.items():
        yield tag("div", tag("dt", name), tag("dd", value))


def _has_accuracy(results: Results) -> bool:
    return any("accuracy" in result.series for result in results.results)


def _warning(results: Results) -> Html | None:
    """Cells that are missing, said so that nobody overlooks it."""
    failed = len(results.failures)
    unrun = sum(1 for _ in results.study.cells()) - len(results.results) - failed
    parts = []
    if failed:
        parts.append(f"{words.count(failed, 'cell')} failed")
    if unrun > 0:
        parts.append(f"{words.count(unrun, 'cell')} {'has' if unrun == 1 else 'have'} not run")
    if not parts:
        return None
    listed = (tag("li", tag("strong", cell), ": ", why) for cell, why in results.failures.items())
    reasons = tag("details", tag("summary", "Which, and why"), tag("ul", join(listed)))
    return tag(
        "div",
        tag("strong", f"{' and '.join(parts)}."),
        " All that follows is about the others alone.",
        reasons if failed else None,
        class_="warning",
        role="note",
    )
