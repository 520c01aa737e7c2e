"""How the lives of a peer ended, from what is left of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from rumor.cli.past import past_of, told_by
from rumor.cli.places import Place
from rumor.cli.watch import Former, Life, State


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


def place(folder: Path, *former: Path) -> Place:
    return Place(index=0, id="peer-0", folder=folder, command=(), former=former)


def past(place: Place, told: dict[Life, Former] | None = None) -> list[tuple[State, str, int]]:
    formers = past_of(place, told or {})
    assert all(len(former.lives) == 1 for former in formers)
    return [(former.state, former.why, former.step) for former in formers]


def test_each_life_stood_where_it_last_measured(tmp_path: Path) -> None:
    lived(tmp_path, 5_000, 9_000, 20_000, 30_000)
    # The second resumed at an earlier step; the third was over before it measured anything.
    measured(tmp_path, (5.5, 10), (6.5, 20), (9.5, 15), (12.0, 40), (31.0, 50))
    assert past(place(tmp_path)) == [(State.KILLED, "", step) for step in (20, 40, 40, 50)]


def test_a_peer_that_said_how_it_ended_is_believed(tmp_path: Path) -> None:
    lived(tmp_path, 5_000, 9_000, 20_000)
    measured(tmp_path, (5.5, 10))
    wrote(tmp_path, "former.peer.json", {"state": "left", "steps": 30, "lives": 2, "error": None})
    assert past(place(tmp_path)) == [
        (State.KILLED, "", 10),
        (State.LEFT, "", 30),
        (State.KILLED, "", 10),
    ]
    wrote(tmp_path, "peer.json", {"state": "failed", "steps": 60, "lives": 3, "error": "NaN"})
    assert past(place(tmp_path))[1:] == [(State.LEFT, "", 30), (State.FAILED, "NaN", 60)]


def test_lives_in_other_folders_come_first(tmp_path: Path) -> None:
    old, new = tmp_path / "peer-0", tmp_path / "peer-0.life-2"
    lived(old, 5_000)
    lived(new, 9_000)
    measured(old, (5.5, 10))
    measured(new, (9.5, 20))
    wrote(new, "peer.json", {"state": "finished", "steps": 100})
    assert past(place(new, old)) == [(State.KILLED, "", 10), (State.FINISHED, "", 100)]


def test_a_launcher_that_saw_an_end_knows_best(tmp_path: Path) -> None:
    lived(tmp_path, 5_000, 9_000)
    wrote(tmp_path, "peer.json", {"state": "finished", "steps": 100})
    end = {"state": "killed", "why": "SIGKILL", "step": 33, "incarnations": [5_000]}
    other: dict[str, Any] = {"state": "failed", "why": None, "step": 0, "incarnations": []}
    summary = {"peers_detail": [{"id": "peer-0", "ends": [end, other]}, {"id": "peer-1"}]}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    told = told_by(tmp_path)
    assert past(place(tmp_path), told) == [
        (State.KILLED, "SIGKILL", 33),
        (State.FINISHED, "", 100),
    ]


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", '{"peers_detail": 3}', '{"peers_detail": [{"ends": [{}]}]}']
)
def test_a_summary_that_cannot_be_read_tells_nothing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "summary.json").write_text(text)
    assert told_by(tmp_path) == {}


def test_one_that_opened_no_ledger_has_one_life_all_the_same(tmp_path: Path) -> None:
    nothing = frozenset[Life]()
    (former,) = past_of(place(tmp_path), {})
    assert former == Former(state=State.KILLED, why="", step=0, lives=nothing)
    # Killed in the middle of its first line.
    (tmp_path / "ledger.jsonl").write_text('{"kind":"opened","id":"pe')
    wrote(tmp_path, "peer.json", {"state": "failed", "steps": 0, "error": "no such device"})
    (former,) = past_of(place(tmp_path), {})
    assert former == Former(state=State.FAILED, why="no such device", step=0, lives=nothing)
