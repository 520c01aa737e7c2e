"""The fast path decides the same as the protocols, operation by operation."""

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings

from rumor.gossip.types import stream
from rumor.gossip.weight import UNIT
from rumor.sim.kernel.fast_path import choice
from rumor.sim.kernel.fast_path.choice import unsupported_reason
from rumor.sim.kernel.fast_path.decisions import randoms
from rumor.sim.kernel.fast_path.decisions.tables import Tables
from rumor.sim.kernel.fast_path.fleet import FastFleet, FastPathUnsupported
from rumor.sim.kernel.fleet import Fleet

from .plans import PACES, flat, plan_of, settings_of_plans

UNTIL_S = 60.0


def compare(settings: dict[str, Any]) -> bool:
    """Decide a whole run both ways; return whether the fast path could finish it."""
    plan = plan_of(**settings)
    assert not unsupported_reason(plan)
    fast, slow = FastFleet(plan), Fleet(plan)
    while not slow.over and slow.now < UNTIL_S:
        try:
            reached = fast.run(UNTIL_S, 40)
        except FastPathUnsupported:
            return False
        assert slow.run(UNTIL_S, 40) == reached
        assert (fast.now, fast.over, fast.steps) == (slow.now, slow.over, slow.program.steps)
        assert flat(fast.take()) == flat(slow.program.take())
        assert fast.traffic == slow.traffic
        assert fast.audit() == slow.audit() and fast.audit().balanced
    for name in ("steps", "pushes", "mixed"):
        assert fast.column(name).tolist() == [getattr(worker, name) for worker in slow.workers]
    held = [worker.protocol.account.weight // UNIT for worker in slow.workers]
    assert fast.column("weight").tolist() == held
    return True


@pytest.mark.extended
@given(settings_of_plans())
def test_random_runs_match_the_protocols(settings: dict[str, Any]) -> None:
    compare(settings)


@pytest.mark.slow
@settings(max_examples=50_000)
@given(settings_of_plans())
def test_fifty_thousand_random_runs_match_the_protocols(drawn: dict[str, Any]) -> None:
    compare(drawn)


TIMED = {"n": 12, "rule": "gosgd:emission=per-second,outstanding_max=6", "steps": 60}
LATE = {"n": 12, "latency_s": 0.7, "steps": 60, "staged_max": 1}
OFFERED = {"n": 24, "inline_bytes_max": 1, "numbers": 2400}


@pytest.mark.parametrize(
    "settings",
    [
        # Some steps have no push, others several, some of which are skipped for lack of credit.
        TIMED | {"p": 1.0, "pace": PACES[1]},
        TIMED | {"p": 9.0, "pace": PACES[1]},
        TIMED | {"p": 40.0, "pace": PACES[0]},
        LATE | {"topology": "star"},
        LATE | {"topology": "one-peer-exponential"},
        LATE | {"topology": "random-regular:d=4"},
        *(
            pytest.param(settings, marks=pytest.mark.extended)
            for settings in (
                # Columns grow as the run needs them.
                {"n": 100, "steps": 30, "latency_s": 0.5},
                # Steps of 2 s are longer than the first timeout for an answer.
                OFFERED | {"rule": "gosgd", "step_s": 0.1},
                OFFERED | {"rule": "gosgd", "step_s": 2.0},
                OFFERED | {"rule": "sgp", "step_s": 0.1},
                OFFERED | {"rule": "sgp", "step_s": 2.0},
                OFFERED | {"rule": "sgp:outstanding_max=5", "step_s": 0.1},
                OFFERED | {"rule": "sgp:outstanding_max=5", "step_s": 2.0},
                OFFERED
                | {"n": 34, "rule": "sgp", "steps": 30, "numbers": 8}
                | {"pace": PACES[1], "staged_max": 64},
            )
        ),
    ],
    ids=str,
)
def test_runs_of_every_kind_match_the_protocols(settings: dict[str, Any]) -> None:
    assert compare(settings)


def test_weights_below_a_unit_are_left_to_the_protocols() -> None:
    """No weight returns for long, and halves are halved again and again."""
    plan = plan_of(60, latency_s=100.0, steps=None, rule="gosgd:outstanding_max=50")
    fleet = FastFleet(plan)
    with pytest.raises(FastPathUnsupported):
        fleet.run(90.0, 10**9)
    assert fleet.column("weight").min() >= 2**11


@pytest.mark.extended
def test_random_numbers_match_numpy() -> None:
    @numba.njit
    def draw(t: Tables, n: int) -> tuple[float, int]:
        return randoms.uniform(t, 1), randoms.below(t, 1, n)

    plan = plan_of(2)
    fleet = FastFleet(plan)
    rng = stream(plan.seed, plan.ids[1], "rule")
    for n in (1, 2, 3, 7, 100, 2**31 - 1, 2, 2, 5) * 20:
        fleet._supply(1)
        assert draw(fleet._tables, n) == (rng.random(), rng.integers(n))


def test_a_query_that_overtakes_its_share_is_left_to_the_protocols() -> None:
    """A share takes 1.6 s through a downlink, and is queried after one second."""
    rates = {"bandwidth_mbit": 1000.0, "downlink_mbit": 1.0}
    assert not compare({"n": 8, "numbers": 50_000, **rates})


def test_columns_can_hold_many_refusals_between_two_steps() -> None:
    """All leaves of a star push at once: the hub accepts eight shares, thousands return."""
    fleet = FastFleet(plan_of(5000, topology="star", steps=3))
    assert fleet.run(np.inf, 10**9) and fleet.traffic.refusals > 2 * 4000


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rule": "adpsgd"}, "the rule is adpsgd"),
        ({"rule": "sgp", "n": 66}, "more than 64 neighbors"),
        ({"rule": "gosgd:emission=adaptive"}, "emission is adaptive"),
        ({"numbers": 1 << 19}, "does not fit into one frame"),
        ({"topology": "random-matching"}, "no period"),
        ({"staged_max": 100}, "too many shares may wait"),
    ],
)
def test_unsupported_settings_are_left_to_the_protocols(changes: dict[str, Any], why: str) -> None:
    assert why in unsupported_reason(plan_of(**changes))


def test_a_dense_graph_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_EDGES_MAX", 20)
    monkeypatch.setattr(choice, "_EDGES_EACH", 3)
    assert "more than 48 edges" in unsupported_reason(plan_of(16, topology="complete"))
    assert not unsupported_reason(plan_of(5, topology="complete"))
    assert not unsupported_reason(plan_of(16, topology="ring"))
