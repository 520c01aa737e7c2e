"""Errors as one or two lines on stderr and an exit status."""

import errno
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten
from typing import Final, NoReturn

import typer

from ..gossip.errors import ConfigError, RumorError

__all__ = [
    *("FAILED", "STOPPED", "WRONG_ARGUMENTS", "fail", "not_written", "printable"),
    *("reporting_errors", "sigterm_as_interrupt", "understanding", "with_advice"),
]

FAILED = 1
"""Exit status: it ran and failed."""

STOPPED = 130
"""Exit status: stopped from outside, as shells say it."""

WRONG_ARGUMENTS = 2
"""Exit status: the arguments are wrong; nothing was started or written."""

_MESSAGE_MAX: Final = 1600

_CONTROLS: Final = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


@contextmanager
def reporting_errors(*, debug: bool = False) -> Iterator[None]:
    """Report errors raised inside as a message on stderr and an exit status."""
    try:
        yield
    except Exception as error:
        status = _status_of(error)
        if debug or status is None:
            raise
        message = str(error) or type(error).__name__
        if isinstance(error, MemoryError):
            message = "not enough memory for this"
        fail(with_advice("; ".join([message, *getattr(error, "__notes__", ())])), status)


def _status_of(error: Exception) -> int | None:
    """Return the exit status of an error that a user may meet; None for a bug."""
    if isinstance(error, OSError | MemoryError):
        return FAILED
    if isinstance(error, ConfigError):
        return WRONG_ARGUMENTS
    return FAILED if isinstance(error, RumorError) else None


def with_advice(message: str) -> str:
    """Return a message with advice, where the system's own words have none."""
    if os.strerror(errno.EMFILE) in message:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return (
            f"{message}: a process may have {limit} open; raise the limit, as with `ulimit -n 4096`"
        )
    if os.strerror(errno.ENOSPC) in message:
        message += ": free some, or write to another disk"
    return message


@contextmanager
def understanding(folder: object) -> Iterator[None]:
    """Raise ConfigError if what is read inside was not written by rumor."""
    try:
        yield
    # Files may be damaged, edited or forged in more ways than every reader could check.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if _status_of(error) is not None:
            raise
        raise ConfigError(
            f"{folder} holds something that rumor cannot have written "
            f"({type(error).__name__}: {shorten(str(error), 160)}): is it damaged, or of another "
            "version of rumor?"
        ) from error


def printable(text: str) -> str:
    """Remove terminal control characters from text with foreign names."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM, as schedulers send it, end the block as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def not_written(path: object, error: OSError) -> str:
    """Say that a file or folder cannot be written, and why."""
    return f"{path} cannot be written: {error.strerror or error}"


def fail(message: str, status: int) -> NoReturn:
    """Print an error on stderr and exit."""
    if len(message) > _MESSAGE_MAX:
        # A foreign name may be of any length; what follows it matters.
        message = f"{message[: _MESSAGE_MAX // 2]} ... {message[-_MESSAGE_MAX // 2 :]}"
    print(f"error: {printable(message)}", file=sys.stderr)
    raise typer.Exit(status)
