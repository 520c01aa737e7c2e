"""A device that runs queued work when a test says so, so that every order can be tried."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor

from rumor.train.tensors.cuda import CudaQueue, Mark


class FakeMark:
    """A position in the queue of a `FakeQueue`."""

    def __init__(self, queue: "FakeQueue") -> None:
        self._queue = queue
        self.done = False
        self.mark = Mark(lambda: self.done, self._wait)

    def _wait(self) -> None:
        if not self.done:
            self._queue.waited.append(threading.get_ident())
        self._queue.run_to(self)
        self.done = True


class FakeQueue(CudaQueue):
    """Runs work of the training queue at once, and work of the other queue on the first wait.

    This is the worst case of a device: data that is overwritten before the other queue has read
    it arrives wrong.
    """

    def __init__(self) -> None:
        self.waited: list[int] = []
        """Threads of the host that had to wait."""
        self.followed: list[int] = []
        """Training threads, one for each step."""
        self._queue: list[tuple[FakeMark, Callable[[], object]]] = []
        self._marks: list[FakeMark] = []

    def note(self) -> Mark:
        return self._mark().mark

    def beside(self, work: Callable[[], object], reads: Tensor, *, waits: bool = False) -> Mark:
        mark = self._mark()
        self._queue.append((mark, work))
        return mark.mark

    def follow(self) -> None:
        self.followed.append(threading.get_ident())

    def training(self) -> AbstractContextManager[None]:
        return nullcontext()

    def run_to(self, mark: FakeMark) -> None:
        """Run queued work up to a mark, without notifying the host."""
        if any(queued is mark for queued, _ in self._queue):
            while True:
                queued, work = self._queue.pop(0)
                work()
                if queued is mark:
                    return

    def finish(self) -> None:
        """Run all queued work, and notify the host."""
        while self._queue:
            self._queue.pop(0)[1]()
        for mark in self._marks:
            mark.done = True

    def _mark(self) -> FakeMark:
        self._marks.append(FakeMark(self))
        return self._marks[-1]
