"""A short campaign of random faults; after every event all invariants are held.

`python -m rumor.sim.fuzz` runs longer ones.
"""

import sys
from collections.abc import Sequence

import pytest

from rumor.sim.batched.cores import usable_cores
from rumor.sim.fuzz import Campaign, CampaignConfig, run_campaign
from rumor.sim.fuzz.__main__ import command_of
from rumor.sim.fuzz.campaign import EVENT_COVERAGE

# At least two of the last fourteen meet each event of `EVENT_COVERAGE`.
SEEDS = (*range(12), 12, 37, 67, 86, 95, 103, 106, 108, 123, 189, 194, 195, 208, 228)
MORE = tuple(seed for seed in range(310) if seed not in SEEDS)


def campaign_of(seeds: Sequence[int], workers: int) -> Campaign:
    # Coverage sees this process only, and the campaign comes where no other test does.
    processes = 1 if "coverage" in sys.modules else usable_cores()
    return run_campaign(CampaignConfig(seeds=tuple(seeds), workers=workers, processes=processes))


def complaints(campaign: Campaign) -> list[str]:
    """A failure says what broke, and how to run it again."""
    return [f"{b.failure.what}\nagain: {command_of(b)}" for b in campaign.failed]


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    return campaign_of(SEEDS, 6)


@pytest.mark.extended
@pytest.mark.timeout(1200)
def test_no_fault_creates_or_loses_weight_and_everything_settles(campaign: Campaign) -> None:
    assert complaints(campaign) == []
    assert campaign.seeds == len(SEEDS)


@pytest.mark.extended
@pytest.mark.timeout(1200)
def test_the_campaign_met_everything_that_must_happen_sometimes(campaign: Campaign) -> None:
    assert set(EVENT_COVERAGE) - set(campaign.seen) == set()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(6))
def test_three_hundred_seeds(part: int) -> None:
    assert complaints(campaign_of(MORE[part::6], 6)) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(10_000, 12_000, 50))
def test_two_thousand_more_seeds(first: int) -> None:
    assert complaints(campaign_of(range(first, first + 50), 6)) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(20_000, 20_300, 10))
def test_larger_swarms(first: int) -> None:
    assert complaints(campaign_of(range(first, first + 10), 16)) == []
