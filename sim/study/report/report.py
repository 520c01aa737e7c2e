"""The report of a study: its page, and its pictures."""

from pathlib import Path

from ....train.durable import drafted
from ..result import Results
from .facets import facets_of
from .page import page
from .pictures import draw_pictures

__all__ = ["write_report"]


def write_report(results: Results, folder: Path) -> Path:
    """Write a report that opens without a network, and its pictures as PNG.

    Nothing in it depends on the machine or the time that it is written on.

    Args:
        results: Of a study; some or all cells may be missing.
        folder: The study's; ``report.html`` and ``pictures`` in it are replaced.

    Returns:
        Where the page is.

    Raises:
        OSError: It cannot be written; an older page is kept.
    """
    facets = facets_of(results)
    if facets:
        draw_pictures(results, facets, folder / "pictures")
    path = folder / "report.html"
    with drafted(path) as draft:
        draft.write_text(page(results), encoding="utf-8")
    return path
