"""One peer's figures over time, as a file of JSON rows that survives a kill."""

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from ...gossip.errors import TrainingError
from .files import DiskFullPolicy, json_of, read_bytes

__all__ = ["JsonlLog", "MetricsLog", "Tail", "read_metrics"]


class MetricsLog:
    """A file to which rows are appended; each is with the system when `write` returns.

    What a killed process left of its last row is cut off when the file is opened again, and what a
    full disk took of one at once.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # A buffer would keep what the disk refused, and give it out again at any later time.
        self._file = open(path, "ab", buffering=0)
        try:
            self._whole_bytes = Path(path).read_bytes().rfind(b"\n") + 1
            self._file.truncate(self._whole_bytes)
        except BaseException:
            self._file.close()
            raise
        self._is_torn = False

    def write(self, row: Mapping[str, object]) -> None:
        """Append one row of values that JSON has; floats that are not finite become null.

        Raises:
            TypeError: A value is of no type that JSON has; nothing was written.
            OSError: The disk is full, or the like; nothing of the row is in the file.
        """
        line = json.dumps(_finite(row), allow_nan=False, separators=(",", ":")).encode() + b"\n"
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

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()

    def _append(self, line: bytes) -> None:
        # A disk that is nearly full takes a part first, and says why at the second try.
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._file.fileno(), rest) :]

    def _mend(self) -> None:
        """Cut off what there is of a row that could not be written."""
        self._file.truncate(self._whole_bytes)
        self._is_torn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the rows of a file, also while its peer is writing or after it was killed.

    Returns:
        The rows in order, without a last one that was cut short; none where there is no file
        yet.

    Raises:
        TrainingError: A line before the last is no JSON row.
    """
    try:
        return _rows_of(read_bytes(Path(path)), path)
    except FileNotFoundError:
        return []


def _rows_of(text: bytes, path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    rows = []
    # What follows the last line break is empty, or a row cut short.
    for number, line in enumerate(text.split(b"\n")[:-1], start=1):
        try:
            row = json_of(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            where = f"{os.fspath(path)}:{number}"
            raise TrainingError(f"{where} is no row of metrics: is it another file?")
        rows.append(row)
    return rows


class Tail:
    """Rows of a file as they come, each once and only when it is whole; the file need not be there
    yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def rows(self) -> list[dict[str, Any]]:
        """The rows that were completed since the last call."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return _rows_of(whole, self.path)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


class JsonlLog:
    """Appends rows as `MetricsLog` does; a disk that takes none costs them, and a warning.

    Args:
        path: Where the rows go; None for nowhere.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: MetricsLog | None = None
        self._policy = DiskFullPolicy()
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
            self._policy.failed(str(path), error)
        else:
            self._policy.worked(str(path))
