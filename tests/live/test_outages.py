"""Each scene on something small; at full size ``python -m tests.live.measure`` plays them.

In all of them the ledgers on disk account for every unit, and the survivors train on (`scenes`).
How long their pauses are is measured, and never asserted: this machine may be busy.
"""

from pathlib import Path

import pytest

from rumor.gossip.weight import ONE

from ..hosts import HostsError
from .scenes import (
    dial_out_only,
    half_killed,
    one_way_cut,
    receiver_killed,
    resets,
    slow_link,
    stopped,
)

pytestmark = pytest.mark.live

STEP_S = 0.02
MB = 1_000_000


@pytest.mark.slow
def test_a_receiver_killed_in_mid_share_comes_back_on_its_port_and_joins(tmp_path: Path) -> None:
    outcome = receiver_killed(tmp_path, 16 * MB, STEP_S)
    units = outcome.audit
    assert units.died > 0 and units.founded == ONE
    # What was broken off is known to have been, since there is a later life.
    assert units.stranded == 0


@pytest.mark.slow
@pytest.mark.parametrize(("size_mb", "shards"), [(4, 1), (64, 32)])
def test_resets_in_mid_transfer_lose_no_weight_and_the_newcomer_joins_in_the_end(
    tmp_path: Path, size_mb: int, shards: int
) -> None:
    outcome = resets(tmp_path, size_mb * MB, STEP_S, for_s=5, resets_min=20, shards=shards)
    assert outcome.audit.held == outcome.audit.founded == shards * ONE


@pytest.mark.slow
def test_a_stopped_peer_is_missed_comes_back_and_holds_nobody_for_dead(tmp_path: Path) -> None:
    outcome = stopped(tmp_path, MB, STEP_S, for_s=15, preset="local")
    assert outcome.audit.held == outcome.audit.founded


@pytest.mark.slow
def test_a_newcomer_joins_over_a_link_that_is_slower_than_heartbeats(tmp_path: Path) -> None:
    try:
        outcome = slow_link(tmp_path, 24 * MB, STEP_S, link_bytes_s=4e6)
    except HostsError as error:
        pytest.skip(str(error))
    assert outcome.found["in after, s"] > outcome.found["bytes over the link's rate, s"]
    # Nor is what it hands on when it leaves given up because the link is slow.
    assert outcome.audit.held == outcome.audit.founded


@pytest.mark.slow
def test_a_one_way_cut_heals(tmp_path: Path) -> None:
    outcome = one_way_cut(tmp_path, MB, STEP_S, for_s=12)
    assert outcome.audit.held + outcome.audit.burned == outcome.audit.founded


@pytest.mark.extended
def test_three_that_only_dial_out_exchange_through_the_one_that_does_not(tmp_path: Path) -> None:
    outcome = dial_out_only(tmp_path, MB, STEP_S)
    assert outcome.audit.held == outcome.audit.founded


@pytest.mark.slow
def test_half_of_the_peers_die_at_once_and_the_others_train_on(tmp_path: Path) -> None:
    units = half_killed(tmp_path, MB // 10, 0.1, peers=8).audit
    assert units.founded == 8 * ONE
    assert units.held + units.in_flight + units.stranded + units.burned + units.died == 8 * ONE
