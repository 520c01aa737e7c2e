"""Python's garbage collector, kept from walking over a fleet again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["paused", "settled"]


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


@contextmanager
def settled() -> Iterator[None]:
    """Exclude everything that exists by now from garbage collection, inside.

    Objects that were frozen before stay so.
    """
    mine = gc.get_freeze_count() == 0
    if mine:
        gc.freeze()
    try:
        yield
    finally:
        if mine:
            gc.unfreeze()
