"""Whoever does not answer is dialled for ever, ever more rarely, and not all at once."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.membership.dialing import ReconnectBackoff
from rumor.gossip.types import stream


def fixed(draw: float = 0.5, first_s: float = 1.0, most_s: float = 60.0) -> ReconnectBackoff:
    """Waits that are always at the same place of their span; 0.5 is the middle."""
    return ReconnectBackoff(first_s, most_s, lambda: draw)


def drawn(seed: int, most_s: float = 60.0) -> ReconnectBackoff:
    rng = stream(seed, "a", "reconnect")
    return ReconnectBackoff(1.0, most_s, lambda: float(rng.random()))


def dialled_at(backoff: ReconnectBackoff, seconds: float, step_s: float = 0.25) -> list[float]:
    """When one that never answers is dialled."""
    times = [step_s * n for n in range(round(seconds / step_s))]
    return [now for now in times if backoff.due(["b"], now, 1)]


@pytest.mark.parametrize(
    ("draw", "first_s", "most_s", "waits"),
    [
        (0.5, 1.0, 8.0, [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]),
        *((d, 4.0, 16.0, [4 * x, 8 * x, 16 * x, 16 * x]) for d, x in ((0.0, 0.5), (1.0, 1.5))),
        (0.25, 4.0, 16.0, [3.0, 6.0, 12.0, 12.0]),
        (0.5, 5.0, 1.0, [5.0, 5.0, 5.0]),
    ],
)
def test_waits_double_up_to_the_longest_but_for_half_of_each_on_either_side(
    draw: float, first_s: float, most_s: float, waits: list[float]
) -> None:
    times = dialled_at(fixed(draw, first_s, most_s), 200.0)
    assert [after - before for before, after in pairwise(times)][: len(waits)] == waits


@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, 8))
def test_nobody_waits_longer_than_jitter_allows(seed: int, silent: int, most: int) -> None:
    names = [f"p{index}" for index in range(silent)]
    backoff, last = drawn(seed, most_s=4.0), dict.fromkeys(names, 0.0)
    for tenth in range(1200):
        now = tenth / 10
        due = backoff.due(names, now, most)
        assert len(due) <= most and len(set(due)) == len(due)
        for name in due:
            last[name] = now
        # Where few may be dialled at a time, they take turns.
        assert max(now - at for at in last.values()) <= 6.0 + 0.1 * (1 + silent / most)


def test_those_who_have_waited_longest_come_first() -> None:
    backoff = fixed()
    assert backoff.due(["a"], 0.0, 1) == ["a"]
    assert backoff.due(["a", "b"], 0.5, 2) == ["b"]
    assert backoff.due(["b", "a"], 5.0, 1) == ["a"], "its time came at 1.0, that of b at 1.5"
    assert backoff.due(["a", "b"], 5.0, 1) == ["b"]
    assert backoff.due(["a", "b"], 5.0, 2) == []


def test_who_answers_in_between_begins_anew() -> None:
    backoff = fixed()
    for now in (0.0, 1.0, 3.0):
        assert backoff.due(["b"], now, 1) == ["b"]
    assert backoff.due([], 4.0, 1) == []
    assert [now for now in (5.0, 6.0, 8.0) if backoff.due(["b"], now, 1)] == [5.0, 6.0, 8.0]


def test_after_a_hint_all_are_dialled_soon_and_often_again() -> None:
    backoff = fixed()
    names = ["b", "c", "d"]
    for now in (0.0, 1.0, 3.0, 7.0, 15.0):
        assert backoff.due(names, now, 3) == names
    assert backoff.due(names, 16.0, 3) == []
    backoff.hurry()
    assert sorted(backoff.due(names, 16.0, 3)) == names
    assert sorted(backoff.due(names, 17.0, 3)) == names
