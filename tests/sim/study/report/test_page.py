"""The report of a study as a file: what stands in it, whatever the study is like."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

from rumor.sim.study.analysis.ranking import comparisons
from rumor.sim.study.report import write_report
from rumor.sim.study.report.charts import ranking_panels
from rumor.sim.study.report.page import page
from rumor.sim.study.results import Results
from rumor.sim.study.study import Point

from ..made_up import Course, results_of

GRAPHS = ["ring", "star", "complete", "torus"]
DATA = [Point("iid", {"partition": "shared"}), Point("skewed", {"partition": "dirichlet:0.1"})]
EMPTY = {"meta", "link", "input", "br", "circle", "path"}


class Reader(HTMLParser):
    """Sees that what is opened is closed, and keeps what can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sections: list[str] = []
        self.names: list[str] = []
        self.texts: list[str] = []
        self.addresses: list[str] = []
        self.shown: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [found[key] or "" for key in ("src", "href") if key in found]
        if "id" in found:
            self.names.append(found["id"] or "")
        self.shown += [found["data-show"] or ""] if "data-show" in found else []
        if tag == "section":
            self.sections.append(found["id"] or "")
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("circle", "path")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def read(results: Results) -> Reader:
    reader = Reader()
    reader.feed(without_library(page(results)))
    reader.close()
    assert reader.open == []
    return reader


@cache
def text_of(name: str) -> str:
    """The page of one of `STUDIES`: most of it is a library, which takes time to write."""
    return page(STUDIES[name][0])


@cache
def reader_of(name: str) -> Reader:
    reader = Reader()
    reader.feed(without_library(text_of(name)))
    reader.close()
    assert reader.open == []
    return reader


def without_library(text: str) -> str:
    """A page without plotly's own code: nobody reads that."""
    return text.replace(get_plotlyjs(), "")


def never(labels: object) -> Course:
    return Course(ceiling=0.6)


STUDIES = {
    "one axis": (
        results_of({"topology": GRAPHS}),
        ["curves", "ranking", "predictions", "graphs", "table", "arguments"],
    ),
    "two axes": (
        results_of({"topology": GRAPHS, "data": DATA}),
        ["curves", "ranking", "predictions", "heat", "graphs", "table", "arguments"],
    ),
    "three axes, graphs last": (
        results_of({"rule": ["gosgd", "sgp"], "data": DATA, "topology": GRAPHS}, seeds=2),
        ["curves", "ranking", "predictions", "heat", "graphs", "table", "arguments"],
    ),
    "numbers": (
        results_of({"p": [0.01, 0.1, 1.0], "rule": ["gosgd", "sgp"]}),
        ["curves", "ranking", "response", "heat", "table", "graphs", "arguments"],
    ),
    "sizes": (
        results_of({"workers": [16, 32, 128], "topology": ["ring", "exponential"]}),
        ["curves", "ranking", "response", "heat", "graphs", "table", "arguments"],
    ),
    "one group": (
        results_of({"topology": ["ring"]}),
        ["curves", "ranking", "table", "graphs", "arguments"],
    ),
    "one seed": (
        results_of({"rule": ["gosgd", "sgp"]}, seeds=1),
        ["curves", "ranking", "table", "graphs", "arguments"],
    ),
    "no model": (
        results_of({"topology": GRAPHS}, task="noise"),
        ["curves", "ranking", "predictions", "graphs", "table", "arguments"],
    ),
    "never there": (
        results_of({"rule": ["gosgd", "sgp"], "data": DATA}, never),
        ["curves", "ranking", "heat", "table", "graphs", "arguments"],
    ),
    "nothing": (results_of({"topology": GRAPHS}, lambda labels: None), ["arguments"]),
}


@pytest.mark.extended
@pytest.mark.parametrize("name", STUDIES)
def test_a_page_has_the_sections_that_its_study_is_good_for(name: str) -> None:
    assert reader_of(name).sections == STUDIES[name][1]


