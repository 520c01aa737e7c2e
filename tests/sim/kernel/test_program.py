"""The levels of a program order only operations that depend on one another."""

import random

from rumor.sim.kernel.program import Combine, Cut, Level, Mix, Program, Release, Slot, Snapshot

X = Cut("x")


def test_steps_of_different_workers_share_a_level() -> None:
    program = Program(3)
    slot = program.snapshot(0, X, 1)
    program.mix(1, slot, 0.5)
    program.step(2, 0, None)
    program.step(0, 0, None)
    program.let_go(slot)
    first, second = program.take()
    assert (first.workers, second.workers) == ([], [2, 0])


def test_levels_compute_the_same_numbers_as_the_schedule() -> None:
    """Levels are executed one after another, in windows of any size."""
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
                program.step(worker, count, None)
                direct[worker] = direct[worker] * 1.5 + 1
            elif what < 0.7:
                slot = program.snapshot(worker, X, count)
                slot.readers += (readers := rng.randint(1, 3)) - 1
                held += [(slot, direct[worker])] * readers
            elif held and what < 0.85:
                slot, value = held.pop(rng.randrange(len(held)))
                program.mix(worker, slot, 0.25)
                program.let_go(slot)
                direct[worker] += 0.25 * (value - direct[worker])
            elif len(held) > 1:
                (one, first), (two, second) = (held.pop(rng.randrange(len(held))) for _ in "12")
                program.combine(worker, "x", ((0.25, "x"), (0.5, (one, 0)), (0.5, (two, 0))))
                program.let_go(one)
                program.let_go(two)
                direct[worker] = 0.25 * direct[worker] + 0.5 * first + 0.5 * second
            if count % window == 0:
                execute(program.take(), levelled, slots)
        execute(program.take(), levelled, slots)
        assert levelled == direct
        assert slots.keys() == {slot.number for slot, _ in held}


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
                case Combine(worker, _, (_, (_, (int(one), _)), (_, (int(two), _)))):
                    x[worker] = 0.25 * x[worker] + 0.5 * slots[one] + 0.5 * slots[two]
                case Release(slot):
                    del slots[slot]
