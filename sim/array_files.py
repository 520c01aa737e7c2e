"""Arrays by name in one file, as numpy's own ``.npz`` or as Parquet; bit for bit either way."""

import zlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from ..gossip.errors import ConfigError

__all__ = ["FORMATS", "QUANTILES", "check_format", "read_arrays", "write_arrays"]

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
