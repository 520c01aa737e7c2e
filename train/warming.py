"""Memory for snapshots, made before the first push needs it.

The system maps and clears each page of fresh memory at its first touch: for a model of 256 MB, most
of a second, in the middle of a step. Once a neighbor is met, a thread of its own does it instead.
"""

import threading

from ..gossip.wire import Form
from .workbench import Workbench

__all__ = ["Warming"]


class Warming:
    """Warms a workbench up, once for each of its two kinds of memory.

    Args:
        bench: Where snapshots are put.
        form: What pushes will consist of.
        count: How many pushes may be under way at once.
    """

    def __init__(self, bench: Workbench, form: Form, count: int) -> None:
        self._bench = bench
        self._form = form
        self._count = count
        self._threads: dict[bool, threading.Thread] = {}

    def met(self, *, shares_memory: bool) -> None:
        """Make what pushes to such a neighbor need, unless that was begun before.

        Args:
            shares_memory: Whether it may read this peer's memory.
        """
        if shares_memory not in self._threads:
            thread = threading.Thread(
                target=self._bench.warm,
                args=(self._form, self._count),
                kwargs={"shown": shares_memory},
                name="rumor-warming",
                daemon=True,
            )
            self._threads[shares_memory] = thread
            thread.start()

    def close(self) -> None:
        """Wait until nothing is touched any more."""
        for thread in self._threads.values():
            thread.join()
