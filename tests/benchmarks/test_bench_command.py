"""``rumor bench``: names, JSON, and what a wrong name is answered."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rumor.benchmarks
from rumor.benchmarks import Result, Row
from rumor.cli.app import app

__all__: list[str] = []


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two benchmarks that measure nothing; which were run."""
    names: list[str] = []
    monkeypatch.setattr(
        rumor.benchmarks, "BENCHMARKS", {name: canned(name, names) for name in ("one", "two")}
    )
    return names


def canned(name: str, ran: list[str]) -> Callable[[], Result]:
    def measure() -> Result:
        ran.append(name)
        return Result(
            name=name,
            title="nothing",
            columns=("what", "ours", "theirs", "ratio", "unit", "notes"),
            rows=(Row(name="copying [it]", ours=3.0, reference=4.0, unit="GB/s", note="a note"),),
            machine="a machine",
            wall_s=0.5,
        )

    return measure


def test_all_run_unless_one_is_named(ran: list[str]) -> None:
    assert CliRunner().invoke(app, ["bench"]).exit_code == 0
    assert ran == ["one", "two"]
    assert CliRunner().invoke(app, ["bench", "two"]).exit_code == 0
    assert ran == ["one", "two", "two"]


def test_the_table_shows_both_figures_their_ratio_and_the_note(ran: list[str]) -> None:
    shown = CliRunner().invoke(app, ["bench", "one"]).stdout
    assert all(text in shown for text in ("copying [it]", "3.000", "4.000", "0.750", "a note"))
    assert "a machine" in shown


def test_json_is_one_dated_object_on_the_last_line(ran: list[str]) -> None:
    lines = CliRunner().invoke(app, ["bench", "--json"]).stdout.splitlines()
    assert len(lines) == 1
    one, two = json.loads(lines[0])["benchmarks"]
    assert (one["name"], two["name"]) == ("one", "two")
    assert one["rows"] == [
        {
            "name": "copying [it]",
            "ours": 3.0,
            "reference": 4.0,
            "ratio": 0.75,
            "unit": "GB/s",
            "note": "a note",
        }
    ]
    assert len(one["date"]) == len("2026-11-21")


def test_an_unknown_name_exits_with_2_lists_the_valid_ones_and_runs_nothing(
    ran: list[str],
) -> None:
    result = CliRunner().invoke(app, ["bench", "one", "three"])
    assert result.exit_code == 2
    assert "'three'" in result.stderr and "one, two" in result.stderr
    assert ran == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--picture", "x.png"], "goes with one benchmark that takes it: joining or soak"),
        (["memory", "--picture", "x.png"], "goes with one benchmark that takes it"),
        (["joining", "soak", "--picture", "x.png"], "goes with one benchmark that takes it"),
        (["sim", "--minutes", "2"], "--minutes goes with one benchmark that takes it: soak or"),
        (["start", "--peers", "2"], "--peers goes with one benchmark that takes it"),
        (["storm", "--minutes", "0"], "minutes is 0: it must be above 0"),
        (["joining", "--picture", "nowhere/x.png"], "there is no folder nowhere"),
    ],
)
def test_an_option_that_nobody_takes_is_status_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == 2 and message in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr


def test_a_picture_is_handed_to_the_one_benchmark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: list[Path] = []

    def measure(picture: Path | None = None) -> Result:
        assert picture is not None
        drawn.append(picture)
        return canned("joining", [])()

    monkeypatch.setattr(rumor.benchmarks, "BENCHMARKS", {"joining": measure})
    picture = tmp_path / "joining.png"
    assert CliRunner().invoke(app, ["bench", "joining", "--picture", str(picture)]).exit_code == 0
    assert drawn == [picture]


def test_options_are_handed_to_the_one_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[float, int, str, int]] = []

    def measure(minutes: float = 10, peers: int = 8, task: str = "a", seed: int = 0) -> Result:
        taken.append((minutes, peers, task, seed))
        return canned("storm", [])()

    monkeypatch.setattr(rumor.benchmarks, "BENCHMARKS", {"storm": measure})
    given = ("--minutes", "0.5", "--peers", "3", "--seed", "7")
    assert CliRunner().invoke(app, ["bench", "storm", *given]).exit_code == 0
    assert taken == [(0.5, 3, "a", 7)]
