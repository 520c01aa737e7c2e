"""docs/reference/rules.md has every rule, and the parameters that the code declares."""

import importlib.util
from pathlib import Path

import pytest

from rumor.gossip.rules.registry import RULES

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "scripts" / "rules.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="docs are not beside the tests")


def test_the_parameters_are_those_of_the_code() -> None:
    spec = importlib.util.spec_from_file_location("rules_table", SCRIPT)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / script.PAGE).read_text()
    assert page.count(script.BEGIN) == page.count(script.END) == 1
    assert page == script.rewritten(page), "run `make rules`"


@pytest.mark.parametrize("name", RULES)
def test_every_rule_has_a_section_and_a_row(name: str) -> None:
    page = (ROOT / "docs" / "reference" / "rules.md").read_text()
    assert f"\n## {name}: " in page and f"\n| `{name}` | " in page
