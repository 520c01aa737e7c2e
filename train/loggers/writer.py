"""Pass rows to loggers, each on its own thread, so that a slow or failing logger stops nothing."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from .logger import LoggedRun, Logger

__all__ = ["LogWriter"]

_log = logging.getLogger("rumor")

# A few megabytes, enough for minutes in which a tool's server does not answer.
_ROWS_MAX: Final = 10_000

_CLOSE_S: Final = 60.0


class LogWriter:
    """Passes the same rows to several loggers. A failing logger costs one warning.

    Args:
        loggers: Each with its name for warnings.
        rows_max: Most rows in a logger's queue; further ones are dropped.
    """

    def __init__(
        self, loggers: Iterable[tuple[str, Logger]] = (), *, rows_max: int = _ROWS_MAX
    ) -> None:
        self._loggers, self._rows_max = tuple(loggers), rows_max
        self._feeds: list[_Feed] = []

    def open(self, run: LoggedRun) -> None:
        """Begin a run."""
        self._feeds = [_Feed(name, each, run, self._rows_max) for name, each in self._loggers]

    def log(self, peer: str, row: Mapping[str, Any]) -> None:
        """Queue a row about a peer for all loggers; do nothing before `open` and after `close`."""
        for feed in self._feeds:
            feed.add(peer, row)

    def close(self, summary: Mapping[str, Any], timeout_s: float = _CLOSE_S) -> None:
        """End the run, and wait until loggers have all rows; a second call does nothing.

        Rows that are left after *timeout_s* are lost, with a warning.
        """
        feeds, self._feeds = self._feeds, []
        until_s = time.monotonic() + timeout_s
        for feed in feeds:
            feed.end(summary)
        for feed in feeds:
            feed.join(max(0.0, until_s - time.monotonic()), timeout_s)


class _Feed:
    """One logger, its queue of calls, and the thread that makes them."""

    def __init__(self, name: str, logger: Logger, run: LoggedRun, rows_max: int) -> None:
        self._name, self._logger, self._rows_max = name, logger, rows_max
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._dropped = 0
        self._has_warned = self._is_broken = False
        self._thread = threading.Thread(
            target=self._feed, args=(run,), name=f"rumor-logger-{name}", daemon=True
        )
        self._thread.start()

    def add(self, peer: str, row: Mapping[str, Any]) -> None:
        if self._is_broken:
            return  # it has had its warning
        if self._calls.qsize() >= self._rows_max:
            self._dropped += 1
            return
        x = int(row.get("swarm_steps", row.get("step", 0)))
        self._calls.put(partial(self._logger.log, peer, x, row))

    def end(self, summary: Mapping[str, Any]) -> None:
        self._calls.put(partial(self._logger.close, summary))
        self._calls.put(None)

    def join(self, rest_s: float, timeout_s: float) -> None:
        self._thread.join(rest_s)
        if self._thread.is_alive():
            _log.warning(
                "logger %s was not done after %g s: what it has not taken may be lost",
                *(self._name, timeout_s),
            )
        if self._dropped:
            _log.warning("logger %s was too slow: it missed %d rows", self._name, self._dropped)

    def _feed(self, run: LoggedRun) -> None:
        self._is_broken = not self._try(partial(self._logger.open, run), "gets no rows")
        while (call := self._calls.get()) is not None:
            if not self._is_broken:
                self._try(call, "may miss rows")

    def _try(self, call: Callable[[], object], result: str) -> bool:
        try:
            call()
            return True
        except Exception as error:
            if not self._has_warned:
                self._has_warned = True
                why = (str(error).strip() or type(error).__name__).splitlines()[0]
                _log.warning(
                    "logger %s failed and %s; all else goes on: %s", self._name, result, why
                )
            return False
