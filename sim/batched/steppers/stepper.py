"""How the steps of a level are taken: the interface of all engines."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from ....gossip.effects.effects import X
from ...kernel.plan import Stop
from ...kernel.program import Keep, Level, Start
from ..shares import Parts, PerWorker, Rows

__all__ = ["Failure", "Failures", "Memory", "Stepper", "WorkerCheckpoints"]


class Failure(Exception):
    """Values stopped being finite; the run has to restart and stop that worker there."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(f"worker {stop.worker} has no finite values after step {stop.step}")
        self.stop = stop


class Failures:
    """Steps that did not end in finite values; the earliest in the schedule caused the others."""

    def __init__(self) -> None:
        self._first: Stop | None = None
        self.checks: list[Callable[[], None]] = []

    def note(self, order: int, worker: int, step: int) -> None:
        found = Stop(order, worker, step)
        self._first = found if self._first is None else min(self._first, found)

    def check(self) -> None:
        """Raise for the earliest failure, if any, or by a check; called at the end of a window."""
        first, self._first = self._first, None
        if first is not None:
            raise Failure(first)
        for check in self.checks:
            check()


class Memory(Protocol):
    """State of each worker's optimizer."""

    def keep(self, worker: int) -> object:
        """Return a copy of a worker's state."""

    def restore(self, worker: int, kept: object | None) -> None:
        """Restore a worker's state; clear it if *kept* is None."""


class Stepper(Protocol):
    """Takes optimizer steps."""

    @property
    def memory(self) -> Memory:
        """State of its optimizers."""

    def take(self, level: Level) -> None:
        """Take all steps of a level; those that fail are recorded in its `Failures`."""


class _Kept(NamedTuple):
    """One worker's values at one moment."""

    registers: dict[str, Parts]
    locals: Parts
    optimizer: object | None = None


class WorkerCheckpoints:
    """Keeps workers' values and restores them; made before any training."""

    def __init__(
        self,
        registers: Rows,
        locals: Parts = (),
        memory: Memory | None = None,
        *,
        alike: bool = True,
    ) -> None:
        self._registers = registers
        self._locals = locals
        self._memory = memory
        self._kept: dict[int, _Kept] = {}
        n = len(registers[X])
        starts = [self._copy(worker) for worker in range(1 if alike else n)]
        self._starts = starts * n if alike else starts

    def carry_out(self, operation: Keep | Start) -> None:
        worker = operation.worker
        if isinstance(operation, Keep):
            optimizer = None if self._memory is None else self._memory.keep(worker)
            self._kept[worker] = self._copy(worker, optimizer)
        else:
            self._put_back(worker, (self._kept if operation.kept else self._starts)[worker])

    def _copy(self, worker: int, optimizer: object | None = None) -> _Kept:
        registers = {
            name: tuple(part.clone() for part in rows[worker])
            for name, rows in self._registers.items()
            if not isinstance(rows, PerWorker) or worker in rows
        }
        return _Kept(registers, tuple(part[worker].clone() for part in self._locals), optimizer)

    def _put_back(self, worker: int, kept: _Kept) -> None:
        with torch.no_grad():
            for name, rows in self._registers.items():
                if isinstance(rows, PerWorker) and name not in kept.registers:
                    rows.pop(worker, None)
                    continue
                for row, part in zip(rows[worker], kept.registers[name], strict=True):
                    row.copy_(part)
            for row, part in zip(self._locals, kept.locals, strict=True):
                row[worker].copy_(part)
        if self._memory is not None:
            self._memory.restore(worker, kept.optimizer)
