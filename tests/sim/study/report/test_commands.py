"""The command that a report gives for a trial repeats that trial."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rumor.cli.app import load
from rumor.cli.settings.options import settings_of_command
from rumor.sim import SimulationConfig, simulate
from rumor.sim.study.report.page import command
from rumor.sim.study.study import Trial
from rumor.sim.study.study_file import SETTINGS

from ....cli.called import called
from ....faults import fault

CRASH = fault(0.5, "crash", 1)


def words_of(**settings: Any) -> list[str]:
    return shlex.split(command(Trial(labels={}, settings=settings)))


def test_every_setting_of_a_study_is_one_of_simulate() -> None:
    known, _ = settings_of_command(load("simulate"))
    assert {*SETTINGS} <= {*known}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"topology": "torus:rows=4,cols=8"}, ["topology=torus:rows=4,cols=8"]),
        ({"step_s": 0.5, "workers": 8}, ["step_s=0.5", "workers=8"]),
        ({"slow": ("3:10", "4:2")}, ["slow=3:10", "slow=4:2"]),
        ({"slow": ()}, []),
        ({"p": None}, []),
        ({"faults": "my faults.json"}, ["faults=my faults.json"]),
        ({"task": "--help"}, ["task=--help"]),
        ({"task": "a; rm $HOME `x` 'y'"}, ["task=a; rm $HOME `x` 'y'"]),
        ({"faults": (CRASH,)}, [f"faults={json.dumps([CRASH])}"]),
    ],
)
def test_a_shell_reads_every_setting_unchanged(settings: dict[str, Any], words: list[str]) -> None:
    expected = [word for each in words for word in ("--set", each)]
    assert words_of(**settings) == ["rumor", "simulate", *expected]


@pytest.mark.extended
def test_a_repeated_trial_gives_the_same_bits(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "task": "noise",
        "workers": 6,
        "steps": 30,
        "topology": "ring",
        "slow": ("3:4",),
        "faults": (CRASH,),
        "seed": 7,
    }
    wanted = simulate(replace(SimulationConfig(**settings), threads=1)).summary["digest"]
    where = ["--out", tmp_path / "run", "--set=plot=false", "--json", "--set", "threads=1"]
    found = called(*words_of(**settings)[1:], *where, status=0)
    assert json.loads(found.stdout)["digest"] == wanted
