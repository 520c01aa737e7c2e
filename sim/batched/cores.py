"""Threads that share work, and the cores that they may use."""

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Final, TypeVar

import torch

__all__ = ["ONE_CORE", "Threads", "usable_cores"]

_Part = TypeVar("_Part")


class Threads:
    """Threads that share the work of the calling thread.

    Args:
        n: Number of threads, the calling one included.
        is_taken: Returns True while another thread needs one of the *n* cores.
    """

    def __init__(self, n: int = 1, is_taken: Callable[[], bool] = lambda: False) -> None:
        self.n = n
        self._is_taken = is_taken
        self._pool: ThreadPoolExecutor | None = None
        if n > 1:
            # The BLAS library has a thread count of its own in each thread.
            begin = partial(torch.set_num_threads, 1)
            self._pool = ThreadPoolExecutor(n - 1, initializer=begin)

    @property
    def free(self) -> int:
        """Number of threads that would work now."""
        # Two on one core would keep all others waiting.
        return 1 if self._pool is None else max(1, self.n - self._is_taken())

    def share(self, work: Callable[[_Part], None], parts: Sequence[_Part]) -> None:
        """Run all parts, each on the thread that is free first."""
        left = iter(parts)
        others: list[Future[None]] = []

        def do(part: _Part) -> None:
            try:
                work(part)
            except BaseException:
                # No thread is to begin another part.
                deque(left, 0)
                raise

        def take_turns() -> None:
            for part in left:
                do(part)

        try:
            for part in left:
                # A core may have become free since.
                while self._pool and len(others) < min(self.free, len(parts)) - 1:
                    others.append(self._pool.submit(take_turns))
                do(part)
        finally:
            wait(others)
        for other in others:
            other.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


ONE_CORE: Final = Threads()
"""The calling thread alone."""


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
