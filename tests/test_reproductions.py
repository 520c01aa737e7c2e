"""Quick parts of docs/reproductions, and the replacement of a table on its page."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "reproductions"

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the docs are not next to the tests")


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a module of that folder, which imports others next to it."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for each in ("table", name):
        monkeypatch.delitem(sys.modules, each, raising=False)
    return importlib.import_module(name)


def test_base_k_graphs_are_exact_within_their_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, bound, rounds, note in script("graphs", monkeypatch).base_k():
        assert 0 < rounds <= bound
        assert note.startswith(f"largest degree {name.rpartition(' ')[2]};")


@pytest.mark.extended
def test_rounds_on_random_quadratics_match_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    relaysgd = script("relaysgd", monkeypatch)
    cells = [cell for cell in relaysgd.CELLS if cell[3] < 20]
    assert [relaysgd.rounds(*cell) for cell in cells] == [cell[3] for cell in cells]


@pytest.mark.extended
def test_moshpit_grids_average_within_the_published_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moshpit = script("moshpit", monkeypatch)
    assert all(3 <= moshpit.rounds("grid of 32 x 32", 0.0, 1e-4, seed) <= 5 for seed in range(5))


@pytest.mark.slow
def test_noise_matches_the_derivation(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = script("noise", monkeypatch)
    assert noise.gosgd("complete", 0.4, seed=0) == pytest.approx(36.5, rel=0.1)
    assert noise.averaged(2, seed=0) == pytest.approx(10.5, rel=0.1)


def test_a_new_table_replaces_the_previous_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = script("table", monkeypatch)
    page = tmp_path / "README.md"
    page.write_text("# Page\n\n## one\n\nold\n\n## two\n\nkept\n")
    monkeypatch.setattr(table, "PAGE", page)
    monkeypatch.setattr(sys, "argv", ["one.py", "--write"])
    table.show(
        "one", "Title", ("way", "published", "measured"), [("a", 2.0, 3.0, ""), ("b", 0, 1500, "x")]
    )
    lines = page.read_text().splitlines()
    assert lines[4].startswith("Title. `python docs/reproductions/one.py`, ")
    assert lines[8:10] == ["| a | 2 | 3 | 1.50 |  |", "| b | - | 1,500 | - | x |"]
    assert lines[-4:] == ["", "## two", "", "kept"] and "old" not in lines
