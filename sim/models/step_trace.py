"""Recorded step times: how long each step of each worker took, read from a file."""

import csv
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...gossip.errors import ConfigError

__all__ = ["read_durations"]

_COLUMNS = "worker, step or start_s, and seconds"

Row = Mapping[str, object]


def read_durations(path: str | Path, ids: Sequence[str]) -> list[Sequence[float]]:
    """Read how long each worker's steps took.

    A row has ``worker``, an id or an index from 0; ``seconds``; and ``step``, which counts up by
    one from wherever a worker's first row begins, or ``start_s``, when the step began on any clock
    (or both). Rows of one worker are in order, those of several mixed as they like. A file of CSV
    begins with the names of its columns; one of JSON lines has an object on each. Further
    columns are passed over.

    By start times, a step is missing where a worker paused for longer than half of the shorter
    step beside the pause. Shorter pauses are not counted to any step.

    Args:
        path: The file, in UTF-8.

    Returns:
        For each worker the durations of its steps, in seconds, above 0; at least one.

    Raises:
        ConfigError: The file cannot be read, a row is not as above, a step is missing, or a worker
            has no rows; the message names file and line.
    """
    places = {str(index): index for index in range(len(ids))}
    places |= {id: index for index, id in enumerate(ids)}
    tracks = [_Track() for _ in ids]
    for line, row in _rows(Path(path)):
        try:
            tracks[_place(row, places, ids)].add(row)
        except ValueError as error:
            raise ConfigError(f"trace {path}, line {line}: {error}") from None
    for id, track in zip(ids, tracks, strict=True):
        if not track.durations:
            raise ConfigError(
                f"trace {path} has no row for worker {id}: each of the {len(ids)} workers needs one"
            )
    return [track.durations for track in tracks]


@dataclass(slots=True)
class _Track:
    """One worker's rows so far."""

    durations: "array[float]" = field(default_factory=lambda: array("d"))
    step: int | None = None
    start_s: float | None = None

    def add(self, row: Row) -> None:
        """Take the next row.

        Raises:
            ValueError: It is not the one that has to follow.
        """
        worker, seconds = row["worker"], _number(row, "seconds")
        if seconds <= 0:
            raise ValueError(f"seconds is {seconds:g}: it must be a finite number above 0")
        if "step" not in row and "start_s" not in row:
            raise ValueError(f"there is neither step nor start_s: it must have {_COLUMNS}")
        if "step" in row:
            step = _number(row, "step")
            if self.step is not None and step != self.step + 1:
                raise ValueError(
                    f"worker {worker} is at step {step:.15g} after step {self.step}: "
                    f"it must be {self.step + 1}, for steps of a worker follow one another"
                )
            if step < 0 or step != int(step):
                raise ValueError(f"step is {step:g}: it must be a whole number of 0 or more")
            self.step = int(step)
        if "start_s" in row:
            self._begin(worker, _number(row, "start_s"), seconds)
        self.durations.append(seconds)

    def _begin(self, worker: object, start_s: float, seconds: float) -> None:
        if self.start_s is not None:
            before_s = self.durations[-1]
            end_s = self.start_s + before_s
            pause_s = start_s - end_s
            # Times in a file are rounded.
            if pause_s < -0.01 * before_s:
                raise ValueError(
                    f"worker {worker} starts a step at {start_s:.12g} s, before its last one ends "
                    f"at {end_s:.12g} s"
                )
            if pause_s > 0.5 * min(before_s, seconds):
                raise ValueError(
                    f"of worker {worker} nothing is known from {end_s:.12g} s to {start_s:.12g} s: "
                    "a step is missing"
                )
        self.start_s = start_s


def _rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Number of each line, and what stands there."""
    try:
        # newline="" keeps line breaks inside a quoted field for csv to see.
        with path.open(encoding="utf-8-sig", newline="") as file:
            start = file.read(1024).lstrip()
            file.seek(0)
            yield from _json_rows(path, file) if start[:1] == "{" else _csv_rows(path, file)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"trace {path} cannot be read: {reason}") from error


def _json_rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, Row]]:
    from ...train.storage.files import json_of  # with PyTorch, which the fuzz does without

    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json_of(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ConfigError(f"trace {path}, line {number} is not a JSON object")
        yield number, row


def _csv_rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, Row]]:
    reader = csv.reader(lines, skipinitialspace=True, strict=True)
    columns: list[str] = []
    try:
        for cells in reader:
            words = [cell.strip() for cell in cells]
            if not any(words):
                continue
            if not columns:
                columns = _header(path, reader.line_num, words)
            elif len(words) != len(columns):
                raise ConfigError(
                    f"trace {path}, line {reader.line_num} has {len(words)} fields: "
                    f"it must have {len(columns)}, {', '.join(columns)}"
                )
            else:
                yield reader.line_num, dict(zip(columns, words, strict=True))
    except csv.Error as error:
        raise ConfigError(f"trace {path}, line {reader.line_num} is not CSV: {error}") from None
    if not columns:
        raise ConfigError(f"trace {path} is empty: its first line must name {_COLUMNS}")


def _header(path: Path, line: int, words: list[str]) -> list[str]:
    named = set(words)
    if not ({"worker", "seconds"} <= named and named & {"step", "start_s"}):
        raise ConfigError(
            f"trace {path}, line {line} has the columns {', '.join(words)}: "
            f"the first line must name {_COLUMNS}"
        )
    return words


def _place(row: Row, places: Mapping[str, int], ids: Sequence[str]) -> int:
    name = row.get("worker")
    if isinstance(name, str | int) and str(name) in places:
        return places[str(name)]
    raise ValueError(
        f"worker is {name}: it must be an index, 0 to {len(ids) - 1}, "
        f"or an id, {ids[0]} to {ids[-1]}"
    )


def _number(row: Row, key: str) -> float:
    value = row.get(key)
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{key} is {value}: it must be a finite number")
    return number
