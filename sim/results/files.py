"""The folder of a run: taken or free, written whole or not at all, read again."""

import json
import math
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
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
from ...train.storage.files import RUN_FILES, read_json

__all__ = [
    "MODEL",
    "PICTURE",
    "SERIES",
    "SUMMARY",
    "WORKERS",
    "as_json",
    "read_arrays",
    "read_model",
    "read_summary",
    "staged",
    "write_arrays",
    "write_summary",
]


Arrays = Mapping[str, NDArray[Any]]


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write arrays to a new file, ``.npz``.

    Raises:
        OSError: It cannot be written.
    """
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read what `write_arrays` wrote.

    Raises:
        ConfigError: It is not there, or cannot be read.
    """
    if not path.exists():
        raise ConfigError(f"{path.parent} is not a run of the simulator: it has no {path.name}")
    try:
        # As a file, or numpy would warn of one that it leaves open where the header is broken.
        with open(path, "rb") as file:
            arrays = np.load(file, allow_pickle=False)
            if not isinstance(arrays, NpzFile):
                raise ValueError("it is one array without a name")
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        why = str(error) or type(error).__name__
        raise ConfigError(f"{path} cannot be read as arrays of a run: {why}") from error


SUMMARY, MODEL, PICTURE, SERIES, WORKERS = RUN_FILES[2:]


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
