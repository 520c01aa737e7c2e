"""Processor cores: how many there are to use, and who uses them."""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch.random import fork_rng

__all__ = ["alone", "one_thread_each", "usable_cores"]

_ALONE = threading.RLock()


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def alone() -> Iterator[None]:
    """Let one thread at a time in, and leave all random numbers of the caller as they were.

    Torch's, numpy's and Python's generators, and torch's number of threads, belong to the process.
    """
    with _ALONE, fork_rng(devices=[]):
        kept = random.getstate(), np.random.get_state()
        try:
            with one_thread_each():
                yield
        finally:
            random.setstate(kept[0])
            np.random.set_state(kept[1])


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
