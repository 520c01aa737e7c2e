"""The levels of a program: what must wait for what, and nothing more."""

import random

from rumor.sim.kernel.program import Combine, Cut, Level, Mix, Program, Release, Slot, Snapshot

X = Cut("x")


def ops(level: Level) -> list[str]:
    return [type(operation).__name__ for operation in level.operations]


def test_a_slot_is_freed_after_its_last_reader_and_not_before() -> None:
    program = Program(3)
    slot = program.snapshot(0, X, 1)
    slot.readers += 2
    program.let_go(slot)
    program.mix(1, slot, 0.5)
    program.let_go(slot)
    program.step(2, 0)
    program.step(0, 0)
    program.mix(2, slot, 0.5)
    program.let_go(slot)
    levels = program.take()
    assert ops(levels[0]) == ["Snapshot", "Mix"]
    assert ops(levels[1]) == ["Mix", "Release"]
    # Steps of different workers share a level.
    assert (levels[1].workers, levels[1].orders) == ([2, 0], [0, 1])


def test_a_combination_waits_for_all_its_terms() -> None:
    program = Program(3)
    early = program.snapshot(0, X, 1)
    program.step(1, 0)
    late = program.snapshot(1, X, 2)
    program.combine(2, "y", ((0.5, (early, 0)), (0.25, (late, 1)), (0.25, "x")))
    program.let_go(early)
    levels = program.take()
    assert ops(levels[0]) == ["Snapshot"]
    assert levels[1].operations[1] == Combine(
        2, "y", ((0.5, (early.number, 0)), (0.25, (late.number, 1)), (0.25, "x"))
    )
    # The combination reads it at the second level, so that it may not be used anew before.
    assert levels[1].operations[2] == Release(early.number)


def test_any_program_gives_each_worker_what_its_schedule_says() -> None:
    """Executed level by level, the numbers are those of the schedule, whatever the window."""
    for seed in range(30):
        rng = random.Random(seed)
        n, window = rng.randint(1, 6), rng.randint(1, 20)
        direct = [float(worker) for worker in range(n)]
        levelled = list(direct)
        slots: dict[int, float] = {}
        held: list[tuple[Slot, float]] = []
        program = Program(n)
        for count in range(200):
            worker = rng.randrange(n)
            what = rng.random()
            if what < 0.5:
                program.step(worker, count)
                direct[worker] = direct[worker] * 1.5 + 1
            elif what < 0.75:
                slot = program.snapshot(worker, X, count)
                held.append((slot, direct[worker]))
            elif held:
                slot, value = held.pop(rng.randrange(len(held)))
                program.mix(worker, slot, 0.25)
                program.let_go(slot)
                direct[worker] += 0.25 * (value - direct[worker])
            if count % window == 0:
                execute(program.take(), levelled, slots)
        execute(program.take(), levelled, slots)
        assert levelled == direct
        assert len(slots) == len(held)


def execute(levels: list[Level], x: list[float], slots: dict[int, float]) -> None:
    for level in levels:
        assert len(set(level.workers)) == len(level.workers)
        for worker in level.workers:
            x[worker] = x[worker] * 1.5 + 1
        for operation in level.operations:
            match operation:
                case Snapshot(worker, slot):
                    slots[slot] = x[worker]
                case Mix(worker, slot, fraction):
                    x[worker] += fraction * (slots[slot] - x[worker])
                case Release(slot):
                    del slots[slot]
