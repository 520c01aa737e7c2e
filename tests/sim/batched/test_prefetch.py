"""A schedule made in parallel with the computation equals one made in sequence."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rumor.gossip import ConfigError
from rumor.gossip.wire.formats import Form
from rumor.sim import simulate
from rumor.sim.batched.prefetch import NextWindow, Prefetcher, can_prefetch
from rumor.sim.batched.schedule import Window
from rumor.sim.kernel.program import Cut, Program

Way = Callable[[Prefetcher, NextWindow], Iterator[Window]]

needs_fork = pytest.mark.skipif(not can_prefetch(), reason="no fork on this platform")
both = pytest.mark.parametrize(
    "way", [pytest.param(Prefetcher.in_process, marks=needs_fork), Prefetcher.in_thread]
)


def windows(n: int = 3) -> Iterator[Window]:
    program = Program(3)
    for number in range(n):
        program.step(2, number, None)
        program.step(0, 5, None)
        one = program.snapshot(2, Cut("x", Form(), number), 40)
        other = program.snapshot(0, Cut("out/0", Form("int8")), 2**40)
        program.mix(0, one, 0.1 + number)
        program.combine(2, "x", ((0.5, "x"), (0.5, (other, 0))))
        program.let_go(one)
        yield Window(levels=program.take(), steps=2 * number, time_s=0.1 * number)


def source(n: int = 3) -> NextWindow:
    coming = windows(n)
    return lambda: next(coming, None)


@both
def test_windows_come_unchanged_and_in_order(way: Way) -> None:
    for ours, theirs in zip(windows(), way(Prefetcher(), source()), strict=True):
        assert (ours.steps, ours.time_s) == (theirs.steps, theirs.time_s)
        for a, b in zip(ours.levels, theirs.levels, strict=True):
            assert (a.workers, a.steps) == (b.workers, b.steps)
            assert a.operations == b.operations
            assert [type(op) for op in a.operations] == [type(op) for op in b.operations]


@both
def test_the_scheduler_ends_when_no_more_windows_are_taken(way: Way) -> None:
    stream = way(Prefetcher(), source(100_000))
    next(stream)
    stream.close()  # type: ignore[attr-defined]


@both
def test_an_error_of_the_scheduler_is_raised_to_the_caller(way: Way) -> None:
    coming = windows(1)

    def failing() -> Window:
        for window in coming:
            return window
        raise ConfigError("this cannot be")

    stream = way(Prefetcher(), failing)
    next(stream)
    with pytest.raises(ConfigError, match="this cannot be"):
        next(stream)


@needs_fork
@pytest.mark.extended
def test_scheduling_ahead_does_not_change_the_digest() -> None:
    settings: dict[str, Any] = {
        "workers": 64,
        "steps": 65,
        "p": 0.3,
        "topology": "ring",
        "engine": "dense",
        "network": "lossy",
        "pace": "lognormal:cv=0.5",
        "eval_every": 64,
    }
    runs = [simulate(**settings, threads=threads) for threads in (1, 2, 3)]
    assert len({run.summary["digest"] for run in runs}) == 1
