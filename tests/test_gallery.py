"""The page of topologies shows current figures, and a picture of every family."""

import re
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import pytest

from rumor.topology import FAMILIES

from .layout import load_script

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "scripts" / "gallery.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="the docs are not next to the tests")


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    return load_script(SCRIPT)


@pytest.fixture
def page(gallery: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines of the page, in the folder to which its paths are relative."""
    monkeypatch.chdir(ROOT)
    text: str = gallery.PAGE.read_text()
    return text.splitlines()


NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def is_alike(row: str, line: str) -> bool:
    """Return whether two lines differ by at most one unit in the last digit of rounded figures.

    Another processor may round a tie the other way.
    """
    if NUMBER.sub("#", row) != NUMBER.sub("#", line):
        return False
    pairs = zip(NUMBER.findall(row), NUMBER.findall(line), strict=True)
    return all(_is_near(*(Decimal(number.replace(",", "")) for number in pair)) for pair in pairs)


def _is_near(a: Decimal, b: Decimal) -> bool:
    last = max(int(a.as_tuple().exponent), int(b.as_tuple().exponent))
    return a == b or (last < 0 and abs(a - b) <= Decimal(10) ** last)


def test_only_a_last_digit_may_differ() -> None:
    assert is_alike("| ring | 0.01562 | 1,550 |", "| ring | 0.01563 | 1,550 |")
    assert not is_alike("| ring | 0.01562 | 1,550 |", "| ring | 0.01564 | 1,550 |")
    assert not is_alike("| ring | 0.01562 | 1,550 |", "| ring | 0.01562 | 1,551 |")
    assert not is_alike("| ring | 0.01562 |", "| path | 0.01562 |")


@pytest.mark.extended
@pytest.mark.parametrize("name", FAMILIES)
def test_the_page_shows_current_facts(gallery: ModuleType, page: list[str], name: str) -> None:
    rows = [gallery.facts_row(name, n) for n in gallery.SIZES[:1]]
    shown = [line for line in page if line.startswith(f"| [{name}](")]
    for row, line in zip(rows, shown, strict=True):
        assert is_alike(row, line), "run `make gallery`"


@pytest.mark.parametrize("name", FAMILIES)
def test_the_page_describes_every_family(gallery: ModuleType, page: list[str], name: str) -> None:
    assert set(gallery.section(name)) <= set(page), "run `make gallery`"


def test_every_family_has_exactly_one_picture(gallery: ModuleType, page: list[str]) -> None:
    pictures = {path.stem: path.stat().st_size for path in gallery.PICTURES.iterdir()}
    assert set(pictures) == set(FAMILIES)
    assert sum(pictures.values()) < 2_500_000
