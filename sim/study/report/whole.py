"""Files of a report that are there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["whole"]


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a file to write to, which takes the place of *path* when all is written.

    A page that is cut off opens, and misleads. Where writing fails, nothing is left behind.
    """
    draft = path.with_name(f".{path.name}.new")
    try:
        yield draft
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
