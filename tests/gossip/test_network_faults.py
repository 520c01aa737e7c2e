"""A campaign of random faults; after every event all invariants are held (see watch.py)."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rumor.gossip import GoSGD
from rumor.sim.torture.network import Network, Peers

from .faults import Scenario, draw, draw_wide, run

SEEDS = 160
WIDE_SEEDS = 80
CHUNK = 10

SOMETIMES = {
    "accept after the sender's death",
    "burned",
    "chunked transfer given up",
    "donor lost in mid-join",
    "duplicate",
    "fence",
    "found",
    "join by copy",
    "leave with hand-over",
    "partial accept",
    "refused: busy",
    "refused: finished",
    "refused: given up by its sender",
    "refused: its sender restarted",
    "refused: leaving",
    "refused: not finite",
    "refused: not today",
    "refused: stalled",
    "stale incarnation",
    "stranded",
    "unsent",
    "written off what was accepted",
    "written-off",
}


SOMETIMES_WIDE = SOMETIMES - {"donor lost in mid-join", "refused: its sender restarted"} | {
    "abandoned",
    "mixed back",
    "read from memory",
    "refused: of this shard there is a copy",
    "skipped: no bandwidth",
}
"""The same, where shares are cut, held back, shown and mixed back."""


@pytest.fixture(scope="module")
def seen() -> Counter[str]:
    """What happened in the campaign so far, over all its seeds."""
    return Counter()


@pytest.fixture(scope="module")
def seen_wide() -> Counter[str]:
    """The same of the wide campaign."""
    return Counter()


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_fault_creates_or_loses_weight_and_everything_settles(
    first: int, seen: Counter[str]
) -> None:
    for seed in range(first, first + CHUNK):
        seen += check(seed)


def test_the_campaign_met_everything_that_must_happen_sometimes(seen: Counter[str]) -> None:
    if sum(seen.values()) == 0:
        pytest.skip("the campaign did not run")
    assert {what for what in SOMETIMES if not seen[what]} == set()


@pytest.mark.parametrize("first", range(0, WIDE_SEEDS, CHUNK))
def test_neither_shards_nor_memory_nor_bandwidth_break_an_invariant_of_any_shard(
    first: int, seen_wide: Counter[str]
) -> None:
    for seed in range(first, first + CHUNK):
        seen_wide += check(seed, draw_wide)


def test_the_wide_campaign_met_everything_that_must_happen_sometimes(
    seen_wide: Counter[str],
) -> None:
    if sum(seen_wide.values()) == 0:
        pytest.skip("the campaign did not run")
    assert {what for what in SOMETIMES_WIDE if not seen_wide[what]} == set()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_a_thousand_more_seeds(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)
        check(seed, draw_wide)


@pytest.mark.parametrize("seed", [3, 14, 15])
def test_the_same_seed_gives_the_same_digest_under_another_hash_seed(seed: int) -> None:
    program = f"from {__package__}.faults import draw, run; print(run(draw({seed})).watch.digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[len(__package__.split("."))],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert digests == {run(draw(seed)).watch.digest}


def test_taking_one_fault_away_shifts_no_random_number_of_another_link() -> None:
    def numbers(*others: str) -> list[float]:
        network = Network(0, Peers(rule=lambda peer: GoSGD()))
        for link in others:
            network.chance("loss", link)
        return [network.chance("loss", "a>b") for _ in range(50)]

    assert numbers() == numbers("b>a", "a>c", "a>c")


def check(seed: int, draw: Callable[[int], Scenario] = draw) -> Counter[str]:
    """Run one seed; a failure says how to run it again."""
    scenario = draw(seed)
    try:
        return run(scenario).watch.seen
    except Exception as error:
        error.add_note(f"{scenario}\nagain: run({draw.__name__}({seed})) in tests/gossip/faults.py")
        raise