@pytest.mark.parametrize("name", STUDIES)
def test_no_two_things_on_a_page_have_one_name(name: str) -> None:
    names = reader_of(name).names
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", STUDIES)
def test_a_page_names_no_address_but_its_own_parts(name: str) -> None:
    addresses = reader_of(name).addresses
    assert [one for one in addresses if not one.startswith(("#", "data:"))] == []


def test_the_question_and_who_leads_come_first() -> None:
    text = read(results_of({"topology": GRAPHS}, title="Graphs", question="Which one?")).text
    assert re.search(r"Graphs Which one\? .*complete.* Trials 12 of 12", text)


def test_failures_are_said_before_anything_else_with_their_reasons() -> None:
    results = results_of(
        {"topology": GRAPHS}, lambda labels: None if labels["topology"] == "star" else Course()
    )
    text = read(results).text
    assert "3 trials failed" in text
    assert text.index("3 trials failed") < text.index("How it went")
    assert "star, seed 1 : 4 workers of 16 diverged" in text
    assert "Failed 3" in text


def test_trials_that_have_not_run_are_said_to_be_missing() -> None:
    results = results_of({"topology": GRAPHS}, leave_out=lambda trial: trial.seed == 2)
    text = read(results).text
    assert "4 trials have not run" in text
    assert "failed" not in text[: text.index("Trials")]


def test_who_never_reaches_the_target_is_said_to_never_reach_it() -> None:
    def course(labels: object) -> Course:
        return Course(ceiling=0.95 if "complete" in str(labels) else 0.7)

    text = read(results_of({"topology": ["ring", "complete"]}, course)).text
    assert re.search(
        r"ring 0 of 3 arrive; ends [\d.]+ points lower \([\d. to]+\), p [=<] 0\.0", text
    )
    assert re.search(r"p [=<] 0\.0\d* 0 of 3 never", text)


def test_who_is_not_told_apart_is_said_so_with_what_would_have_been_seen() -> None:
    def course(labels: object) -> Course:
        return Course(rate_s=6.0 if "star" in str(labels) else 2.0, noise=0.1)

    text = read(results_of({"topology": ["ring", "complete", "star"]}, course)).text
    assert "as good as the" not in text
    assert re.search(r"no significant difference \(detectable: \d+ %\) 3 of 3", text)
    assert re.search(r"star [\d.]+ × \([\d.]+ to [\d.]+\), p = [\d.]+ 3 of 3", text)


def test_bytes_are_colored_by_bytes() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        return Course(bytes_s=9e6 if "star" in str(labels) else 1e6, noise=0.1)

    found = comparisons(results_of({"topology": ["ring", "star"]}, course))
    time, traffic = ranking_panels(found[0])
    assert {one.color for one in time.series} == {"accent"}
    assert {one.label: one.color for one in traffic.series} == {"ring": "accent", "star": "dim"}


def test_intervals_on_a_logarithmic_axis_end_above_0() -> None:
    def course(labels: Mapping[str, str]) -> Course:
        return Course(rate_s=0.2 if "star" in str(labels) else 16.0, noise=0.5, time_s=400.0)

    results = results_of({"topology": ["ring", "star"]}, course, points=4001, target=0.7)
    (found,) = comparisons(results)
    times = [row.figures["time_to_target_s"] for row in found.rows]
    assert any(one.low < 0 for one in times)
    time, _ = ranking_panels(found)
    assert time.x.is_log and "geometric means" in time.note
    assert all(low is not None and low > 0 for one in time.series for low in one.low)


def test_one_seed_has_no_intervals_and_the_page_says_so() -> None:
    text = read(results_of({"topology": GRAPHS}, seeds=1)).text
    assert "One seed each, so no intervals" in text
    assert "±" not in text


