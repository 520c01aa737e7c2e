"""Tables of a study, which can be read without this project."""

import csv
import json
from pathlib import Path

import pytest

from rumor.sim.study.results import CURVES
from rumor.sim.study.study import Point
from rumor.sim.study.tables import axis_columns, write_tables

from .made_up import Course, results_of


def rows(folder: Path, name: str = "summary") -> list[dict[str, str]]:
    with open(folder / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_there_is_a_row_for_each_trial_and_evaluation(tmp_path: Path) -> None:
    results = results_of({"topology": ["ring", "complete"], "p": [0.1, 1.0]}, points=5)
    write_tables(results, tmp_path)
    table = rows(tmp_path, "curves")
    assert len(table) == 2 * 2 * 3 * 5
    columns = list(table[0])
    assert columns[:5] == ["topology", "p", "seed", "trial", "evaluation"]
    assert set(columns[5:]) <= set(CURVES)
    first = results.results[0]
    found = [row for row in table if row["trial"] == first.key]
    assert [row["evaluation"] for row in found] == ["0", "1", "2", "3", "4"]
    for curve, values in first.series.items():
        assert [float(row[curve]) if row[curve] else None for row in found] == list(values)
    assert {(row["topology"], row["p"], row["seed"]) for row in found} == {("ring", "0.1", "0")}


def test_the_csv_has_figures_to_the_last_bit(tmp_path: Path) -> None:
    results = results_of({"topology": ["ring", "complete"]})
    write_tables(results, tmp_path)
    for row, result in zip(rows(tmp_path), results.results, strict=True):
        assert float(row["accuracy"]) == result.summary["accuracy"]
        assert row["digest"] == result.summary["digest"]
        at = result.at_target("time_s", 0.9)
        assert (row["time_to_target_s"] or None) == (None if at is None else repr(at))
        assert float(row["spectral_gap"]) == result.facts["spectral_gap"]


def test_a_target_that_was_not_reached_is_left_empty(tmp_path: Path) -> None:
    never = results_of({"topology": ["ring"]}, lambda labels: Course(ceiling=0.5))
    write_tables(never, tmp_path)
    assert {row["time_to_target_s"] + row["bytes_to_target"] for row in rows(tmp_path)} == {""}


@pytest.mark.parametrize("name", ["loss", "steps", "seed"])
def test_an_axis_named_like_a_curve_has_its_own_column(tmp_path: Path, name: str) -> None:
    points = [Point("none", {"network": "lan"}), Point("much", {"network": "lossy"})]
    results = results_of({"topology": ["ring"], name: points}, points=3)
    assert axis_columns(results) == {"topology": "topology", name: f"axis_{name}"}
    write_tables(results, tmp_path)
    assert {row[f"axis_{name}"] for row in rows(tmp_path)} == {"none", "much"}
    header = (tmp_path / "curves.csv").read_text().partition("\n")[0].split(",")
    assert len(set(header)) == len(header)


def test_the_file_of_failures_exists_only_while_there_are_any(tmp_path: Path) -> None:
    grid = {"topology": ["ring", "complete"]}
    failed = results_of(grid, lambda at: None if at["topology"] == "ring" else Course())
    write_tables(failed, tmp_path)
    failures = json.loads((tmp_path / "failures.json").read_text())
    assert list(failures) == ["ring, seed 0", "ring, seed 1", "ring, seed 2"]
    assert {row["topology"] for row in rows(tmp_path)} == {"complete"}
    write_tables(results_of(grid), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.csv", "summary.csv"]
    # A study without results has empty tables.
    write_tables(results_of({"topology": ["ring"]}, lambda at: None), tmp_path)
    assert rows(tmp_path) == [] == rows(tmp_path, "curves")
