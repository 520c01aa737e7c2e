"""The page of wire formats holds a table of each study, and what it says is what comes out."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "docs" / "scripts" / "wires.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="docs are not beside the tests")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wires_table", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tables(script: ModuleType) -> dict[str, list[str]]:
    """What stands under each heading below the marker."""
    below = (ROOT / script.PAGE).read_text().partition(script.MARKER)[2]
    sections = below.strip().removeprefix("## ").split("\n## ")
    return {head: body.splitlines() for head, _, body in (s.partition("\n") for s in sections)}


def test_each_study_has_a_table_of_all_formats(
    script: ModuleType, tables: dict[str, list[str]]
) -> None:
    expected = {f"{study.title}, p = {p:g}" for study in script.STUDIES for p in script.PUSHES}
    assert set(tables) == expected
    for lines in tables.values():
        names = [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:]
        assert names == [*script.WAYS]


@pytest.mark.extended
def test_a_figure_measured_again_lies_where_the_page_says(
    script: ModuleType, tables: dict[str, list[str]]
) -> None:
    study = script.STUDIES[0]
    (line,) = (x for x in tables[f"{study.title}, p = 0.1"] if x.startswith("| int8 "))
    found = re.search(r"\((\S+) to (\S+)\)", line)
    assert found is not None
    least, most = map(float, found.groups())
    loss = script.measure(study, 0.1, "int8", script.SEEDS[0])["loss"]
    assert 0.9 * least < loss < 1.1 * most
