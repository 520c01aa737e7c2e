"""Swarms of which some lie: the others neither halt nor crash by it, and their weight adds up."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from rumor.gossip import ConfigError
from rumor.gossip.effects.effects import Halt
from rumor.gossip.effects.ledger import Audit, Entry, Kind
from rumor.gossip.weight import ONE
from rumor.sim.fuzz import CampaignConfig, Violation, attempt, draw, run_campaign
from rumor.sim.fuzz.scenario.byzantine import LIARS_MAX, Outside
from rumor.sim.fuzz.trial import run, swarm_of

SEEDS = tuple(range(12))
WORKERS = 8


@pytest.mark.extended
def test_nobody_else_halts_or_crashes_and_weight_adds_up() -> None:
    config = CampaignConfig(seeds=SEEDS, workers=WORKERS, liars=LIARS_MAX, shrink=False)
    campaign = run_campaign(config)
    assert campaign.failed == ()
    assert campaign.seen["lie"] and campaign.seen["weight of a liar"]


@pytest.mark.slow
def test_two_hundred_seeds_of_larger_swarms_break_nothing() -> None:
    config = CampaignConfig(
        seeds=tuple(range(1000, 1200)), workers=12, liars=LIARS_MAX, shrink=False
    )
    assert run_campaign(config).failed == ()


def test_at_most_three_of_ten_lie_and_none_in_the_smallest_swarms() -> None:
    assert draw(0, 3, liars=LIARS_MAX).liars == frozenset()
    counts = Counter(len(draw(seed, 10, liars=LIARS_MAX).liars) for seed in range(40))
    assert set(counts) == {1, 2, 3}
    with pytest.raises(ConfigError, match=r"liars is 0.4: it must be from 0 to 0.3"):
        draw(0, 10, liars=0.4)


def test_without_liars_a_seed_is_what_it_was() -> None:
    assert draw(5, 6, liars=0.0) == draw(5, 6)
    lying = draw(5, 6, liars=LIARS_MAX)
    assert lying.faults and lying.liars and not lying.averages


@pytest.mark.extended
def test_lies_are_the_same_under_another_hash_seed() -> None:
    program = (
        "from rumor.sim.fuzz import draw; from rumor.sim.fuzz.trial import run\n"
        "print(run(draw(3, 6, liars=0.3)).invariants.digest)"
    )
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout.split() == [run(draw(3, 6, liars=0.3)).invariants.digest]


def test_whoever_halts_for_what_a_liar_says_breaks_an_invariant() -> None:
    scenario = draw(5, 6, liars=LIARS_MAX)
    swarm = swarm_of(scenario, None)
    swarm.run(1.0)
    honest = next(peer for peer in swarm.running() if peer.id not in scenario.liars)
    liar = next(peer for peer in swarm.running() if peer.id in scenario.liars)
    swarm.invariants.halts(liar, "it may")
    with pytest.raises(Violation, match=f"{honest.id} halts by a lie: it was told so"):
        swarm.handlers[Halt](honest.worker, Halt("it was told so"), swarm.now)


def test_weight_of_liars_counts_as_if_it_had_been_founded() -> None:
    outside = Outside({"p1"})
    assert [outside.has(name) for name in ("p1", "p1.4", "p10", "p2", "")] == [
        *(True, True, False, False, False)
    ]
    accepted, settled = Entry(Kind.ACCEPTED, 5 * ONE, "p1"), Entry(Kind.SETTLED, 2 * ONE, "p1.0")
    assert outside.passes(accepted, ONE, 3) and outside.passes(settled, ONE, 3)
    held = Audit(founded=ONE, held=4 * ONE, in_flight=0, stranded=0, burned=0, died=0)
    assert not held.balanced and outside.balance(held, 0).balanced


def test_more_than_one_should_accept_of_anybody_is_not_within_what_is_possible() -> None:
    outside, heavy = Outside({"p1"}), Entry(Kind.ACCEPTED, 9 * ONE, "p1")
    assert not outside.passes(heavy, ONE, 3)
    assert outside.passes(heavy, ONE, 9), "a leaver's may be as much as all have founded"
    assert outside.passes(replace(heavy, weight=900 * ONE), 0, 3), "a newcomer's first copy"


def test_a_protocol_that_believes_any_weight_is_found() -> None:
    def believes(protocol: object) -> None:
        state = protocol.state  # type: ignore[attr-defined]
        state.requirements = replace(state.requirements, whole=True)

    failures = (attempt(draw(seed, 8, liars=LIARS_MAX), believes).failure for seed in range(12))
    found = next(filter(None, failures))
    assert found.invariant == "lies" and "accepts too much" in found.what
