"""The code that computes trials: all that has a say in a result is among it, and nothing else."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rumor.sim.study.execution.cache_key as module
from rumor.gossip import ConfigError
from rumor.sim.study.execution.cache_key import code_version, computing_sources, source_of, versions
from rumor.sim.study.sources import hash_of_files, sources_of

LOADED = """
import sys
from rumor.sim.study.execution.cache_key import code_version
print(code_version())
from rumor.sim.study.execution.cache_key import config_of
before = set(sys.modules)
from rumor.sim.study.execution.worker import compute
for settings in (
    {"task": "consensus", "workers": 4, "steps": 4},
    {"task": "digits", "workers": 3, "steps": 2, "topology": "random-regular:d=2",
     "faults": [{"at_s": 0.1, "kind": "crash", "peer": 1}], "partition": "dirichlet:0.5"},
    {"task": "quadratic", "workers": 4, "steps": 3, "rule": "dpsgd", "topology": "ring",
     "pace": "lognormal", "network": "lossy"},
):
    compute(config_of(settings))
print(*(name for name in sys.modules if name.startswith("rumor.")))
"""

# They say which trial it is and what is asked for; nothing of a result comes from them.
ONLY_NAME_CELLS = {
    *("rumor.sim.study.cell_files", "rumor.sim.study.execution.cache_key"),
    *("rumor.sim.study.execution.cache_key", "rumor.sim.study.sources"),
}


def test_another_process_loads_what_is_hashed_to_compute_cells_and_finds_the_same_hash() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, timeout=100
    )
    found, *names = done.stdout.split()
    assert found == code_version()
    loaded = set(names) - ONLY_NAME_CELLS
    assert "rumor.sim.fleet" in loaded and "rumor.train.digits" in loaded
    assert loaded <= set(computing_sources())


@pytest.mark.parametrize(
    "name", ["sim.study.plan", "sim.study.report", "sim.torture", "sim.replay", "cli.app"]
)
def test_what_computes_nothing_is_not(name: str) -> None:
    assert not [module for module in computing_sources() if module.startswith(f"rumor.{name}")]


def test_no_module_that_is_hashed_imports_by_a_name_made_up_at_run_time() -> None:
    allowed = {"rumor.sim.lazy", "rumor.train.tasks"}
    for name, path in computing_sources().items():
        calls = {
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
        }
        dynamic = {
            call for call in calls if call.rpartition(".")[2] in ("import_module", "__import__")
        }
        assert not dynamic or name in allowed, name


def test_another_library_is_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    known = versions()
    assert known["torch"] and known["numpy"] and known["python"]
    before = code_version.__wrapped__()
    monkeypatch.setattr(module, "version", lambda name: "0.0.1" if name == "torch" else known[name])
    assert code_version.__wrapped__() != before


def test_another_processor_is_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_version.__wrapped__()
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "SSE")
    assert versions()["processor"].endswith(" SSE")
    assert code_version.__wrapped__() != before


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "NO AVX"), reason="it has but one way"
)
def test_torch_that_is_told_to_compute_otherwise_is_other_code() -> None:
    shown = "from rumor.sim.study.execution.cache_key import code_version; print(code_version())"
    done = subprocess.run(
        [sys.executable, "-c", shown],
        env=os.environ | {"ATEN_CPU_CAPABILITY": "default"},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert done.stdout.split() != [code_version()]


def test_another_line_in_any_source_is_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = computing_sources()
    before = code_version.__wrapped__()
    changed = tmp_path / "fleet.py"
    changed.write_bytes(sources["rumor.sim.fleet"].read_bytes() + b"\n")
    monkeypatch.setattr(module, "computing_sources", lambda: sources | {"rumor.sim.fleet": changed})
    assert code_version.__wrapped__() != before


def test_names_are_found_in_a_checkout_as_in_a_wheel() -> None:
    assert source_of("rumor.sim.fleet") == Path(module.__file__).parents[1] / "fleet.py"
    assert source_of("rumor.sim") == Path(module.__file__).parents[1] / "__init__.py"
    assert source_of("rumor.sim.fleet.Fleet") is None
    assert source_of("numpy") is None and source_of("rumor") is None


SOURCES = {
    "start": "import typing\nfrom . import beside\nimport pack.deep as d\n"
    "if typing.TYPE_CHECKING:\n    import never\nelse:\n    import other\n",
    "beside": "",
    "pack": "from .inner import thing",
    "pack.deep": "def late():\n    from ..start import x\n    import last",
    "pack.inner": "",
    "other": "",
    "last": "",
    "never": "",
    "unused": "",
}


def test_sources_are_followed_through_packages_and_functions_but_not_for_type_checkers(
    tmp_path: Path,
) -> None:
    paths = {name: tmp_path / f"{name}.py" for name in SOURCES}
    for name, text in SOURCES.items():
        paths[name].write_text(text)
    paths["pack"] = paths["pack"].rename(tmp_path / "__init__.py")
    found = sources_of("start", paths.get)
    assert set(found) == set(SOURCES) - {"never", "unused"}


def test_two_lists_of_files_do_not_hash_alike(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    one.write_text("ab")
    two.write_text("")
    hashes = {
        hash_of_files({"x": one, "y": two}),
        hash_of_files({"x": two, "y": one}),
        hash_of_files({"x": one}),
        hash_of_files({"xab": two}),
    }
    assert len(hashes) == 4


def test_a_source_that_is_not_python_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def (")
    with pytest.raises(ConfigError, match=r"mine\.py is not Python"):
        sources_of("mine", {"mine": path}.get)
