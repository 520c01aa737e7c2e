"""Failures made small: which faults, workers and options are left, always the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.sim.fuzz import OPTIONS, CampaignConfig, run_campaign, shrink
from rumor.sim.fuzz.shrink import among, minimize
from rumor.train.faults.schedule import Fault

from .mutants import MUTANTS


@given(st.sets(st.integers(0, 39)))
def test_what_must_be_together_is_left_and_nothing_else(needed: set[int]) -> None:
    assert minimize(range(40), lambda some: needed <= set(some)) == sorted(needed)


def test_items_that_stand_in_for_one_another_leave_one_of_them() -> None:
    left = minimize(range(20), lambda some: any(item > 11 for item in some))
    assert len(left) == 1


@pytest.mark.extended
def test_the_same_failure_is_always_made_as_small() -> None:
    plant = MUTANTS["first-shard-asked"]
    config = CampaignConfig(seeds=tuple(range(1000)), mutant=plant, failures_max=1)
    (broken,) = run_campaign(config).failed
    drawn, small = config.spec(broken.seed), broken.spec
    assert shrink(drawn, broken.failure.invariant, plant) == small
    assert small.workers <= drawn.workers and len(small.faults) <= len(drawn.faults)
    assert set(small.without) <= set(OPTIONS)


def test_faults_of_peers_that_are_not_there_go_with_them() -> None:
    faults = (
        Fault(at_s=0.5, kind="join"),
        Fault(at_s=1.0, kind="crash", peer="p3"),
        Fault(at_s=1.0, kind="crash", peer="join-1"),
        Fault(at_s=1.0, kind="crash", peer="join-2"),
        Fault(at_s=2.0, kind="cut", peer="p0", to="p2", for_s=1.0),
        Fault(at_s=3.0, kind="mass-restart", peers=("p1", "p3"), for_s=1.0),
        Fault(at_s=3.0, kind="mass-restart", peers=("p2", "p3"), for_s=1.0),
        Fault(at_s=4.0, kind="partition", groups=(("p2", "p3"), ("p0", "p1")), for_s=1.0),
        Fault(at_s=5.0, kind="partition", groups=(("p3",),), for_s=1.0),
        Fault(at_s=6.0, kind="loss", rate=0.1),
    )
    left = among(faults, ["p0", "p1"])
    assert [(fault.at_s, fault.kind) for fault in left] == [
        (0.5, "join"),
        (1.0, "crash"),
        (3.0, "mass-restart"),
        (4.0, "partition"),
        (6.0, "loss"),
    ]
    assert (
        left[1].peer == "join-1" and left[2].peers == ("p1",) and left[3].groups == (("p0", "p1"),)
    )
