"""Several things that slow a peer at once."""

from rumor.train.faults.schedule import Slowness


def test_the_largest_factor_counts_and_an_end_takes_only_its_own_away() -> None:
    slowness = Slowness()
    assert slowness.of("a") == 1.0
    three, five = slowness.begin("a", 3.0), slowness.begin("a", 5.0)
    assert (slowness.of("a"), slowness.of("b")) == (5.0, 1.0)
    slowness.end("a", five)
    slowness.end("a", five)
    assert slowness.of("a") == 3.0
    slowness.end("b", three)
    slowness.end("a", three)
    assert slowness.of("a") == 1.0


def test_one_that_is_quicker_is_quicker_until_something_slows_it() -> None:
    slowness = Slowness()
    slowness.begin("a", 0.5)
    assert slowness.of("a") == 0.5
    slowness.begin("a", 2.0)
    assert slowness.of("a") == 2.0
