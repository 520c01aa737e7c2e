"""``rumor topology``: facts, lists and advice, for people and for programs."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rumor.cli.app import app
from rumor.topology import FAMILIES, MIXINGS
from rumor.topology.catalog import CATALOG

KEYS = {
    *("spec", "n", "directed", "degree_max", "diameter", "doubly_stochastic", "period"),
    *("spectral_gap", "second_eigenvalue", "contraction", "rounds_to_exact", "rounds_to_1e-3"),
    *("effective_neighbors", "articulation_points"),
}

CLUSTER = "a b 1000\nb c 10\nc d 1000\n"


def topology(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["topology", *map(str, arguments)], env={"COLUMNS": "200"})


def answer(*arguments: str | Path) -> Any:
    result = topology(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    (line,) = result.stdout.splitlines()
    return json.loads(line)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.edgelist"
    path.write_text(CLUSTER)
    return path


def test_json_is_one_object_with_the_promised_keys() -> None:
    facts = answer("one-peer-exponential", "-n", "16")
    assert set(facts) >= KEYS
    assert (facts["spec"], facts["n"], facts["rounds_to_exact"]) == ("one-peer-exponential", 16, 4)
    assert facts["directed"] is True and facts["doubly_stochastic"] is True


def test_what_never_happens_is_null() -> None:
    assert answer("ring", "-n", "8")["rounds_to_exact"] is None
    assert answer("random-matching", "-n", "8")["period"] is None


def test_seed_mixing_gamma_and_the_size_of_a_push_count() -> None:
    given = ("--seed", "3", "--mixing", "lazy", "--gamma", "0.5", "--share-mb", "2")
    facts = answer("ring", "-n", "8", *given)
    assert (facts["seed"], facts["mixing"], facts["gamma"]) == (3, "lazy", 0.5)
    assert facts["bytes_per_round"] == 16 * 2_000_000


def test_the_table_says_in_words_what_the_figures_mean() -> None:
    shown = topology("one-peer-exponential", "-n", "16").stdout
    assert "one-peer-exponential, n = 16" in shown
    for words in ("4 rounds", "all nodes hold the exact mean", "not for rules that average"):
        assert words in shown


@pytest.mark.parametrize(
    ("spec", "n", "words"),
    [
        ("star", 8, "losing node 0 splits the graph"),
        ("path", 20, "splits the graph: 1, 2, 3, 4, 5, 6 and 12 more"),
        ("ring", 8, "losing any one node leaves the others connected"),
        ("path", 2, "losing 0/1 splits the graph"),
        ("ring", 8, "a disagreement shrinks to a thousandth within 32 rounds"),
        ("random-matching", 8, "each one is drawn anew"),
        ("epidemic-local", 8, "the mean drifts"),
        ("epidemic-local", 8, "±"),
    ],
)
def test_a_fact_in_words(spec: str, n: int, words: str) -> None:
    assert words in topology(spec, "-n", str(n)).stdout


def test_a_file_says_how_many_nodes_there_are_and_what_they_are_called(cluster: Path) -> None:
    shown = topology(f"file:path={cluster},weights=bandwidth").stdout
    assert "n = 4" in shown and "splits the graph: b, c" in shown
    assert "3.2 s" in shown and "a share of 4 MB over the slowest link" in shown
    assert answer(f"file:path={cluster}")["articulation_points"] == [1, 2]


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "ring.png"
    result = topology("ring", "-n", "8", "--draw", picture)
    assert result.exit_code == 0 and str(picture) in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_beside_json_leaves_stdout_to_the_json(tmp_path: Path) -> None:
    assert answer("ring", "-n", "8", "--draw", tmp_path / "ring.svg")["n"] == 8
    assert (tmp_path / "ring.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["torus", "-n", "7"], "n=6 or n=8"),
        (["ring"], "say how many nodes"),
        (["rign", "-n", "8"], "did you mean 'ring'?"),
        (["ring", "-n", "8", "--mixing", "fair"], "unknown mixing 'fair'"),
        (["ring", "-n", "8", "--gamma", "1"], "gamma is 1.0"),
        (["ring", "-n", "8", "--share-mb", "-1"], "--share-mb is -1"),
        (["ring", "-n", "8", "--draw", "nowhere/ring.png"], "a folder that exists"),
        (["ring", "-n", "8", "--draw", "ring.bmp"], "it must end in"),
        (["ring", "-n", "2001", "--draw", "ring.png"], "at most 2,000"),
        (["complete", "-n", "300", "--draw", "ring.png"], "89,700 edges"),
        (["ring", "-n", "8", "--degree", "2"], "go with --advise"),
        (["ring", "--list"], "only one of them"),
        ([], "give a topology"),
        (["--list", "--draw", "ring.png"], "--draw goes with a topology"),
        (["--advise", "--degree", "2"], "needs -n"),
        (["--advise", "-n", "8"], "needs --degree"),
        (["--advise", "-n", "8", "--degree", "0"], "degree=0"),
        (["--advise", "--degree", "2", "--weights", "no.graphml"], "No such file"),
    ],
)
def test_wrong_arguments_are_answered_in_a_line(arguments: list[str], message: str) -> None:
    result = topology(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ") and message in line


def test_debug_shows_where_it_went_wrong() -> None:
    assert isinstance(topology("torus", "-n", "7", "--debug").exception, ValueError)


def test_what_takes_long_is_announced_on_stderr() -> None:
    result = topology("hypercube", "-n", str(2**15), "--json")
    assert "32,768 nodes" in result.stderr
    assert json.loads(result.stdout)["diameter"] == 15


def test_the_list_shows_every_family_with_its_parameters_and_its_paper() -> None:
    shown = topology("--list").stdout
    for name, family in CATALOG.items():
        assert name in shown and family.summary in shown and family.source in shown
        assert all(f"{parameter.name}= " in shown for parameter in family.parameters)
    assert all(name in shown for name in MIXINGS)


def test_the_list_for_programs_has_the_same() -> None:
    listed = answer("--list")
    assert [family["name"] for family in listed["families"]] == list(FAMILIES)
    assert set(listed["mixings"]) == set(MIXINGS)
    (k,) = next(f for f in listed["families"] if f["name"] == "base-k")["parameters"]
    assert (k["name"], k["default"], k["required"]) == ("k", 1, False)


def test_advice_shows_the_best_first_and_what_does_not_fit_last() -> None:
    shown = topology("--advise", "-n", "9", "--degree", "2").stdout
    first, last = shown.split("These do not fit:")
    assert first.index("base-k:k=2") < first.index("ring")
    assert "hypercube" in last and "n must be a power of 2" in last


def test_advice_for_programs_has_facts_and_reasons() -> None:
    given = answer("--advise", "-n", "9", "--degree", "2")
    assert (given["n"], given["degree"]) == (9, 2)
    best, worst = given["advice"][0], given["advice"][-1]
    assert best["fits"] and best["facts"]["rounds_to_exact"] == 2
    assert not worst["fits"] and worst["facts"] is None and worst["why"]


def test_advice_over_links_of_a_file_counts_seconds(cluster: Path) -> None:
    given = answer("--advise", "--degree", "2", "--weights", cluster)
    assert given["n"] == 4
    assert given["advice"][0]["seconds_to_1e-3"] > 0
    shown = topology("--advise", "--degree", "2", "--weights", cluster).stdout
    assert "seconds" in shown and "over the links of cluster.edgelist" in shown


def test_a_file_of_another_size_is_refused(cluster: Path) -> None:
    result = topology("--advise", "-n", "5", "--degree", "2", "--weights", cluster)
    assert result.exit_code == 2 and "has 4 nodes, not 5" in result.stderr
