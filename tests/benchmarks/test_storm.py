"""The arithmetic of a storm's figures, against rows written by hand; nothing is run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rumor.benchmarks.results import Row
from rumor.benchmarks.rivals.rivals import Rival
from rumor.benchmarks.swarm.storm import rivals as of_rivals
from rumor.benchmarks.swarm.storm.figures import (
    Course,
    Participation,
    Pause,
    Returns,
    longest_pause,
    participation,
    returns,
)
from rumor.benchmarks.swarm.storm.live import courses_of
from rumor.benchmarks.swarm.storm.predicted import predict_courses
from rumor.benchmarks.swarm.storm.rivals import rival_rows
from rumor.benchmarks.swarm.storm.rows import Seen, Storm, rows_of
from rumor.benchmarks.swarm.storm.schedule import (
    drawn,
    kills_in_turn,
    put_off,
    strikes_on,
    write_faults,
)
from rumor.benchmarks.swarm.storm.storm import measure_storm
from rumor.benchmarks.swarm.storm.tasks import lean, lean_spec
from rumor.gossip.errors import ConfigError
from rumor.sim.kernel.faults.files import Fault, read_faults
from rumor.sim.results.live_run import LivePeer

__all__: list[str] = []


def course(id: str = "a", **given: Any) -> Course:
    nothing: dict[str, Any] = dict.fromkeys(("steps_s", "exchanges_s", "down", "starts_s"), ())
    return Course(id=id, **nothing | given)


def row(step: int, unix_s: float, pushes: int = 0, mixed: int = 0) -> dict[str, Any]:
    return {"step": step, "unix_s": unix_s, "pushes": pushes, "mixed": mixed}


def done(*told: tuple[float, str]) -> dict[str, Any]:
    return {"done": [{"unix_s": unix_s, "what": what} for unix_s, what in told]}


# A killed one that came back, one that stood still, and one to whom nothing was done.
ROWS = {
    "p0": [row(1, 100.0), row(2, 101.0, 1), row(3, 102.0, 1), row(4, 105.0, 1, 2), row(5, 106.0)],
    "p1": [row(1, 100.5), row(2, 101.5, 3, 1), row(2, 104.5), row(3, 105.5, 0, 1)],
    "p2": [row(1, 100.0), row(2, 101.0), row(3, 104.0, 1), row(4, 105.0, 1)],
}
FAULTS = [
    done((102.0, "p1 is killed")),
    done((103.5, "p1 begins its next life with what it kept")),
    done((101.5, "p2 stands still"), (103.0, "p2 goes on")),
    done((101.6, "p2 stands still"), (102.0, "p2 stands still by another fault")),
    {"groups": [["p1"]]} | done((103.0, "nothing passes"), (103.4, "the partition ends")),
    done((104.0, "p0 runs: it is not started again")),
    done(),
]


@pytest.fixture
def courses() -> tuple[Course, ...]:
    peers = [
        LivePeer(id=id, index=i, options={}, lives=(tuple(rows),), report=None)
        for i, (id, rows) in enumerate(ROWS.items())
    ]
    return courses_of(peers, FAULTS, 100.5)


def test_rows_and_faults_of_a_launch_become_courses(courses: tuple[Course, ...]) -> None:
    p0, p1, p2 = courses
    assert p0.down == () and p0.starts_s == ()
    assert p1.down == ((1.5, 3.0),) and p1.starts_s == (3.0,)
    assert p1.cuts[0] == pytest.approx((2.5, 2.9)) and p0.cuts == p2.cuts == ()
    assert p2.down == ((1.0, 2.5),), "two pauses that overlap are one time down"
    assert p0.exchanges_s == (0.5, 4.5)
    assert p1.exchanges_s == (1.0, 5.0), "counts begin again in the next life"


def test_a_pause_ends_with_the_process_and_a_kill_for_good_with_the_run() -> None:
    peer = LivePeer(id="p", index=0, options={}, lives=((row(1, 0.0), row(2, 9.0)),), report=None)
    faults = [done((2.0, "p stands still"), (8.0, "p does not stand still: nothing is done"))]
    faults += [done((3.0, "p is killed")), done((4.0, "p begins its next life with nothing"))]
    faults += [done((9.5, "p is killed"))]
    (found,) = courses_of([peer], faults, 0.0)
    assert found.down == ((2.0, 4.0),)


def test_the_longest_pause_is_in_own_steps_and_of_a_survivor(courses: tuple[Course, ...]) -> None:
    # p1 was down for 3 s and p2 for 3 s between two steps; p0 only paused, for three of its steps.
    assert longest_pause(courses) == Pause(id="p0", at_s=1.5, seconds=3.0, steps=3.0)
    assert longest_pause([course(steps_s=(1.0,))]) is None


def test_who_takes_part_is_counted_among_those_that_ran_for_half_of_an_interval(
    courses: tuple[Course, ...],
) -> None:
    # [0, 2]: all ran for 1 s or more, p0 and p1 exchanged. [2, 4]: p1 was down for half of it, and
    # nobody but p2 exchanged.
    found = participation(courses, 2.0, 5.9)
    assert (found.intervals, found.alive, found.took_part, found.least) == (2, 3.0, 1.5, 1)
    assert found.part == 0.5
    down = course(down=((0.0, 1.5),), exchanges_s=(1.7,))
    assert participation([down], 2.0, 2.0).alive == 0
    assert participation([down], 2.0, 1.0) == Participation(
        alive=0.0, took_part=0.0, least=0, intervals=0
    )
    assert participation([down], 2.0, 1.0).part == 0


def test_a_return_lasts_from_the_start_to_the_next_step(courses: tuple[Course, ...]) -> None:
    assert returns(courses) == Returns(seconds=(1.0,), cut_short=0)
    again = course(starts_s=(1.0, 5.0), down=((0.0, 1.0), (3.0, 5.0)), steps_s=(0.0, 7.0))
    found = returns([again])
    assert found == Returns(seconds=(2.0,), cut_short=1), "the first was struck before it stepped"
    assert (found.median_s, found.worst_s) == (2.0, 2.0)
    assert returns([replace(again, cuts=((6.5, 8.0),))]) == Returns(seconds=(), cut_short=2)
    assert returns([replace(again, cuts=((7.5, 8.0),))]) == found
    assert (Returns(seconds=(), cut_short=0).median_s, returns([]).worst_s) == (0.0, 0.0)


def crash(at_s: float, peer: int) -> Fault:
    return Fault(at_s=at_s, kind="crash", peer=peer)


def restart(at_s: float, peer: int) -> Fault:
    return Fault(at_s=at_s, kind="restart", peer=peer)


def test_starts_are_put_off_unless_somebody_is_killed_before_they_end() -> None:
    faults = [crash(1.0, 0), restart(2.0, 0), crash(3.0, 0), crash(3.5, 1), restart(6.0, 0)]
    assert put_off(faults, 1.5) == (
        *(crash(1.0, 0), crash(3.0, 0), crash(3.5, 1)),
        restart(7.5, 0),
    )
    assert put_off(faults, 0.5)[1] == restart(2.5, 0)


def test_whoever_is_killed_in_a_drawn_storm_comes_back_before_its_calm_end(tmp_path: Path) -> None:
    faults = drawn("ft-diloco-125", 8, 60.0, 3, 60.0)
    kills = [(i, f) for i, f in enumerate(faults) if f.kind == "crash"]
    assert len(kills) > 30 and all(fault.at_s < 54 for fault in faults)
    for at, fault in kills:
        assert any(f.kind == "restart" and f.peer == fault.peer for f in faults[at:])
    path = write_faults(faults, tmp_path / "faults.json")
    assert read_faults(path) == faults


def test_a_simulated_fleet_is_followed_through_a_kill_without_computing_a_value() -> None:
    settings = {
        "task": "quadratic",
        "workers": 4,
        "step_s": 0.1,
        "p": 0.5,
        "network": "ideal",
        "timing": "local",
    }
    kills = kills_in_turn(4, 18.0, 1.0)
    assert [fault.at_s for fault in kills[::2]] == [3.0, 6.0, 9.0, 12.0]
    named = [replace(kill, peer=f"peer-{kill.peer}") for kill in kills]
    found = predict_courses(settings, kills, time_s=20.0, total_steps=600)
    assert predict_courses(settings, named, time_s=20.0, total_steps=600) == found
    assert found.steps >= 600 and 14 < found.end_s < 25
    assert found.courses[1].down == ((3.0, 4.0), (12.0, 13.0)), "the first is spared"
    assert found.courses[0].down == () and found.courses[2].starts_s == (7.0,)
    at_once = returns(found.courses)
    assert len(at_once.seconds) == 4 and at_once.cut_short == 0
    late = returns(
        predict_courses(settings, kills, start_s=1.5, time_s=20, total_steps=600).courses
    )
    assert late.median_s == pytest.approx(at_once.median_s + 1.5, abs=0.3)
    pause = longest_pause(found.courses)
    assert pause is not None and pause.steps < 1.2, "nobody waits for anybody under gosgd"
    whole = predict_courses(settings, (), time_s=2.0, total_steps=None)
    assert all(not each.down and len(each.steps_s) in (18, 19, 20) for each in whole.courses)


def test_what_a_schedule_does_to_a_process_is_what_a_launch_does() -> None:
    pause = Fault(at_s=1.0, kind="pause", peer=0, for_s=9.0)
    faults = [pause, crash(3.0, 0), crash(3.5, 1), restart(4.0, 0), crash(8.0, 0)]
    assert strikes_on(faults, 0).down(9.0) == ((1.0, 4.0), (8.0, 9.0))
    assert strikes_on(faults, 1).down(2.0) == ()
    cut = Fault(at_s=1.0, kind="partition", groups=((1, 2),), for_s=2.0)
    assert strikes_on([cut], 2).cuts == ((1.0, 3.0),) and strikes_on([cut], 0).cuts == ()
    assert strikes_on([replace(pause, for_s=None)], 0).down(5.0) == ((1.0, 5.0),)


def seen(took: float, pause_steps: float, back_s: float, loss: float | None) -> Seen:
    return Seen(
        participation=Participation(alive=8.0, took_part=took, least=3, intervals=10),
        pause=Pause(id="p3", at_s=7.0, seconds=0.5, steps=pause_steps),
        returns=Returns(seconds=(1.0, back_s), cut_short=2),
        end_s=60.0,
        loss=loss,
    )


@pytest.fixture
def storm() -> Storm:
    return Storm(
        peers=8,
        batch_size=2,
        step_s=0.5,
        p=0.2,
        interval_s=7.5,
        total_steps=801,
        measured=seen(7.0, 1.5, 3.0, 2.02),
        predicted=seen(7.5, 1.2, 2.0, 2.1),
        ahead_s=4.0,
        start_s=0.5,
        calm=seen(8.0, 1.1, 1.2, None),
        ledger={
            "founded": 800,
            "held": "1199/2^1",
            "in_flight": "1/2^1",
            "stranded": 0,
            "burned": 50,
            "died": 150,
        },
        alone={"wide": 2.0, "long": "took too long"},
        done={"crash": 3, "pause": 1},
    )


def by_name(storm: Storm) -> dict[str, Row]:
    return {row.name: row for row in rows_of(storm)}


def test_each_row_holds_what_was_measured_beside_what_was_predicted(storm: Storm) -> None:
    rows = by_name(storm)
    part = rows["members taking part"]
    assert part.ratio == 7.0 / 7.5 and "written 4 s before" in part.note
    assert rows["the same, of the alive"].ours == 7 / 8
    assert rows["the same, of the alive"].reference == 16 / 30
    assert rows["longest pause of a survivor"].ratio == 1.5 / 1.2
    assert rows["victim steps again, median"].ours == 2.0
    assert rows["victim steps again, median"].reference == 1.5
    assert rows["victim steps again, worst"].reference == 2.0
    assert "2 were struck again or cut off" in rows["victim steps again, worst"].note
    assert rows["loss of the merged model"].reference == 2.1
    alone = rows["loss, equal steps"]
    assert alone.ratio == pytest.approx(1.01) and "101 steps of 16" in alone.note
    assert (rows["loss beside long"].ratio, rows["loss beside long"].note) == (0, "took too long")
    assert "3 crash, 1 pause" in rows["time for all steps"].note


def test_weight_is_exact_only_where_not_a_unit_is_missing(storm: Storm) -> None:
    weight = by_name(storm)["weight in all ledgers"]
    assert weight.ratio == 1 and "exact, ==" in weight.note and "units: 0" in weight.note
    lost = replace(storm, ledger={**storm.ledger, "burned": 49})
    assert "NOT exact" in by_name(lost)["weight in all ledgers"].note
    assert "units: -1" in by_name(lost)["weight in all ledgers"].note


def test_what_was_not_seen_has_no_row(storm: Storm) -> None:
    nothing = replace(
        storm.measured, pause=None, returns=Returns(seconds=(), cut_short=0), loss=None
    )
    names = set(by_name(replace(storm, measured=nothing)))
    assert names == {
        *("members taking part", "the same, of the alive", "time for all steps"),
        "weight in all ledgers",
    }


def test_a_rival_that_cannot_be_installed_is_a_row_that_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, storm: Storm
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(of_rivals, "RIVALS", {"tortoise": Rival(name="tortoise", version="7")})
    (row,) = rival_rows(["tortoise"], storm, 10, cache=tmp_path)
    assert row.name == "tortoise, not measured" and "pip ended with status 1" in row.note


def test_a_rival_stands_beside_the_one_kill_of_the_calibration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, storm: Storm
) -> None:
    asked: list[Any] = []
    found: dict[str, Any] = {"pause_steps": 8.0, "pause_s": 4.0, "calm_steps": 1.5}
    found |= {"return_s": 3.0, "import_s": 9.0, "engine": "torchft 1"}

    def measure(rival: Rival, script: str, given: Any, *others: Any) -> dict[str, Any]:
        asked.append(given)
        assert Path(script).is_file()
        return found

    monkeypatch.setattr(of_rivals, "measure", measure)
    pause, back = rival_rows(["torchft"], storm, 10)
    assert (pause.ours, pause.reference, back.ours, back.reference) == (1.1, 8.0, 1.1, 3.0)
    assert asked[0]["sync_every"] == 5 and asked[0]["peers"] == 4
    assert json.dumps(asked[0])
    found["return_s"] = None
    _, back = rival_rows(["torchft"], storm, 10)
    assert back.reference == 0 and "its victim took no step" in back.note


def test_peers_measure_little_and_the_task_is_another_only_where_that_takes_long(
    tmp_path: Path,
) -> None:
    task = lean("digits", seed=0)
    assert isinstance(task.test, tuple) and len(task.test[0]) == 8
    assert lean_spec("digits", tmp_path) == "digits" and not list(tmp_path.iterdir())
    assert lean_spec("code-3.3m", tmp_path) == "storm_task:code_3m"
    code = (tmp_path / "storm_task.py").read_text()
    assert "def code_3m" in code and "benchmarks import" not in code


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"minutes": 0}, "minutes is 0"),
        ({"peers": 1}, "peers is 1"),
        ({"task": "nothing"}, "nothing"),
        ({"task": "digits", "storm": "breeze"}, "unknown storm 'breeze'"),
        ({"task": "digits", "out": "."}, "not an empty folder"),
        ({"task": "digits", "out": "/dev/null/x"}, "cannot be made"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_runs(
    given: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        measure_storm(**given)
