"""Atomic writes that survive a power failure, and bounded reads of untrusted files.

Such files may be devices or pipes, larger than memory, or made to harm their reader.
"""

import errno
import json
import logging
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final
from weakref import WeakSet

from ...gossip.errors import ConfigError, TrainingError

__all__ = [
    "DRAFT",
    "RUN_FILES",
    "DiskFullPolicy",
    "WriterThread",
    "check_folder",
    "check_writable",
    "drafted",
    "fatal",
    "forget_in_children",
    "json_of",
    "publish",
    "read_bytes",
    "read_json",
    "read_user_json",
    "remove_drafts",
    "write_json",
]


DRAFT = ".draft"
"""Suffix of files that are not complete yet."""

RUN_FILES: Final = (
    *("peers", "rendezvous", "summary.json", "model.safetensors", "training.png", "series.npz"),
    "workers.npz",
)
"""Files and folders that a run leaves in its folder, the first two by live peers."""


def publish(draft: Path, path: Path) -> None:
    """Sync a finished draft to disk and rename it to *path*."""
    with open(draft, "rb+") as file:
        os.fsync(file.fileno())
    draft.replace(path)
    # The rename is on disk only after the folder is synced as well.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Yield an empty draft to write to, which is synced and replaces *path* after the block.

    After any exception, *path* is unchanged and the draft is removed.
    """
    draft = path.with_name(path.name + DRAFT)
    try:
        # A draft left by a killed process may have other permissions.
        draft.unlink(missing_ok=True)
        # Opening the file applies the umask, which a process cannot read without changing it.
        with open(draft, "wb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        yield draft
        # Safetensors renames a file onto the draft that only its owner can read.
        if stat.S_IMODE(draft.stat().st_mode) != mode:
            draft.chmod(mode)
        publish(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Replace a file by a JSON value; see `drafted`."""
    with drafted(path) as draft:
        draft.write_text(json.dumps(value, indent=1) + "\n")


def remove_drafts(folder: Path) -> None:
    """Remove the drafts that a killed process left in a folder."""
    for draft in folder.glob(f"*{DRAFT}"):
        draft.unlink(missing_ok=True)


_own: "WeakSet[IO[bytes]]" = WeakSet()


def forget_in_children(file: IO[bytes]) -> None:
    """Detach a file in forked children."""
    # They would keep its lock after this process has ended, and write its buffer a second time.
    _own.add(file)


def _forget() -> None:
    for file in tuple(_own):
        if not file.closed:
            # Closing it would write its buffer to the parent's file.
            nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nowhere, file.fileno(), inheritable=False)
            os.close(nowhere)


os.register_at_fork(after_in_child=_forget)


# Largest text file that is read whole; a day of metrics takes a tenth of it.
FILE_BYTES_MAX: Final = 1 << 28

_INTEGER_MAX: Final = 1 << 1023


def read_bytes(path: Path) -> bytes:
    """Read a whole untrusted file.

    Raises:
        OSError: It cannot be read, is a pipe or a device, or is larger than `FILE_BYTES_MAX`.
    """
    # Opening a pipe in blocking mode would wait for its writer.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"it is longer than {FILE_BYTES_MAX >> 20} MiB", str(path))
    return content


def read_json(path: Path) -> Any:
    """Read an untrusted JSON file in UTF-8; raise as `read_bytes` and `json_of` do."""
    return json_of(read_bytes(path))


def read_user_json(source: Path | str) -> Any:
    """Read JSON that a user wrote, a file or the text itself, or raise ConfigError."""
    what = "it" if isinstance(source, str) else source
    try:
        return json_of(source) if isinstance(source, str) else read_json(source)
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{what} is not JSON: {error}") from error


def json_of(text: str | bytes) -> Any:
    """Parse untrusted JSON, which may neither repeat a key nor have a number beyond a float64.

    Raises:
        ValueError: The text is anything else; the message briefly says what.
    """
    try:
        # Some editors begin a file with a byte order mark, which `utf-8-sig` skips.
        return _DECODER.decode(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _integer(text: str) -> int:
    # The length comes first, because `int` takes quadratic time.
    if len(text) > 310 or abs(number := int(text)) > _INTEGER_MAX:
        raise ValueError(f"{text[:20]}..., a number of {len(text)} digits, is too large")
    return number


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)} is given twice")
    return found


