"""The built-in studies are complete, and match the documentation."""

import csv
import re
from pathlib import Path

import pytest

from rumor.sim.study import Study, built_in_studies, find_study, read_study
from rumor.sim.study.execution.plan import check_trials
from rumor.topology.families.registry import FAMILIES

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "studies"
STUDIES = built_in_studies()


def test_every_family_of_graphs_is_compared() -> None:
    points = find_study("graphs").axes[0].points
    families = [point.settings["topology"].partition(":")[0] for point in points]
    # A file has no fixed graph; with all of its 64 cells taken, moshpit:d=3 equals base-k:k=3.
    assert sorted(families) == sorted(set(FAMILIES) - {"file", "moshpit"})


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_study_states_its_question_and_its_optimizer(study: Study) -> None:
    assert study.question.endswith("?") and len(study.seeds) >= 3
    given = set(study.settings).union(
        *(point.settings for axis in study.axes for point in axis.points)
    )
    # The task of a language model has its own optimizer, AdamW, without a momentum to choose.
    own = {"optimizer", "momentum"} if study.settings["task"] == "code" else set()
    assert {"optimizer", "momentum", "lr"} <= given | own
    assert "learning rate" in study.source


@pytest.mark.skipif(not PAGES.exists(), reason="the docs are not next to the tests")
@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_the_page_of_a_study_is_up_to_date(study: Study) -> None:
    with open(PAGES / study.name / "summary.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    axes = [axis.name for axis in study.axes]
    shown = [(*(row[axis] for axis in axes), int(row["seed"])) for row in rows]
    expected = [(*trial.group, trial.seed) for trial in study.trials()]
    if study.name in ("proof", "sparta", "utilization"):
        # The run was limited to some hours: trials that did not fit are missing.
        assert shown and set(shown) <= set(expected)
    else:
        assert shown == expected
    assert study.question in (PAGES / study.name / "README.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not PAGES.exists(), reason="the docs are not next to the tests")
def test_pictures_are_small_and_shown() -> None:
    for picture in PAGES.glob("*/*.png"):
        assert picture.stat().st_size < 300_000
        assert f"]({picture.name})" in picture.with_name("README.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="the docs are not next to the tests")
def test_the_study_in_the_documentation_can_run(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "how-to" / "studies.md").read_text(encoding="utf-8")
    example = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert example is not None
    path = tmp_path / "example.toml"
    path.write_text(example[1], encoding="utf-8")
    study = read_study(path)
    good, bad = check_trials([trial for trial in study.trials() if trial.seed == study.seeds[0]])
    assert not bad
    # Three graphs, two kinds of data, and one combination that is left out.
    assert len(good) == 5
