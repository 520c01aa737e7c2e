"""Files that are there whole or not at all, also after the power failed."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["DRAFT", "drafted", "publish", "remove_drafts", "write_json"]

DRAFT = ".draft"
"""What the name of a file ends with that is not whole yet."""


def publish(draft: Path, path: Path) -> None:
    """Put a finished draft in the place of *path*, which until then stays what it was.

    Returns when the disk has it, the new name included.

    Raises:
        OSError: The disk is full, or the like; *path* is as it was.
    """
    with open(draft, "rb+") as file:
        os.fsync(file.fileno())
    draft.replace(path)
    # The name is the folder's to remember.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Give a draft to write to, which takes the place of *path* when it is done.

    Raises:
        OSError: As `publish` does. Whatever is raised, no draft is left behind.
    """
    draft = path.with_name(path.name + DRAFT)
    try:
        yield draft
        publish(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Replace a file by a value that JSON has.

    Raises:
        OSError: As `publish` does; no draft is left behind.
    """
    with drafted(path) as draft:
        draft.write_text(json.dumps(value, indent=1) + "\n")


def remove_drafts(folder: Path) -> None:
    """Remove what a killed process left unfinished in a folder."""
    for draft in folder.glob(f"*{DRAFT}"):
        draft.unlink(missing_ok=True)
