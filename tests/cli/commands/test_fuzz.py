"""``rumor fuzz``: what it prints, its exit status, and that its commands repeat a failure."""

import errno
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rumor.cli.app import app
from rumor.cli.commands.fuzz import FuzzConfig, parse_seeds, words
from rumor.gossip import ConfigError
from rumor.sim.fuzz import OPTIONS, CampaignConfig
from rumor.train.faults.schedule import read_faults

from ...sim.fuzz.mutants import MUTANTS

ON_MUTANT = ["--seeds", "3-1002", "--failures-max", "1"]


def fuzz(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["fuzz", "--processes", "1", *arguments])


@contextmanager
def planted() -> Iterator[None]:
    """Let campaigns of commands run a protocol with a known bug."""
    plain = FuzzConfig.campaign

    def campaign(config: FuzzConfig) -> CampaignConfig:
        return replace(plain(config), mutant=MUTANTS["no-deduplication"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FuzzConfig, "campaign", campaign)
        yield


@pytest.fixture(scope="module")
def mutant(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """A campaign that finds a mutant, and the folder that it is kept in."""
    out = tmp_path_factory.mktemp("fuzz") / "kept"
    with planted():
        return fuzz(*ON_MUTANT, "--json", "--out", str(out)), out


def test_a_campaign_without_a_violation_ends_with_status_0_and_one_line_of_json() -> None:
    done = fuzz("--seeds", "0-2", "--workers", "2", "--json")
    assert done.exit_code == 0, done.output
    (line,) = done.stdout.splitlines()
    told = json.loads(line)
    assert {"seeds", "violations", "events", "coverage"} <= set(told)
    assert (told["seeds"], told["violations"]) == (3, [])
    assert told["coverage"]["founding"] == 1.0 and told["events"] > 0


def test_a_person_reads_a_table_of_what_was_met_and_that_nothing_broke() -> None:
    done = fuzz("--seeds", "0-9", "--workers", "2")
    assert done.exit_code == 0, done.output
    assert "donor lost in mid-join" in done.stdout and "Nothing broke." in done.stdout
    assert "Seeds: 10, events: " in done.stdout


@pytest.mark.extended
def test_a_violation_ends_with_status_1_and_is_told_with_all_that_repeats_it(
    mutant: tuple[Result, Path],
) -> None:
    done, out = mutant
    assert done.exit_code == 1
    told = json.loads(done.stdout.splitlines()[-1])
    (violation,) = told["violations"]
    assert violation["shrunk"] and len(violation["faults"]) <= 3
    assert violation["command"] in done.stderr
    # Told as soon as it is found, before what is made of it at the end.
    lines = done.stderr.splitlines()
    news = f"seed {violation['seed']} broke {violation['invariant']} at "
    told_at = next(at for at, line in enumerate(lines) if line.startswith(news))
    # Where seeds take long, their number was told before.
    assert all(re.match(r"\d+ s: [\d,]+ of 1,000 seeds, ", line) for line in lines[:told_at])
    assert any(violation["command"] in line for line in lines[told_at + 1 :])
    kept = json.loads((out / "campaign.json").read_text(encoding="utf-8"))
    assert kept == told
    assert len(read_faults(out / f"seed-{violation['seed']}.json")) == len(violation["faults"])


def test_the_command_of_a_failure_repeats_it(mutant: tuple[Result, Path]) -> None:
    (violation,) = json.loads(mutant[0].stdout.splitlines()[-1])["violations"]
    program, *arguments = shlex.split(violation["command"])
    assert program == "rumor"
    with planted():
        again = CliRunner().invoke(app, [*arguments, "--json"])
    assert again.exit_code == 1
    (repeated,) = json.loads(again.stdout.splitlines()[-1])["violations"]
    same = ("seed", "invariant", "what", "at_s", "workers", "without", "faults", "trace")
    assert {key: repeated[key] for key in same} == {key: violation[key] for key in same}


def test_faults_can_be_given_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    path.write_text('[{"at_s": 2, "kind": "crash", "peer": "p1"}]', encoding="utf-8")
    done = fuzz("--seeds", "3", "--workers", "3", "--faults", str(path), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["coverage"]["fault: crash"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "many"], "seeds is 'many': 'many' is neither a number nor FIRST-LAST"),
        (["--seeds", "9-3"], "seeds is '9-3': '9-3' runs backwards"),
        (["--seeds", "0-99999999"], "these are more than 10,000,000"),
        (["--seeds", "1,,2"], "'' is neither a number nor FIRST-LAST"),
        (["--workers", "1"], "workers is 1: it must be from 2 to 64"),
        (["--processes", "0"], "processes is 0: it must be at least 1"),
        (["--without", "shard"], "unknown option 'shard': options are founders, "),
        (["--faults", "nowhere.json"], "nowhere.json cannot be read: No such file"),
        (["--faults", '[{"at_s": 1}]'], "fault 1 needs kind"),
        (
            ["--faults", '[{"at_s": 1e9, "kind": "leave", "peer": 0}]'],
            "fault 1: at_s is 1e+09: here it must be at most 3600",
        ),
        (["--out", __file__], "test_fuzz.py is a file: name a new folder"),
        (["--faults", '[{"at_s": 1, "kind": "leave", "peer": "p9"}]'], "'p9' is no peer of this"),
    ],
)
def test_wrong_arguments_are_answered_in_a_line_and_status_2(
    arguments: list[str], message: str
) -> None:
    done = fuzz("--seeds", "0", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and message in line


def test_a_folder_with_a_campaign_is_left_alone(mutant: tuple[Result, Path]) -> None:
    out = mutant[1]
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    done = fuzz("--seeds", "0", "--workers", "2", "--out", str(out))
    assert done.exit_code == 2 and "kept holds another campaign" in done.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_what_cannot_be_kept_was_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(path: Path, value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rumor.cli.commands.fuzz._write", full)
    out = tmp_path / "kept"
    done = fuzz("--seeds", "0", "--workers", "2", "--json", "--out", str(out))
    assert done.exit_code == 1 and not out.exists()
    assert done.stderr.splitlines()[-1].endswith(
        "kept cannot be written: No space left on device; no file was kept"
    )
    assert json.loads(done.stdout)["seeds"] == 1


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("17", (17,)),
        ("0-3", (0, 1, 2, 3)),
        ("5, 1-2,5", (5, 1, 2)),
        ("7-7", (7,)),
    ],
)
def test_seeds_are_numbers_and_ranges_each_once(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "-", "1-", "-1", "1.5", "0x10", "1-2-3"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"such as 17, 0-999 or 3,10-20"):
        parse_seeds(text)


def test_the_help_names_every_option_of_a_swarm() -> None:
    done = CliRunner().invoke(app, ["fuzz", "--help"], env={"COLUMNS": "200"})
    plain = " ".join(done.output.replace("│", " ").split())
    assert ", ".join(OPTIONS) in plain


@pytest.mark.parametrize(
    ("done", "failed", "wall_s", "expected"),
    [
        (1, 0, 1.0, "none failed"),
        (50, 2, 10.0, "2 failed, about 10 s left"),
        (10, 0, 100.0, "none failed, about 15 min left"),
    ],
)
def test_progress_says_what_failed_and_how_long_the_rest_takes(
    done: int, failed: int, wall_s: float, expected: str
) -> None:
    assert words(done, 100, failed, wall_s) == expected
