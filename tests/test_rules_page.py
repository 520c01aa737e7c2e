"""docs/reference/rules.md lists every rule, with the parameters that the code declares."""

from pathlib import Path

import pytest

from rumor.gossip.rules.registry import RULES

from .layout import load_script

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "scripts" / "rules.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="the docs are not next to the tests")


def test_the_parameters_match_the_code() -> None:
    script = load_script(SCRIPT)
    page = (ROOT / script.PAGE).read_text()
    assert page.count(script.BEGIN) == page.count(script.END) == 1
    assert page == script.rewritten(page), "run `make rules`"


@pytest.mark.parametrize("name", RULES)
def test_every_rule_has_a_section_and_a_row(name: str) -> None:
    page = (ROOT / "docs" / "reference" / "rules.md").read_text()
    assert f"\n## {name}: " in page and f"\n| `{name}` | " in page
