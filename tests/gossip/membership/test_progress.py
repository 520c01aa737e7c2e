"""Step counts are merged by maximum, so all peers agree in any order of messages."""

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.membership.progress import CLOCK_ROWS_MAX, StepCounts
from rumor.gossip.wire.messages import ROWS_TOLD_MAX, STEPS_MAX, ClockRow

PEERS = st.sampled_from("abcdef")
ROWS = st.lists(st.tuples(PEERS, st.integers(0, 50)), max_size=20)


def clock_after(rows: Sequence[ClockRow], remembered: Sequence[ClockRow] = ()) -> StepCounts:
    clock = StepCounts("a", dict(remembered))
    for peer, steps in rows:
        clock.merge(peer, steps)
    return clock


def crowded(count: int) -> StepCounts:
    """The clock of a peer that knows *count* other peers."""
    return StepCounts("a", {f"p{index:05}": index + 1 for index in range(count)})


@given(ROWS, st.randoms())
def test_rows_may_arrive_in_any_order_and_twice(rows: list[ClockRow], random: Random) -> None:
    shuffled = [*rows, *rows]
    random.shuffle(shuffled)
    once, twice = clock_after(rows), clock_after(shuffled)
    assert (once.rows(), once.total) == (twice.rows(), twice.total)
    assert list(once.rows()) == sorted(once.rows())


@given(ROWS, ROWS, st.integers(0, 5))
def test_the_total_is_the_sum_of_the_rows_and_never_falls(
    remembered: list[ClockRow], rows: list[ClockRow], steps: int
) -> None:
    clock = StepCounts("a", dict(remembered))
    before, total = clock.rows(), clock.total
    for peer, count in rows:
        clock.merge(peer, count)
        assert clock.total == sum(clock.rows().values()) >= total
        total = clock.total
    for _ in range(steps):
        clock.tick(0.0)
    assert clock.total == sum(clock.rows().values()) == total + steps
    assert all(clock.rows()[peer] >= count for peer, count in before.items())


def test_own_steps_count_beyond_the_rows_of_other_peers() -> None:
    clock = clock_after([("a", 7)])
    clock.tick(0.0)
    assert (clock.own, clock.total, clock.rows()) == (8, 8, {"a": 8})
    clock = StepCounts("a", {"a": STEPS_MAX})
    clock.tick(0.0)
    assert clock.own == clock.total == STEPS_MAX, "the maximum of a message"
    clock = StepCounts("a", {"a": 4, "b": 9})
    clock.forget_others()
    assert (clock.rows(), clock.total) == ({"a": 4}, 4), "in another swarm only its own steps count"
    clock.merge("c", 2)
    clock.tick(0.0)
    assert (clock.rows(), clock.total) == ({"a": 5, "c": 2}, 7)


def test_names_beyond_the_limit_are_ignored_and_known_names_still_count() -> None:
    clock = crowded(CLOCK_ROWS_MAX - 1)
    total = clock.total
    clock.merge("stranger", 10)
    assert clock.total == total and "stranger" not in clock.rows()
    clock.merge("p00000", 11)
    assert clock.total == total + 10
    clock.merge("a", 3)
    assert clock.own == 3, "its own row exists from the start"


def test_rows_of_listed_members_are_sent_only_if_above_their_entries() -> None:
    """Otherwise steps of an incarnation whose checkpoint was lost would count only here."""
    clock = StepCounts("a", {"a": 1, "b": 100, "c": 3, "d": 0})
    assert clock.rows_beside({"a": 1, "b": 100}) == (("c", 3),)
    assert clock.rows_beside({"a": 1, "b": 3, "c": 3}) == (("b", 100),)


def test_rows_beyond_the_message_limit_follow_in_the_next_message() -> None:
    clock = crowded(2 * ROWS_TOLD_MAX + 5)
    sent: set[ClockRow] = set()
    for _ in range(3):
        rows = clock.rows_beside({"a": 0})
        assert len(set(rows)) == ROWS_TOLD_MAX
        sent.update(rows)
    assert sent == {row for row in clock.rows().items() if row[0] != "a"}
    clock = crowded(ROWS_TOLD_MAX)
    assert clock.rows_beside({"a": 0}) == clock.rows_beside({"a": 0}), "each message is full"
    assert len(clock.rows_beside({"a": 0})) == ROWS_TOLD_MAX


def trained(gossip_s: float = 1.0, *, step_s: float = 0.1) -> StepCounts:
    """The clock of a peer that has taken 100 steps, up to the time 0."""
    clock = StepCounts("a", gossip_s=gossip_s)
    for step in range(100):
        clock.tick((step - 99) * step_s)
    return clock


def test_a_message_adds_at_most_the_steps_of_a_fast_machine() -> None:
    clock = trained()
    assert clock.hear("b", STEPS_MAX, 0.0, direct=True) == 160, "16 times as fast, for 1 s"
    assert clock.hear("b", STEPS_MAX, 1000.0, direct=True) == 160 + 640
    assert clock.hear("b", STEPS_MAX, 1000.0, direct=True) == 800, "a second counts once"
    assert clock.hear("b", 800, 1000.0, direct=True) == 800, "known already"


def test_the_total_of_steps_known_by_hearsay_is_limited() -> None:
    clock = trained()
    for name in range(1000):
        clock.hear(f"p{name}", STEPS_MAX, 0.0, direct=False)
    assert clock.total == 100 + 640
    clock.speaking = 9
    for name in range(1000):
        clock.hear(f"q{name}", STEPS_MAX, 1.0, direct=False)
    assert clock.total == 100 + 640 + 10 * (16 + 4 * 9)


def test_steps_that_take_minutes_are_counted_eventually() -> None:
    clock = trained(step_s=200.0)
    counts = [clock.hear("b", 5, second, direct=False) for second in map(float, range(400))]
    assert counts[0] == 0 and counts[-1] == 5


def test_honest_step_counts_are_accepted_at_once_even_if_late() -> None:
    clock = trained()
    for second in range(0, 100, 5):
        for name in "bcdefghi":
            steps = 10 * (second + 1)
            assert clock.hear(name, steps, float(second), direct=name == "b") == steps
            clock.speaking = 8


def test_the_number_of_kept_names_is_bounded() -> None:
    clock = StepCounts("a")
    for name in range(CLOCK_ROWS_MAX + 100):
        clock.hear(f"p{name}", STEPS_MAX, 0.0, direct=False)
    assert len(clock._raised_s) == CLOCK_ROWS_MAX
    assert clock.hear("late", 3, 0.0, direct=False) == 0
