"""How the steps of a level are taken: the interface of all engines."""

from typing import NamedTuple, Protocol

import torch

from ....gossip.effects.effects import X
from ...kernel.program import Keep, Level, Start
from ..shares import Parts, PerWorker, Rows

__all__ = ["Failure", "Memory", "Stepper", "WorkerCheckpoints"]


class Failure(Exception):
    """Values of a worker stopped being finite.

    Args:
        step: Number of its last step; None if they did not fit into the wire's format later on.
    """

    def __init__(self, worker: int, step: int | None) -> None:
        super().__init__(f"worker {worker} has no finite values after step {step}")
        self.worker = worker
        self.step = step


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

    def take(self, level: Level) -> list[int]:
        """Take all steps of a level; return workers whose loss or values are not finite then."""

    def check(self) -> None:
        """Raise if a step has changed what workers share; called at the end of a window."""


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
