"""How workers spend their time, compared with cases that were computed by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rumor.gossip import audit
from rumor.sim import simulate
from rumor.sim.batched.schedule import Ending, Reading
from rumor.sim.kernel.faults.report import FaultReport, Times
from rumor.sim.kernel.plan import Checkpoint, Traffic
from rumor.sim.kernel.worker import Incarnations, Worker
from rumor.sim.results.measure import participation, time_figures, token_figures
from rumor.train.tasks.registry import build_task
from rumor.train.tasks.task import Task

from ...faults import Fault, fault
from ..fleets import plan_of

NOISE: dict[str, Any] = {"task": "noise", "topology": "complete", "threads": 1, "seed": 3}


def reading(time_s: float, steps: list[int], exchanges: list[int], **more: Any) -> Reading:
    given: dict[str, Any] = {"steps": np.array(steps), "exchanges": np.array(exchanges), **more}
    units = np.ones((len(steps), 1))
    return Reading(time_s=time_s, weight_units=units, idle_s=0.0, traffic=Traffic(), **given)


def test_workers_that_never_wait_are_fully_utilized() -> None:
    summary = simulate(workers=4, steps=10, step_s=1.0, **NOISE).summary
    assert summary["utilization"] == 1.0 and summary["wait_s_longest"] == 0.0
    assert summary["virtual_time_s"] == 10.0 and summary["goodput"] == 1.0


def test_a_worker_waits_two_thirds_of_the_time_for_a_slow_partner() -> None:
    # Steps of 1 s and 3 s, and a barrier without latency after each: of 12 s, the faster worker
    # computes 4 s, and waits 2 s at a time. The steps of both take 4 s and 12 s of 24 s in total.
    summary = simulate(
        workers=2, steps=4, step_s=1.0, slow=("1:3",), network="ideal", rule="allreduce", **NOISE
    ).summary
    assert summary["virtual_time_s"] == 12.0
    assert summary["utilization"] == pytest.approx((4 + 12) / 24)
    assert summary["goodput"] == pytest.approx((4 * 1 + 4 * 3) / 24)
    assert summary["wait_s_longest"] == pytest.approx(2.0)
    assert summary["idle"] == pytest.approx(1 - summary["utilization"])


@pytest.mark.parametrize(
    ("injected", "utilization"),
    # The second worker is gone for the last 60 of 120 s, or paused; both start within a second.
    [(fault(60, "crash", 1), 1.0), (fault(30, "pause", 1, for_s=60), (120 + 60) / 240)],
)
def test_a_worker_down_for_half_the_time_loses_half_of_its_goodput(
    injected: Fault, utilization: float
) -> None:
    summary = simulate(workers=2, time_s=120.0, step_s=1.0, faults=[injected], **NOISE).summary
    assert summary["goodput"] == pytest.approx((120 + 60) / 240, abs=0.02)
    assert summary["utilization"] == pytest.approx(utilization, abs=0.02)


def test_fast_path_and_protocols_give_the_same_figures() -> None:
    names = ("utilization", "goodput", "wait_s_longest", "members_taking_part", "participation")
    runs = [simulate(workers=8, steps=40, decide=d, **NOISE).summary for d in ("auto", "protocol")]
    assert [runs[0][name] for name in names] == [runs[1][name] for name in names]


def test_steps_after_the_last_checkpoint_are_lost() -> None:
    plan = plan_of([])
    incarnations = Incarnations(plan, None, None)
    before = incarnations.first(1, plan.ids[1])
    before.steps, before.computed_s, before.away_s, before.waited_s_most = 10, 30.0, 4.0, 7.0
    kept = incarnations.next(before, Checkpoint(steps=8, peers=(), clock=()))
    assert (kept.computed_s, kept.away_s, kept.waited_s_most) == (24.0, 4.0, 7.0)
    assert incarnations.next(before, None).computed_s == 0.0


def test_a_worker_is_away_while_it_searches_for_a_swarm_or_is_paused() -> None:
    worker = Worker(0, "peer-0", None)  # type: ignore[arg-type]
    worker.started_s, worker.searching = 5.0, True
    assert worker.away_until(8.0) == 3.0
    worker.searching, worker.away_s, worker.paused_s = False, 3.0, 10.0
    assert worker.away_until(14.0) == 7.0
    # While it also waits for others, the time counts as waiting.
    worker.waiting_since_s = 9.0
    assert worker.away_until(14.0) == 3.0 and worker.waited_until(14.0) == 5.0
    worker.waited_s_most = 6.0
    assert worker.waited_until(14.0) == 6.0
    worker.waiting_since_s, worker.running = None, False
    assert worker.away_until(14.0) == 3.0


def test_workers_take_part_if_they_step_and_exchange_in_a_quarter() -> None:
    readings = [
        reading(0.0, [0, 0, 0], [0, 0, 0]),
        reading(10.0, [9, 9, 9], [2, 2, 0]),  # the third exchanges nothing
        reading(20.0, [18, 18, 18], [2, 2, 0]),  # no worker does: not counted
        reading(30.0, [27, 18, 27], [4, 3, 1]),  # the second takes no step
        reading(40.0, [36, 18, 36], [5, 3, 2], present=np.array([0, 2])),  # and is gone
    ]
    figures = participation(readings)
    assert figures["members_taking_part"] == pytest.approx((2 + 2 + 2) / 3)
    assert figures["participation"] == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)


def test_without_any_exchange_participation_is_none() -> None:
    no_figures = {"members_taking_part": None, "participation": None}
    assert participation([]) == no_figures
    assert participation([reading(0.0, [0], [0]), reading(4.0, [4], [0])]) == no_figures


def test_time_lost_in_faults_is_subtracted_from_the_founders_time() -> None:
    report = FaultReport()
    times = Times(until_s=25.0, lived_s=80.0, unused_s=20.0, computed_s=50.0, waited_s_most=3.0)
    given: Any = {"audit": audit([], set()), "halts": {}, "decided": "", "fault_report": report}
    steps, units = {"steps": np.array([50])}, np.ones((1, 1))
    ending = Ending(workers=steps, weight_units=units, times=times, **given)
    figures = time_figures(ending, end_s=30.0, founders=4, means_s=[1.0])
    assert figures == {"utilization": 0.75, "goodput": 0.5, "wait_s_longest": 3.0}
    none = time_figures(ending, end_s=0.0, founders=4, means_s=[1.0])
    assert set(none.values()) == {None}
    calm = replace(ending, fault_report=None, times=None)
    assert time_figures(calm, end_s=100.0, founders=1, means_s=[1.0])["goodput"] == 0.5


def test_time_after_the_last_step_is_not_counted() -> None:
    # One of four workers is gone for good at 50 s, after 200 steps; then 3 steps a second follow.
    given: dict[str, Any] = {"workers": 4, "total_steps": 500, "step_s": 1.0}
    summary = simulate(**given, faults=[fault(50, "crash", 1)], **NOISE).summary
    assert summary["goodput"] == pytest.approx(500 / (4 * 150), abs=0.01)
    assert summary["utilization"] == pytest.approx(1.0, abs=0.01)


def test_tokens_are_counted_for_texts_and_samples_for_other_data() -> None:
    digits, code = build_task("digits", Task, seed=0), build_task("code", Task, seed=0)
    assert token_figures(digits, np.array([3, 4]), [2, 1]) == {"tokens": 3 * 2 + 4}
    assert token_figures(code, np.array([3, 4]), [2, 1]) == {"tokens": (3 * 2 + 4) * 128}
    assert token_figures(object(), np.array([3]), [2]) == {}
