"""The folder of a run: how it is named, taken so that no other run takes it, and checked."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from ..gossip.errors import ConfigError

__all__ = ["check_free", "new_folders", "taken_folder"]


def check_free(folder: Path, traces: Sequence[str], what: str = "run") -> None:
    """See that a folder holds no other run; other files may lie there.

    Args:
        folder: It need not exist.
        traces: Files and folders that a run leaves; any of them there means that it is taken.
        what: What is kept there.

    Raises:
        ConfigError: It is a file, or is taken.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder} is a file: name a new folder")
    if taken := [name for name in traces if (folder / name).exists()]:
        raise ConfigError(
            f"--out {folder} holds another {what} ({', '.join(taken)}): "
            "name a new folder, or remove that one"
        )


def new_folders(task: str, kind: str = "") -> Iterator[Path]:
    """Names for the folder of a run that was given none, the best one first.

    Args:
        task: What is trained.
        kind: In front of it, where runs are of several kinds.
    """
    name = re.sub(r"[^\w.-]+", "-", task)
    stem = Path("runs") / f"{kind}{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in count(1):
        yield stem if number == 1 else stem.with_name(f"{stem.name}-{number}")


@contextmanager
def taken_folder(folders: Iterator[Path]) -> Iterator[Path]:
    """Make the first of some folders that was not there: runs of the same second get one each.

    It is removed again where nothing was kept in it.

    Raises:
        OSError: It cannot be made.
    """
    for folder in folders:
        above_is_new = not folder.parent.exists()
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    try:
        yield folder
    finally:
        # Only empty ones can be removed.
        with suppress(OSError):
            folder.rmdir()
            if above_is_new:
                folder.parent.rmdir()
