"""Values that outlive a crash: what every worker had at the start, and what checkpoints keep."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .program import Keeping, Starting
from .stepper import Stepper

__all__ = ["Keepsakes"]

Parts = tuple[Tensor, ...]


class _Kept(NamedTuple):
    """One worker at one moment."""

    registers: dict[str, Parts]
    locals: Parts
    optimizer: object | None = None


class Keepsakes:
    """Keeps workers' values and gives them back; made before anything is trained.

    Args:
        registers: Each worker's vectors by name, as views.
        locals: What is not shared, axes ``(worker, *shape)``.
        stepper: Has the optimizers; None where nothing is trained.
        alike: Whether all workers start from the same values.
    """

    def __init__(
        self,
        registers: Mapping[str, Sequence[Parts]],
        locals: Parts = (),
        stepper: Stepper | None = None,
        *,
        alike: bool = True,
    ) -> None:
        self._registers = registers
        self._locals = locals
        self._stepper = stepper
        self._kept: dict[int, _Kept] = {}
        n = len(next(iter(registers.values())))
        starts = [self._copy(worker) for worker in range(1 if alike else n)]
        self._starts = starts * n if alike else starts

    def carry_out(self, operation: Keeping | Starting) -> None:
        """Do what was scheduled."""
        worker = operation.worker
        if isinstance(operation, Keeping):
            optimizer = None if self._stepper is None else self._stepper.keep(worker)
            self._kept[worker] = self._copy(worker, optimizer)
        else:
            self._put_back(worker, (self._kept if operation.kept else self._starts)[worker])

    def _copy(self, worker: int, optimizer: object | None = None) -> _Kept:
        registers = {
            name: tuple(part.clone() for part in rows[worker])
            for name, rows in self._registers.items()
        }
        return _Kept(registers, tuple(part[worker].clone() for part in self._locals), optimizer)

    def _put_back(self, worker: int, kept: _Kept) -> None:
        with torch.no_grad():
            for name, rows in self._registers.items():
                for row, part in zip(rows[worker], kept.registers[name], strict=True):
                    row.copy_(part)
            for row, part in zip(self._locals, kept.locals, strict=True):
                row[worker].copy_(part)
        if self._stepper is not None:
            self._stepper.restore(worker, kept.optimizer)
