"""Shrinking is deterministic: which faults, workers and options of a failure are left."""

import json

from hypothesis import given
from hypothesis import strategies as st

from rumor.sim.fuzz.shrink import among, minimize
from rumor.train.faults.schedule import read_faults

from ...faults import fault


@given(st.sets(st.integers(0, 39)))
def test_only_the_items_that_fail_together_are_left(needed: set[int]) -> None:
    assert minimize(range(40), lambda some: needed <= set(some)) == sorted(needed)


def test_one_of_several_interchangeable_items_is_left() -> None:
    left = minimize(range(20), lambda some: any(item > 11 for item in some))
    assert len(left) == 1


def test_faults_of_removed_peers_are_removed_too() -> None:
    given = [
        fault(0.5, "join"),
        fault(1.0, "crash", "p3"),
        fault(1.0, "crash", "join-1"),
        fault(1.0, "crash", "join-2"),
        fault(2.0, "cut", "p0", to="p2", for_s=1.0),
        fault(3.0, "mass-restart", peers=["p1", "p3"], for_s=1.0),
        fault(3.0, "mass-restart", peers=["p2", "p3"], for_s=1.0),
        fault(4.0, "partition", groups=[["p2", "p3"], ["p0", "p1"]], for_s=1.0),
        fault(5.0, "partition", groups=[["p3"]], for_s=1.0),
        fault(6.0, "loss", rate=0.1),
    ]
    left = among(read_faults(json.dumps(given)), ["p0", "p1"])
    assert [(each.at_s, each.kind) for each in left] == [
        (0.5, "join"),
        (1.0, "crash"),
        (3.0, "mass-restart"),
        (4.0, "partition"),
        (6.0, "loss"),
    ]
    assert left[1].peer == "join-1" and left[2].peers == ("p1",)
    assert left[3].groups == (("p0", "p1"),)
