"""`simulate` with samples that follow who is there, where they come and go."""

import os
import subprocess
import sys
from typing import Any

import pytest

from rumor.gossip import ConfigError
from rumor.sim import Run, Swarm, simulate
from rumor.train.tasks.live_partition import Deal, LiveSampler

from ..fleets import fault

SETTINGS: dict[str, Any] = {
    "task": "digits",
    "workers": 5,
    "steps": 120,
    "batch_size": 32,
    "p": 0.3,
    "partition": "live",
    "engine": "loop",
    "seed": 2,
}
CHURN: dict[str, Any] = SETTINGS | {
    "timing": "local",
    "partition": "live:3",
    "checkpoint_every_s": 1.0,
    "faults": [
        fault(3.0, "crash", peer=1),
        fault(5.0, "restart", peer=1),
        fault(6.0, "join", count=2),
        fault(9.0, "leave", peer=2),
    ],
}


@pytest.fixture(scope="module")
def calm() -> Run:
    return simulate(**SETTINGS)


@pytest.fixture(scope="module")
def churn() -> Run:
    return simulate(**CHURN)


def test_those_who_come_and_go_are_dealt_samples(churn: Run) -> None:
    summary = churn.summary
    assert summary["weight_units_total"] == summary["weight_units_expected"]
    assert summary["crashes"] == 1 and summary["joins"] == 2 and summary["accuracy"] > 0.7


@pytest.mark.extended
@pytest.mark.parametrize("change", [{"window": 7}, {"threads": 2, "window": 11}], ids=str)
@pytest.mark.parametrize("settings", [SETTINGS, CHURN], ids=["calm", "churn"])
def test_how_a_run_is_computed_changes_no_bit(
    settings: dict[str, Any], change: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    run = simulate(**settings | change)
    asked: Run = request.getfixturevalue("calm" if settings is SETTINGS else "churn")
    for name in ("digest", "model_digest"):
        assert run.summary[name] == asked.summary[name]


@pytest.mark.extended
def test_hash_order_changes_no_bit(churn: Run) -> None:
    program = (
        "from rumor.sim import simulate; from tests.sim.kernel.test_dealing import CHURN; "
        "print(simulate(**CHURN).summary['digest'])"
    )
    assert forked_output(program) == churn.summary["digest"]


def forked_output(program: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": "77", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


def test_the_deal_is_a_choice_of_samples_alone(calm: Run) -> None:
    shared = simulate(**SETTINGS | {"partition": "shared", "decide": "protocol"}).summary
    assert calm.summary["pushes"] == shared["pushes"]
    assert calm.summary["model_digest"] != shared["model_digest"]


def test_the_fast_path_says_that_it_cannot(calm: Run) -> None:
    with pytest.raises(ConfigError, match="samples are dealt by who is there"):
        simulate(**SETTINGS | {"decide": "compiled"})


def test_batches_of_several_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="partition live needs batches of one size"):
        simulate(**SETTINGS | {"batch_sizes": ("peer-1:8",)})


def test_a_swarm_in_one_process_deals_too(monkeypatch: pytest.MonkeyPatch) -> None:
    dealt: list[Deal] = []
    deal = LiveSampler.deal

    def spy(self: LiveSampler, given: Deal) -> None:
        dealt.append(given)
        deal(self, given)

    monkeypatch.setattr(LiveSampler, "deal", spy)
    swarm = Swarm("digits", peers=3, seed=1, partition="live")
    swarm.run(15.0)
    assert swarm.accuracy() > 0.7
    assert all(each.members == swarm.peers for each in dealt) and len(dealt) > 15
