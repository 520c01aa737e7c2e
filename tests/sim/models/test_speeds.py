"""Speeds: classes of the given sizes, drawn from the seed, and stragglers by index or id."""

from collections import Counter

import pytest

from rumor.gossip.errors import ConfigError
from rumor.sim.models.step_time import FORM, parse_speeds, slowdowns
from rumor.train.faults.schedule import parse_slow

IDS = [f"peer-{index:02d}" for index in range(40)]


def factors(
    speeds: str | None, n: int = 40, *, slow: tuple[str, ...] = (), seed: int = 0
) -> list[float]:
    return slowdowns(IDS[:n], speeds=speeds, slow=slow, seed=seed)


@pytest.mark.parametrize(
    ("n", "counts"),
    [(1, [0, 1, 0]), (2, [1, 1, 0]), (3, [1, 1, 1]), (7, [2, 3, 2]), (40, [10, 20, 10])],
)
def test_class_sizes_are_rounded_with_ties_to_the_first(n: int, counts: list[int]) -> None:
    found = Counter(factors("0.5x:25%,1x:50%,4x:25%", n))
    assert [found[2.0], found[1.0], found[0.25]] == counts and sum(counts) == n


def test_classes_are_drawn_from_the_seed_and_stragglers_are_slower() -> None:
    spec = "1x:50%,2x:50%"
    assert factors(spec) == factors(spec) != factors(spec, seed=1)
    assert factors(spec) != sorted(factors(spec))
    assert factors(None, 4, slow=("3:10", "peer-01:2.5")) == [1.0, 2.5, 1.0, 10.0]
    assert factors("4x:100%", 2, slow=("1:10",)) == [0.25, 2.5]
    assert sum(percent for _, percent in parse_speeds("1x:33.3%, 2x:33.3%, .5x:33.4%")) == 100


@pytest.mark.parametrize("text", ["1x:60%,2x:30%", "1x:100%,2x:0.1%", "1x:0%"])
def test_percentages_that_do_not_add_up_to_100_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"the percentages add up to .*, must be 100"):
        parse_speeds(text)


@pytest.mark.parametrize(
    "text", ["", "1x", "1x:100", "1:100%", "x:100%", "0x:100%", "-1x:100%", "1x:100%,", "nanx:100%"]
)
def test_an_invalid_class_is_refused_with_the_valid_form(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_speeds(text)
    assert repr(text) in str(caught.value) and FORM in str(caught.value)


NO_FORM = "is not WORKER:FACTOR: write 3:10"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([""], NO_FORM),
        (["3"], NO_FORM),
        (["3:"], NO_FORM),
        ([":10"], NO_FORM),
        (["3:0.5"], NO_FORM),
        (["3:-1"], NO_FORM),
        (["3:nan"], NO_FORM),
        (["3:inf"], NO_FORM),
        (["3:1e3"], NO_FORM),
        (["40:2"], "there is no worker 40, only 0 to 39, called peer"),
        (["peer-40:2"], "there is no worker peer-40, only 0 to 39, called peer"),
        (["-1:2"], "there is no worker -1, only 0 to 39, called peer"),
        (["x:2"], "there is no worker x, only 0 to 39, called peer"),
        (["3:2", "peer-03:4"], "slow names worker 3 twice"),
    ],
)
def test_an_invalid_straggler_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_slow(texts, IDS)
    # An id takes precedence over an index.
    assert parse_slow(["1:2"], ["1", "0"]) == {0: 2.0}
    assert parse_slow(["a:b:2"], ["x", "a:b"]) == {1: 2.0}
