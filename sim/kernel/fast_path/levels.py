"""Windows of the fast path, cut into levels."""

import numpy as np
from numpy.typing import NDArray

from ....gossip.effects.effects import X
from ....gossip.wire.formats import Form
from ..program import Cut, Level, Mix, Operation, Release, ScaleLr, Snapshot
from .decisions.tables import MIX, SCALE_LR, SNAPSHOT
from .fleet import Window

__all__ = ["AnyLevel", "ColumnLevel", "levels_of"]

_PLAIN = Cut(X, Form(), 0)


class ColumnLevel:
    """A `Level` in columns: whole vectors in their own format are copied out and mixed.

    Attributes:
        rows: Operations in order, int64, axes ``(operation, 6)``: see `Window.operations`. Rooms
            are few, and used again.
        fractions: By which part each mixes, or which part of its learning rate its worker uses from
            then on, float64, axis ``operation``.
    """

    __slots__ = ("fractions", "orders", "rows", "steps", "workers")

    def __init__(
        self,
        steps: NDArray[np.int64],
        orders: NDArray[np.int64],
        rows: NDArray[np.int64],
        fractions: NDArray[np.float64],
    ) -> None:
        self.workers: list[int] = steps[:, 0].tolist()
        self.steps: list[int] = steps[:, 2].tolist()
        self.orders: list[int] = orders.tolist()
        self.rows = rows
        self.fractions = fractions

    @property
    def operations(self) -> list[Operation]:
        """The same one by one, for whoever knows no columns."""
        found: list[Operation] = []
        for (kind, worker, _, slot, _, id), fraction in zip(
            self.rows.tolist(), self.fractions.tolist(), strict=True
        ):
            if kind == SNAPSHOT:
                found.append(Snapshot(worker, slot, _PLAIN, id))
            elif kind == MIX:
                found.append(Mix(worker, slot, fraction))
            elif kind == SCALE_LR:
                found.append(ScaleLr(worker, fraction))
            else:
                found.append(Release(slot))
        return found


AnyLevel = Level | ColumnLevel


def levels_of(window: Window) -> list[ColumnLevel]:
    """Cut a window into its levels, in which everything keeps its order."""
    edges = np.arange(window.n_levels + 1)
    by_step = np.argsort(window.steps[:, 1], kind="stable")
    by_operation = np.argsort(window.operations[:, 2], kind="stable")
    steps, rows = window.steps[by_step], window.operations[by_operation]
    orders, fractions = by_step + window.first_order, window.fractions[by_operation]
    cuts = np.searchsorted(steps[:, 1], edges).tolist()
    ends = np.searchsorted(rows[:, 2], edges).tolist()
    return [
        ColumnLevel(
            steps[cuts[at] : cuts[at + 1]],
            orders[cuts[at] : cuts[at + 1]],
            rows[ends[at] : ends[at + 1]],
            fractions[ends[at] : ends[at + 1]],
        )
        for at in range(window.n_levels)
    ]
