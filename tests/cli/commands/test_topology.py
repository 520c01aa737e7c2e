"""``rumor topology``: facts, lists and advice, as text and as JSON."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rumor.cli.reports.topology import describe
from rumor.topology import FAMILIES, facts, parse

from ..called import called


def topology(*arguments: str | Path) -> Any:
    return called("topology", *arguments, columns=200)


def answer(*arguments: str | Path) -> Any:
    result = topology(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    (line,) = result.stdout.splitlines()
    return json.loads(line)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.edgelist"
    path.write_text("a b\nb c\nc d\n")
    return path


def test_the_table_explains_its_figures() -> None:
    shown = topology("one-peer-exponential", "-n", "16").stdout
    assert "one-peer-exponential, n = 16" in shown
    for words in ("4 rounds", "all nodes hold the exact mean", "not for rules that average"):
        assert words in shown


@pytest.mark.extended
@pytest.mark.parametrize(
    ("spec", "n", "words"),
    [
        ("star", 8, "splits the graph: 0 "),
        ("path", 20, "splits the graph: 1, 2, 3, 4, 5, 6 and 12 more"),
        ("ring", 8, "losing any one node leaves the others connected"),
        ("path", 2, "splits the graph: 0/1"),
        ("random-matching", 8, "each one is drawn anew"),
        ("epidemic-local", 8, "the mean drifts"),
        ("epidemic-local", 8, "±"),
    ],
)
def test_facts_are_explained_in_words(spec: str, n: int, words: str) -> None:
    assert words in topology(spec, "-n", str(n)).stdout


def test_a_file_defines_the_number_and_names_of_nodes(cluster: Path) -> None:
    shown = topology(f"file:path={cluster}").stdout
    assert "n = 4" in shown and "splits the graph: b, c" in shown
    assert answer(f"file:path={cluster}")["articulation_points"] == [1, 2]


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "ring.png"
    result = topology("ring", "-n", "8", "--draw", picture)
    assert result.exit_code == 0 and str(picture) in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_list_shows_every_family_with_its_parameters_and_its_paper() -> None:
    shown = topology("--list").stdout
    for name, family in FAMILIES.items():
        assert name in shown and family.summary in shown and family.source in shown
        assert all(f"{parameter.name}= " in shown for parameter in family.parameters)


def test_the_json_list_has_the_same_content() -> None:
    listed = answer("--list")
    assert [*listed["families"]] == list(FAMILIES)
    (k,) = listed["families"]["base-k"]
    assert (k["name"], k["default"], k["required"]) == ("k", 1, False)


def fill_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_facts_are_shown_even_if_the_picture_fails(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rumor.topology.drawing.draw", fill_disk)
    picture = tmp_path / "ring.png"
    result = topology("ring", "-n", "8", "--draw", picture, *more)
    assert result.exit_code == 1 and "effective" in result.stdout
    assert result.stderr == (
        f"error: {picture} cannot be written: No space left on device: free some, or write to "
        "another disk\n"
    )


def test_too_little_memory_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("rumor.cli.commands.topology.facts", no_memory)
    result = topology("ring", "-n", "8")
    assert (result.exit_code, result.stderr) == (1, "error: not enough memory for this\n")
    assert isinstance(topology("ring", "-n", "8", "--debug").exception, MemoryError)


def in_words(**changes: Any) -> dict[str, tuple[str, str]]:
    known = replace(facts(parse("ring", 8)), **changes)
    return {name: (value, words) for name, value, words in describe(known)}


def test_a_contraction_near_one_is_shown_by_its_distance_from_one() -> None:
    rows = in_words(contraction=1 - 6.6e-8, second_eigenvalue=1 - 3.3e-8, spectral_gap=3.3e-8)
    assert rows["contraction"][0] == "1 - 6.6e-08"
    assert rows["spectral gap"][0] == "3.3e-08"
    sampled = in_words(contraction=1 - 2e-4, contraction_error=1e-5)
    assert sampled["contraction"][0] == "1 - 0.0002 ± 1e-05"
    assert in_words(contraction=1.0)["contraction"][0] == "1"


def test_a_mean_that_is_never_reached_is_reported() -> None:
    assert in_words(rounds_to_exact=None)["exact"][0] == "never"
