"""Processor cores: how many there are to use, and who uses them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["one_thread_each", "usable_cores"]


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Let torch compute every operation on the thread that asks for it, inside.

    A sum that is shared among threads is rounded otherwise, and each worker's arithmetic is too
    small to be worth sharing.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
