"""Advice: candidates in the order in which they get to a loss, by simulations of measured peers."""

import importlib
from typing import Any

import pytest

from rumor.gossip.errors import ConfigError
from rumor.sim import SimulationConfig, simulate
from rumor.sim.calibration import Advice, Calibration, Candidate, PeerPace, advise
from rumor.sim.models.network import PRESETS

# The function has the name of its module.
advising = importlib.import_module("rumor.sim.calibration.advise")

FAST = Candidate(rule="gosgd:p=0.2")
ROUNDS = Candidate(rule="allreduce", topology="complete")


def measured(*steps_s: float, **changes: Any) -> Calibration:
    peers = tuple(PeerPace(id=f"peer-{i}", step_s=s, steps=9) for i, s in enumerate(steps_s))
    settings = {"task": "digits", "steps": 60, "rule": "sgp", "p": 0.5, "wire": "int8"}
    given: dict[str, Any] = {"source": "runs/x", "peers": peers, "settings": settings}
    return Calibration(**given | changes)


@pytest.mark.extended
def test_who_waits_for_nobody_comes_first_where_one_is_slow() -> None:
    target, found = advise(
        measured(0.1, 0.1, 0.1, 1.5), candidates=(ROUNDS, FAST), seeds=1, steps=60
    )
    assert [advice.candidate for advice in found] == [FAST, ROUNDS]
    first, second = found
    assert first.time_s is not None and second.time_s is not None
    assert first.time_s < 0.5 * second.time_s and target > 0


@pytest.mark.extended
def test_figures_are_those_of_the_simulation_that_is_named() -> None:
    calibration = measured(0.1, 0.2, network=PRESETS["wan"])
    target, (advice,) = advise(calibration, candidates=(FAST,), seeds=1, target=1.0)
    base = calibration.simulation()
    chosen = {"rule": FAST.rule, "topology": FAST.topology, "wire": FAST.wire, "p": None}
    run = simulate(SimulationConfig(**base | chosen | {"seed": 0}))
    median = run.series["loss_quantiles"][:, 2]
    reached = int((median <= 1.0).argmax())
    assert target == 1.0
    assert advice.time_s == run.series["time_s"][reached]
    assert advice.bytes_sent == run.series["bytes_sent"][reached]
    assert advice.loss == pytest.approx(median[-1])


@pytest.mark.extended
def test_who_does_not_get_there_comes_after_those_who_do() -> None:
    seldom = Candidate(rule="gosgd:p=0.01", topology="ring")
    heterogeneous = measured(
        0.1, 0.1, 0.1, 0.1, settings={"task": "digits", "steps": 60, "partition": "shards:1"}
    )
    _, found = advise(heterogeneous, candidates=(seldom, ROUNDS), seeds=1)
    assert [advice.candidate for advice in found] == [ROUNDS, seldom]
    assert found[1].time_s is None and found[1].bytes_sent and found[1].loss is not None


def test_what_cannot_be_used_is_told_with_its_reason() -> None:
    wrong = Candidate(rule="allreduce", topology="complete", wire="topk2bit:0.01")
    _, found = advise(measured(0.1, 0.1), candidates=(wrong, FAST), seeds=1)
    assert [advice.candidate for advice in found] == [FAST, wrong]
    assert found[1].why and found[1].loss is None
    with pytest.raises(ConfigError, match="no candidate can be used"):
        advise(measured(0.1, 0.1), candidates=(wrong,), seeds=1)


def test_seeds_below_one_are_refused() -> None:
    with pytest.raises(ConfigError, match="seeds is 0"):
        advise(measured(0.1), seeds=0)


def test_a_candidate_is_named_and_typed() -> None:
    wired = Candidate(rule="sgp", topology="ring", wire="int8")
    assert wired.options == "--rule sgp --topology ring --wire int8"
    assert (wired.name, FAST.name) == ("sgp, ring, int8", "gosgd:p=0.2, exponential")


def test_noise_is_no_order() -> None:
    same = [
        Advice(candidate=FAST, times_s=(1.0, 2.0, 3.0)),
        Advice(candidate=ROUNDS, times_s=(1.1, 1.9, 3.1)),
        Advice(candidate=FAST, times_s=(21.0, 22.0, 23.2)),
        Advice(candidate=FAST, times_s=(None, 2.0, 3.0)),
    ]
    first, alike, slower, never = advising._compared(same, grid_s=0.1)
    assert first.p is never.p is None
    assert alike.p is not None and alike.p > 0.05 > (slower.p or 1.0)
    assert advising._compared([Advice(candidate=FAST, times_s=(1.0,))] * 2, 0.1)[1].p is None
