"""Storms: reproducible schedules of faults that a swarm of any size can carry out."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rumor.gossip.errors import ConfigError
from rumor.sim import simulate
from rumor.sim.models.network import network_of
from rumor.sim.storm import STORMS, draw_storm, read_storm
from rumor.train.faults.schedule import LIVE_KINDS, Fault

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


@pytest.mark.extended
@pytest.mark.parametrize("name", STORMS)
def test_every_storm_draws_faults_that_live_runs_support(name: str) -> None:
    drawn = draw_storm(name, 32, DAY_S)
    assert drawn.faults and {fault.kind for fault in drawn.faults} <= set(LIVE_KINDS)
    if drawn.network is not None:
        network_of(drawn.network)


@pytest.mark.extended
@given(
    st.sampled_from(STORMS),
    st.integers(1, 40),
    st.floats(1.0, 4 * HOUR_S),
    st.integers(0, 99),
    st.sampled_from([1.0, 60.0]),
)
@settings(max_examples=60, deadline=None)
def test_faults_hit_only_running_peers_and_leave_one_running(
    name: str, peers: int, lasts_s: float, seed: int, scale: float
) -> None:
    faults = draw_storm(name, peers, lasts_s, seed, scale=scale).faults
    assert draw_storm(name, peers, lasts_s, seed, scale=scale).faults == faults
    assert all(0 <= fault.at_s <= lasts_s for fault in faults)
    up: set[int | str] = set(range(peers))
    joined = 0
    for fault in faults:
        if fault.kind == "join":
            joined += 1
            up.add(f"join-{joined}")
        elif fault.kind == "restart":
            assert fault.peer is not None and fault.peer not in up
            up.add(fault.peer)
        else:
            assert targets_of(fault) <= up
        if fault.kind in ("crash", "leave"):
            up -= targets_of(fault)
    alone = any(event.get("each") for event in read_storm(name)["event"])
    assert up or alone


def targets_of(fault: Fault) -> set[int | str]:
    peers = fault.groups[0] if fault.groups else (fault.peer,)
    return {peer for peer in peers if peer is not None}


@pytest.mark.extended
def test_rates_of_faults_match_the_published_rates() -> None:
    hours = 200
    kinds = Counter(fault.kind for fault in draw_storm("ft-diloco-125", 32, hours * HOUR_S).faults)
    for kind, expected in {"crash": 77.8, "partition": 25.0, "pause": 22.2}.items():
        assert kinds[kind] / hours == pytest.approx(expected, abs=4 * (expected / hours) ** 0.5)


@pytest.mark.extended
@pytest.mark.parametrize(("name", "healthy"), [("torchft-60s", 0.987), ("torchft-15s", 0.63)])
def test_the_fraction_of_running_peers_matches_the_publication(name: str, healthy: float) -> None:
    lasts_s, down_s = 50 * HOUR_S, 0.0
    since: dict[object, float] = {}
    for fault in draw_storm(name, 30, lasts_s).faults:
        if fault.kind == "crash":
            since[fault.peer] = fault.at_s
        else:
            down_s += fault.at_s - since.pop(fault.peer)
    assert 1 - down_s / (30 * lasts_s) == pytest.approx(healthy, abs=0.01)


def test_a_scale_shortens_times_and_nothing_else() -> None:
    plain, fast = draw_storm("home", 8, DAY_S), draw_storm("home", 8, DAY_S / 60, scale=60)
    assert [fault.kind for fault in plain.faults] == [fault.kind for fault in fast.faults]
    for one, other in zip(plain.faults, fast.faults, strict=True):
        assert one.at_s / 60 == pytest.approx(other.at_s, abs=0.001)
        assert one.factor == other.factor
    assert plain.network == fast.network


@pytest.mark.extended
def test_a_swarm_survives_a_storm_with_all_its_weight() -> None:
    faults = draw_storm("ft-diloco-125", 8, 30.0, seed=1, scale=120).faults
    run = simulate(task="quadratic", workers=8, steps=400, faults=faults)
    assert run.summary["crashes"] > 0
    assert run.summary["weight_units_total"] == run.summary["weight_units_expected"]


def test_partitions_cut_off_one_site_and_uplinks_differ_by_peer() -> None:
    drawn = draw_storm("wan-4-sites", 10, 10 * HOUR_S)
    sites = {frozenset(range(site, 10, 4)) for site in range(4)}
    assert {frozenset(fault.groups[0]) for fault in drawn.faults if fault.groups} == sites
    assert drawn.network is not None
    lines = network_of(drawn.network).links
    assert len(lines) == 12 and all(line.shared for line in lines)
    assert all(200 <= (line.bandwidth_mbit or 0) <= 2000 for line in lines)
    network = draw_storm("home", 200, 1.0).network
    assert network is not None
    uplinks = [host["bandwidth_mbit"] for host in network["hosts"]]
    assert 10 <= min(uplinks) < 12 and 48 < max(uplinks) <= 50
    assert np.mean(uplinks) == pytest.approx(30, abs=3)


def test_an_unknown_storm_suggests_a_similar_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'torchft-60s'"):
        draw_storm("torchft-60", 8, 60.0)


def test_the_table_in_the_docs_matches_the_storm_files() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "faults.md"
    if not page.exists():
        pytest.skip("the docs are not next to the tests")
    table = page.read_text().split("<!-- storms:")[1].split("<!-- end of storms")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    storms = [(name, read_storm(name)) for name in STORMS]
    assert rows == [
        f"| `{name}` | {s['peers']} | {s['what']} | {' '.join(s['source'].split())} |"
        for name, s in storms
    ]
