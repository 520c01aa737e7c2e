"""The page of topologies shows what the code gives now, and every family's picture."""

import re
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import pytest

from rumor.topology import FAMILIES

from .layout import loaded

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "scripts" / "gallery.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="docs are not beside the tests")


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    return loaded(SCRIPT)


@pytest.fixture
def page(gallery: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Its lines, read where its paths lead somewhere."""
    monkeypatch.chdir(ROOT)
    text: str = gallery.PAGE.read_text()
    return text.splitlines()


NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def is_alike(row: str, line: str) -> bool:
    """Whether two lines differ by one unit of a rounded figure's last digit at most.

    Another processor may round a tie the other way.
    """
    if NUMBER.sub("#", row) != NUMBER.sub("#", line):
        return False
    pairs = zip(NUMBER.findall(row), NUMBER.findall(line), strict=True)
    return all(_is_near(*(Decimal(number.replace(",", "")) for number in pair)) for pair in pairs)


def _is_near(a: Decimal, b: Decimal) -> bool:
    last = max(int(a.as_tuple().exponent), int(b.as_tuple().exponent))
    return a == b or (last < 0 and abs(a - b) <= Decimal(10) ** last)


def test_a_last_digit_may_differ_and_nothing_else() -> None:
    assert is_alike("| ring | 0.01562 | 1,550 |", "| ring | 0.01563 | 1,550 |")
    assert not is_alike("| ring | 0.01562 | 1,550 |", "| ring | 0.01564 | 1,550 |")
    assert not is_alike("| ring | 0.01562 | 1,550 |", "| ring | 0.01562 | 1,551 |")
    assert not is_alike("| ring | 0.01562 |", "| path | 0.01562 |")


@pytest.mark.extended
@pytest.mark.parametrize("name", FAMILIES)
def test_the_page_shows_the_facts_of_today(gallery: ModuleType, page: list[str], name: str) -> None:
    rows = [gallery.facts_row(name, n) for n in gallery.SIZES[:1]]
    shown = [line for line in page if line.startswith(f"| [{name}](")]
    for row, line in zip(rows, shown, strict=True):
        assert is_alike(row, line), "run `make gallery`"


@pytest.mark.parametrize("name", FAMILIES)
def test_the_page_tells_of_every_family(gallery: ModuleType, page: list[str], name: str) -> None:
    assert set(gallery.section(name)) <= set(page), "run `make gallery`"


def test_every_family_has_its_picture_and_no_other_lies_there(
    gallery: ModuleType, page: list[str]
) -> None:
    pictures = {path.stem: path.stat().st_size for path in gallery.PICTURES.iterdir()}
    assert set(pictures) == set(FAMILIES)
    assert sum(pictures.values()) < 2_500_000
