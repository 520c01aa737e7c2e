"""The report of a study: its page, and its pictures."""

import os
from pathlib import Path

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
    _write(path, page(results))
    return path


def _write(path: Path, text: str) -> None:
    """All or nothing: a page that is cut off opens, and misleads."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
