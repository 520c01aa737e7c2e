"""Campaigns: any number of processes gives one result; planted bugs are found and shrunk."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip import ConfigError
from rumor.gossip.protocol.protocol import Protocol
from rumor.gossip.protocol.state import State
from rumor.gossip.wire.messages import Phase
from rumor.sim.fuzz import CampaignConfig, Trial, run_campaign
from rumor.sim.fuzz.campaign import EVENT_COVERAGE
from rumor.sim.fuzz.violation import LIVENESS
from rumor.train.faults.schedule import Fault

from ...waiting import until
from .mutants import MUTANTS


@pytest.mark.parametrize(
    "seed",
    [
        2065,  # a peer that finished before its first step, under a rule that waits
        2889,  # a finished peer, alone behind a cut, that the others found while it was closing
        # outer rounds of peers that only dial out, when the only listening peer has finished
        pytest.param(7488, marks=pytest.mark.extended),
        8345,  # a newcomer between two swarms, before either had accepted anything
        3454,  # a later incarnation that goes unannounced, since both ends only dial out
        20917,  # an incarnation with a smaller number than the last, known to one of three
    ],
)
def test_seeds_that_once_failed_pass(seed: int) -> None:
    assert not run_campaign(CampaignConfig(seeds=(seed,), shrink=False)).failed


def broken_everywhere(protocol: Protocol) -> None:
    def wake(now: float) -> Any:
        raise KeyError("x")

    setattr(protocol, "wake", wake)  # noqa: B010


@pytest.mark.extended
def test_the_result_does_not_depend_on_the_number_of_processes() -> None:
    config = CampaignConfig(
        seeds=tuple(range(5, 13)), workers=2, mutant=broken_everywhere, failures_max=1
    )
    one, two = (run_campaign(replace(config, processes=processes)) for processes in (1, 2))
    assert one == two
    assert one.failed and one.failed[0].shrunk


QUICK = ("accepts-more",)
LATER = ("partial-as-whole", "first-shard-asked")


@pytest.mark.parametrize(
    "plant",
    [
        *QUICK,
        *(pytest.param(plant, marks=pytest.mark.extended) for plant in LATER),
        *(pytest.param(p, marks=pytest.mark.slow) for p in MUTANTS if p not in QUICK + LATER),
    ],
)
def test_a_planted_bug_is_found_in_a_thousand_seeds_and_shrunk(
    plant: str,
) -> None:
    config = CampaignConfig(seeds=tuple(range(1000)), mutant=MUTANTS[plant], failures_max=1)
    campaign = run_campaign(config)
    (broken,) = campaign.failed
    assert broken.shrunk and len(broken.spec.faults) <= 3
    assert broken.spec.attempt(MUTANTS[plant]).failure == broken.failure
    assert broken.spec.attempt().failure is None


def test_a_campaign_ends_after_too_many_failures_and_shrinks_one_of_each_kind() -> None:
    config = CampaignConfig(seeds=tuple(range(50)), mutant=broken_everywhere, failures_max=4)
    campaign = run_campaign(replace(config, workers=2))
    assert campaign.seeds == len(campaign.failed) == 4
    assert [broken.shrunk for broken in campaign.failed] == [True, False, False, False]
    assert campaign.failed[0].spec.faults == () and campaign.failed[0].spec.workers == 2
    # An error raised by the core is a violation and says where it was raised.
    failure = campaign.failed[0].failure
    assert failure.invariant == "error"
    assert failure.what.startswith("KeyError: 'x' (test_campaign.py:")
    config = CampaignConfig(seeds=(0,), mutant=broken_everywhere, shrink=False)
    (whole,) = run_campaign(config).failed
    assert not whole.shrunk and whole.spec == config.spec(0)


def test_a_full_campaign_reports_the_events_it_never_covered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = Trial(seed=0, events=1, seen=Counter({"fence": 1}))
    monkeypatch.setattr("rumor.sim.fuzz.campaign._try", lambda config, seed: nothing)
    full = run_campaign(CampaignConfig(seeds=tuple(range(200))))
    assert set(full.never) == set(EVENT_COVERAGE) - {"fence"}
    for config in (
        CampaignConfig(seeds=(0,)),
        CampaignConfig(seeds=tuple(range(200)), without=("ring",)),
    ):
        assert run_campaign(config).never == ()


CHILDREN = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")


@pytest.mark.extended
@pytest.mark.skipif(not CHILDREN.exists(), reason="/proc does not list child processes here")
def test_worker_processes_end_when_their_campaign_is_killed() -> None:
    command = ["-m", "rumor.sim.fuzz", "--seeds", "0-99999", "--processes", "2"]
    campaign = subprocess.Popen([sys.executable, "-P", *command], stdout=subprocess.PIPE)
    try:
        children = Path(f"/proc/{campaign.pid}/task/{campaign.pid}/children")
        # The third process tracks the resources that the two share.
        until(lambda: len(children.read_text().split()) == 3)
        started = children.read_text().split()
    finally:
        campaign.kill()
        campaign.communicate()
    until(lambda: not any(map(runs, started)))


def runs(pid: str) -> bool:
    """Return whether a process runs, and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_given_faults_apply_to_exactly_the_given_number_of_workers() -> None:
    config = CampaignConfig(
        seeds=(1, 2), workers=5, faults=(Fault(at_s=1.0, kind="leave", peer=4),)
    )
    assert {config.spec(seed).workers for seed in config.seeds} == {5}


def test_a_campaign_without_seeds_is_refused() -> None:
    with pytest.raises(ConfigError, match="seeds is empty"):
        CampaignConfig(seeds=())


class Hasty(State):
    """A leaver always reports that it has no messages in flight."""

    __slots__ = ()

    def in_flight(self) -> int:
        return 0 if self.table.phase is Phase.LEAVING else State.in_flight(self)


def abandon(protocol: Protocol) -> None:
    """Let a leaver say goodbye once it has pushed everything, without waiting for answers."""
    setattr(protocol.state, "__class__", Hasty)  # noqa: B010


@pytest.mark.extended
def test_a_campaign_does_not_import_torch() -> None:
    program = (
        "import sys; from rumor.sim.fuzz import CampaignConfig, run_campaign\n"
        "run_campaign(CampaignConfig(seeds=(0,), workers=2)); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.extended
def test_a_leaver_that_abandons_its_escrow_is_a_violation() -> None:
    config = CampaignConfig(seeds=tuple(range(50)), mutant=abandon, failures_max=1)
    (broken,) = run_campaign(config).failed
    assert broken.failure.invariant == LIVENESS
    assert "leaves on open escrow" in broken.failure.what
    assert broken.spec.attempt().failure is None
