"""The folder of a run: written completely or not at all, and read again."""

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
from ...train.storage.files import RUN_FILES, read_user_json

__all__ = [
    "MODEL",
    "PICTURE",
    "SERIES",
    "SUMMARY",
    "WORKERS",
    "as_json",
    "read_arrays",
    "read_model",
    "read_object",
    "staged",
]

SUMMARY, MODEL, PICTURE, SERIES, WORKERS = RUN_FILES[2:]


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Yield a draft folder, whose files appear in *folder* together, the summary last, or not at
    all.

    Raises:
        OSError: It cannot be made or written to; nothing was left in it.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
    files: list[Path] = []
    try:
        yield draft
        files = sorted(draft.iterdir(), key=lambda path: path.name == SUMMARY)
        for path in files:
            path.replace(folder / path.name)
    except BaseException:
        # Only the files that have moved: a file in the way of another is not ours.
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
    """Convert a value to JSON types; numbers that are not finite become None.

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


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object, or raise a ConfigError."""
    found = read_user_json(path)
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not a JSON object")
    return found


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an ``.npz`` file, or raise a ConfigError."""
    try:
        # As an open file: with a path, numpy leaves it open on a broken header, and warns of that.
        with open(path, "rb") as file:
            arrays = np.load(file, allow_pickle=False)
            if not isinstance(arrays, NpzFile):
                raise ValueError("it is one array without a name")
            return {name: arrays[name] for name in arrays.files}
    except FileNotFoundError:
        raise ConfigError(
            f"{path.parent} is not a run of the simulator: it has no {path.name}"
        ) from None
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        why = str(error) or type(error).__name__
        raise ConfigError(f"{path} cannot be read as arrays of a run: {why}") from error


def read_model(path: Path) -> dict[str, Tensor] | None:
    """Read a merged model, or raise a ConfigError; None if a run has none."""
    try:
        return load_file(path) if path.exists() else None
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path} cannot be read as a model: {error}") from error
