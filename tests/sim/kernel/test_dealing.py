"""`simulate` with samples that follow who is there, counted sample by sample."""

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


def test_where_all_stay_and_are_equally_fast_each_epoch_shows_nearly_all_samples(calm: Run) -> None:
    summary = calm.summary
    # 1,437 samples in batches of 32: an epoch is 45 steps of all together, nine of each.
    assert summary["epochs"] == 600 * 32 // 1437
    assert summary["epoch_seen_min"] > 0.9
    assert summary["sample_seen_mean"] * 1437 == pytest.approx(600 * 32)
    assert summary["decided"] == "the protocols"
    # By chance alone (each sample drawn anew) it would be the root of the mean, 3.7.
    assert summary["sample_seen_sd"] < 1.8
    assert summary["weight_units_total"] == summary["weight_units_expected"]


def test_a_fixed_part_is_left_alone_by_its_peers_death_and_a_live_one_is_not() -> None:
    dies = {"timing": "local", "faults": [fault(1.0, "crash", peer=1)], "steps": 200}
    live = simulate(**SETTINGS | dies).summary
    # It took 10 steps of 32. Of a part of 287 samples that nobody else has, none is seen more than
    # twice then.
    assert live["sample_seen_min"] > 5


def test_those_who_come_and_go_are_dealt_samples(churn: Run) -> None:
    summary = churn.summary
    assert summary["weight_units_total"] == summary["weight_units_expected"]
    assert summary["sample_seen_min"] > 0 and summary["epochs"] >= 4
    taken = sum(churn.workers["steps"].tolist()) * 32
    # What was taken after the last checkpoint of one that crashed is taken again, and seen again.
    assert round(summary["sample_seen_mean"] * 1437) == taken


@pytest.mark.extended
@pytest.mark.parametrize("change", [{"window": 7}, {"threads": 2, "window": 11}], ids=str)
@pytest.mark.parametrize("settings", [SETTINGS, CHURN], ids=["calm", "churn"])
def test_how_a_run_is_computed_changes_no_bit(
    settings: dict[str, Any], change: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    run = simulate(**settings | change)
    asked: Run = request.getfixturevalue("calm" if settings is SETTINGS else "churn")
    for name in ("digest", "model_digest", "sample_seen_sd", "epoch_seen_mean"):
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
    assert "sample_seen_mean" not in shared


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
