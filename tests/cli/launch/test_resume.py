"""``rumor launch --resume``: a run that goes on where its peers stood."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app
from rumor.cli.launch.config import Job, Place
from rumor.cli.launch.folder import RunFolder
from rumor.cli.launch.monitor import Life, LifeEnd, State
from rumor.cli.launch.resume import life_ends_of, read_life_ends
from rumor.cli.launch.swarm import run_swarm
from rumor.train.storage.incarnation import lock_folder

from .fakes import checked, draw_nothing


@pytest.fixture(autouse=True)
def without_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    draw_nothing(monkeypatch)


def left(folder: Path, name: str, index: int, **options: Any) -> Path:
    """What a peer has left in its folder."""
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


def resumed(out: Path, peers: int = 2, **settings: Any) -> Job:
    return checked(out=out, resume=True, peers=peers, steps=100, **settings)


def test_a_run_goes_on_as_its_command_says(tmp_path: Path) -> None:
    for name, index in (("peer-1", 1), ("peer-0", 0), ("join-1", 0), ("peer-1.life-2", 1)):
        left(tmp_path, name, index)
    places = RunFolder(resumed(tmp_path, rule="gosgd:p=0.5", wire="int8")).found()
    assert [(place.index, place.id) for place in places] == [
        *((0, "peer-0"), (1, "peer-1"), (2, "join-1")),
    ]
    told = {"RUMOR_RESUME": "1", "RUMOR_RULE": "gosgd:p=0.5", "RUMOR_TASK": "quadratic"}
    assert all(told.items() <= place.variables.items() for place in places)
    one = places[1]
    assert (one.folder.name, [path.name for path in one.earlier]) == ("peer-1.life-2", ["peer-1"])


def test_peers_go_on_in_their_folders_and_what_they_held_has_died(tmp_path: Path) -> None:
    for index in (0, 1):
        left(tmp_path, f"peer-{index}", index, socks_proxy="127.0.0.1:9")
    (tmp_path / "peers" / "peer-0" / "peer.json").write_text('{"state":"left","steps":40}')
    summary = run_swarm(resumed(tmp_path))
    assert [(peer["state"], peer["lives"]) for peer in summary["peers_detail"]] == [
        ("finished", 2),
        ("finished", 2),
    ]
    dead = [(each["id"], each["state"], each["weight_units"]) for each in summary["dead"]]
    assert dead == [("peer-0", "left", 8), ("peer-1", "killed", 8)]
    assert summary["ledger"]["died"] == 16
    assert (tmp_path / "summary.json").exists()


def listing(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_run_whose_peers_still_run_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    peers = [left(tmp_path, f"peer-{index}", index) for index in range(3)]
    for peer in peers:
        (peer / "peer.json").write_text('{"state":"finished","steps":100}')
        (peer / "model.safetensors").touch()
    with lock_folder(peers[0]), lock_folder(peers[1]):
        before = listing(tmp_path)
        command = ["launch", "-n", "3", "--resume", "--out", str(tmp_path)]
        result = CliRunner().invoke(app, command)
        assert listing(tmp_path) == before
    assert (result.exit_code, result.stdout) == (2, "")
    assert "peer-0, peer-1 still running: wait until the end, or stop them" in result.stderr
    assert result.stderr.count("\n") == 1
    # Looking has not locked anything.
    resumed(tmp_path, 3)


def test_where_locks_are_unknown_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(tmp_path, "peer-0", 0)

    def unsupported(file: object, how: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unsupported)
    resumed(tmp_path, 1)


def test_what_its_summary_told_of_former_lives_is_told_again(tmp_path: Path) -> None:
    for index in (0, 1):
        left(tmp_path, f"peer-{index}", index)
    (tmp_path / "peers" / "peer-0" / "peer.json").write_text('{"state":"finished","steps":100}')
    deaths = []
    for _ in range(3):
        summary = run_swarm(resumed(tmp_path))
        deaths.append(
            [(d["id"], d["life"], d["state"], d["why"], d["step"]) for d in summary["dead"]]
        )
    first, second = ("peer-0", 1, "finished", "", 100), ("peer-1", 1, "killed", "", 40)
    assert deaths[0] == [first, second]
    # Those that have finished since then are no deaths that anybody caused.
    assert {death[2:] for death in deaths[1] if death[1] == 2} == {("finished", "", 100)}
    assert [death for death in deaths[1] if death[1] == 1] == [first, second]
    assert [death for death in deaths[2] if death[1] < 3] == deaths[1]


def wrote(folder: Path, name: str, *rows: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def lived(folder: Path, *incarnations: int) -> None:
    """A ledger for each life."""
    for number, incarnation in enumerate(incarnations, 1):
        name = "ledger.jsonl" if number == 1 else f"ledger.{number}.jsonl"
        wrote(folder, name, {"kind": "opened", "id": "peer-0", "incarnation": incarnation})


def measured(folder: Path, *at: tuple[float, int]) -> None:
    wrote(folder, "metrics.jsonl", *({"unix_s": unix_s, "step": step} for unix_s, step in at))


def place(folder: Path, *earlier: Path) -> Place:
    return Place(index=0, id="peer-0", folder=folder, command=(), earlier=earlier)


def ends_of(place: Place, told: dict[Life, LifeEnd] | None = None) -> list[tuple[State, str, int]]:
    ends = life_ends_of(place, told or {})
    assert all(len(end.lives) == 1 for end in ends)
    return [(end.state, end.why, end.step) for end in ends]


def test_a_peer_that_said_how_it_ended_is_believed(tmp_path: Path) -> None:
    lived(tmp_path, 5_000, 9_000)
    measured(tmp_path, (5.5, 10))
    silent = (State.KILLED, "", 10)
    assert ends_of(place(tmp_path)) == [silent, silent]
    wrote(tmp_path, "former.peer.json", {"state": "left", "steps": 30, "lives": 2, "error": None})
    assert ends_of(place(tmp_path)) == [silent, (State.LEFT, "", 30)]
    lived(tmp_path, 5_000, 9_000, 20_000)
    assert ends_of(place(tmp_path)) == [silent] * 3
    wrote(tmp_path, "peer.json", {"state": "failed", "steps": 60, "lives": 3, "error": "NaN"})
    assert ends_of(place(tmp_path))[2] == (State.FAILED, "NaN", 60)


def test_lives_in_other_folders_come_first(tmp_path: Path) -> None:
    old, new = tmp_path / "peer-0", tmp_path / "peer-0.life-2"
    lived(old, 5_000)
    lived(new, 9_000)
    measured(old, (5.5, 10))
    measured(new, (9.5, 20))
    wrote(new, "peer.json", {"state": "finished", "steps": 100})
    assert ends_of(place(new, old)) == [(State.KILLED, "", 10), (State.FINISHED, "", 100)]


def test_a_launcher_that_saw_an_end_knows_best(tmp_path: Path) -> None:
    lived(tmp_path, 5_000, 9_000)
    wrote(tmp_path, "peer.json", {"state": "finished", "steps": 100})
    end = {"state": "killed", "why": "SIGKILL", "step": 33, "incarnations": [5_000]}
    other: dict[str, Any] = {"state": "failed", "why": None, "step": 0, "incarnations": []}
    summary = {"peers_detail": [{"id": "peer-0", "ends": [end, other]}, {"id": "peer-1"}]}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    told = read_life_ends(tmp_path)
    assert ends_of(place(tmp_path), told) == [
        (State.KILLED, "SIGKILL", 33),
        (State.FINISHED, "", 100),
    ]


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", '{"peers_detail": 3}', '{"peers_detail": [{"ends": [{}]}]}']
)
def test_a_summary_that_cannot_be_read_tells_nothing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "summary.json").write_text(text)
    assert read_life_ends(tmp_path) == {}


def test_one_that_opened_no_ledger_has_one_life_all_the_same(tmp_path: Path) -> None:
    nothing = frozenset[Life]()
    (end,) = life_ends_of(place(tmp_path), {})
    assert end == LifeEnd(state=State.KILLED, why="", step=0, lives=nothing)
    # Killed in the middle of its first line.
    (tmp_path / "ledger.jsonl").write_text('{"kind":"opened","id":"pe')
    wrote(tmp_path, "peer.json", {"state": "failed", "steps": 0, "error": "no such device"})
    (end,) = life_ends_of(place(tmp_path), {})
    assert end == LifeEnd(state=State.FAILED, why="no such device", step=0, lives=nothing)
