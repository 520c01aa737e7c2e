"""How live tests wait: for a condition, under one limit for all of them.

A machine may be ten times slower than the one on which a test was written, and run six other
programs. So a test asserts what holds at any pace, and waits for the rest.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["LIMIT_S", "turning", "until"]

LIMIT_S: Final = 600.0
"""Longest wait for anything in a test, seconds; only what hangs takes that long."""


def until(
    condition: Callable[[], object], what: str | Callable[[], object] = "it", poll_s: float = 0.01
) -> float:
    """Wait until a condition holds.

    Args:
        condition: Called repeatedly; it may have side effects, such as a step of a peer.
        what: The awaited condition, or a function that describes the final state, for the failure.
        poll_s: Pause between two calls, seconds; 0 where the condition itself waits.

    Returns:
        How long it took, seconds.
    """
    start_s = time.monotonic()
    while not condition():
        if time.monotonic() - start_s > LIMIT_S:
            description = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {LIMIT_S:g} s: {description}")
        time.sleep(poll_s)
    return time.monotonic() - start_s


@contextmanager
def turning(turn: Callable[[], object]) -> Iterator[None]:
    """Let a peer take turns on another thread for the duration of the block."""
    over = threading.Event()

    def take_turns() -> None:
        while not over.wait(0.002):
            turn()

    thread = threading.Thread(target=take_turns)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
