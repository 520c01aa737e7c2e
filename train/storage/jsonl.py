"""One peer's metrics over time, as a file of JSON rows that survives a kill."""

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from ...gossip.errors import TrainingError
from .files import DiskFullPolicy, json_of, read_bytes

__all__ = ["JsonlLog", "MetricsLog", "Tail", "finite", "read_metrics"]


class MetricsLog:
    """A file to which rows are appended; the system has each one when `write` returns."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # A buffer would keep a rejected row, and write it at any later time.
        self._file = open(path, "ab", buffering=0)
        try:
            # A killed process may have left a part of a row.
            self._whole_bytes = Path(path).read_bytes().rfind(b"\n") + 1
            self._file.truncate(self._whole_bytes)
        except BaseException:
            self._file.close()
            raise
        self._is_torn = False
        self.close = self._file.close
        """Closes the file; closing twice is harmless."""

    def write(self, row: Mapping[str, object]) -> None:
        """Append one row of JSON values; floats that are not finite become null.

        Raises:
            TypeError: A value has no JSON type; nothing was written.
            OSError: The disk is full, or the like; no part of the row is in the file.
        """
        line = json.dumps(finite(row), allow_nan=False, separators=(",", ":")).encode() + b"\n"
        if self._is_torn:
            self._mend()
        try:
            self._append(line)
        except OSError:
            self._is_torn = True
            with suppress(OSError):
                self._mend()
            raise
        self._whole_bytes += len(line)

    def _append(self, line: bytes) -> None:
        # A disk that is nearly full accepts a part first, and fails at the second write.
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._file.fileno(), rest) :]

    def _mend(self) -> None:
        """Remove the part of a row that could not be written whole."""
        self._file.truncate(self._whole_bytes)
        self._is_torn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the complete rows of a file, none if it does not exist yet.

    Raises:
        TrainingError: A line before the last is not a JSON row.
    """
    try:
        return _rows_of(read_bytes(Path(path)), path)
    except FileNotFoundError:
        return []


def _rows_of(text: bytes, path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    rows = []
    # After the last line break, there is nothing or a partial row.
    for number, line in enumerate(text.split(b"\n")[:-1], start=1):
        try:
            row = json_of(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            where = f"{os.fspath(path)}:{number}"
            raise TrainingError(f"{where} is not a row of metrics: is it another file?")
        rows.append(row)
    return rows


class Tail:
    """Follows a file, which need not exist yet, and returns each complete row once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that were completed since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return _rows_of(whole, self.path)


def finite(value: Any) -> Any:
    """Replace floats that are not finite by None, also in lists and dictionaries."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


class JsonlLog:
    """Appends rows like `MetricsLog`; if the disk fails, rows are lost with a warning.

    Args:
        path: The file; None to drop all rows.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: MetricsLog | None = None
        self._policy = DiskFullPolicy()
        if path is not None:
            # Open it now to remove a partial row even if no other follows.
            self._try(path, None)

    def write(self, row: Mapping[str, object]) -> None:
        """Append one row, if the disk accepts it; do nothing after `close`."""
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
            self._policy.failed(str(path), error)
        else:
            self._policy.worked(str(path))
