"""Pages of docs/studies/ are generated from results."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest

from rumor.sim.study import Results

from .layout import load_script
from .sim.study.made_up import Course, results_of

SCRIPT = Path(__file__).parents[1] / "docs" / "studies.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="the docs are not next to the tests")

RING, ROUNDS, MEAN = "D-PSGD on a ring", "SGP in rounds", "all-reduce"


@pytest.fixture(scope="module")
def studies() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        # A script can import files next to it.
        patch.syspath_prepend(SCRIPT.parent)
        return load_script(SCRIPT)


def page_of(studies: ModuleType, results: Results) -> str:
    return str(studies.page(results, [], machine="", date=""))


def test_a_page_shows_question_results_and_command(studies: ModuleType, tmp_path: Path) -> None:
    results = results_of(
        {"topology": ["ring", "complete"], "p": [0.1, 1.0]},
        title="Two graphs",
        question="Is a ring enough?",
    )
    page = studies.page(results, ["curves.png"], machine="two cores", date="2026-11-21")
    assert "Is a ring enough?" in page
    assert "Machine: two cores" in page and "Date: 2026-11-21" in page
    assert "![Quality of models, distance between them, and bands over seeds](curves.png)" in page
    assert f"Command: `rumor study {results.study.name}`" in page
    rows = list(studies.points(results))
    assert rows[0][:2] == ["p", "topology"]
    assert {tuple(row[:2]) for row in rows[1:]} == set(
        product(("0.1", "1.0"), ("ring", "complete"))
    )
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "README.md").write_text(page, encoding="utf-8")
    assert "\n- [Two graphs](two/README.md): Is a ring enough?\n" in studies.index(tmp_path)


def test_a_page_names_the_reference_and_failed_trials(studies: ModuleType) -> None:
    results = results_of({"topology": ["ring", "complete"]})
    assert "reference" not in page_of(studies, results)
    named = replace(results, study=replace(results.study, reference="complete"))
    assert "#a-reference-named-beforehand) is **complete**." in page_of(studies, named)
    failures = {f"ring, seed {seed}": "it fell over: no luck" for seed in (7, 8)}
    page = page_of(studies, replace(results, failures=failures))
    assert "**2 trials failed:**\n\n- ring, 2 seeds: it fell over\n" in page


def test_a_setting_that_misses_the_target_has_no_time(studies: ModuleType) -> None:
    def course(labels: Mapping[str, str]) -> Course:
        return Course(ceiling=0.5 if labels["topology"] == "ring" else 0.97)

    results = results_of({"topology": ["ring", "complete"]}, course, target=0.9)
    rows = {row[0]: row[1:] for row in studies.points(results)}
    assert (
        rows["ring"][:4] == ["0 of 3", "-", "-", "-"]
        and rows["ring"][-1] == "0 of 3 arrive; no significant difference"
    )
    assert rows["complete"][0] == "3 of 3" and rows["complete"][-1] == "first"


@pytest.mark.parametrize(
    ("ceilings", "verdict"),
    [
        ((0.5, 0.87, 0.87), "**It is reproduced as far as these seeds tell: the ring is behind"),
        ((0.5, 0.7, 0.9), "is behind SGP in rounds, which is behind all"),
        ((0.87, 0.87, 0.87), "but nor is the ring"),
        ((0.8, 0.6, 0.9), "**It is not reproduced"),
    ],
)
def test_the_verdict_on_the_published_order_follows_the_data(
    studies: ModuleType, ceilings: tuple[float, ...], verdict: str
) -> None:
    made = dict(zip((RING, ROUNDS, MEAN), ceilings, strict=True))
    results = results_of(
        {"method": list(made), "data": ["Dirichlet 0.01"]},
        lambda labels: Course(ceiling=made[labels["method"]], rate_s=1.0),
        seeds=6,
    )
    assert verdict in " ".join(studies.relay_order(results).split())
    # No verdict is given if a method is missing.
    some = results_of({"method": [RING, MEAN], "data": ["Dirichlet 0.01"]})
    assert "Trials are missing" in studies.relay_order(some)


def proof_results(leave_out: str = "seed 9") -> Results:
    """Return results of two rules under two conditions, as in the study ``proof``."""

    def course(labels: Mapping[str, str]) -> Course | None:
        is_gossip = labels["rule_and_wire"] == "GoSGD"
        if labels["condition"] == "torchft-60s" and not is_gossip:
            return None
        return Course(rate_s=1.0 if is_gossip else 4.0, noise=0.0)

    found = results_of(
        {"rule_and_wire": ["GoSGD", "DiLoCo H=8"], "condition": ["equal", "torchft-60s"]},
        course,
        target=0.9,
        leave_out=lambda trial: leave_out in str(trial),
    )
    named = ("time_to_loss_s", "loss", "goodput", "tokens", "utilization")
    study = replace(found.study, metrics=named, target=1.0)
    known = (replace(one, summary={**one.summary, "goodput": 0.625}) for one in found.results)
    return replace(found, study=study, results=tuple(known))


def test_metrics_are_columns_and_missing_values_are_empty(studies: ModuleType) -> None:
    head, *rows = studies.points(proof_results())
    assert head[:4] == ["condition", "rule_and_wire", "seeds", "virtual time to the loss"]
    assert [row[2] for row in rows if row[:2] == ["equal", "DiLoCo H=8"]] == ["3"]
    assert ["torchft-60s", "DiLoCo H=8", "cannot go on", *[""] * 5] in rows
    results = proof_results(leave_out="torchft-60s")
    assert ["torchft-60s", "GoSGD", "not computed", *[""] * 5] in studies.points(results)
    note = "6 trials did not fit into the time. [trials.tar.xz](trials.tar.xz) has the"
    assert note in page_of(studies, results)


def test_published_figures_are_compared_with_computed_ones(studies: ModuleType) -> None:
    text = studies.against_published(proof_results())
    (efficiency,) = [line for line in text.splitlines() if "every 60 s" in line]
    assert "| 81.2 % |" in efficiency and "| 62.5 % (GoSGD) | not computed |" in efficiency
    equal, _ = [line for line in text.splitlines() if line.startswith("| equal |")]
    # ln(2.2 / 0.9) rates of 1 s and 4 s, at measurements of every half second.
    assert equal.startswith("| equal | GoSGD |") and equal.endswith("| 4 |")
    storm, _ = [line for line in text.splitlines() if line.startswith("| torchft-60s |")]
    assert storm.endswith("|  |  |")
    table = text.partition("first at a loss of")[2].splitlines()
    # At measurements of every half second, again.
    assert table[0] == " | 0.85 | 0.9 | 0.95 | 1 | 1.05 |"
    assert table[2] == "| equal | GoSGD (3) | GoSGD (3) | GoSGD (4) | GoSGD (4) | GoSGD (3.5) |"


def test_published_utilization_is_compared_with_the_prediction(studies: ModuleType) -> None:
    made = {"DiLoCo H=128": 0.124, "DiLoCo H=32": 0.0341, "GoSGD": 1.0}
    found = results_of({"rule_and_wire": list(made), "link": ["50 Mbit/s"]})
    parts = [made[one.trial.labels["rule_and_wire"]] for one in found.results]
    shown = (
        replace(one, summary={**one.summary, "utilization": part})
        for one, part in zip(found.results, parts, strict=True)
    )
    text = studies.slow_links(replace(found, results=tuple(shown)))
    assert "| DiLoCo H=128 | 50 Mbit/s | 11.55 % | 12.4 % | +7 % | yes |" in text
    assert "| DiLoCo H=32 | 50 Mbit/s | 2.41 % | 3.41 % | +41 % | missed |" in text
    assert "1 prediction is outside" in text and "GoSGD computes 100 % of the time." in text


@pytest.mark.extended
def test_all_charts_are_drawn(studies: ModuleType, tmp_path: Path) -> None:
    results = results_of({"topology": ["ring", "complete", "star", "torus"], "p": [0.1, 0.5, 1.0]})
    found = {path.stem for path in studies.draw_pictures(results, tmp_path)}
    assert found == {"curves", "ranking", "response"}
    assert all(path.stat().st_size > 5000 for path in tmp_path.iterdir())
