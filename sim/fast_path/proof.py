"""Evidence, in each run, that the fast path emits what the protocols emit."""

from ..kernel.program import Level, Mix, Release, Snapshot
from . import decisions
from .fleet import PLAIN, Window

__all__ = ["levels_of"]


def levels_of(window: Window) -> list[Level]:
    """The levels that `rumor.sim.kernel.program.Program` would have handed over."""
    levels = [Level() for _ in range(window.n_levels)]
    rows = zip(*(column.tolist() for column in window.steps), strict=True)
    for order, (worker, at, step) in enumerate(rows, window.first_order):
        level = levels[at]
        level.workers.append(worker)
        level.steps.append(step)
        level.orders.append(order)
    columns = (*window.operations, window.fractions)
    for kind, worker, at, slot, _, id, fraction in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        if kind == decisions.SNAPSHOT:
            levels[at].operations.append(Snapshot(worker, slot, PLAIN, id))
        elif kind == decisions.MIX:
            levels[at].operations.append(Mix(worker, slot, fraction))
        else:
            levels[at].operations.append(Release(slot))
    return levels
