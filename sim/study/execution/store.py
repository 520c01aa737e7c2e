"""The folder of a study: its grid, its finished trials, and a lock for one process at a time."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ....gossip.errors import ConfigError
from ....train.storage.files import check_folder as check_place
from ....train.storage.files import drafted, read_json
from ...results.files import read_object
from ..study import Axis, Point, Study, with_tuples

__all__ = ["Store", "check_folder", "locked", "read_folder", "write_folder"]

_TRIALS: Final = "trials"
_STUDY: Final = "study.json"

_FORMAT: Final = 1
_LOCK: Final = ".lock"


class Store:
    """The finished trials in the *folder* of a study."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / _TRIALS

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the record of a trial; None if missing or incomplete."""
        try:
            content = read_json(self.folder / f"{key}.json")
            record: dict[str, Any] = content["record"]
            return record if (content["format"], content["key"]) == (_FORMAT, key) else None
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def put(self, key: str, record: Mapping[str, Any]) -> None:
        """Write the record of a trial, what `compute` returns, to the disk.

        Raises:
            OSError: Writing failed, for instance on a full disk; nothing is left behind.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {"format": _FORMAT, "key": key, "record": record}
        with drafted(self.folder / f"{key}.json") as draft:
            # Numbers are written so that they are read back to the bit.
            draft.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")


def check_folder(folder: Path, *, resume: bool) -> None:
    """Check that a study can be written there, before anything is computed.

    Raises:
        ConfigError: The path is a file, holds a study and *resume* is false, or is not writable.
    """
    check_place(folder, () if resume else (_STUDY,), "--resume")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder, and keep other processes from computing into it.

    Raises:
        ConfigError: Another process uses it.
        OSError: The folder cannot be made.
    """
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / _LOCK, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{folder} is in use: another process computes this study") from None
        except OSError:
            pass  # a file system that has no locks
        yield


def write_folder(folder: Path, study: Study, keys: Sequence[str], failures: Any = None) -> None:
    """Write a study into a folder, with the keys of its trials in order, and the reasons of failed
    ones by key.

    Raises:
        OSError: Writing failed; the earlier content is kept.
    """
    told = {"format": _FORMAT, "study": asdict(study), "trials": list(keys)}
    told["failures"] = dict(failures or {})
    # Paths, and faults as objects, which only programs can pass.
    text = json.dumps(told, indent=1, default=str)
    with drafted(folder / _STUDY) as draft:
        draft.write_text(text + "\n")


def read_folder(folder: Path) -> tuple[Study, tuple[str, ...], dict[str, str]]:
    """Read what `write_folder` wrote.

    Raises:
        ConfigError: The folder is not one of a study, or its description cannot be read.
    """
    path = folder / _STUDY
    if not path.exists():
        raise ConfigError(f"{folder} is not the folder of a study: it has no {_STUDY}")
    told = read_object(path)
    try:
        if told["format"] != _FORMAT:
            raise ConfigError(f"{path} was written by another version of this project")
        study = _study(told["study"])
        return study, tuple(told["trials"]), dict(told["failures"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not what a study writes: {error!r}") from error


def _study(told: Mapping[str, Any]) -> Study:
    axes = {
        axis["name"]: tuple(Point(p["label"], with_tuples(p["settings"])) for p in axis["points"])
        for axis in told["axes"]
    }
    changed = {
        "settings": with_tuples(told["settings"]),
        "axes": tuple(Axis(name, points) for name, points in axes.items()),
        "seeds": tuple(told["seeds"]),
        "metrics": tuple(told["metrics"]),
        "skip": tuple(told["skip"]),
    }
    return Study(**{**told, **changed})
