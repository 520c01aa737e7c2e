"""``rumor launch --resume``: a run continues where its peers stopped."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from rumor.cli.launch.config import Job
from rumor.cli.launch.folder import RunFolder
from rumor.cli.launch.swarm import run_swarm
from rumor.train.storage.incarnation import lock_folder

from ..called import called
from .fakes import checked_job, draw_nothing


@pytest.fixture(autouse=True)
def without_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_nothing(monkeypatch)


def write_peer(folder: Path, name: str, index: int, **options: Any) -> Path:
    """Write the files of an earlier run of a peer."""
    peer = folder / "peers" / name
    peer.mkdir(parents=True)
    (folder / "rendezvous").mkdir(exist_ok=True)
    id = name.partition(".")[0]
    given = {"id": id, "index": index, "count": 2, "task": "quadratic", "steps": 100}
    given |= {"founders": 2, "out": str(peer)}
    (peer / "options.json").write_text(json.dumps(given | options))
    opened = {"kind": "opened", "id": id, "incarnation": 5}
    rows = (opened, {"kind": "founded", "units": 8})
    (peer / "ledger.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (peer / "metrics.jsonl").write_text('{"step":40}\n')
    (peer / "checkpoints").mkdir()
    (peer / "checkpoints" / "checkpoint-000001.safetensors").touch()
    return peer


def resumed_job(out: Path, peers: int = 2, **settings: Any) -> Job:
    return checked_job(out=out, resume=True, peers=peers, steps=100, **settings)


def test_a_resumed_run_uses_the_options_of_its_command(tmp_path: Path) -> None:
    for name, index in (("peer-1", 1), ("peer-0", 0), ("join-1", 0), ("peer-1.life-2", 1)):
        write_peer(tmp_path, name, index)
    places = RunFolder(resumed_job(tmp_path, rule="gosgd:p=0.5", wire="int8")).found()
    found = [(place.index, place.id) for place in places]
    assert found == [(0, "peer-0"), (1, "peer-1"), (2, "join-1")]
    expected = {"RUMOR_RESUME": "1", "RUMOR_RULE": "gosgd:p=0.5", "RUMOR_TASK": "quadratic"}
    assert all(expected.items() <= place.variables.items() for place in places)
    one = places[1]
    assert (one.folder.name, [path.name for path in one.earlier]) == ("peer-1.life-2", ["peer-1"])


def test_peers_resume_in_their_folders_and_their_former_weight_counts_as_lost(
    tmp_path: Path,
) -> None:
    for index in (0, 1):
        write_peer(tmp_path, f"peer-{index}", index, socks_proxy="127.0.0.1:9")
    summary = run_swarm(resumed_job(tmp_path))
    lives = [(peer["state"], peer["lives"]) for peer in summary["peers_detail"]]
    assert lives == [("finished", 2)] * 2
    dead = [(each["id"], each["life"], each["weight_units"]) for each in summary["dead"]]
    assert dead == [("peer-0", 1, 8), ("peer-1", 1, 8)]
    assert {each["state"] for each in summary["dead"]} == {None}
    assert summary["ledger"]["died"] == 16
    assert (tmp_path / "summary.json").exists()


def listing(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_run_with_running_peers_is_refused_and_unchanged(tmp_path: Path) -> None:
    peers = [write_peer(tmp_path, f"peer-{index}", index) for index in range(3)]
    for peer in peers:
        (peer / "peer.json").write_text('{"state":"finished","steps":100}')
        (peer / "model.safetensors").touch()
    with lock_folder(peers[0]), lock_folder(peers[1]):
        before = listing(tmp_path)
        result = called("launch", "-n", "3", "--resume", "--out", tmp_path, status=2)
        assert listing(tmp_path) == before
    assert result.stdout == ""
    assert "peer-0, peer-1 still running: wait until the end, or stop them" in result.stderr
    assert result.stderr.count("\n") == 1
    # The check leaves no lock behind.
    resumed_job(tmp_path, 3)


def test_a_run_resumes_on_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_peer(tmp_path, "peer-0", 0)

    def unsupported(file: object, how: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    resumed_job(tmp_path, 1)
