"""Alternating, and what is made of the times."""

import pytest

from rumor.benchmarks.results import alternate, percentile, rate_gb_s, timed

__all__: list[str] = []


def test_ways_take_turns_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []

    def way(name: str) -> list[int]:
        calls.append(name)
        return [len(calls)]

    found = alternate({"a": lambda: way("a"), "b": lambda: way("b")}, rounds=2)
    assert calls == ["a", "b", "a", "b", "a", "b"]
    assert found == {"a": [3, 5], "b": [4, 6]}


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(100)]
    assert percentile(values, 99) == 99
    assert percentile(values, 0) == 0
    assert percentile([7.0], 99) == 7


def test_a_rate_is_that_of_the_median_time() -> None:
    assert rate_gb_s(10**9, [0.5, 9.0, 0.25]) == pytest.approx(2)


def test_everything_timed_was_done() -> None:
    done: list[None] = []
    taken_s = timed(lambda: done.append(None), 3)
    assert len(done) == len(taken_s) == 3
    assert min(taken_s) >= 0
