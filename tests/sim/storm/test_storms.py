"""Storms: drawn for any swarm, the same ones each time, and never more than a swarm can have."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rumor.gossip.errors import ConfigError
from rumor.sim import simulate
from rumor.sim.models.network import network_of
from rumor.sim.storm import STORMS, read_storm
from rumor.train.faults.schedule import LIVE_KINDS, Fault

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S

EVENT = """
what = "x"
source = "y"
peers = 4
[[event]]
"""


def storm_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as error:
        read_storm(str(storm_of(tmp_path, text)))
    return str(error.value)


@pytest.mark.parametrize("name", STORMS)
def test_each_says_what_it_is_and_can_be_done_to_real_processes(name: str) -> None:
    storm = read_storm(name)
    assert storm.what and storm.source and storm.peers >= 8
    drawn = storm.draw(storm.peers, DAY_S)
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
def test_nobody_is_struck_while_away_and_somebody_always_stays(
    name: str, peers: int, lasts_s: float, seed: int, scale: float
) -> None:
    storm = read_storm(name)
    faults = storm.draw(peers, lasts_s, seed, scale=scale).faults
    assert storm.draw(peers, lasts_s, seed, scale=scale).faults == faults
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
            assert struck(fault) <= up
        if fault.kind in ("crash", "leave"):
            up -= struck(fault)
    alone = any(event.each for event in storm.events)
    assert up or alone


def struck(fault: Fault) -> set[int | str]:
    peers = fault.groups[0] if fault.groups else (fault.peer,)
    return {peer for peer in peers if peer is not None}


@pytest.mark.extended
def test_it_strikes_as_often_as_its_source_says() -> None:
    hours = 200
    kinds = Counter(
        fault.kind for fault in read_storm("ft-diloco-125").draw(32, hours * HOUR_S).faults
    )
    for kind, expected in {"crash": 77.8, "partition": 25.0, "pause": 22.2}.items():
        assert kinds[kind] / hours == pytest.approx(expected, abs=4 * (expected / hours) ** 0.5)


@pytest.mark.parametrize(("name", "healthy"), [("torchft-60s", 0.987), ("torchft-15s", 0.63)])
def test_as_many_are_up_as_were_in_what_was_published(name: str, healthy: float) -> None:
    lasts_s, down_s = 50 * HOUR_S, 0.0
    since: dict[object, float] = {}
    for fault in read_storm(name).draw(30, lasts_s).faults:
        if fault.kind == "crash":
            since[fault.peer] = fault.at_s
        else:
            down_s += fault.at_s - since.pop(fault.peer)
    assert 1 - down_s / (30 * lasts_s) == pytest.approx(healthy, abs=0.01)


def test_a_scale_shortens_times_and_nothing_else() -> None:
    storm = read_storm("home")
    plain, fast = storm.draw(8, DAY_S), storm.draw(8, DAY_S / 60, scale=60)
    assert [fault.kind for fault in plain.faults] == [fault.kind for fault in fast.faults]
    for one, other in zip(plain.faults, fast.faults, strict=True):
        assert one.at_s / 60 == pytest.approx(other.at_s, abs=0.001)
        assert one.factor == other.factor
    assert plain.network == fast.network


def test_one_site_is_cut_off_from_the_others() -> None:
    drawn = read_storm("wan-4-sites").draw(10, 10 * HOUR_S)
    sites = {frozenset(range(site, 10, 4)) for site in range(4)}
    assert {frozenset(fault.groups[0]) for fault in drawn.faults if fault.groups} == sites
    assert drawn.network is not None
    lines = network_of(drawn.network).links
    assert len(lines) == 12 and all(line.shared for line in lines)
    assert all(200 <= (line.bandwidth_mbit or 0) <= 2000 for line in lines)


def test_uplinks_are_drawn_for_each_peer() -> None:
    network = read_storm("home").draw(200, 1.0).network
    assert network is not None
    uplinks = [host["bandwidth_mbit"] for host in network["hosts"]]
    assert 10 <= min(uplinks) < 12 and 48 < max(uplinks) <= 50
    assert np.mean(uplinks) == pytest.approx(30, abs=3)


@pytest.mark.extended
def test_a_swarm_lives_through_one_with_all_its_weight() -> None:
    faults = read_storm("ft-diloco-125").draw(8, 30.0, seed=1, scale=120).faults
    run = simulate(task="quadratic", workers=8, steps=400, faults=faults)
    assert run.summary["crashes"] > 0
    assert run.summary["weight_units_total"] == run.summary["weight_units_expected"]


def test_a_file_of_ones_own_is_drawn_alike(tmp_path: Path) -> None:
    text = EVENT + 'kind = "loss"\nevery_s = 10\nrate = 0.5\nfor_s = [1, 2]\n'
    faults = read_storm(str(storm_of(tmp_path, text))).draw(4, 35.0).faults
    assert [(fault.at_s, fault.kind, fault.rate) for fault in faults] == [
        (at_s, "loss", 0.5) for at_s in (10.0, 20.0, 30.0)
    ]
    assert all(fault.for_s is not None and 1 <= fault.for_s <= 2 for fault in faults)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('kind = "crash"', "needs one of per_hour, every_s and at_s, and has none"),
        ('kind = "crash"\nevery_s = 1\nper_hour = 2', "has per_hour and every_s"),
        ('kind = "meteor"\nevery_s = 1', "kind is 'meteor'"),
        ("every_s = 1", "event[0] needs kind"),
        ('kind = "crash"\nevery_s = 0', "every_s is 0.0: it must be a number above 0"),
        ('kind = "crash"\nevery_s = "1"', 'every_s is "1": it must be a number'),
        ('kind = "crash"\nevery_s = 1\nback_s = [3, 1]', "the least and the most"),
        ('kind = "crash"\nevery_s = 1\nback_s = [3]', "the least and the most"),
        ('kind = "crash"\nevery_s = 1\nback_s = true', "the least and the most"),
        ('kind = "crash"\nevery_s = 1\nfactor = 2', "crash takes no factor"),
        ('kind = "crash"\nevery_s = 1\neach = 1', "each is 1: it must be true or false"),
        ('kind = "crash"\nevery_s = 1\nwhen = 2', "unknown key 'when'"),
        ('kind = "crash"\nevery_s = 1\n[network]\npreset = "x"', "network: preset is 'x'"),
        ('kind = "crash"\nevery_s = 1\n[network]\nsites = 0', "sites is 0"),
        ('kind = "crash"\nevery_s = 1\n[network]\nuplink_mbit = 0', "uplink_mbit is"),
        ('kind = "crash"\nevery_s = 1\n[other]', "unknown key 'other'"),
        ('kind = "crash"\nevery_s = ', "mine.toml: "),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(tmp_path, EVENT + text + "\n")


def test_what_a_file_must_have_is_named(tmp_path: Path) -> None:
    assert "needs what, a text" in refusal(tmp_path, "peers = 2\n")
    text = 'what = "x"\nsource = "y"\npeers = 2\nevent = 3\n'
    assert "event is 3: it must be a list of tables" in refusal(tmp_path, text)


def test_an_unknown_name_is_answered_with_a_near_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'torchft-60s'"):
        read_storm("torchft-60")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_storm(str(tmp_path / "none.toml"))


@pytest.mark.parametrize("wrong", [{"peers": 0}, {"duration_s": float("nan")}, {"scale": 0.0}])
def test_arguments_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    arguments = {"peers": 4, "duration_s": 1.0, "scale": 1.0} | wrong
    with pytest.raises(ConfigError, match="must be a number above 0"):
        read_storm("spot").draw(**arguments)  # type: ignore[arg-type]


def test_the_table_of_the_docs_is_that_of_the_files() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "faults.md"
    if not page.exists():
        pytest.skip("the docs are not beside these tests")
    table = page.read_text().split("<!-- storms:")[1].split("<!-- end of storms")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    storms = [read_storm(name) for name in STORMS]
    assert rows == [
        f"| `{s.name}` | {s.peers} | {' '.join(s.what.split())} | {' '.join(s.source.split())} |"
        for s in storms
    ]
