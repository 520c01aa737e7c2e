"""The folder of a study: free or taken, and one process at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...gossip.errors import ConfigError
from ..run_files import check_writable
from .study_json import holds_study

__all__ = ["check_folder", "locked"]

_LOCK: Final = ".lock"


def check_folder(folder: Path, *, resume: bool) -> None:
    """See whether a study can be written there, before anything is computed.

    Args:
        folder: What need not exist yet; files of other names may lie there.
        resume: Whether it may hold a study.

    Raises:
        ConfigError: It is a file, holds a study that is not to be gone on with, or cannot be
            written to.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: name a new folder by --out")
    if holds_study(folder) and not resume:
        raise ConfigError(
            f"{folder} holds a study: go on with it by --resume, which computes only what is new, "
            "or name a new folder by --out"
        )
    check_writable(folder)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder, and keep other processes from computing into it.

    Raises:
        ConfigError: One does.
        OSError: It cannot be made.
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
