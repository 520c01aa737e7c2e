"""Preparation of README.md and pyproject.toml for PyPI, and the workflows of CI and releases."""

import re
import shutil
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from .layout import load_script

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "release.py"
URL = "https://example.org/owner/rumor"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason=".ci is not next to the tests")


@pytest.fixture
def release() -> ModuleType:
    return load_script(SCRIPT)


def test_readme_links_become_repository_urls(release: ModuleType, tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    tag = f"v{tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']['version']}"
    release.main(tmp_path, f"{URL}/", tag)
    text = (tmp_path / "README.md").read_text()
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 10 and all("://" in link for link in links)
    assert f"({URL}/raw/{tag}/docs/images/demo.png)" in text
    for link in links:
        if link.startswith(URL):
            path = link.removeprefix(f"{URL}/").split("/", 2)[2]
            assert (ROOT / path.partition("#")[0]).exists(), link
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Repository"] == URL
    assert project["urls"]["Changelog"] == f"{URL}/blob/{tag}/CHANGELOG.md"
    assert "optional-dependencies" in project
    # A second preparation is refused.
    with pytest.raises(ValueError, match="addresses already"):
        release.main(tmp_path, URL, tag)


def test_a_tag_of_another_version_is_refused(release: ModuleType) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    with pytest.raises(ValueError, match=r"the tag is v9\.9\.9, and the version"):
        release.with_urls(text, URL, "v9.9.9")


def test_absolute_links_and_anchors_stay_unchanged(release: ModuleType) -> None:
    text = "[a](#here) [b](https://example.org/x) ![c](d.png) [e](f.md#g)"
    assert release.absolute(text, URL, "v1") == (
        f"[a](#here) [b](https://example.org/x) ![c]({URL}/raw/v1/d.png) [e]({URL}/blob/v1/f.md#g)"
    )


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.skipif(not WORKFLOWS, reason=".github is not next to the tests")
def test_workflows_run_existing_scripts_with_minimal_permissions() -> None:
    found: dict[str, Any] = {path.stem: yaml.safe_load(path.read_text()) for path in WORKFLOWS}
    assert set(found) == {"ci", "release"}
    for workflow in found.values():
        assert workflow["permissions"] == {"contents": "read"}
    steps = {
        name: [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
        for name, workflow in found.items()
    }
    assert ".ci/run" in steps["ci"] and (ROOT / ".ci" / "run").exists()
    assert any(".ci/release.py" in run for run in steps["release"])
    publish = found["release"]["jobs"]["publish"]
    assert publish["needs"] == "build" and publish["permissions"] == {"id-token": "write"}
    # YAML reads the key `on` as a truth value.
    assert found["release"][True]["push"]["tags"] == ["v*"]
