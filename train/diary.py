"""Rows for whoever reads them later; training does not depend on them."""

from collections.abc import Mapping
from pathlib import Path

from .metrics import MetricsLog
from .trouble import Trouble

__all__ = ["Diary"]


class Diary:
    """Appends rows as `MetricsLog` does; a disk that takes none costs them, and a warning.

    Args:
        path: Where the rows go; None for nowhere.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: MetricsLog | None = None
        self._trouble = Trouble()
        if path is not None:
            # At once, so that a row that a kill cut short is gone also where none follows.
            self._try(path, None)

    def write(self, row: Mapping[str, object]) -> None:
        """Append one row, if the disk takes it; after `close`, nothing.

        Raises:
            TypeError: A value is of no type that JSON has.
        """
        if self._path is not None:
            self._try(self._path, row)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._path = None
        if self._rows is not None:
            self._rows.close()

    def _try(self, path: Path, row: Mapping[str, object] | None) -> None:
        try:
            if self._rows is None:
                self._rows = MetricsLog(path)
            if row is not None:
                self._rows.write(row)
        except OSError as error:
            self._trouble.failed(str(path), error)
        else:
            self._trouble.worked(str(path))
