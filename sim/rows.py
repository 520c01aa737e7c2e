"""The values of all workers: one row each of one tensor, and slots for the shares under way."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..gossip.effects import X
from ..gossip.schema import Schema
from ..train.layout import Layout, Placed
from ..train.vector import Vector
from .program import Combining, Freeing, Mixing, Operation, Snapping

__all__ = ["Rows", "tensors_of", "view_of"]

_SLOTS_AT_ONCE = 64

Parts = tuple[Tensor, ...]
"""One flat tensor for each dtype of the model."""


class Rows:
    """The vectors of n workers, all equal at the start.

    Args:
        module: The model at its start; it is flattened, and holds no values of its own afterwards.
        n: Number of workers.
        registers: Vectors that the rule keeps beside ``x``; they start as zeros.

    Raises:
        TrainingError: The module has nothing to share, or a dtype that cannot travel.
    """

    def __init__(self, module: nn.Module, n: int, registers: Sequence[str] = ()) -> None:
        vector = Vector(module)
        layout = Layout(module)
        self.n = n
        self.module = module
        self.schema: Schema = vector.schema
        self.anchor = vector.anchor()
        self.n_params = vector.n_params
        self.segments = layout.segments
        self.local = layout.local
        self.x: Parts = tuple(flat.repeat(n, 1) for flat in vector.flats)
        """float, axes ``(worker, number)``, one for each dtype; padded as a live vector is."""
        self.locals: Parts = tuple(
            placed.tensor.detach().expand(n, *placed.tensor.shape).clone() for placed in self.local
        )
        """What is not shared, such as counters: axes ``(worker, *shape)``."""
        self._rows: dict[str, list[Parts]] = {X: _rows_of(self.x)}
        for name in registers:
            self._rows[name] = _rows_of(tuple(torch.zeros_like(part) for part in self.x))
        self._slots: dict[int, Parts] = {}
        self._copies: dict[int, Parts] = {}
        self._free: list[Parts] = []

    def row(self, worker: int) -> Parts:
        """One worker's vector, as views."""
        return self._rows[X][worker]

    def tensors(self, worker: int) -> list[tuple[Placed, Tensor]]:
        """One worker's tensors in their own shapes, shared and local, as views."""
        found = []
        for segment, flat in zip(self.segments, self.row(worker), strict=True):
            for placed in segment.tensors:
                found.append((placed, view_of(placed, segment.start_bytes, flat)))
        found += [(p, part[worker]) for p, part in zip(self.local, self.locals, strict=True)]
        return found

    def state(self, tensors: Sequence[tuple[Placed, Tensor]]) -> dict[str, Tensor]:
        """The model's whole state_dict, with *tensors* in the place of those that travel."""
        whole = tensors_of(self.module)
        values = {id(whole[placed.spec.name]): tensor for placed, tensor in tensors}
        # Tied parameters have several names, and the module holds any worker's values.
        return {name: values.get(id(own), own).detach().clone() for name, own in whole.items()}

    def carry_out(self, operations: Sequence[Operation]) -> None:
        """Do what was scheduled, one after another."""
        for operation in operations:
            match operation:
                case Mixing():
                    self._mix(operation)
                case Snapping():
                    self._snap(operation)
                case Freeing(slot):
                    self._free.append(self._slots.pop(slot))
                    self._copies.pop(slot, None)
                case Combining():
                    self._combine(operation)

    def _snap(self, operation: Snapping) -> None:
        slot = self._slots[operation.slot] = self._free.pop() if self._free else self._grow()
        for part, row in zip(slot, self._rows[operation.register][operation.worker], strict=True):
            part.copy_(row)
        if operation.copy:
            self._copies[operation.slot] = tuple(
                part[operation.worker].clone() for part in self.locals
            )

    def _mix(self, operation: Mixing) -> None:
        slot = self._slots[operation.slot]
        for row, part in zip(self._rows[X][operation.worker], slot, strict=True):
            if operation.fraction == 1.0:
                row.copy_(part)
            else:
                row.lerp_(part, operation.fraction)
        if operation.copy and operation.fraction == 1.0:
            for part, arrived in zip(self.locals, self._copies[operation.slot], strict=True):
                part[operation.worker].copy_(arrived)

    def _combine(self, operation: Combining) -> None:
        for index, target in enumerate(self._rows[operation.register][operation.worker]):
            total = torch.zeros_like(target)
            for coefficient, term in operation.terms:
                source = (
                    self._slots[term]
                    if isinstance(term, int)
                    else self._rows[term][operation.worker]
                )
                total.add_(source[index], alpha=coefficient)
            target.copy_(total)

    def _grow(self) -> Parts:
        blocks = [part.new_empty(_SLOTS_AT_ONCE, part.shape[1]) for part in self.x]
        self._free.extend(zip(*(block.unbind(0) for block in blocks), strict=True))
        return self._free.pop()


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of a module's state_dict themselves, not what else it may keep there."""
    state = module.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def view_of(placed: Placed, start_bytes: int, flat: Tensor) -> Tensor:
    """One tensor of a flat one; *flat* may have axes before its last, which are kept."""
    start = (placed.offset_bytes - start_bytes) // flat.element_size()
    shape = placed.spec.shape
    part = flat[..., start : start + placed.tensor.numel()]
    return part.view(*flat.shape[:-1], *shape)


def _rows_of(parts: Parts) -> list[Parts]:
    return list(zip(*(part.unbind(0) for part in parts), strict=True))
