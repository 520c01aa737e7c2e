"""A short campaign of random faults; all invariants are checked after every event.

`python -m rumor.sim.fuzz` runs longer ones.
"""

import sys
from collections.abc import Sequence

import pytest

from rumor.sim.batched.cores import usable_cores
from rumor.sim.fuzz import Campaign, CampaignConfig, run_campaign
from rumor.sim.fuzz.__main__ import command_of
from rumor.sim.fuzz.campaign import EVENT_COVERAGE

# Each event of `EVENT_COVERAGE` occurs with at least two of the last fourteen seeds.
SEEDS = (*range(12), 12, 37, 67, 86, 95, 103, 106, 108, 123, 189, 194, 195, 208, 228)


def campaign_of(seeds: Sequence[int], workers: int) -> Campaign:
    # Coverage is measured in this process only, and the campaign reaches code that no test reaches.
    processes = 1 if "coverage" in sys.modules else usable_cores()
    return run_campaign(CampaignConfig(seeds=tuple(seeds), workers=workers, processes=processes))


def failures(campaign: Campaign) -> list[str]:
    """Describe each failure and the command that repeats it."""
    return [f"{b.failure.what}\nagain: {command_of(b)}" for b in campaign.failed]


@pytest.mark.extended
@pytest.mark.timeout(1200)
def test_faults_lose_no_weight_and_rare_events_are_covered() -> None:
    campaign = campaign_of(SEEDS, 6)
    assert failures(campaign) == [] and campaign.seeds == len(SEEDS)
    assert set(EVENT_COVERAGE) - set(campaign.seen) == set()


OTHERS = [seed for seed in range(310) if seed not in SEEDS]
MORE: list[tuple[Sequence[int], int]] = [
    *((OTHERS[part::6], 6) for part in range(6)),
    *((range(first, first + 50), 6) for first in range(10_000, 12_000, 50)),
    *((range(first, first + 10), 16) for first in range(20_000, 20_300, 10)),
]
"""Seeds, and the maximum number of workers."""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("seeds", "workers"), MORE, ids=lambda case: str(case)[:20])
def test_faults_lose_no_weight_with_more_seeds_and_larger_swarms(
    seeds: Sequence[int], workers: int
) -> None:
    assert failures(campaign_of(seeds, workers)) == []
