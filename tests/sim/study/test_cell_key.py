"""Names of trials: what is the same has the same, and what is not has another."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import rumor.sim.study.execution.cache_key as module
from rumor.gossip import ConfigError
from rumor.sim import NetworkConfig
from rumor.sim.faults import Fault
from rumor.sim.study.execution.cache_key import trial_key, config_of, settings_as_json


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_default_that_is_given_makes_no_other_cell() -> None:
    assert trial_key({"seed": 1}) == trial_key(
        {"seed": 1, "workers": 64, "rule": "gosgd", "slow": []}
    )


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"workers": 32},
        {"topology": "ring"},
        {"rule": "sgp"},
        {"p": 0.1},
        {"lr": 0.3},
        {"eval_every": 7},
        {"engine": "fast"},
        {"slow": ("3:10",)},
        {"faults": [{"at_s": 1.0, "kind": "crash", "peer": 2}]},
    ],
)
def test_another_argument_makes_another_cell(change: dict[str, Any]) -> None:
    assert trial_key(change) != trial_key({})


@pytest.mark.parametrize("change", [{"threads": 2}, {"window": 10}, {"memory_gib": 3.0}])
def test_what_changes_no_bit_makes_no_other_cell(change: dict[str, Any]) -> None:
    assert trial_key(change) == trial_key({})


def test_other_code_makes_another_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    before = trial_key({})
    monkeypatch.setattr(module, "code_version", lambda: "other")
    assert trial_key({}) != before


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"faults": "faults.json"}, "faults.json"),
        ({"network": "net.json"}, "net.json"),
        ({"topology": "file:path=graph.csv"}, "graph.csv"),
        ({"topology": "spanning-tree:of=file:path=graph.csv"}, "graph.csv"),
        ({"pace": "trace:path=trace.csv"}, "trace.csv"),
    ],
)
def test_a_file_counts_by_what_is_in_it(settings: dict[str, str], name: str) -> None:
    path = Path(name)
    path.write_text("[]" if name == "faults.json" else "{}")
    before = trial_key(settings)
    assert trial_key(settings) == before
    path.write_text('[{"at_s": 1, "kind": "crash", "peer": 0}]' if "faults" in name else '{"x": 1}')
    assert trial_key(settings) != before
    path.unlink()
    with pytest.raises(ConfigError, match=f"{name} cannot be read: No such file"):
        trial_key(settings)


def test_faults_written_out_make_the_cell_that_they_make_as_objects() -> None:
    written = {"faults": [{"kind": "crash", "peer": 2, "at_s": 1.0}]}
    assert trial_key(written) == trial_key({"faults": (Fault(at_s=1.0, kind="crash", peer=2),)})


def test_a_task_of_the_users_own_counts_with_the_modules_that_it_imports() -> None:
    Path("mine.py").write_text("from parts.model import make\nimport json\n")
    Path("parts").mkdir()
    Path("parts/model.py").write_text("def make(): ...\n")
    Path("unused.py").write_text("x = 1\n")
    settings = {"task": "mine:make"}
    before = trial_key(settings)
    Path("unused.py").write_text("x = 2\n")
    assert trial_key(settings) == before
    Path("parts/model.py").write_text("def make(): return 1\n")
    changed = trial_key(settings)
    assert changed != before
    Path("mine.py").write_text("from parts.model import make\n")
    assert trial_key(settings) not in (before, changed)


def test_the_libraries_of_a_task_count_by_their_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.py").write_text("import json\nfrom parts import make\n")
    Path("parts.py").write_text("from networkx.classes import graph\ndef make(): ...\n")
    Path("plain.py").write_text("import json\ndef make(): ...\n")
    before = [trial_key({"task": task}) for task in ("mine:make", "plain:make")]
    versions = {"networkx": "0.0.1"}
    monkeypatch.setattr("rumor.sim.study.cell_files.version", versions.__getitem__)
    after = [trial_key({"task": task}) for task in ("mine:make", "plain:make")]
    assert after[0] != before[0] and after[1] == before[1]


def test_a_process_that_has_loaded_other_code_of_a_task_is_told_to_start_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("task_of_mine.py").write_text("import task_parts\n")
    Path("task_parts.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("task_of_mine", "task_parts"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    settings = {"task": "task_of_mine:make"}
    before = trial_key(settings)
    importlib.import_module("task_of_mine")
    assert trial_key(settings) == before
    Path("task_parts.py").write_text("x = 2\n")
    with pytest.raises(ConfigError, match="its code has changed since this process"):
        trial_key(settings)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("task_of_mine.py").write_text("import task_parts\n")
    with pytest.raises(ConfigError, match=r"has loaded .*task_of_mine\.py as task_of_mine"):
        trial_key(settings)


def test_settings_survive_being_written_down() -> None:
    settings = {"faults": [{"kind": "crash", "peer": 2, "at_s": 1}], "slow": ("3:10",), "lr": 0.1}
    written = json.loads(json.dumps(settings_as_json(config_of(settings))))
    assert trial_key(written) == trial_key(settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topologie": "ring"}, "no setting 'topologie', did you mean 'topology'"),
        ({"workers": "many"}, "workers is 'many': it must be an integer"),
        ({"network": NetworkConfig()}, "network is an object: a study needs its name"),
        ({"lr": "high"}, "lr is 'high': it must be a number"),
    ],
)
def test_settings_that_are_not_valid_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trial_key(settings)
