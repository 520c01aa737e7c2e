"""Cells looked through before anything runs: every bad one is found, and none that is good."""

from pathlib import Path
from typing import Any

import pytest

from rumor.sim import simulate
from rumor.sim.study.cell_key import config_of
from rumor.sim.study.check import BadCell, BadCells, check_cells
from rumor.sim.study.study import Axis, Point, Study

from .small import small_study


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"topology": "hypercube", "workers": 12}, "n must be a power of 2"),
    ({"topology": "rign"}, "unknown topology 'rign', did you mean 'ring'"),
    ({"topology": "file:path=gone.csv"}, "topology: gone.csv cannot be read"),
    ({"rule": "goosgd"}, "unknown rule 'goosgd'"),
    ({"p": 1.5}, "p is 1.5"),
    ({"rule": "dpsgd", "p": 0.1}, "rule 'dpsgd' does not take it"),
    ({"rule": "dpsgd", "topology": "one-peer-exponential", "mixing": "nope"}, "nope"),
    ({"rule": "allreduce", "wire": "topk:0.1"}, "needs every number"),
    ({"shards": 4000, "task": "digits"}, "shards is 4000: it must be from 1 to"),
    ({"partition": "dirichlet:-1", "task": "digits"}, "partition 'dirichlet:-1' is not valid"),
    ({"partition": "shards:400", "task": "digits"}, "cuts 1437 samples into"),
    ({"task": "digit"}, "task 'digit' is not known"),
    ({"task": "gone:make"}, "there is no module 'gone'"),
    ({"faults": "gone.json"}, "faults: gone.json cannot be read"),
    ({"faults": [{"at_s": 1.0, "kind": "crash", "peer": 99}]}, "99"),
    ({"network": "wann"}, "unknown network 'wann', did you mean 'wan'"),
    ({"network": "gone.json"}, "gone.json cannot be read"),
    ({"pace": "trace:path=gone.csv"}, "pace: gone.csv cannot be read"),
    ({"speeds": "1x:50%"}, "50"),
    ({"slow": ("99:2",)}, "99"),
    ({"workers": 10**9}, "workers of 0 MB each would take about"),
    ({"workers": 1000, "task": "digits", "memory_gib": 0.01}, "GiB that memory_gib allows"),
]


def study_with(**settings: Any) -> Study:
    usual = {"task": "consensus", "workers": 8, "steps": 20}
    point = Point("only", usual | settings)
    return Study(
        name="one", title="", question="", settings={}, axes=(Axis("x", (point,)),), seeds=(0,)
    )


@pytest.mark.parametrize(("settings", "why"), BAD, ids=[why for _, why in BAD])
def test_a_cell_that_cannot_run_is_found_before_it_does(settings: dict[str, Any], why: str) -> None:
    good, (bad,) = check_cells(study_with(**settings).cells())
    assert good == [] and why in bad.why


def test_a_rule_that_cannot_average_on_a_topology_is_found_by_two_steps() -> None:
    Path("arrows.graphml").write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed">'
        + "".join(f'<node id="{node}"/>' for node in "abcd")
        + "".join(f'<edge source="{a}" target="{b}"/>' for a, b in ("ab", "bc", "cd", "da", "ac"))
        + "</graph></graphml>"
    )
    settings: dict[str, Any] = {"workers": 4, "topology": "file:path=arrows.graphml"}
    good, bad = check_cells(study_with(**settings, rule="dpsgd").cells())
    assert not good and "use another topology, or sgp" in bad[0].why
    with pytest.raises(Exception, match="use another topology, or sgp"):
        simulate(config_of({"task": "consensus", "steps": 5, "rule": "dpsgd", **settings}))
    good, bad = check_cells(study_with(**settings, rule="sgp").cells())
    assert not bad


@pytest.mark.parametrize("rule", ["gosgd", "sgp", "adpsgd", "dpsgd", "allreduce"])
def test_what_can_run_is_good_under_every_rule(rule: str) -> None:
    study = small_study(
        topology=("ring", "complete", "one-peer-exponential", "random-matching"),
        rule=rule,
        p=None,
    )
    good, bad = check_cells(study.cells())
    assert bad == [] and [cell.cell for cell in good] == list(study.cells())
    assert all(cell.memory_gib > 0.1 and cell.steps == 20 for cell in good)


def test_checking_draws_nothing_from_the_callers_random_numbers() -> None:
    import torch

    torch.manual_seed(5)
    expected = torch.rand(2).tolist()
    torch.manual_seed(5)
    check_cells(study_with(task="digits").cells())
    assert torch.rand(2).tolist() == expected


def test_steps_are_known_where_time_or_a_total_ends_a_run() -> None:
    cells: list[dict[str, Any]] = [
        {"steps": None, "time_s": 3.0},
        {"steps": None, "total_steps": 80},
        {"steps": None},
    ]
    studies = [study_with(**settings) for settings in cells]
    assert [check_cells(study.cells())[0][0].steps for study in studies] == [30, 10, 200]


def told(study: Study) -> list[str]:
    _, bad = check_cells(study.cells())
    return str(BadCells(bad, list(study.cells()))).splitlines()


def grid(**axes: dict[str, dict[str, Any]]) -> Study:
    return Study(
        name="grid",
        title="",
        question="",
        settings={"task": "consensus", "steps": 5},
        axes=tuple(
            Axis(name, tuple(Point(label, settings) for label, settings in points.items()))
            for name, points in axes.items()
        ),
        seeds=(0, 1),
    )


def test_all_bad_cells_are_listed_by_their_reasons_as_briefly_as_they_can_be() -> None:
    study = grid(
        graph={
            "ring": {"topology": "ring"},
            "cube": {"topology": "hypercube"},
            "x": {"topology": "x"},
        },
        size={"small": {"workers": 8}, "odd": {"workers": 12}},
    )
    headline, *lines = told(study)
    assert headline == (
        "6 of 12 cells cannot run, and nothing was started. Change them, or leave them out by "
        "[[skip]]:"
    )
    assert lines[0].startswith("- topology 'hypercube' with n=12: n must be a power of 2")
    assert lines[1] == "    graph cube, size odd (2 cells)"
    assert lines[2].startswith("- unknown topology 'x'")
    assert lines[3:] == ["    graph x (4 cells)"]


def test_bad_cells_that_have_no_labels_in_common_are_listed_one_by_one() -> None:
    study = grid(
        graph={"a": {"topology": "hypercube"}, "b": {"topology": "hypercube-matching"}},
        size={"12": {"workers": 12}, "8": {"workers": 8}},
    )
    bad = [
        cell
        for cell in study.cells()
        if cell.labels in ({"graph": "a", "size": "12"}, {"graph": "b", "size": "8"})
    ]
    text = str(BadCells([BadCell(cell=cell, why="no") for cell in bad], list(study.cells())))
    assert text.splitlines()[1:] == [
        "- no",
        "    graph a, size 12 (seeds 0, 1)",
        "    graph b, size 8 (seeds 0, 1)",
    ]
