"""Files that are there whole or not at all, also after the power failed; and files from elsewhere,
read with limits: they may be no files, larger than memory, or made to harm their reader."""

import errno
import json
import logging
import math
import os
import stat
import threading
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
    "remove_drafts",
    "with_distinct_keys",
    "write_json",
]


DRAFT = ".draft"
"""What the name of a file ends with that is not whole yet."""

RUN_FILES: Final = (
    *("peers", "rendezvous", "summary.json", "model.safetensors", "training.png", "series.npz"),
    "workers.npz",
)
"""What a run leaves in its folder; the first two are those of live peers. Any of them means that
the folder is taken."""


def publish(draft: Path, path: Path) -> None:
    """Bring a finished draft to the disk and put it in the place of *path*."""
    with open(draft, "rb+") as file:
        os.fsync(file.fileno())
    draft.replace(path)
    # The name is the folder's to remember.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Give a draft to write to, which takes the place of *path* when it is done: then the disk has
    it, the new name included.

    The draft is there, and empty. It has the permissions of any new file in that folder, also where
    a library writes another file in the draft's place.

    Raises:
        OSError: The disk is full, or the like; *path* is as it was. Whatever is raised, no draft is
            left behind.
    """
    draft = path.with_name(path.name + DRAFT)
    try:
        # A draft that a killed process left may have other permissions.
        draft.unlink(missing_ok=True)
        # The system applies the umask, which belongs to the process: to ask for it is to change it.
        with open(draft, "wb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        yield draft
        # Safetensors makes a file for its owner alone, and renames it.
        if stat.S_IMODE(draft.stat().st_mode) != mode:
            draft.chmod(mode)
        publish(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Replace a file by a value that JSON has.

    Raises:
        OSError: As `drafted` does.
    """
    with drafted(path) as draft:
        draft.write_text(json.dumps(value, indent=1) + "\n")


def remove_drafts(folder: Path) -> None:
    """Remove what a killed process left unfinished in a folder."""
    for draft in folder.glob(f"*{DRAFT}"):
        draft.unlink(missing_ok=True)


_own: "WeakSet[IO[bytes]]" = WeakSet()


def forget_in_children(file: IO[bytes]) -> None:
    """Let forked children have nothing of a file: neither its lock, which would outlive this
    process with them, nor what is in its buffer, which they would write once more at their end."""
    _own.add(file)


def _forget() -> None:
    for file in tuple(_own):
        if not file.closed:
            nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nowhere, file.fileno(), inheritable=False)
            os.close(nowhere)


os.register_at_fork(after_in_child=_forget)


FILE_BYTES_MAX: Final = 1 << 28
"""Longest file of text that is read whole; a day of metrics takes a tenth of it."""

_INTEGER_MAX: Final = 1 << 1023


def read_bytes(path: Path) -> bytes:
    """Read a whole file that may come from elsewhere.

    Raises:
        OSError: It cannot be read, is none (but a device, say, to which a link leads), or longer
            than `FILE_BYTES_MAX`.
    """
    # Opening a pipe would wait for its writer.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"it is longer than {FILE_BYTES_MAX >> 20} MiB", str(path))
    return content


def read_json(path: Path) -> Any:
    """Read a file of JSON in UTF-8 that may come from elsewhere.

    Raises:
        OSError: See `read_bytes`.
        ValueError: See `json_of`.
    """
    return json_of(read_bytes(path))


def json_of(text: str | bytes) -> Any:
    """Read JSON that may come from elsewhere: no number in it overflows what it is computed with.

    Raises:
        ValueError: It is not JSON, is nested too deeply, or has a number that is not finite, or
            that a float64 cannot hold; the message says so in a few words.
    """
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _integer(text: str) -> int:
    if len(text) > 310 or abs(number := int(text)) > _INTEGER_MAX:
        raise ValueError(f"{text[:20]}..., a number of {len(text)} digits, is too large")
    return number


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_float)

_log = logging.getLogger("rumor")


class DiskFullPolicy:
    """Warns once that something cannot be written, and once that it can again.

    A disk that is full stays so for hours, and a warning each step would fill what is left of it.
    """

    def __init__(self) -> None:
        self._failing: set[str] = set()

    def failed(self, what: str, error: OSError) -> None:
        """Note that *what* could not be written, and that nothing depends on it."""
        if what not in self._failing:
            self._failing.add(what)
            _log.warning("%s could not be written, training goes on: %s", what, error)

    def worked(self, what: str) -> None:
        """Note that *what* was written."""
        if what in self._failing:
            self._failing.discard(what)
            _log.warning("%s can be written again", what)


def fatal(path: Path, error: OSError) -> TrainingError:
    """What to raise where *path*, which must be on disk before anything leaves, cannot be
    written."""
    return TrainingError(
        f"{path} cannot be written ({error.strerror or error}): training ends here, and the weight "
        "this peer held is lost, as in a crash; make room, and resume it"
    )


_CLOSE_S: Final = 60.0

Job = Callable[[], object]


class WriterThread:
    """Does writing jobs one after another; a disk that fails costs a warning, and nothing else.

    Of jobs of one name, only the last one waits.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: dict[str, Job] = {}
        self._doing = ""
        self._closed = False
        self._thread: threading.Thread | None = None
        self._policy = DiskFullPolicy()

    def is_busy(self, name: str) -> bool:
        """Whether a job of this name waits, or is being done."""
        with self._changed:
            return name in self._jobs or self._doing == name

    def add(self, name: str, job: Job) -> None:
        """Have a job done soon, in place of one of its name that was not begun. Its name is that of
        what it writes, for a warning."""
        with self._changed:
            self._jobs[name] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rumor-writer", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, timeout_s: float = _CLOSE_S) -> bool:
        """Return when all jobs are done, or after so many seconds; whether they are done."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._jobs or self._doing), timeout_s)

    def close(self) -> None:
        """Do what is left, then stop. A disk that hangs is not waited for longer than a minute."""
        is_done = self.wait()
        if not is_done:
            _log.warning("the disk hangs: not everything was written")
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if is_done and self._thread is not None:
            # The interpreter must not end beside a thread that still runs code of torch's: it would
            # abort the process.
            self._thread.join()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
                self._policy.worked(self._doing)
            except OSError as error:
                self._policy.failed(self._doing, error)
            except Exception:
                # The next job may succeed, and a caller may be waiting for it.
                _log.exception("%s could not be written, training goes on", self._doing)
            finally:
                # What it was to write may be as large as the model; the next job may be hours away.
                del job
                with self._changed:
                    self._doing = ""
                    self._changed.notify_all()

    def _next(self) -> Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            if not self._jobs:
                return None
            self._doing = next(iter(self._jobs))
            return self._jobs.pop(self._doing)


def with_distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What `json.loads` makes of an object; refused where a key is given twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ConfigError(f"{next(key for key in keys if keys.count(key) > 1)} is given twice")
    return found


def check_folder(
    folder: Path, traces: Sequence[str] = RUN_FILES, what: str = "run", resume: str = ""
) -> None:
    """See whether a run can be written to a folder, which need not exist yet.

    Args:
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
