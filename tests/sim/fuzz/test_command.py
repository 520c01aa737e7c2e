"""``python -m rumor.sim.fuzz``: its output, its exit status, and commands that repeat a failure."""

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from rumor.sim.fuzz import OPTIONS, Campaign, CampaignConfig, Progress, run_campaign
from rumor.sim.fuzz import __main__ as command
from rumor.sim.fuzz.campaign import parse_seeds

from .mutants import MUTANTS

ON_MUTANT = ["--seeds", "3-1002", "--failures-max", "1"]


class Done(NamedTuple):
    status: int | str | None
    stdout: str
    stderr: str


Fuzz = Callable[..., Done]


@pytest.fixture
def fuzz(capsys: pytest.CaptureFixture[str]) -> Fuzz:
    """Run the command in this process."""

    def run(*arguments: str) -> Done:
        try:
            status: int | str | None = command.main(["--processes", "1", *arguments])
        except SystemExit as ended:
            status = ended.code
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command run a protocol with a known bug."""

    def run(config: CampaignConfig, progress: Progress) -> Campaign:
        return run_campaign(replace(config, mutant=MUTANTS["no-deduplication"]), progress)

    monkeypatch.setattr(command, "run_campaign", run)


@pytest.mark.extended
def test_the_report_shows_coverage_and_says_that_nothing_broke(fuzz: Fuzz) -> None:
    done = fuzz("--seeds", "0-9", "--workers", "2")
    assert done.status == 0, done.stderr
    assert re.search(r"^donor lost in mid-join +[\d.]+ %", done.stdout, re.MULTILINE)
    assert "Seeds: 10, events: " in done.stdout
    assert done.stdout.endswith("Nothing broke.\n")


@pytest.mark.extended
@pytest.mark.usefixtures("planted")
def test_a_violation_ends_with_status_1_and_a_command_that_repeats_it(fuzz: Fuzz) -> None:
    done = fuzz(*ON_MUTANT)
    assert done.status == 1
    *_, left, again = done.stdout.splitlines()
    assert re.match(r"What is left of it: [0-3] faults?, \d+ workers\. Once more:", left)
    # The last line of the trace is the last event at the peers concerned.
    last = done.stdout.partition("\nWhat is left")[0].splitlines()[-1]
    at_s = re.search(r"^Seed \d+ broke I3 at ([\d.]+) s", done.stdout, re.MULTILINE)
    assert at_s and float(last.split()[0]) == pytest.approx(float(at_s[1]), abs=1e-3)
    assert "accepted" in last
    # A failure is reported as soon as it is found, after lines of progress where seeds take long.
    *before, news = done.stderr.splitlines()
    assert re.match(r"seed \d+ broke I3 at [\d.]+ s: ", news)
    assert all(re.match(r"\d+ s: [\d,]+ of 1,000 seeds, 0 failed", line) for line in before)
    python, _, module, *arguments = shlex.split(again)
    assert (python, module) == ("python", "rumor.sim.fuzz")
    repeated = fuzz(*arguments)
    assert repeated.status == 1

    def violation(text: str) -> str:
        return text[text.index("\nSeed ") : text.rindex("\n", 0, text.index(" Once more:"))]

    assert violation(repeated.stdout) == violation(done.stdout)
    assert repeated.stdout.splitlines()[-1] == again


def test_faults_can_be_given_as_a_file(fuzz: Fuzz, tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    path.write_text('[{"at_s": 2, "kind": "crash", "peer": "p1"}]', encoding="utf-8")
    done = fuzz("--seeds", "3", "--workers", "3", "--faults", str(path))
    assert done.status == 0, done.stderr
    assert "Faults, by share of seeds: crash 100 %\n" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "many"], "seeds is 'many': 'many' is neither a number nor FIRST-LAST"),
        (["--seeds", "9-3"], "seeds is '9-3': '9-3' must be up to 10,000,000"),
        (["--seeds", "0-99999999"], "must be up to 10,000,000"),
        (["--seeds", "1,,2"], "'' is neither a number nor FIRST-LAST"),
        (["--seeds", "1-2-3"], "'1-2-3' is neither a number nor FIRST-LAST"),
        (["--workers", "1"], "workers is 1: it must be from 2 to 64"),
        (["--processes", "0"], "processes is 0: it must be at least 1"),
        (["--without", "shard"], "unknown option 'shard': options are founders, "),
        (["--faults", "nowhere.json"], "nowhere.json cannot be read: No such file"),
        (["--faults", '[{"at_s": 1}]'], "fault 1 needs kind"),
        (
            ["--faults", '[{"at_s": 1e9, "kind": "leave", "peer": 0}]'],
            "fault 1: at_s is 1e+09: here it must be at most 3600",
        ),
        (
            ["--faults", '[{"at_s": 1, "kind": "leave", "peer": "p9"}]'],
            "'p9' is not a peer of this",
        ),
    ],
)
def test_wrong_arguments_give_a_one_line_error_and_status_2(
    fuzz: Fuzz, arguments: list[str], message: str
) -> None:
    done = fuzz("--seeds", "0", *arguments)
    assert (done.status, done.stdout) == (2, "")
    assert message in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("text", "seeds"), [("7-7", (7,)), ("5, 1-2,5", (5, 1, 2))])
def test_seeds_are_numbers_and_ranges_without_duplicates(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


def test_the_help_lists_every_option_and_every_part_of_a_swarm(fuzz: Fuzz) -> None:
    plain = fuzz("--help").stdout
    for name in ("seeds", "workers", "without", "faults", "no-shrink", "failures-max"):
        assert f"--{name}" in plain
    assert all(name in re.sub(r"-\s+", "-", plain) for name in OPTIONS)
