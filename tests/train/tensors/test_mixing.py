"""Shares that are mixed later: in order, each once, within the time there is."""

import threading
from collections.abc import Iterator

from rumor.train.tensors.mixing import Sliced


class Clock:
    """Time that passes as work is done."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now_s


def share(log: list[str], name: str, slices: int, clock: Clock | None = None) -> Iterator[None]:
    for index in range(slices):
        log.append(f"{name}{index}")
        if clock is not None:
            clock.now_s += 1
        yield


def add(mixing: Sliced, log: list[str], name: str, slices: int, clock: Clock | None = None) -> None:
    mixing.add(share(log, name, slices, clock), lambda: log.append(f"{name} done"))


def test_all_shares_are_mixed_in_order_and_each_once() -> None:
    mixing = Sliced(lambda: None)
    log: list[str] = []
    add(mixing, log, "a", 3)
    add(mixing, log, "b", 2)
    mixing.settle()
    assert log == ["a0", "a1", "a2", "a done", "b0", "b1", "b done"]
    mixing.settle()
    mixing.advance(1.0, Clock())
    add(mixing, log, "c", 1)
    mixing.settle()
    assert log[-2:] == ["c0", "c done"]
    assert len(log) == 9


def test_what_changed_is_noted_before_anything_else_runs() -> None:
    noted: list[int] = []
    log: list[str] = []
    mixing, clock = Sliced(lambda: noted.append(len(log)), queued_max=2), Clock()
    mixing.settle()
    add(mixing, log, "a", 3, clock)
    assert not noted
    mixing.advance(0.5, clock)
    mixing.advance(9.0, clock)
    assert noted == [1, len(log)]
    for name in "bcd":
        add(mixing, log, name, 1)
    mixing.settle()
    assert noted[2] < noted[3] == len(log)


def test_adding_mixes_nothing() -> None:
    mixing = Sliced(lambda: None)
    log: list[str] = []
    add(mixing, log, "a", 3)
    assert log == []


def test_slices_are_mixed_until_the_time_is_used_up() -> None:
    mixing, clock = Sliced(lambda: None), Clock()
    log: list[str] = []
    add(mixing, log, "a", 5, clock)
    mixing.advance(2.0, clock)
    assert log == ["a0", "a1"]
    mixing.advance(1.5, clock)
    assert log == ["a0", "a1", "a2", "a3"]
    mixing.advance(100.0, clock)
    assert log[-2:] == ["a4", "a done"]


def test_the_clock_is_looked_at_once_per_slice() -> None:
    mixing, clock = Sliced(lambda: None), Clock()
    log: list[str] = []
    add(mixing, log, "a", 50, clock)
    mixing.advance(10.0, clock)
    assert clock.looks == 1 + len(log) == 11


def test_a_budget_of_nothing_still_goes_on() -> None:
    mixing, clock = Sliced(lambda: None), Clock()
    log: list[str] = []
    add(mixing, log, "a", 2, clock)
    for _ in range(3):
        mixing.advance(0.0, clock)
    assert log == ["a0", "a1", "a done"]


def test_one_call_goes_on_with_the_next_share() -> None:
    mixing, clock = Sliced(lambda: None), Clock()
    log: list[str] = []
    add(mixing, log, "a", 1, clock)
    add(mixing, log, "b", 5, clock)
    mixing.advance(3.0, clock)
    assert log == ["a0", "a done", "b0", "b1"]


def test_no_more_than_a_few_shares_wait() -> None:
    mixing = Sliced(lambda: None, queued_max=2)
    log: list[str] = []
    for name in "abc":
        add(mixing, log, name, 2)
    assert log[:3] == ["a0", "a1", "a done"]
    mixing.settle()
    assert [entry for entry in log if "done" in entry] == ["a done", "b done", "c done"]


def test_a_share_that_comes_after_the_end_is_not_lost() -> None:
    mixing = Sliced(lambda: None)
    log: list[str] = []
    add(mixing, log, "a", 1)
    mixing.settle()
    add(mixing, log, "b", 1)
    mixing.settle()
    assert log == ["a0", "a done", "b0", "b done"]


def test_one_thread_settles_while_another_mixes() -> None:
    mixing = Sliced(lambda: None)
    log: list[str] = []
    add(mixing, log, "a", 2000)
    other = threading.Thread(target=mixing.settle)
    other.start()
    for _ in range(100):
        mixing.advance(0.0, Clock())
    other.join()
    assert log == [*(f"a{index}" for index in range(2000)), "a done"]
