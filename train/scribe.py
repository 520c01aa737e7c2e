"""A thread that writes files, so that nobody waits for a disk."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from .trouble import Trouble

__all__ = ["Scribe"]

_log = logging.getLogger("rumor")

_CLOSE_S: Final = 60.0

Job = Callable[[], object]


class Scribe:
    """Does writing jobs one after another; a disk that fails costs a warning, and nothing else.

    Of jobs of one name, only the last one waits.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: dict[str, Job] = {}
        self._doing = ""
        self._closed = False
        self._thread: threading.Thread | None = None
        self._trouble = Trouble()

    def is_busy(self, name: str) -> bool:
        """Whether a job of this name waits, or is being done."""
        with self._changed:
            return name in self._jobs or self._doing == name

    def add(self, name: str, job: Job) -> None:
        """Have a job done soon, in place of one of its name that was not begun.

        Args:
            name: What it writes, for a warning.
            job: Raises OSError where that fails.
        """
        with self._changed:
            self._jobs[name] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rumor-scribe", daemon=True)
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
                self._trouble.worked(self._doing)
            except OSError as error:
                self._trouble.failed(self._doing, error)
            except Exception:
                # Whatever it is, the next one may be written, and somebody may be waiting for it.
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
