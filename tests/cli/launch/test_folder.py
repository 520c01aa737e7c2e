"""Folders of the peers of a task and of a script, and how later incarnations are started."""

import os
import socket as sockets
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rumor.cli.launch.config import Place
from rumor.cli.launch.folder import RunFolder
from rumor.train import environment
from rumor.train.faults.schedule import Fault
from rumor.train.runtime.script.environment import Environment

from ..cluster.machines import free_port
from .fakes import job_of


def run_folder_of(folder: Path, **settings: Any) -> tuple[RunFolder, list[Place]]:
    run_folder = RunFolder(job_of(folder, peers=3, **settings))
    return run_folder, run_folder.found()


@pytest.fixture(params=["task", "script"])
def run_folder(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    """Three peers that train a task, or run a training script of the user."""
    job = job_of(tmp_path, peers=3, slow=("0:5",), device="cuda:{i}")
    return RunFolder(job if request.param == "task" else replace(job, training=None))


def settings_of(place: Place) -> Environment:
    """Return the settings that a script reads; a task has more variables, for ``rumor peer``."""
    more = ("RUMOR_TASK", "RUMOR_STEPS")
    return environment({k: v for k, v in place.variables.items() if k not in more})


def write_address(folder: Path, id: str, port: int, written_s: float = 1.0) -> None:
    path = folder / "rendezvous" / f"{id}.addr"
    path.write_text(f"tcp://127.0.0.1:{port}\n")
    os.utime(path, (written_s, written_s))


def test_an_incarnation_with_its_state_resumes_in_its_folder_at_the_same_port(
    tmp_path: Path, run_folder: RunFolder
) -> None:
    _, one, _ = run_folder.found()
    port = free_port()
    write_address(tmp_path, "peer-1", port)
    for name in ("options.json", "peer.json", "model.safetensors", "ledger.jsonl"):
        (one.folder / name).touch()
    after = run_folder.next_life(one, kept=True)
    settings = settings_of(after)
    assert settings.resume and settings.index == 1 and settings.fields["founders"] == 1
    assert settings.fields["id"] == after.id == "peer-1" and after.command == one.command
    assert after.variables["RUMOR_BIND"] == f"tcp://127.0.0.1:{port}"
    assert (after.folder, after.earlier) == (one.folder, ())
    # Final files of the last incarnation must not be mistaken for files of this one.
    kept = {"options.json", "former.peer.json", "former.model.safetensors", "ledger.jsonl"}
    assert {path.name for path in one.folder.iterdir()} == kept


def test_an_incarnation_without_state_begins_in_a_new_folder_under_the_same_name(
    tmp_path: Path, run_folder: RunFolder
) -> None:
    _, one, _ = run_folder.found()
    assert settings_of(one).fields["founders"] == 3
    port = free_port()
    write_address(tmp_path, "peer-1", port)
    second = run_folder.next_life(one, kept=False)
    third = run_folder.next_life(second, kept=False)
    assert [second.folder.name, third.folder.name] == ["peer-1.life-2", "peer-1.life-3"]
    assert second.folder.is_dir() and third.earlier == (one.folder, second.folder)
    expected = {"ID": "peer-1", "INDEX": "1", "COUNT": "3", "FOUNDERS": "1"}
    expected |= {"OUT": str(third.folder), "BIND": f"tcp://127.0.0.1:{port}"}
    assert {name: third.variables[f"RUMOR_{name}"] for name in expected} == expected
    assert "RUMOR_RESUME" not in third.variables


def test_a_port_that_is_taken_is_replaced(tmp_path: Path) -> None:
    run_folder, (_, one, _) = run_folder_of(tmp_path)
    with sockets.create_server(("127.0.0.1", 0)) as taken:
        write_address(tmp_path, "peer-1", taken.getsockname()[1])
        for kept in (True, False):
            after = run_folder.next_life(one, kept=kept)
            assert after.variables["RUMOR_BIND"] == "tcp://127.0.0.1:*"
    (tmp_path / "rendezvous" / "peer-1.addr").unlink()
    assert run_folder.next_life(one, kept=True).variables["RUMOR_BIND"] == "tcp://127.0.0.1:*"


def test_newcomers_share_data_but_have_their_own_device_and_speed(
    run_folder: RunFolder,
) -> None:
    run_folder.found()
    for number, part in zip((1, 2, 3, 4), (0, 1, 2, 0), strict=True):
        place = run_folder.newcomer(number)
        settings = settings_of(place)
        assert place.id == settings.fields["id"] == place.folder.name == f"join-{number}"
        assert (settings.index, settings.count, settings.fields["founders"]) == (part, 3, 1)
        assert place.index == settings.local_index == 2 + number
        assert (settings.device_name, settings.slow) == (f"cuda:{2 + number}", 1.0)


@pytest.mark.parametrize("network_fails", [True, False])
@pytest.mark.parametrize("script", [True, False])
def test_each_incarnation_gets_the_path_of_the_network_faults(
    tmp_path: Path, network_fails: bool, script: bool
) -> None:
    fault = Fault(at_s=1.0, kind="heal" if network_fails else "join")
    job = job_of(tmp_path, peers=2, faults=(fault,))
    run_folder = RunFolder(replace(job, training=None) if script else job)
    one, other = run_folder.found()
    (one.folder / "options.json").touch()
    lives = [one, other, run_folder.newcomer(1), run_folder.next_life(one, kept=False)]
    lives += [run_folder.next_life(p, kept=True) for p in (one, other)]
    expected = str(tmp_path / "network-faults.json") if network_fails else None
    assert [place.variables.get("RUMOR_NETWORK_FAULTS") for place in lives] == [expected] * 6


def test_only_given_options_are_passed_to_the_peers(tmp_path: Path) -> None:
    _, (plain, *_) = run_folder_of(tmp_path / "plain")
    options = {"total_steps": 900, "lr_schedule": "cosine", "checkpoint_every": "5s"}
    _, (place, *_) = run_folder_of(tmp_path / "options", **options)
    expected = {f"RUMOR_{name.upper()}": str(value) for name, value in options.items()}
    assert expected.keys().isdisjoint(plain.variables)
    assert expected.items() <= place.variables.items()


@pytest.mark.parametrize(
    ("port", "expected"), [(None, []), (0, [0, 0, 0]), (9100, [9100, 9101, 9102])]
)
def test_each_peer_serves_metrics_at_its_own_port(
    tmp_path: Path, port: int | None, expected: list[int]
) -> None:
    _, places = run_folder_of(tmp_path, metrics_port=port)
    ports = [place.variables.get("RUMOR_METRICS_PORT") for place in places]
    assert ports == [str(each) for each in expected] or (not expected and ports == [None] * 3)
