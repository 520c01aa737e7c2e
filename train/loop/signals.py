"""Signals that ask a process to end, for example because its machine is needed elsewhere."""

import logging
import os
import signal
import threading
import time
from typing import Any, Final, NoReturn

__all__ = ["SIGNALS", "SignalHandling"]

_log = logging.getLogger("rumor")

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""SIGTERM: Kubernetes, Slurm at preemption and at the time limit; SIGINT: Ctrl-C; SIGUSR1: by
convention Slurm's early warning (``--signal=USR1@120``)."""

# Launchers may forward a signal that the system has already sent to the whole group: that is not a
# second request.
_SAME_S: Final = 1.0

_installed: "list[SignalHandling]" = []


class SignalHandling:
    """Records the first of `SIGNALS` and sets *stop*, instead of ending the process, and passes it
    on afterwards.

    A repeated signal, a second later or more, ends the process at once. Ignored signals stay
    ignored. A forked child gets the previous handlers.
    """

    def __init__(self, stop: threading.Event) -> None:
        self.caught: int | None = None
        """The signal that was received."""
        self._stop = stop
        self._before: dict[int, Any] = {}
        self._caught_s = 0.0
        self._passed_on = False

    def install(self) -> None:
        """Install the handlers; off the main thread, log that signals are not handled."""
        if threading.current_thread() is not threading.main_thread():
            _log.warning(
                "signals are not handled: Python gives them to the main thread alone, and this "
                "peer was started on another one"
            )
            return
        for number in SIGNALS:
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, self._handle)
        _installed.append(self)

    def remove(self) -> None:
        """Restore the previous handlers."""
        if threading.current_thread() is not threading.main_thread():
            return
        if self not in _installed:
            return
        _installed.remove(self)
        for number, before in self._before.items():
            # A handler installed later must not restore this one.
            for later in _installed:
                if later._before.get(number) == self._handle:
                    later._before[number] = before
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL if before is None else before)

    def pass_on(self) -> None:
        """Call the previous handler once; without one, exit."""
        self.remove()
        if self.caught is None or self._passed_on:
            return
        self._passed_on = True
        before = self._before[self.caught]
        if not callable(before):
            self.exit()
        before(self.caught, None)

    def exit(self) -> NoReturn:
        """Exit with the status of a process that the signal ended, as in shells."""
        raise SystemExit(128 + (self.caught or 0))

    def note(self, number: int) -> None:
        """Record a signal that another process of this peer has received, as if it came here."""
        if self.caught is None and number in self._before:
            self.caught, self._caught_s = number, time.monotonic()
            # A handler runs between any two instructions of this thread, which may already hold the
            # locks of the event and the log.
            threading.Thread(target=self._tell, daemon=True).start()

    def _handle(self, number: int, frame: object) -> None:
        now = time.monotonic()
        if self.caught is None:
            self.note(number)
        elif number == self.caught and now - self._caught_s >= _SAME_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _tell(self) -> None:
        self._stop.set()
        name = signal.Signals(self.caught or 0).name
        _log.warning("%s: this peer ends its step and leaves; once more ends it at once", name)


# A signal that arrives between the fork and the end of Python's own setup in the child would be
# lost, although the default handler would have ended it: block signals until then.
_held = threading.local()


def _hold_back() -> None:
    _held.before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def _let_through() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.before)


def _begin_child() -> None:
    for each in reversed(tuple(_installed)):
        each.remove()
    _let_through()


# Pools, data loaders and other parents end their forked children with SIGTERM, and wait for them.
os.register_at_fork(before=_hold_back, after_in_parent=_let_through, after_in_child=_begin_child)
