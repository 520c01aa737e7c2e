"""Schedules windows ahead of their execution, in another process or thread."""

import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

from ...gossip import TrainingError
from .schedule import Window

__all__ = ["Prefetcher", "can_prefetch"]


NextWindow = Callable[[], Window | None]
"""Schedules the next window; returns None after the last."""


def can_prefetch() -> bool:
    """Return True if this platform can start a process that shares what was prepared."""
    # A worker of a multiprocessing.Pool may have no children.
    is_daemon = multiprocessing.current_process().daemon
    return "fork" in multiprocessing.get_all_start_methods() and not is_daemon


class Prefetcher:
    """Schedules windows while earlier ones are computed, and knows when it is busy."""

    def __init__(self) -> None:
        self._is_idle: Callable[[], bool] = lambda: True

    def is_deciding(self) -> bool:
        """Return True while it needs a core."""
        return not self._is_idle()

    def in_thread(self, next_window: NextWindow) -> Iterator[Window]:
        """Schedule windows in a thread, each while the one before it is computed."""
        # This pays if machine code decides, which does not hold the GIL.
        with ThreadPoolExecutor(1, "rumor-deciding") as thread:
            coming = thread.submit(next_window)
            self._is_idle = lambda: coming.done()
            while (window := coming.result()) is not None:
                coming = thread.submit(next_window)
                yield window

    def in_process(self, next_window: NextWindow) -> Iterator[Window]:
        """Schedule windows in another process, some way ahead of their execution."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_schedule, args=(next_window, theirs, ours), daemon=True)
        with warnings.catch_warnings():
            # Threads of torch are asleep when this is called, and the child never uses it.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        # Once a window fills the pipe, the child waits.
        self._is_idle = ours.poll
        try:
            while (window := ours.recv()) is not None:
                if isinstance(window, BaseException):
                    raise window
                yield window
        except EOFError:
            process.join()
            raise TrainingError(
                f"the process that decides ahead has ended with status {process.exitcode}: out of "
                "memory, perhaps; threads=1 does without it"
            ) from None
        finally:
            self._is_idle = lambda: True
            ours.close()
            process.join()


def _schedule(next_window: NextWindow, pipe: Connection, other: Connection) -> None:
    # Ctrl-C is for the computing process; this end notices the closed pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    other.close()
    try:
        for window in iter(next_window, None):
            pipe.send(window)
        pipe.send(None)
    except BrokenPipeError:
        pass
    except Exception as error:  # any error is raised in the process that asked for the run
        pipe.send(error)
