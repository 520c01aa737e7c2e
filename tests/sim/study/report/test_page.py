"""The report of a study as a file: what stands in it, whatever the study is like."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rumor.sim.study.report import write_report
from rumor.sim.study.report.page import page
from rumor.sim.study.results import Results
from rumor.sim.study.study import Point

from ..made_up import Course, results_of

GRAPHS = ["ring", "star", "complete", "torus"]
DATA = [Point("iid", {"partition": "shared"}), Point("skewed", {"partition": "dirichlet:0.1"})]


class Reader(HTMLParser):
    """Sees that what is opened is closed, and keeps what can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.images: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [found[key] or "" for key in ("src", "href") if key in found]
        if tag == "img":
            self.images.append(found["alt"] or "")
        elif tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def read(results: Results) -> Reader:
    reader = Reader()
    reader.feed(page(results))
    reader.close()
    assert reader.open == []
    assert all(one.startswith("data:image/png;base64,") for one in reader.addresses)
    return reader


@pytest.mark.extended
@pytest.mark.parametrize(
    ("results", "images"),
    [
        (results_of({"topology": GRAPHS}), ["curves", "ranking"]),
        (results_of({"topology": GRAPHS, "data": DATA}), ["curves", "ranking"] * 2),
        (results_of({"p": [0.01, 0.1, 1.0], "rule": ["gosgd"]}), ["curves", "ranking", "response"]),
        (results_of({"topology": GRAPHS}, task="noise"), ["curves", "ranking"]),
        (
            results_of({"rule": ["gosgd", "sgp"]}, lambda labels: Course(ceiling=0.6)),
            ["curves", "ranking"],
        ),
        (results_of({"topology": GRAPHS}, lambda labels: None), []),
    ],
    ids=["one axis", "two axes", "numbers", "no model", "never there", "nothing"],
)
def test_a_page_has_the_pictures_that_its_study_is_good_for(
    results: Results, images: list[str]
) -> None:
    assert read(results).images == images


@pytest.mark.extended
def test_the_question_and_who_leads_come_first() -> None:
    text = read(results_of({"topology": GRAPHS}, title="Graphs", question="Which one?")).text
    assert re.search(r"Graphs Which one\? .*complete.* Trials 12 of 12", text)


@pytest.mark.extended
def test_failures_are_said_before_anything_else_with_their_reasons() -> None:
    results = results_of(
        {"topology": GRAPHS}, lambda labels: None if labels["topology"] == "star" else Course()
    )
    text = read(results).text
    assert text.index("3 trials failed") < text.index("What came out")
    assert "star, seed 1: 4 workers of 16 diverged" in text


@pytest.mark.extended
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
    assert re.search(r"p [=<] 0\.0\d* 0 of 3 0 of 3 arrive", text)


@pytest.mark.extended
def test_what_does_not_differ_significantly_is_said_with_what_is_detectable() -> None:
    def course(labels: object) -> Course:
        return Course(rate_s=6.0 if "star" in str(labels) else 2.0, noise=0.1)

    text = read(results_of({"topology": ["ring", "complete", "star"]}, course)).text
    assert re.search(r"no significant difference \(detectable: \d+ %\) 3 of 3", text)
    assert re.search(r"star [\d.]+ × \([\d.]+ to [\d.]+\), p = [\d.]+ 3 of 3", text)


@pytest.mark.extended
def test_one_seed_has_no_intervals_and_the_page_says_so() -> None:
    text = read(results_of({"topology": GRAPHS}, seeds=1)).text
    assert "One seed, so how much of a difference is noise is not known" in text
    assert "±" not in text


@pytest.mark.extended
def test_a_study_may_be_called_anything() -> None:
    hostile = '<script>alert("&amp;")</script>'
    text = page(results_of({"rule": [hostile, "sgp"]}, title=hostile, question=hostile))
    assert "<script" not in text
    assert hostile in read(results_of({"rule": [hostile, "sgp"]}, title=hostile)).text


@pytest.mark.extended
def test_the_command_of_every_trial_is_there() -> None:
    results = results_of({"topology": GRAPHS, "data": DATA}, lr=0.05)
    text = read(results).text
    begin = "rumor simulate --set task=digits --set workers=16 --set lr=0.05 --set topology="
    assert text.count(begin) == 24


@pytest.mark.extended
def test_a_report_replaces_an_older_one_with_the_same_bits(tmp_path: Path) -> None:
    results = results_of({"rule": ["gosgd"]}, seeds=1)
    path = write_report(results, tmp_path)
    first = path.read_bytes()
    assert first.startswith(b"<!DOCTYPE html>")
    write_report(results, tmp_path)
    assert path.read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.extended
def test_a_reference_is_told_where_figures_are() -> None:
    results = results_of({"topology": GRAPHS})
    named = replace(results, study=replace(results.study, reference="complete"))
    assert "Where complete is first, the study's reference," in read(named).text
    assert "reference" not in read(results).text


@pytest.mark.extended
def test_a_target_that_is_a_loss_is_told_as_one() -> None:
    made = results_of({"rule": ["gosgd", "sgp"]}, target=0.3)
    text = read(replace(made, study=replace(made.study, metrics=("time_to_loss_s",)))).text
    assert "Target loss 0.3" in text and "30 %" not in text
    assert "Target accuracy 30 %" in read(made).text
