"""Under rules that wait, a total of steps ends all workers after the same step."""

from collections.abc import Mapping
from typing import Any

import pytest

from rumor.gossip.protocol.rule import requirements_of
from rumor.gossip.rules.registry import RULES, read_rule
from rumor.sim import simulate

from ..faults import fault
from ..rules import fitting

WAITING = [name for name in RULES if requirements_of(read_rule(name).make()).waits]
MEMBERS_CHANGE = [n for n in WAITING if not requirements_of(read_rule(n).make()).fixed_members]

HARMLESS = (fault(0.0, "heal"),)
PAUSED = (fault(0.4, "pause", 1, for_s=0.5),)

WORKERS, TOTAL, EACH = 4, 86, 22


def simulated(name: str, **changes: Any) -> Any:
    given: dict[str, Any] = {
        "task": "quadratic",
        "lr": 0.01,
        "lr_schedule": "cosine",
        "workers": WORKERS,
        "total_steps": TOTAL,
        "slow": ("3:3",),
        "step_s": 0.05,
        "seed": 1,
    }
    return simulate(**given | {"topology": "complete"} | fitting(name) | changes)


def outcome(run: Any) -> Mapping[str, Any]:
    return {"steps": run.workers["steps"].tolist(), "pushes": run.summary["pushes"]}


@pytest.mark.extended
@pytest.mark.parametrize("name", WAITING)
def test_faults_do_not_change_the_step_at_which_workers_end(name: str) -> None:
    calm = simulated(name)
    assert outcome(calm)["steps"] == [EACH] * WORKERS
    for faults in (HARMLESS, PAUSED):
        run = simulated(name, faults=faults)
        assert outcome(run) == outcome(calm)
        # The losses agree too, since learning rates follow the total.
        assert run.summary["loss"] == pytest.approx(calm.summary["loss"], rel=1e-5)


@pytest.mark.extended
@pytest.mark.parametrize("name", MEMBERS_CHANGE)
def test_survivors_take_the_steps_that_a_dead_worker_has_left(name: str) -> None:
    run = simulated(name, faults=(fault(0.6, "crash", 1),), total_steps=240)
    died_after = int(run.workers["steps"][1])
    assert set(run.workers["steps"].tolist()) == {died_after, -(-(240 - died_after) // 3)}


def test_a_newcomer_ends_with_the_others() -> None:
    run = simulated("local-sgd", faults=(fault(0.6, "join"),), total_steps=240)
    *founders, newcomer = run.workers["steps"].tolist()
    assert 240 <= sum(founders) + newcomer < 260
    # Founders may or may not know of its latest steps.
    assert max(founders) - min(founders) <= 5
