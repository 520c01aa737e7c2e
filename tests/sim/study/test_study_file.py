"""Study files: their contents, and errors that name the wrong key."""

import re
from pathlib import Path
from typing import Any

import pytest

from rumor.gossip import ConfigError
from rumor.sim.calibration import Calibration, PeerPace
from rumor.sim.models.network import NetworkConfig
from rumor.sim.study import read_study
from rumor.sim.study.execution.plan import check_trials
from rumor.sim.study.execution.store import read_folder, write_folder
from rumor.sim.study.study_file import built_in_studies, find_study, time_told

FULL = """
title = "Rings and complete graphs"
question = "How much slower is a ring?"
seeds = [3, 5]
target = 0.8

[settings]
task = "digits"
workers = 16
slow = ["3:10"]

[grid]
topology = ["ring", "complete"]
p = [0.1, 1.0]

[[grid.data]]
name = "alike"

[[grid.data]]
name = "skewed"
partition = "dirichlet:0.1"
lr = 0.05
faults = [{ at_s = 1.0, kind = "crash", peer = 2 }]

[[skip]]
topology = "complete"
p = 1
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_study_is_read_as_it_is_written(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, FULL))
    assert (study.name, study.seeds, study.target) == ("mine", (3, 5), 0.8)
    assert [axis.name for axis in study.axes] == ["topology", "p", "data"]
    assert study.axes[2].labels == ("alike", "skewed") and study.axes[1].labels == ("0.1", "1.0")
    trials = list(study.trials())
    assert len(trials) == (2 * 2 - 1) * 2 * 2
    assert [str(trial) for trial in trials[:3]] == [
        "ring, 0.1, alike, seed 3",
        "ring, 0.1, alike, seed 5",
        "ring, 0.1, skewed, seed 3",
    ]
    assert trials[2].settings["lr"] == 0.05 and trials[2].settings["slow"] == ("3:10",)


def test_metrics_tuned_axis_source_and_reference_are_read_and_saved(
    tmp_path: Path,
) -> None:
    text = 'metrics = ["accuracy_least", "accuracy"]\ntune = "p"\nsource = " by hand "\n'
    study = read_study(write(tmp_path, f'{text}reference = "ring"\n{FULL}'))
    assert (study.metrics, study.tune) == (("accuracy_least", "accuracy"), "p")
    assert (study.source, study.reference) == ("by hand", "ring")
    for kept in (study, read_study(write(tmp_path, FULL))):
        write_folder(tmp_path, kept, ["a", "b"], {"b": "why"})
        again, keys, failures = read_folder(tmp_path)
        assert list(again.trials()) == list(kept.trials()) and again == kept
        assert (keys, failures) == (("a", "b"), {"b": "why"})


P = "\n[grid]\np = [1]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[grid]\ntopologie = ['ring']", "grid has an unknown key 'topologie', did you mean 'top"),
        ("task = 'digits'", r"task must be in \[settings\], or in \[grid\]"),
        ("[setings]\nworkers = 3", "unknown key 'setings', did you mean 'settings'"),
        (f"[settings]\nworker = 3{P}", "did you mean 'workers'"),
        ("seeds = 2", "the grid is empty: vary something"),
        ("[grid]\np = []", "grid.p is empty: it must have at least one value"),
        ("[grid]\np = 0.1", "grid.p is 0.1: it must be a list"),
        ("[grid]\np = [1, 1.0]", "grid.p has 1 and 1.0, which are the same"),
        ("[[grid.data]]\nlr = 0.1", "each point needs a name"),
        (
            f"seeds = 20261121{P}",
            "seeds is 20261121: it must be their number, up to 10,000, or a l",
        ),
        (
            "[[skip]]\ntopology = 'rign'\n[grid]\ntopology = ['ring']",
            r"\[\[skip\]\] .*rign.* fits no trial: correct it, or take it out",
        ),
        ("[grid]\nseed = [1, 2]", "grid has an unknown key 'seed'"),
        ("[settings]\np = 0.1\n[grid]\np = [0.2]", "p is set by settings and by grid.p"),
        (f"seeds = []{P}", "seeds is empty"),
        (f"seeds = [1, 1]{P}", "seeds has one twice"),
        (f"seeds = true{P}", "seeds is true"),
        (f"target = 2{P}", "target is 2.0"),
        (f"[[skip]]{P}", r"a \[\[skip\]\] is empty"),
        (f"[[skip]]\nrul = 'x'{P}", "skip has an unknown key 'rul', did you mean 'rule'"),
        ("[grid]\np = [1", "mine.toml is not TOML"),
        (f'metrics = "accuracy"\n{FULL}', "it must be a list of names"),
        (f'metrics = ["acuracy"]\n{FULL}', "did you mean 'accuracy'"),
        (f'tune = "lr"\n{FULL}', "it must be an axis, topology, p, data"),
        ('tune = "p"\n[grid]\np = [0.1, 0.2]', "the only axis: there is nothing to compare"),
        (f"source = 3\n{FULL}", "it must be a string"),
        (f'reference = "rign"\n{FULL}', "it must be a point of grid.topology, such as"),
    ],
)
def test_an_invalid_file_is_refused_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_study(write(tmp_path, text))


@pytest.mark.extended
@pytest.mark.parametrize("study", built_in_studies(), ids=lambda study: study.name)
def test_a_built_in_study_can_run(study: Any) -> None:
    assert find_study(study.name) == study
    one_seed = [trial for trial in study.trials() if trial.seed == study.seeds[0]]
    few = [trial for trial in one_seed if trial.settings.get("workers", 64) <= 64]
    assert few and not check_trials(few)[1]


def test_a_built_in_study_states_its_duration_in_a_comment() -> None:
    assert re.fullmatch(r"[\d.]+ (s|min|h) on \d+ cores?", time_told("graphs"))


def measured(folder: Path) -> Path:
    peers = (PeerPace(id="a", step_s=0.1), PeerPace(id="b", step_s=0.3))
    settings = {"task": "quadratic", "rule": "gosgd", "p": 0.5, "total_steps": 90, "lr": 0.2}
    path = folder / "peers.json"
    network = NetworkConfig(latency_s=0.02)
    Calibration(source="x", peers=peers, settings=settings, network=network).write(path)
    return path


def test_a_study_starts_from_a_calibration(tmp_path: Path) -> None:
    text = f"""
from = "{measured(tmp_path)}"
settings = {{ steps = 20, workers = 3 }}
grid = {{ rule = ["sgp", "adpsgd"], lr = [0.1, 0.3] }}
"""
    study = read_study(write(tmp_path, text))
    assert dict(study.settings) == {
        "task": "quadratic",
        "workers": 3,
        "step_s": 0.1,
        "exchange_s": 0.0,
        "pace": "constant",
        "slow": ("1:3",),
        "network": '{"latency_s": 0.02}',
        "steps": 20,
    }
    good, bad = check_trials(list(study.trials())[:1])
    assert len(good) == 1 and not bad


def test_a_study_cannot_vary_the_workers_of_a_calibration(tmp_path: Path) -> None:
    text = f'from = "{measured(tmp_path)}"\ngrid = {{ workers = [2, 4] }}\n'
    with pytest.raises(ConfigError, match="grid varies workers"):
        read_study(write(tmp_path, text))
    with pytest.raises(ConfigError, match=r"none\.json cannot be read: No such file"):
        read_study(write(tmp_path, 'from = "none.json"\ngrid = { p = [0.1, 1] }\n'))
