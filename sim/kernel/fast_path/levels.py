"""Windows of the fast path, cut into levels."""

import numpy as np

from ..program import SCALE_LR, Level
from .fleet import Window

__all__ = ["levels_of"]


def levels_of(window: Window) -> list[Level]:
    """Cut a window into its levels, in which everything keeps its order."""
    edges = np.arange(window.n_levels + 1)
    by_step = np.argsort(window.steps[:, 1], kind="stable")
    by_operation = np.argsort(window.operations[:, 2], kind="stable")
    steps, orders = window.steps[by_step], by_step + window.first_order
    cuts = np.searchsorted(steps[:, 1], edges).tolist()
    ends = np.searchsorted(window.operations[by_operation, 2], edges).tolist()
    # Without the room of a slot; and all cuts are of the whole vector.
    rows, fractions = window.operations[:, [0, 1, 2, 3, 5]][by_operation], window.fractions
    rows[:, 2] = 0
    rows[rows[:, 0] == SCALE_LR, 3] = 0
    fractions = fractions[by_operation]
    return [
        Level(
            steps[cuts[at] : cuts[at + 1], 0].tolist(),
            steps[cuts[at] : cuts[at + 1], 2].tolist(),
            orders[cuts[at] : cuts[at + 1]].tolist(),
            rows[ends[at] : ends[at + 1]],
            fractions[ends[at] : ends[at + 1]],
        )
        for at in range(window.n_levels)
    ]
