"""Python's garbage collector, kept from walking over a fleet again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["paused"]


@contextmanager
def paused() -> Iterator[None]:
    """Collect no cycles inside.

    A fleet makes none, and keeps some hundred objects for each worker: walking over all of them
    again and again would take most of the time at 10,000 workers.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
