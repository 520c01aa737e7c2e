"""Checks of trials before anything runs: every bad trial is found, and no good one."""

import math
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rumor.gossip.errors import ConfigError, TrainingError
from rumor.gossip.rules.registry import RULES
from rumor.sim import simulate
from rumor.sim.study.execution.plan import check_trials, plan_study
from rumor.sim.study.execution.trial import config_of
from rumor.sim.study.study import Study
from rumor.sim.study.study_file import SETTINGS

from ....rules import BOTH_WAYS, CUTTING, TREES, spec_of
from ..small import grid_of, small_study

pytestmark = pytest.mark.usefixtures("in_empty_folder")


DATE = date(2026, 11, 21)

BAD: list[tuple[dict[str, Any], str]] = [
    ({"topology": "hypercube", "workers": 12}, "n must be a power of 2"),
    ({"topology": "file:path=gone.csv"}, "topology: gone.csv cannot be read"),
    ({"rule": "dpsgd", "p": 0.1}, "rule 'dpsgd' does not take it"),
    ({"partition": "shards:400", "task": "digits"}, "cuts 1437 samples into"),
    ({"task": "digit"}, "unknown task 'digit', did you mean 'digits'"),
    ({"task": "gone:make"}, "there is no module 'gone'"),
    ({"faults": [{"at_s": 1.0, "kind": "crash", "peer": 99}]}, "99"),
    ({"network": "wann"}, "unknown network 'wann', did you mean 'wan'"),
    ({"loss": ("0.1",)}, "loss is ('0.1',): it must be a number"),
    ({"topology": DATE}, "topology is datetime.date(2026, 11, 21): it must be a string"),
    ({"faults": ({"at_s": DATE, "kind": "crash", "peer": 1},)}, "(crash): at_s is "),
    ({"workers": 10**9}, "workers of 0 MB each would take about"),
    ({"workers": 1000, "task": "digits", "memory_gib": 0.01}, "GiB that memory_gib allows"),
]


def study_with(**settings: Any) -> Study:
    usual = {"task": "consensus", "workers": 8, "steps": 20}
    return grid_of({"x": {"only": usual | settings}}, settings={}, seeds=1)


@pytest.mark.parametrize(("settings", "why"), BAD, ids=[why for _, why in BAD])
def test_a_trial_that_cannot_run_is_found_in_advance(settings: dict[str, Any], why: str) -> None:
    good, bad = check_trials(study_with(**settings).trials())
    (found,) = bad.values()
    assert good == [] and why in found


WRONG: tuple[Any, ...] = (
    "",
    "0.1",
    "a\0b",
    "[",
    "[3]",
    "x:y=z",
    "é",
    -1,
    0,
    5,
    10**400,
    0.3,
    math.nan,
    math.inf,
    True,
    None,
    DATE,
    b"x",
    (),
    [],
    ["0.1"],
    [""],
    [0.3],
    [[3]],
    ["x"],
    [{}],
    {},
    {"at_s": DATE},
    [{"at_s": DATE}],
)


@pytest.mark.extended
@pytest.mark.parametrize("name", SETTINGS)
def test_no_value_of_any_setting_stops_the_check(name: str) -> None:
    trials = [
        trial for value in WRONG for trial in study_with(**{"workers": 4, name: value}).trials()
    ]
    found = [check_trials([trial]) for trial in trials]
    assert all(len(good) + len(bad) == 1 for good, bad in found)
    whys = [why for _, bad in found for why in bad.values()]
    assert len(whys) >= len(trials) / 2 and all(why.strip() for why in whys)


def test_numpy_numbers_and_integers_are_accepted() -> None:
    config = config_of({"lr": np.float32(0.1), "p": np.float64(0.1), "step_s": 1, "loss": 0})
    assert config.step_s == 1 and config_of({"seed": np.int64(3)}).seed == 3


def test_a_rule_that_cannot_average_on_its_topology_is_found() -> None:
    Path("arrows.graphml").write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed">'
        + "".join(f'<node id="{node}"/>' for node in "abcd")
        + "".join(f'<edge source="{a}" target="{b}"/>' for a, b in ("ab", "bc", "cd", "da", "ac"))
        + "</graph></graphml>"
    )
    settings: dict[str, Any] = {"workers": 4, "topology": "file:path=arrows.graphml"}
    good, bad = check_trials(study_with(**settings, rule="dpsgd").trials())
    assert not good and "use another topology, or sgp" in str(bad)
    with pytest.raises(TrainingError, match="use another topology, or sgp"):
        simulate(config_of({"task": "consensus", "steps": 5, "rule": "dpsgd", **settings}))
    good, bad = check_trials(study_with(**settings, rule="sgp").trials())
    assert not bad


@pytest.mark.extended
@pytest.mark.parametrize("rule", RULES)
def test_valid_trials_pass_the_check_under_every_rule(rule: str) -> None:
    fitting = ["ring", "complete", "one-peer-exponential", "random-matching"]
    if rule in BOTH_WAYS:
        fitting.remove("one-peer-exponential")
    if rule in TREES:
        fitting = ["path", "star", "tree"]
    study = small_study(
        topology={"swap": ["random-matching"], "choco": ["ring", "complete"]}.get(rule, fitting),
        rule=spec_of(rule),
        p=None,
        # The vectors of consensus are one cache line long, too short to cut.
        task="digits" if rule in CUTTING else "consensus",
    )
    good, bad = check_trials(study.trials())
    assert not bad and [trial.trial for trial in good] == list(study.trials())
    assert all(trial.memory_gib > 0.1 and trial.work == 160 for trial in good)


def test_steps_are_known_if_time_or_a_total_ends_a_run() -> None:
    ends: list[dict[str, Any]] = [{"time_s": 3.0}, {"total_steps": 80}, {}]
    studies = [study_with(**settings, steps=None) for settings in ends]
    assert [check_trials(study.trials())[0][0].work for study in studies] == [240, 80, 1600]


def test_bad_trials_are_listed_by_reason_with_a_few_examples() -> None:
    graphs = {"ring": "ring", "cube": "hypercube", "x": "x"}
    study = grid_of(
        {
            "graph": {label: {"topology": spec} for label, spec in graphs.items()},
            "size": {"small": {"workers": 8}, "odd": {"workers": 12}},
        },
        settings={"task": "consensus", "steps": 5},
    )
    with pytest.raises(ConfigError) as caught:
        plan_study(study, Path("nowhere")).require_runnable()
    headline, *lines = str(caught.value).splitlines()
    cannot = "6 of 12 trials cannot run, and nothing was started. Change them, or leave them out by"
    assert headline == f"{cannot} [[skip]]:"
    assert lines[0].startswith("- topology 'hypercube' with n=12: n must be a power of 2")
    assert lines[1:3] == ["    cube, odd, seed 0", "    cube, odd, seed 1"]
    assert lines[3].startswith("- unknown topology 'x'")
    assert lines[4:] == [
        "    x, small, seed 0",
        "    x, small, seed 1",
        "    x, odd, seed 0",
        "    and 1 more",
    ]
