"""``rumor calibrate`` and ``rumor simulate --from``: measurements, files and overrides."""

import errno
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rumor.cli.live.calibrate import network_between
from rumor.sim import SimulationConfig
from rumor.sim.calibration import read_calibration
from rumor.train.observe.probe import LinkProbe, Probe

from ...live.relay import Network
from ...sim.live_folders import leave_run
from ...train.members import Member, one_of, swarm
from ..called import called
from ..commands.test_simulate import Fake

PACES = (0.1, 0.1, 0.1, 0.3)


pytestmark = pytest.mark.usefixtures("in_empty_folder")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[SimulationConfig]:
    """The settings of requested simulations, none of which runs."""
    return Fake(monkeypatch).requests


def run(*arguments: str) -> Any:
    return called(*arguments)


def link_probe(**changes: Any) -> LinkProbe:
    fields: dict[str, Any] = {"address": "tcp://a:1", "roundtrip_s": 0.02}
    return LinkProbe(**fields | {"roundtrip_s_mean": 0.03, "bytes_s": 1e6} | changes)


def test_a_live_folder_gives_a_calibration(tmp_path: Path) -> None:
    leave_run(tmp_path / "run", PACES)
    shown = run("calibrate", "run")
    assert shown.exit_code == 0
    assert "300 ms" in shown.stdout
    assert "rumor simulate --from run/calibration.json" in shown.stdout
    found = read_calibration("run/calibration.json")
    assert [peer.step_s for peer in found.peers] == pytest.approx(PACES)


def test_json_has_the_content_and_path_of_the_file(tmp_path: Path) -> None:
    leave_run(tmp_path / "run", PACES)
    shown = run("calibrate", "run", "-o", "x.json", "--json")
    data = json.loads(shown.stdout)
    assert data["out"] == "x.json"
    assert {key: data[key] for key in data if key not in ("out", "links")} == json.loads(
        Path("x.json").read_text()
    )


def test_nothing_is_measured_if_the_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_run(tmp_path / "run", PACES)
    monkeypatch.setattr(
        "rumor.cli.live.calibrate.measure", lambda *_: pytest.fail("it was measured")
    )
    assert run("calibrate", "run", "-o", "nowhere/x.json").exit_code == 2


def test_half_of_a_round_trip_is_the_latency() -> None:
    fast, slow = link_probe(), link_probe(bytes_s=5e5)
    network = network_between([fast, slow, fast])
    assert network.latency_s == pytest.approx(0.01)
    assert network.jitter == pytest.approx(0.5)
    assert network.bandwidth_mbit == pytest.approx(4.0)


def test_a_simulation_uses_all_measurements(
    tmp_path: Path, requests: list[SimulationConfig]
) -> None:
    leave_run(tmp_path / "run", PACES, p=0.5, lr=0.03)
    run("calibrate", "run")
    shown = run("simulate", "--from", "run/calibration.json", "--set=plot=false")
    assert shown.exit_code == 0
    assert "note: all peers ran on one machine: messages take no time" in shown.stderr
    (config,) = requests
    assert (config.workers, config.slow, config.seed) == (4, ("3:3",), 1)
    assert config.step_s == pytest.approx(0.1)
    assert (config.p, config.lr, config.total_steps) == (0.5, 0.03, 900)
    assert config.network == "ideal"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--network", "wan", "--seed", "5"], {"network": "wan", "seed": 5, "p": 0.5}),
        (["--set", "step_s=0.2", "-n", "8"], {"step_s": 0.2, "slow": ("3:3", "7:3")}),
        (["--steps", "10"], {"steps": 10, "total_steps": None}),
        (["--time-s", "10"], {"time_s": 10.0, "total_steps": None}),
        (["--speeds", "1x:50%,2x:50%"], {"slow": ()}),
        (["--rule", "sgp"], {"rule": "sgp", "p": None}),
        (["--task", "quadratic"], {"lr": None, "batch_size": None}),
        (["--lr", "0.5", "--set", "p=0.25"], {"lr": 0.5, "p": 0.25, "rule": "gosgd"}),
    ],
)
def test_options_replace_the_corresponding_values_of_the_file(
    tmp_path: Path, requests: list[SimulationConfig], options: list[str], expected: dict[str, Any]
) -> None:
    leave_run(tmp_path / "run", PACES, p=0.5, lr=0.03, batch_size=16)
    run("calibrate", "run")
    run("simulate", "--from", "run/calibration.json", "--set=plot=false", *options)
    (config,) = requests
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Member]:
    """A peer that steps every few milliseconds until the test is over."""
    with swarm(one_of(tmp_path / "swarm", "ada", 1), at_once=True) as (found,):
        yield found


@pytest.mark.extended
@pytest.mark.live
def test_a_slow_link_is_measured_as_slow(peer: Member) -> None:
    with closing(Network()) as network:
        network.addresses["ada"] = peer.address
        address = network.toward("me", "ada")
        network.limit("ada", 5e5)
        for way in network.ways():
            way.delay_s = 0.02
        with Probe(address) as probe:
            found = probe.sound(bytes_max=200_000)
    assert found.roundtrip_s >= 0.04
    assert found.bytes_s < 6e5


@pytest.mark.extended
@pytest.mark.live
def test_measured_links_combine_with_the_paces_of_a_folder(tmp_path: Path, peer: Member) -> None:
    leave_run(tmp_path / "run", PACES)
    shown = run("calibrate", "run", "--join", peer.address)
    assert shown.exit_code == 0, shown.stderr
    found = read_calibration("run/calibration.json")
    assert len(found.peers) == 4
    assert found.network.latency_s > 0 and found.network.bandwidth_mbit is not None
    assert "link to" in shown.stdout
    assert found.notes == ()


@pytest.mark.live
def test_without_a_folder_running_peers_are_watched(peer: Member) -> None:
    options = ["--watch-s", "1"]
    shown = run("calibrate", "--join", peer.address, *options)
    assert shown.exit_code == 0, shown.stderr
    found = read_calibration("calibration.json")
    assert [each.id for each in found.peers] == ["ada"] and found.peers[0].steps > 0
    assert found.settings["rule"] == "gosgd" and found.settings["stands_for"] == 32
    assert "digits stands for 32 parameters" in shown.stdout


def test_measurements_are_shown_even_if_they_cannot_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    leave_run(tmp_path / "run", PACES)
    monkeypatch.setattr("rumor.sim.calibration.write_json", full)
    shown = run("calibrate", "run")
    assert shown.exit_code == 1 and "simulate --from" not in shown.stdout
    assert "steps seen" in shown.stdout
    assert "calibration.json cannot be written: No space left on device" in shown.stderr