def test_graphs_of_many_nodes_are_not_drawn() -> None:
    text = read(results_of({"workers": [16, 128]})).text
    assert "128 nodes are too many to draw" in text
    assert "16 nodes are" not in text


@pytest.mark.extended
def test_graphs_of_which_nothing_is_known_are_left_out() -> None:
    results = results_of({"topology": GRAPHS})
    none = tuple(replace(result, facts={}) for result in results.results)
    assert "graphs" not in read(replace(results, results=none)).sections


def test_two_points_at_one_number_are_no_axis_of_numbers() -> None:
    points = [Point("1", {"p": 1.0}), Point("1.0", {"p": 0.9}), Point("2", {"p": 0.8})]
    assert "response" not in read(results_of({"often": points})).sections


def test_a_graph_is_drawn_with_every_node() -> None:
    text = page(results_of({"topology": ["ring", "star"]}))
    drawings = re.findall(r'class="nodes"[^>]* d="([^"]*)"', text)
    assert [drawing.count("M") for drawing in drawings] == [16, 16]


@pytest.mark.parametrize("name", STUDIES)
def test_every_chart_that_is_shown_has_its_data_and_every_choice_has_a_chart(name: str) -> None:
    text = text_of(name)
    found = json.loads(re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)[0])
    keys = re.findall(r'data-figure="([^"]+)"', text)
    assert keys == list(found["figures"]) and len(keys) == len(set(keys))
    shown = reader_of(name).shown
    for value in re.findall(r'data-chooses="(?:heat|response|x)".*?</(?:fieldset|label)>', text):
        for choice in re.findall(r'value="([^"]+)"', value):
            assert any(f"={choice}" in one for one in shown), choice


@pytest.mark.parametrize("label", ["</script><b>boom</b>", "<img src=x onerror=boom()>", "a & b"])
def test_what_a_study_says_is_never_taken_for_code(label: str) -> None:
    points = [Point(label, {"topology": "ring"}), Point("plain", {"topology": "star"})]
    results = results_of({"graph": points}, title=label, question=label, task=label)
    assert label in read(results).text
    text = page(results)
    assert text.count("boom()>") == 0 and "<b>boom" not in text and "a & b" not in text


def test_every_argument_and_every_command_is_there() -> None:
    results = results_of({"topology": GRAPHS, "data": DATA}, lr=0.05)
    text = read(results).text
    assert "lr 0.05" in text
    assert "iid (partition = shared), skewed (partition = dirichlet:0.1)" in text
    assert (
        text.count(
            "rumor simulate --set task=digits --set workers=16 --set lr=0.05 --set topology="
        )
        == 24
    )


def test_the_page_opens_without_a_network_because_plotly_is_in_it_once() -> None:
    assert page(results_of({"topology": GRAPHS})).count(get_plotlyjs()) == 1


def test_the_same_results_make_the_same_page_to_the_bit() -> None:
    results = results_of({"topology": GRAPHS, "p": [0.1, 0.5]}, seeds=2)
    assert page(results) == page(results)


def test_a_report_replaces_an_older_one(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("old")
    path = write_report(results_of({"rule": ["gosgd"]}, seeds=1), tmp_path)
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_reference_is_told_where_figures_are() -> None:
    results = results_of({"topology": GRAPHS})
    named = replace(results, study=replace(results.study, reference="complete"))
    assert "Where complete is first, the study's reference," in read(named).text
    assert "reference" not in read(results).text


def test_a_target_that_is_a_loss_is_told_as_one() -> None:
    made = results_of({"rule": ["gosgd", "sgp"]}, target=0.3)
    text = read(replace(made, study=replace(made.study, metrics=("time_to_loss_s",)))).text
    assert "How soon it reaches a loss of 0.3" in text and "Target loss 0.3" in text
    assert "target loss 0.3" in text and "30 %" not in text
    text = read(made).text
    assert "How soon it reaches 30 % accuracy" in text and "Target accuracy 30 %" in text
