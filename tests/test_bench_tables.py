"""Tables of benchmarks in the docs are what the command printed."""

import json
from pathlib import Path

import pytest

from rumor.benchmarks import Result, Row

from .test_docs import script

__all__: list[str] = []

SCRIPT = Path(__file__).parents[1] / "docs" / "scripts" / "tables.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="docs are not beside the tests")

RESULT = Result(
    name="storm",
    title="2 peers",
    columns=("what", "measured", "beside", "ratio", "unit", "notes"),
    rows=(Row(name="pause", ours=1.5, reference=1.2, unit="steps", note="a | b"),),
    machine="a machine",
    wall_s=120,
    date="2026-11-25",
)
PAGE = "before\n<!-- storm: a table -->\nan old one\n<!-- end of storm -->\nafter\n"


def test_a_table_takes_the_place_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = script("tables")
    page, file = tmp_path / "page.md", tmp_path / "storm.json"
    page.write_text(PAGE)
    file.write_text("progress\n" + json.dumps({"benchmarks": [RESULT.as_json()]}))
    monkeypatch.setattr(tables, "PAGE", page)
    tables.main([str(file)])
    assert page.read_text() == (
        "before\n<!-- storm: a table -->\n"
        "2 peers; 2026-11-25, 2 min in all, a machine:\n\n"
        "| what | measured | beside | ratio | unit | notes |\n"
        "|---|---:|---:|---:|---|---|\n"
        "| pause | 1.5 | 1.2 | 1.25 | steps | a / b |\n"
        "<!-- end of storm -->\nafter\n"
    )


def test_a_page_without_a_place_is_left_alone() -> None:
    with pytest.raises(SystemExit, match="no place for storm"):
        script("tables").put("nothing here", RESULT.as_json())


def test_the_page_has_a_place_for_both_tables() -> None:
    tables = script("tables")
    page = (SCRIPT.parents[2] / tables.PAGE).read_text()
    for name in ("storm", "heartbeats"):
        assert f"<!-- {name}: a table -->" in page and f"<!-- end of {name} -->" in page
