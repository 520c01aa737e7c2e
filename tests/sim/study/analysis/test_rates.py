"""What the verdicts of studies are worth: rates over made-up studies, as the documentation has."""

import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from rumor.sim.study.analysis.ranking import Verdict, compare
from rumor.sim.study.analysis.rates import Rates, World, is_apart, made_up, rates_of

ROOT = Path(__file__).parents[4]
SCRIPT = ROOT / "docs" / "scripts" / "verdicts.py"
PAGE = ROOT / "docs" / "explanation" / "statistics.md"

FEW = 150
"""Studies: of a rate of 5 % more than 15 are wrong once in a thousand times."""


@pytest.fixture(scope="module")
def verdicts() -> ModuleType:
    if not SCRIPT.exists():
        pytest.skip("docs are not beside the tests")
    spec = importlib.util.spec_from_file_location("verdicts", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rates(world: World, studies: int, seed: int = 0) -> Rates:
    return rates_of(world, studies, [is_apart], seed)[0]


def test_one_miss_in_ten_sets_points_apart_no_more(verdicts: ModuleType) -> None:
    """Five points of three seeds, each of which misses one time in ten: 1 - .9^15 had one."""
    world = World(points=5, seeds=3, miss=0.1)
    before, now = rates_of(world, FEW, [verdicts.as_before, is_apart])
    assert before.wrong > 0.7
    assert now.wrong <= 15 / FEW


@pytest.mark.parametrize("is_stuck", [False, True])
def test_trials_in_two_heaps_are_not_told_apart_by_chance(is_stuck: bool) -> None:
    world = World(points=5, seeds=3, miss=0.5, is_stuck=is_stuck)
    assert rates(world, FEW).wrong <= 15 / FEW


def test_who_never_arrives_is_seen() -> None:
    world = World(points=5, seeds=6, worse=1, misses_of_worse=1.0)
    assert rates(world, 40).seen > 0.9


def test_a_reference_named_beforehand_sees_more_and_is_wrong_no_more_often() -> None:
    alike = World(points=12, seeds=5, has_reference=True)
    assert rates(alike, FEW).wrong <= 15 / FEW
    behind = World(points=12, seeds=5, worse=11, slower=1.25)
    plain, named = rates(behind, 25).seen, rates(replace(behind, has_reference=True), 25).seen
    assert named > plain + 0.1


def test_rates_are_of_the_seed_alone() -> None:
    world = World(points=3, miss=0.2, worse=1, slower=1.5)
    assert rates(world, 20, 7) == rates(world, 20, 7)
    assert math.isnan(rates(World(points=3), 5).seen)


def test_a_made_up_study_is_what_its_world_says() -> None:
    world = World(points=4, seeds=200, miss=0.25, worse=1, slower=3.0, misses_of_worse=0.0)
    found = compare(made_up(world, np.random.default_rng(0)))
    rows = {row.label: row for row in found.rows}
    assert rows["way 3"].reached == 200
    assert all(120 < rows[f"way {n}"].reached < 180 for n in range(3))
    time = rows["way 3"].figures["time_to_target_s"].mean
    assert time == pytest.approx(15.0, rel=0.05)
    assert rows["way 0"].verdict is Verdict.APART


def test_the_tables_of_the_page_are_those_of_the_script(verdicts: ModuleType) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert verdicts.BEGIN in page and verdicts.END in page
    for line in (*verdicts.NULL, *verdicts.POWER):
        assert f"| {line.words} | " in page
    world = World(points=3)
    few = [verdicts.Line(words="three", world=world)]
    shown = verdicts.tables(3, few, few)
    assert "| three | " in shown
    again = verdicts.rewritten(page, shown)
    assert verdicts.rewritten(again, shown) == again
    assert again.partition(verdicts.BEGIN)[0] == page.partition(verdicts.BEGIN)[0]
