"""The installed package matches the repository."""

import re
import tomllib
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

from .layout import LAYERS, modules

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def distribution_name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_the_installed_version_matches_pyproject() -> None:
    assert version("rumor") == PROJECT["version"]


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_ships_a_py_typed_marker(layer: str) -> None:
    assert (modules()[f"rumor.{layer}"].parent / "py.typed").is_file()


def test_every_dependency_is_pinned_once_to_an_exact_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    exact = re.compile(r"[a-z0-9-]+==[0-9.]+(\.post[0-9]+|b[0-9]+)?")
    assert [pin for pin in pins if not exact.fullmatch(pin)] == []
    pinned = [distribution_name(pin) for pin in pins]
    assert len(set(pinned)) == len(pinned)
    wanted = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    assert {distribution_name(name) for names in wanted for name in names} <= set(pinned)


@pytest.mark.skipif(not (ROOT / "gossip").exists(), reason="not a checkout")
def test_every_folder_of_modules_is_packaged() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = [path.parent for layer in LAYERS for path in (ROOT / layer).rglob("__init__.py")]
    found = {f"rumor.{folder.relative_to(ROOT).as_posix().replace('/', '.')}" for folder in folders}
    assert found == set(config["tool"]["setuptools"]["packages"])


def test_the_console_script_can_be_called() -> None:
    (script,) = entry_points(group="console_scripts", name="rumor")
    assert callable(script.load())
