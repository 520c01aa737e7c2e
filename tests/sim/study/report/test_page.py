"""The report page of studies of every kind."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rumor.sim.study.report import write_report
from rumor.sim.study.report.page import page
from rumor.sim.study.results import Results
from rumor.sim.study.study import Point

from ..made_up import Course, results_of

GRAPHS = ["ring", "star", "complete", "torus"]
DATA = [Point("iid", {"partition": "shared"}), Point("skewed", {"partition": "dirichlet:0.1"})]


class Reader(HTMLParser):
    """Checks that every tag is closed, and collects texts, images and addresses."""

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
    ids=["one axis", "two axes", "numbers", "no model", "target never reached", "no results"],
)
def test_a_page_has_the_pictures_that_suit_its_study(results: Results, images: list[str]) -> None:
    assert read(results).images == images


def ceilings(labels: object) -> Course:
    return Course(ceiling=0.95 if "complete" in str(labels) else 0.7)


def test_a_point_that_never_reaches_the_target_is_reported() -> None:
    text = read(results_of({"topology": ["ring", "complete"]}, ceilings)).text
    words = "ring 0 of 3 arrive; no significant difference 0 of 3 arrive"
    assert words in text


def rates(labels: object) -> Course:
    return Course(rate_s=6.0 if "star" in str(labels) else 2.0, noise=0.1)


ALL, PAIR = results_of({"topology": GRAPHS}), results_of({"rule": ["gosgd", "sgp"]}, target=0.3)
NAMED = results_of({"topology": GRAPHS}, title="Graphs", question="Which one?")
BROKEN = results_of({"topology": GRAPHS}, lambda at: None if "star" in str(at) else Course())
BEGUN = results_of({"topology": GRAPHS}, leave_out=lambda trial: trial.seed == 2)
THREE = results_of({"topology": ["ring", "complete", "star"]}, rates)
ONE_SEED = results_of({"topology": GRAPHS}, seeds=1)
FAILED = "3 trials failed.* star, seed 1: peer-3 diverged.*What came out"
APART = r"no significant difference \(detectable: \d+ %\)"
STAR = r"star [\d.]+ × \([\d.]+ to [\d.]+\), p = [\d.]+"


@pytest.mark.extended
@pytest.mark.parametrize(
    ("results", "study", "expected", "unexpected"),
    [
        (NAMED, {}, r"Graphs Which one\? .*complete.* Trials 12 of 12", "reference"),
        (BROKEN, {}, FAILED, "not run"),
        (BEGUN, {}, "4 trials have not run.*Trials", "trials failed"),
        (THREE, {}, f"{APART}.*{STAR}", "One seed"),
        (ONE_SEED, {}, "One seed, so how much of a difference is noise is not known", "±"),
        (
            ALL,
            {"reference": "complete"},
            "Where complete is first, the study's reference,",
            "failed",
        ),
        (PAIR, {}, "Target accuracy 30 %", "Target loss"),
        (PAIR, {"metrics": ("time_to_loss_s",)}, "Target loss 0.3", "30 %"),
    ],
)
def test_a_page_states_the_outcome_of_its_study(
    results: Results, study: dict[str, Any], expected: str, unexpected: str
) -> None:
    text = read(replace(results, study=replace(results.study, **study))).text
    assert re.search(expected, text) and not re.search(unexpected, text)


@pytest.mark.extended
def test_titles_and_labels_are_escaped() -> None:
    # It also has a letter that no font contains.
    hostile = '<script>alert("&amp;")</script> \u0bb5'
    results = results_of({"rule": [hostile, "sgp"]}, title=hostile, question=hostile)
    assert "<script" not in page(results)
    assert hostile in read(results).text


def test_a_page_has_the_command_of_every_trial() -> None:
    results = results_of({"topology": GRAPHS, "data": DATA}, lr=0.05)
    nothing = replace(results, results=(), failures={})
    begin = "rumor simulate --set task=digits --set workers=16 --set lr=0.05 --set topology="
    assert read(nothing).text.count(begin) == 24


@pytest.mark.extended
def test_rewriting_a_report_gives_the_same_bytes(tmp_path: Path) -> None:
    results = results_of({"rule": ["gosgd"]}, seeds=1)
    path = write_report(results, tmp_path)
    first = path.read_bytes()
    assert first.startswith(b"<!DOCTYPE html>")
    write_report(results, tmp_path)
    assert path.read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
