"""Keys of trials: equal trials have equal keys, and different trials different keys."""

import json
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import rumor.sim.study.execution.trial as module
from rumor.gossip import ConfigError
from rumor.sim import NetworkConfig
from rumor.sim.study.execution.trial import (
    code_version,
    config_of,
    order_of,
    run_trial,
    settings_as_json,
    trial_key,
    versions,
)

from ....faults import fault

pytestmark = pytest.mark.usefixtures("in_empty_folder")


@pytest.mark.parametrize(
    "change",
    [
        # Defaults, and settings that change no bit.
        {"workers": 64, "rule": "gosgd", "slow": []},
        {"threads": 2},
        {"window": 10},
        {"memory_gib": 3.0},
    ],
)
def test_settings_that_change_no_result_keep_the_key(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = trial_key({})
    assert trial_key(change) == before
    # Other code changes the key.
    monkeypatch.setattr(module, "code_version", lambda: "other")
    assert trial_key({}) != before


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
        {"engine": "dense"},
        {"slow": ("3:10",)},
        {"partition": "iid"},
        {"faults": [fault(1.0, "crash", 2)]},
    ],
)
def test_a_changed_setting_changes_the_key(change: dict[str, Any]) -> None:
    assert trial_key(change) != trial_key({})


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"faults": "faults.json"}, "faults.json"),
        ({"network": "net.json"}, "net.json"),
        ({"topology": "file:path=graph.csv"}, "graph.csv"),
        ({"topology": "spanning-tree:of=file:path=graph.csv"}, "graph.csv"),
    ],
)
def test_the_content_of_a_file_is_part_of_the_key(settings: dict[str, str], name: str) -> None:
    path = Path(name)
    path.write_text("[]" if name == "faults.json" else "{}")
    before = trial_key(settings)
    assert trial_key(settings) == before
    path.write_text('[{"at_s": 1, "kind": "crash", "peer": 0}]' if "faults" in name else '{"x": 1}')
    assert trial_key(settings) != before
    path.unlink()
    with pytest.raises(ConfigError, match=f"{name} cannot be read: No such file"):
        trial_key(settings)


@pytest.mark.parametrize(
    ("what", "name", "changed"),
    [
        ("task", "mine:make", "mine.py"),
        ("partition", "mine:make", "mine.py"),
        ("task", "mine.py:make", "mine.py"),
        ("task", "parts/mine.py:make", "parts/mine.py"),
        ("task", "../mine.py:make", "../mine.py"),
        ("task", "parts.mine:make", "parts/model.py"),
    ],
)
def test_user_code_is_part_of_the_key_with_its_module_or_package(
    what: str, name: str, changed: str
) -> None:
    Path("parts").mkdir()
    for path in ("mine.py", "../mine.py", "parts/__init__.py", "parts/mine.py", "parts/model.py"):
        Path(path).write_text("def make(): ...\n")
    before = trial_key({what: name})
    Path("other.py").write_text("x = 2\n")
    assert trial_key({what: name}) == before
    Path(changed).write_text("def make(): return 1\n")
    assert trial_key({what: name}) != before
    with pytest.raises(ConfigError, match=f"{what} nowhere_at_all: there is no such module"):
        trial_key({what: "nowhere_at_all:make"})


def test_user_code_of_an_editable_install_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> ModuleSpec | None:
            own = Path("elsewhere/installed.py").resolve()
            return spec_from_file_location(name, own) if name == "installed" else None

    Path("elsewhere").mkdir()
    Path("elsewhere/installed.py").write_text("def make(): ...\n")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    before = trial_key({"task": "installed:make"})
    Path("elsewhere/installed.py").write_text("def make(): return 1\n")
    assert trial_key({"task": "installed:make"}) != before


def test_a_model_in_a_file_can_be_studied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    data = "torch.eye(3), torch.arange(3)"
    Path("studied.py").write_text(
        f"import torch\ntrain = test = {data}\ndef make(): return torch.nn.Linear(3, 3)"
    )
    settings = {"task": "studied.py:make", "workers": 2, "steps": 2}
    order = order_of(trial_key(settings), settings, Path.cwd(), None)
    record = json.loads(run_trial(order))["record"]
    assert record["summary"]["task"] == "studied.py:make"
    assert record["summary"]["accuracy"] is not None
    sys.modules.pop("studied")


def test_settings_survive_a_round_trip_through_json() -> None:
    settings = {"faults": [{"kind": "crash", "peer": 2, "at_s": 1}], "slow": ("3:10",), "lr": 0.1}
    written = json.loads(json.dumps(settings_as_json(config_of(settings))))
    assert trial_key(written) == trial_key(settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topologie": "ring"}, "a setting is unknown, .*'topologie'"),
        ({"workers": "many"}, "workers is 'many': it must be an integer"),
        ({"network": NetworkConfig()}, "network is an object: a study needs its name"),
        ({"lr": "high"}, "lr is 'high': it must be a number"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trial_key(settings)


def test_the_state_of_the_code_covers_only_modules_that_compute(tmp_path: Path) -> None:
    for folder in ("gossip", "topology", "train", "sim/study/report", "docs"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "code.py").write_text("x = 1\n")
    states = [module._sources_state(tmp_path)]
    for path in ("docs/code.py", "sim/study/report/code.py", "docs/new.py", "gossip/notes.txt"):
        (tmp_path / path).write_text("x = 2\n")
        assert module._sources_state(tmp_path) == states[0]
    for path in ("gossip/code.py", "train/code.py", "sim/new.py"):
        (tmp_path / path).write_text("x = 2\n")
        states.append(module._sources_state(tmp_path))
    (tmp_path / "sim/new.py").write_text("x = 3\n")
    states.append(module._sources_state(tmp_path))
    assert len({str(state) for state in states}) == len(states)
    (tmp_path / "gossip/code.py").write_text("x = 1\n")
    (tmp_path / "train/code.py").write_text("x = 1\n")
    (tmp_path / "sim/new.py").unlink()
    assert module._sources_state(tmp_path) == states[0]


@pytest.mark.parametrize("name", ["torch", "processor"])
def test_other_libraries_and_processors_change_the_code_version(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = code_version.__wrapped__()
    assert code_version.__wrapped__() == before
    monkeypatch.setattr(module, "versions", lambda: versions() | {name: "other"})
    assert code_version.__wrapped__() != before
