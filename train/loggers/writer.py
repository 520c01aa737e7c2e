"""Hands rows to loggers on threads of their own: a logger that is slow or fails stops nobody."""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .logger import LoggedRun, Logger

__all__ = ["LogWriter"]

_log = logging.getLogger("rumor")

# Some megabytes: minutes of a tool whose server does not answer.
_ROWS_MAX: Final = 10_000

_CLOSE_S: Final = 60.0


class LogWriter:
    """Loggers that get the same rows, each on a thread of its own.

    Failures cost one warning for each logger.

    Args:
        loggers: Each with what to call it.
        rows_max: How many rows may wait for a logger; those beyond are dropped, and counted in
            one warning at the end.
    """

    def __init__(
        self, loggers: Iterable[tuple[str, Logger]] = (), *, rows_max: int = _ROWS_MAX
    ) -> None:
        self._feeds = [_Feed(name, logger, rows_max) for name, logger in loggers]

    def __bool__(self) -> bool:
        return bool(self._feeds)

    def open(self, run: LoggedRun) -> None:
        """Begin a run; loggers hear of it with the first row, or at the end."""
        for feed in self._feeds:
            feed.run = run

    def log(self, peer: str, row: Mapping[str, Any]) -> None:
        """Hand a row to all loggers; returns at once. Before `open` and after `close`, nothing.

        Args:
            peer: Whose it is.
            row: With ``swarm_steps``, the x axis.
        """
        for feed in self._feeds:
            feed.add(peer, row)

    def close(self, summary: Mapping[str, Any], timeout_s: float = _CLOSE_S) -> None:
        """End the run, and wait until loggers have all rows; closing twice is harmless.

        Args:
            summary: What the run came to.
            timeout_s: How long to wait for all of them together, seconds; what is left then is
                lost, and a warning says so.
        """
        until_s = time.monotonic() + timeout_s
        for feed in self._feeds:
            feed.end(summary)
        for feed in self._feeds:
            feed.join(max(0.0, until_s - time.monotonic()), timeout_s)


class _Feed:
    """One logger, what waits for it, and the thread on which it is called."""

    def __init__(self, name: str, logger: Logger, rows_max: int) -> None:
        self.run: LoggedRun | None = None
        self._name = name
        self._logger = logger
        self._rows_max = rows_max
        self._changed = threading.Condition()
        self._rows: deque[tuple[str, Mapping[str, Any]]] = deque()
        self._dropped = 0
        self._summary: Mapping[str, Any] | None = None
        self._has_warned = self._is_broken = False
        self._thread: threading.Thread | None = None

    def add(self, peer: str, row: Mapping[str, Any]) -> None:
        with self._changed:
            if self.run is None or self._summary is not None or self._is_broken:
                return
            if len(self._rows) >= self._rows_max:
                self._dropped += 1
                return
            self._rows.append((peer, row))
            self._begin(self.run)
            self._changed.notify_all()

    def end(self, summary: Mapping[str, Any]) -> None:
        with self._changed:
            if self.run is None or self._summary is not None:
                return
            self._summary = summary
            self._begin(self.run)
            self._changed.notify_all()

    def join(self, rest_s: float, timeout_s: float) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(rest_s)
        if thread.is_alive():
            _log.warning(
                "logger %s was not done after %g s: what it has not taken may be lost",
                *(self._name, timeout_s),
            )
        if self._dropped:
            _log.warning("logger %s was too slow: it missed %d rows", self._name, self._dropped)

    def _begin(self, run: LoggedRun) -> None:
        # With the first row, not before: a simulation starts a process by forking first.
        if self._thread is None:
            name = f"rumor-logger-{self._name}"
            self._thread = threading.Thread(target=self._feed, args=(run,), name=name, daemon=True)
            self._thread.start()

    def _feed(self, run: LoggedRun) -> None:
        try:
            self._logger.open(run)
        except Exception as error:
            self._warn(error, "gets no rows")
            with self._changed:
                self._is_broken = True
                self._rows.clear()
            return
        while (next_row := self._next()) is not None:
            peer, row = next_row
            try:
                self._logger.log(peer, int(row.get("swarm_steps", row.get("step", 0))), row)
            except Exception as error:
                self._warn(error, "may miss rows")
        try:
            self._logger.close(self._summary or {})
        except Exception as error:
            self._warn(error, "may miss rows")

    def _next(self) -> tuple[str, Mapping[str, Any]] | None:
        """The next row; None when all have been taken and no more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._rows or self._summary is not None)
            return self._rows.popleft() if self._rows else None

    def _warn(self, error: Exception, result: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            _log.warning("logger %s failed and %s; all else goes on: %s", self._name, result, why)
