"""The folder of a run: taken or free, written whole or not at all, read again."""

import json
import math
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ...gossip.errors import ConfigError
from ...train.storage.files import read_json

__all__ = [
    "FORMATS",
    "MODEL",
    "PICTURE",
    "QUANTILES",
    "SERIES",
    "SUMMARY",
    "WORKERS",
    "as_json",
    "check_folder",
    "check_format",
    "check_writable",
    "read_arrays",
    "read_model",
    "read_summary",
    "staged",
    "write_arrays",
    "write_summary",
]


QUANTILES = ("min", "quarter", "median", "three_quarters", "max")
"""The second axis of arrays of quantiles, as columns of a Parquet file are called."""

Arrays = Mapping[str, NDArray[Any]]


def check_format(format: str) -> None:
    """See whether files of this format can be written here.

    Raises:
        ConfigError: There is no such format, or a package for it is missing.
    """
    if format not in FORMATS:
        raise ConfigError(f"format is {format!r}: it must be {' or '.join(FORMATS)}")
    if format == "parquet" and find_spec("pyarrow") is None:
        raise ConfigError(
            "format parquet needs pyarrow, which is not installed: "
            "pip install 'rumor[parquet]', or take npz"
        )


def write_arrays(stem: Path, arrays: Arrays, format: str) -> None:
    """Write arrays to a new file.

    Args:
        stem: The file's path without its suffix, which is the format's name.
        arrays: With one axis or two, the first of which all have in common.
        format: One of `FORMATS`, for which `check_format` has passed.

    Raises:
        OSError: It cannot be written.
    """
    write, _ = FORMATS[format]
    write(stem.with_name(f"{stem.name}.{format}"), arrays)


def read_arrays(stem: Path) -> dict[str, NDArray[Any]]:
    """Read what `write_arrays` wrote, in whichever format it is there.

    Raises:
        ConfigError: It is not there, cannot be read, or a package for it is missing.
    """
    for format, (_, read) in FORMATS.items():
        path = stem.with_name(f"{stem.name}.{format}")
        if path.exists():
            check_format(format)
            return read(path)
    names = " or ".join(f"{stem.name}.{format}" for format in FORMATS)
    raise ConfigError(f"{stem.parent} is not a run of the simulator: it has no {names}")


def _write_npz(path: Path, arrays: Arrays) -> None:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        # As a file, or numpy would warn of one that it leaves open where the header is broken.
        with open(path, "rb") as file:
            arrays = np.load(file, allow_pickle=False)
            if not isinstance(arrays, NpzFile):
                raise ValueError("it is one array without a name")
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise _unreadable(path, error) from error


def _write_parquet(path: Path, arrays: Arrays) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {name: pa.array(column) for name, column in _columns(arrays).items()}
    # A dictionary would make all NaN the same one.
    parquet.write_table(pa.table(columns), path, use_dictionary=False)


