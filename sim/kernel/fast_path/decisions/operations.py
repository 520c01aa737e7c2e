"""What is asked of values: steps, snapshots, mixes, releases, as rows of a window.

The levels and slots are those of `rumor.sim.kernel.program`. A slot is a *room* here: numbers that
are used again once nobody reads them.
"""

from .tables import (
    FREE,
    MIX,
    N_LEVELS,
    N_OPERATIONS,
    N_STEPS,
    NEXT_FREE,
    RELEASE,
    ROOM,
    ROOM_LEVEL,
    ROOM_READERS,
    ROOM_WINDOW,
    SCALE_LR,
    SLOTS,
    SNAPSHOT,
    TAKEN,
    WINDOW,
    Tables,
)  # fmt: skip

__all__ = ["has_room", "let_go", "mix", "note_step", "read", "snapshot"]


def note_step(t: Tables, worker: int) -> None:
    """A worker takes an optimizer step, before which its learning rate may change."""
    if t.scales_lr == 1:
        _scale_lr(t, worker)
    level = t.ints[t.level + worker] + 1
    t.ints[t.level + worker] = level
    t.count[N_LEVELS] = max(t.count[N_LEVELS], level + 1)
    at = 3 * t.count[N_STEPS]
    t.step_rows[at] = t.ints[t.number + worker]
    t.step_rows[at + 1] = level
    t.step_rows[at + 2] = t.ints[t.steps + worker]
    t.count[N_STEPS] += 1
    t.count[TAKEN] += 1
    t.ints[t.steps + worker] += 1
    t.ints[t.known_steps + worker] = t.count[TAKEN]


def has_room(t: Tables, worker: int) -> bool:
    """Whether the next free room may be used by a worker.

    Levels are carried out one after another: what was let go at a later one is still needed at the
    worker's.
    """
    if t.count[FREE] == 0:
        return False
    level: int = t.ints[t.level + worker]
    return _level_of(t, t.free_rooms[t.count[NEXT_FREE]]) <= level


def snapshot(t: Tables, worker: int) -> int:
    """Copy a worker's values into a room, which the first share of them reads."""
    t.ints[t.snapshots + worker] += 1
    room = int(t.free_rooms[t.count[NEXT_FREE]])
    t.count[FREE] -= 1
    t.count[NEXT_FREE] = (t.count[NEXT_FREE] + 1) % len(t.free_rooms)
    t.rooms[ROOM * room] = t.count[SLOTS]
    t.count[SLOTS] += 1
    t.rooms[ROOM * room + ROOM_LEVEL] = t.ints[t.level + worker]
    t.rooms[ROOM * room + ROOM_WINDOW] = t.count[WINDOW]
    t.rooms[ROOM * room + ROOM_READERS] = 1
    id = t.ints[t.snapshots + worker]
    _operate(t, SNAPSHOT, worker, t.ints[t.level + worker], room, id, 0.0)
    return room


def mix(t: Tables, worker: int, room: int, fraction: float) -> None:
    """Mix a slot into a worker's vector, which both take part in at one level."""
    there = _level_of(t, room)
    level = max(t.ints[t.level + worker], there)
    t.ints[t.level + worker] = level
    t.rooms[ROOM * room + ROOM_LEVEL] = level
    _operate(t, MIX, worker, level, room, 0, fraction)


def read(t: Tables, room: int) -> None:
    """One more share of what a room holds."""
    t.rooms[ROOM * room + ROOM_READERS] += 1


def let_go(t: Tables, room: int) -> None:
    """One share less; with the last one the room is free."""
    t.rooms[ROOM * room + ROOM_READERS] -= 1
    if t.rooms[ROOM * room + ROOM_READERS] == 0:
        level = _level_of(t, room)
        _operate(t, RELEASE, 0, level, room, 0, 0.0)
        t.free_rooms[(t.count[NEXT_FREE] + t.count[FREE]) % len(t.free_rooms)] = room
        t.count[FREE] += 1


def _level_of(t: Tables, room: int) -> int:
    if t.rooms[ROOM * room + ROOM_WINDOW] != t.count[WINDOW]:
        t.rooms[ROOM * room + ROOM_WINDOW] = t.count[WINDOW]
        t.rooms[ROOM * room + ROOM_LEVEL] = 0
    return int(t.rooms[ROOM * room + ROOM_LEVEL])


def _scale_lr(t: Tables, worker: int) -> None:
    """Note on what a worker's learning rate depends; which part it is then, is found later."""
    level, steps, known = t.level + worker, t.steps + worker, t.known_steps + worker
    _note(t, SCALE_LR, worker, t.ints[level], t.ints[steps], t.ints[known], 0, t.floats[t.clock])


def _operate(
    t: Tables, operation: int, worker: int, level: int, room: int, id: int, fraction: float
) -> None:
    _note(t, operation, worker, level, t.rooms[ROOM * room], room, id, fraction)


def _note(
    t: Tables, operation: int, worker: int, level: int, slot: int, room: int, id: int,
    fraction: float,
) -> None:  # fmt: skip
    t.fractions[t.count[N_OPERATIONS]] = fraction
    at = 6 * t.count[N_OPERATIONS]
    t.operation_rows[at] = operation
    t.operation_rows[at + 1] = t.ints[t.number + worker]
    t.operation_rows[at + 2] = level
    t.operation_rows[at + 3] = slot
    t.operation_rows[at + 4] = room
    t.operation_rows[at + 5] = id
    t.count[N_OPERATIONS] += 1