_DECODER: Final = json.JSONDecoder(
    parse_int=_integer, parse_float=_float, parse_constant=_float, object_pairs_hook=_distinct
)

_log = logging.getLogger("rumor")


class DiskFullPolicy:
    """Warns once if something cannot be written, and once when it can be again."""

    def __init__(self) -> None:
        # A disk stays full for hours, and a warning at each step would fill the rest of it.
        self._failing: set[str] = set()

    def failed(self, what: str, error: OSError) -> None:
        """Record that *what*, on which nothing depends, could not be written."""
        if what not in self._failing:
            self._failing.add(what)
            _log.warning("%s could not be written, training goes on: %s", what, error)

    def worked(self, what: str) -> None:
        """Record that *what* was written."""
        if what in self._failing:
            self._failing.discard(what)
            _log.warning("%s can be written again", what)


def fatal(path: Path, error: OSError) -> TrainingError:
    """Return the error for *path*, which must be on disk before anything is sent."""
    return TrainingError(
        f"{path} cannot be written ({error.strerror or error}): training ends here, and the weight "
        "this peer held is lost, as in a crash; make room, and resume it"
    )


_CLOSE_S: Final = 60.0


class WriterThread:
    """Runs each writing job on a thread; a failing disk costs only a warning."""

    def __init__(self) -> None:
        self._threads: dict[str, threading.Thread] = {}
        self._policy = DiskFullPolicy()

    def is_busy(self, name: str) -> bool:
        """True if a job of this name is running."""
        return name in self._threads and self._threads[name].is_alive()

    def add(self, name: str, job: Callable[[], object]) -> None:
        """Start a job, after an earlier one of the same name, which warnings mention."""
        if name in self._threads:
            self._threads[name].join()
        run = threading.Thread(target=self._run, args=(name, job), name="rumor-writer", daemon=True)
        self._threads[name] = run
        run.start()

    def wait(self) -> bool:
        """Wait for all jobs, for a minute at most; return True if they are done."""
        give_up_s = time.monotonic() + _CLOSE_S
        for thread in self._threads.values():
            # An interpreter that exits while a thread runs torch code aborts the process.
            thread.join(max(0.0, give_up_s - time.monotonic()))
        return not any(map(self.is_busy, self._threads))

    def close(self) -> None:
        """Wait for all jobs, and warn if the disk hangs."""
        if not self.wait():
            _log.warning("the disk hangs: not everything was written")

    def _run(self, name: str, job: Callable[[], object]) -> None:
        try:
            job()
            self._policy.worked(name)
        except OSError as error:
            self._policy.failed(name, error)
        except Exception:
            # A caller may be waiting, and the next job may succeed.
            _log.exception("%s could not be written, training goes on", name)


def check_folder(folder: Path, traces: Sequence[str] = RUN_FILES, resume: str = "") -> None:
    """Raise ConfigError unless a run can be written to a folder, which need not exist yet.

    Args:
        traces: Names of which any means that the folder is taken, and the first that a run can be
            resumed.
        resume: Option that does so; empty without one.
    """
    # Path.exists would raise if a folder above cannot be searched.
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ConfigError(f"{folder} is a file: name a new folder")
    taken = [name for name in traces if os.path.exists(folder / name)]
    if taken:
        go_on = f"resume it with {resume}, " if resume and traces[0] in taken else ""
        raise ConfigError(
            f"{folder} holds another run ({', '.join(taken)}): "
            f"{go_on}name a new folder, or remove that one"
        )
    check_writable(folder)


def check_writable(folder: Path) -> None:
    """Raise ConfigError unless files can be made in a folder, which need not exist yet."""
    above = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise ConfigError(f"{folder} cannot be written: {above} takes no new files")
