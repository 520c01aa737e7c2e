"""Operations on values: steps, snapshots, mixes, releases, as rows of a window.

The levels and slots are those of `rumor.sim.kernel.program`. Slots are in *buffers*, which are
reused once they have no readers.
"""

from ...program import MIX, RELEASE, SNAPSHOT
from ..compiler import compiled
from .tables import Tables

__all__ = ["decref", "has_buffer", "incref", "mix", "note_step", "snapshot"]


@compiled
def note_step(t: Tables, worker: int) -> None:
    """Add an optimizer step of a worker. Mirrors `Program.step`."""
    totals, me = t.totals[0], t.workers[worker]
    me.level += 1
    t.step_times[totals.n_steps] = totals.now_s
    at = 4 * totals.n_steps
    t.step_rows[at] = worker
    t.step_rows[at + 1] = me.level
    t.step_rows[at + 2] = me.steps
    t.step_rows[at + 3] = me.known_steps
    totals.n_steps += 1
    totals.steps += 1
    me.steps += 1
    me.known_steps = totals.steps


@compiled
def has_buffer(t: Tables, worker: int) -> bool:
    """Return True if a worker may use the next free buffer."""
    # Levels are executed one after another: a buffer that is released at a later level than the
    # worker's is still needed at the worker's.
    totals = t.totals[0]
    if totals.n_free == 0:
        return False
    return _level_of(t, t.free_buffers[totals.next_free]) <= t.workers[worker].level


@compiled
def snapshot(t: Tables, worker: int) -> int:
    """Copy a worker's values into a buffer with one reader. Mirrors `Program.snapshot`."""
    totals, me = t.totals[0], t.workers[worker]
    me.snapshots += 1
    index = t.free_buffers[totals.next_free]
    totals.n_free -= 1
    totals.next_free = (totals.next_free + 1) % len(t.free_buffers)
    buffer = t.buffers[index]
    buffer.slot = totals.slots
    totals.slots += 1
    buffer.level, buffer.window, buffer.readers = me.level, totals.window, 1
    _note(t, SNAPSHOT, worker, me.level, buffer.slot, index, me.snapshots, 0.0)
    return index


@compiled
def mix(t: Tables, worker: int, buffer: int, fraction: float) -> None:
    """Mix a slot into a worker's vector, both at one level. Mirrors `Program.mix`."""
    me = t.workers[worker]
    me.level = max(me.level, _level_of(t, buffer))
    t.buffers[buffer].level = me.level
    _note(t, MIX, worker, me.level, t.buffers[buffer].slot, buffer, 0, fraction)


@compiled
def incref(t: Tables, buffer: int) -> None:
    """Add a reader of a buffer."""
    t.buffers[buffer].readers += 1


@compiled
def decref(t: Tables, buffer: int) -> None:
    """Remove a reader of a buffer; the last one frees it. Mirrors `Program.let_go`."""
    totals, slot = t.totals[0], t.buffers[buffer]
    slot.readers -= 1
    if slot.readers == 0:
        _note(t, RELEASE, 0, _level_of(t, buffer), slot.slot, buffer, 0, 0.0)
        t.free_buffers[(totals.next_free + totals.n_free) % len(t.free_buffers)] = buffer
        totals.n_free += 1


@compiled
def _level_of(t: Tables, buffer: int) -> int:
    slot, window = t.buffers[buffer], t.totals[0].window
    if slot.window != window:
        slot.window, slot.level = window, 0
    level: int = slot.level
    return level


@compiled
def _note(
    t: Tables, operation: int, worker: int, level: int, slot: int, buffer: int, id: int,
    fraction: float,
) -> None:  # fmt: skip
    totals = t.totals[0]
    t.fractions[totals.n_operations] = fraction
    at = 6 * totals.n_operations
    t.operation_rows[at] = operation
    t.operation_rows[at + 1] = worker
    t.operation_rows[at + 2] = level
    t.operation_rows[at + 3] = slot
    t.operation_rows[at + 4] = buffer
    t.operation_rows[at + 5] = id
    totals.n_operations += 1
