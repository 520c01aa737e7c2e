"""Where errors become one or two lines and an exit status."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from ..gossip.errors import ConfigError, RumorError
from ..topology import TopologyError

__all__ = ["FAILED", "STOPPED", "WRONG_ARGUMENTS", "edge", "fail"]

FAILED = 1
"""Exit status: it ran and failed."""

STOPPED = 130
"""Exit status: stopped from outside, as shells say it."""

WRONG_ARGUMENTS = 2
"""Exit status: the arguments are wrong; nothing was started or written."""


@contextmanager
def edge(*, debug: bool = False) -> Iterator[None]:
    """Turn what goes wrong inside into a message on stderr and an exit status.

    Args:
        debug: Show the traceback instead.

    Raises:
        typer.Exit: With status 2 for settings that are not valid, 1 for other failures.
    """
    try:
        yield
    except (ConfigError, TopologyError, RumorError, OSError) as error:
        if debug:
            raise
        is_wrong = isinstance(error, ConfigError | TopologyError)
        fail(str(error) or type(error).__name__, WRONG_ARGUMENTS if is_wrong else FAILED)
    except MemoryError:
        if debug:
            raise
        fail("not enough memory for this", FAILED)


def fail(message: str, status: int) -> NoReturn:
    """Say what is wrong on stderr and exit.

    Raises:
        typer.Exit: Always.
    """
    print(f"error: {message}", file=sys.stderr)
    raise typer.Exit(status)
