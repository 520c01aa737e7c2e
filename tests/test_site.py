"""The source pages of the site, from which `make site` builds HTML with Sphinx."""

import os
import re
import sys
from pathlib import Path

import pytest

from .test_docs import DOCS, ROOT, script

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the docs are not next to the tests")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("site") / "source"
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        script("site").stage(ROOT, to)
    finally:
        os.chdir(before)
    return to


def test_every_page_is_listed_once_in_the_order_of_the_map(staged: Path) -> None:
    listed: list[str] = []
    for page in (staged / "index.md", staged / "api" / "index.md"):
        for body in re.findall(r"```{toctree}\n(.*?)```", page.read_text(), re.DOTALL):
            names = [line for line in body.splitlines() if line and not line.startswith(":")]
            listed += [str((page.parent / name).relative_to(staged)) for name in names]
    assert len(set(listed)) == len(listed)
    pages = {str(page.relative_to(staged)) for page in staged.rglob("*.md")}
    files = {page for page in pages if page.startswith("files/")}
    assert pages - files - {"index.md"} == set(listed)
    assert listed.index("how-to/own-loop.md") < listed.index("reference/commands.md")


def test_links_lead_to_staged_files(staged: Path) -> None:
    for page in staged.rglob("*.md"):
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" not in link and not link.startswith("#"):
                assert (page.parent / link.partition("#")[0]).is_file(), (page, link)
    assert (staged / "files" / "examples" / "train.py").is_file()


def test_mermaid_diagrams_are_shown_as_text(staged: Path) -> None:
    assert not [page for page in staged.rglob("*.md") if "```mermaid" in page.read_text()]


def test_the_api_pages_document_the_exports_of_packages(
    staged: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = (staged / "api" / "rumor.train.md").read_text()
    assert ".. autoclass:: rumor.train.Peer\n" in text
    assert ".. autofunction:: rumor.train.environment" in text
    assert ".. autoexception:: rumor.gossip.ConfigError" in (
        (staged / "api" / "rumor.gossip.md").read_text()
    )
    families = (staged / "api" / "rumor.topology.md").read_text()
    assert ".. py:data:: rumor.topology.FAMILIES" in families
    # A callback whose library is not installed is left out.
    name = "rumor.train.integrations.transformers"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    script("site")._api(tmp_path)
    assert name not in (tmp_path / "api" / "index.md").read_text()