def _read_parquet(path: Path) -> dict[str, NDArray[Any]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    groups: dict[str, list[NDArray[Any]]] = {}
    for column in table.column_names:
        groups.setdefault(column.partition(".")[0], []).append(table[column].to_numpy())
    return {
        name: np.stack(parts, axis=1)
        if f"{name}.{QUANTILES[0]}" in table.column_names
        else parts[0]
        for name, parts in groups.items()
    }


def _columns(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Arrays of quantiles taken apart: tables have columns and no axes."""
    columns: dict[str, NDArray[Any]] = {}
    for name, array in arrays.items():
        if array.ndim == 1:
            columns[name] = array
        else:
            parts = zip(QUANTILES, array.T, strict=True)
            columns |= {f"{name}.{part}": column.copy() for part, column in parts}
    return columns


def _unreadable(path: Path, error: Exception) -> ConfigError:
    # The first line: pyarrow adds a page of its own insides.
    why = str(error).partition("\n")[0] or type(error).__name__
    return ConfigError(f"{path} cannot be read as arrays of a run: {why}")


FORMATS: Mapping[
    str, tuple[Callable[[Path, Arrays], None], Callable[[Path], dict[str, NDArray[Any]]]]
] = {
    "npz": (_write_npz, _read_npz),
    "parquet": (_write_parquet, _read_parquet),
}
"""How arrays are written and read, by the name of the format."""


SUMMARY, MODEL, PICTURE = "summary.json", "model.safetensors", "training.png"

SERIES, WORKERS = "series", "workers"
"""Files of arrays, without the suffix that says in which format."""

# Any of them means that the folder is taken; the first two are those of real peers.
TRACES = (
    *("peers", "rendezvous", SUMMARY, MODEL, PICTURE),
    *(f"{stem}.{format}" for stem in (SERIES, WORKERS) for format in FORMATS),
)


def check_folder(
    folder: Path, traces: Sequence[str] = TRACES, what: str = "run", resume: str = ""
) -> None:
    """See whether a run can be written there, before anything long is computed.

    Args:
        folder: What need not exist yet; files of other names may lie there.
        traces: Files and folders any of which means that it is taken.
        what: What leaves these.
        resume: Option that resumes a run of peers in the folder; empty if there is none.

    Raises:
        ConfigError: It is a file, holds another run, or cannot be made or written to.
    """
    # Not Path.exists, which raises where a folder above may not be looked into.
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ConfigError(f"{folder} is a file: name a new folder")
    taken = [name for name in traces if os.path.exists(folder / name)]
    if taken:
        go_on = f"resume it with {resume}, " if resume and "peers" in taken else ""
        raise ConfigError(
            f"{folder} holds another {what} ({', '.join(taken)}): "
            f"{go_on}name a new folder, or remove that one"
        )
    check_writable(folder)


def check_writable(folder: Path) -> None:
    """See whether files can be made in a folder, which need not exist yet.

    Raises:
        ConfigError: It cannot be made or written to.
    """
    above = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise ConfigError(f"{folder} cannot be written: {above} takes no new files")


@contextmanager
def staged(folder: Path, last: str = SUMMARY) -> Iterator[Path]:
    """Give a folder to write to, whose files appear in *folder* together, or not at all.

    Args:
        folder: One that passes `check_folder`; it is made where it does not exist.
        last: The file that comes last: where it is, all are.

    Raises:
        OSError: It cannot be made or written to; nothing was left in it.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
    files: list[Path] = []
    try:
        yield draft
        files = sorted(draft.iterdir(), key=lambda path: path.name == last)
        for path in files:
            path.replace(folder / path.name)
    except BaseException:
        # Of those only that have moved: what stands in the way of another is not ours.
        for path in files:
            if not path.exists():
                (folder / path.name).unlink(missing_ok=True)
        shutil.rmtree(draft, ignore_errors=True)
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise
    draft.rmdir()


def as_json(value: Any) -> Any:
    """Turn a value into what JSON has.

    Args:
        value: Mappings, sequences, numbers of Python or numpy, strings, booleans, None.

    Returns:
        The same in Python's own types; numbers that are not finite are None.

    >>> as_json({"loss": float("nan"), "time_to": {0.9: (1, 2.5)}})
    {'loss': None, 'time_to': {'0.9': [1, 2.5]}}
    """
    if isinstance(value, Mapping):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return as_json(value.tolist())
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Write ``summary.json``: JSON values only, as `as_json` makes them.

    Raises:
        OSError: It cannot be written.
    """
    text = json.dumps(summary, indent=2, allow_nan=False)
    (folder / SUMMARY).write_text(text + "\n", encoding="utf-8")


def read_summary(folder: Path) -> dict[str, Any]:
    """Read ``summary.json``.

    Raises:
        ConfigError: There is none, or it is no JSON object.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ConfigError(f"{folder} {what}: give the folder of a run")
    try:
        summary = read_json(folder / SUMMARY)
    except FileNotFoundError:
        raise ConfigError(f"{folder} is not a run of the simulator: it has no {SUMMARY}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder / SUMMARY} cannot be read: {error}") from error
    if not isinstance(summary, dict):
        raise ConfigError(f"{folder / SUMMARY} is no summary of a run: it is no JSON object")
    return summary


def read_model(folder: Path) -> dict[str, Tensor] | None:
    """Read the merged model; None where a run has none.

    Raises:
        ConfigError: It is no safetensors file.
    """
    path = folder / MODEL
    if not path.exists():
        return None
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path} cannot be read as a model: {error}") from error
