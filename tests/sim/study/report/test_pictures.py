"""Pictures of a study: nothing covers anything else, and nothing is empty without a word."""

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from rumor.sim.study.report import pictures
from rumor.sim.study.report.pictures import draw_pictures
from rumor.sim.study.results import Results
from rumor.sim.study.study import Point

from ..made_up import Course, results_of

Drawn = dict[str, Figure]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drawn]:
    """The figures that are drawn, by name."""
    figures: Drawn = {}

    def keep(figure: Figure, path: Path) -> None:
        figure.canvas.draw()
        figures[path.stem] = figure
        path.touch()

    monkeypatch.setattr(pictures, "_save", keep)
    yield figures


NETWORKS = [
    "all is well",
    "1 % of messages lost",
    "20 % lost, and slow links",
    "200 ms to everybody",
]


def long_names() -> Results:
    points = [Point(name, {"latency_s": 0.001 * i}) for i, name in enumerate(NETWORKS)]

    def course(labels: Mapping[str, str]) -> Course:
        # Noise that lets only some of the seeds reach the target.
        lost = NETWORKS.index(labels["network"])
        return Course(ceiling=0.93, rate_s=2.0 + 2 * lost, noise=1.2 if lost > 1 else 0.05)

    return results_of({"rule": ["gosgd", "sgp"], "network": points}, course)


@pytest.mark.extended
def test_names_and_figures_of_a_table_fit_into_their_cells(drawn: Drawn, tmp_path: Path) -> None:
    draw_pictures(long_names(), tmp_path)
    figure = drawn["heat"]
    said = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert any("seeds\nreached it" in words for words in said), "what is long is in lines"
    for axes in figure.axes:
        cell = axes.get_window_extent().width / len(NETWORKS)
        row = axes.get_window_extent().height / 2
        boxes: list[Bbox] = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert all(box.width < cell for box in boxes)
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
        for text in axes.texts:
            assert text.get_window_extent().width < cell
            assert text.get_window_extent().height < row


@pytest.mark.extended
def test_names_beside_curves_stay_clear_of_titles(drawn: Drawn, tmp_path: Path) -> None:
    names = ["ring", "path", "star", "complete", "exponential", "hypercube"]
    results = results_of(
        {"topology": names, "partition": ["shared", "dirichlet:0.1"]},
        lambda labels: Course(rate_s=1.0),
    )
    draw_pictures(results, tmp_path)
    figure = drawn["curves"]
    titles = [axes.title.get_window_extent() for axes in figure.axes]
    titles += [axes._left_title.get_window_extent() for axes in figure.axes]  # type: ignore[attr-defined]
    for axes in figure.axes:
        named = [text for text in axes.texts if text.get_text() in names]
        assert len(named) == len(names)
        for text in named:
            box: Any = text.get_window_extent()
            assert not any(box.overlaps(title) for title in titles if title.width)
            assert box.y1 <= axes.get_window_extent().y1 + box.height


def test_where_there_is_nothing_to_draw_there_are_words_and_no_frame(
    drawn: Drawn, tmp_path: Path
) -> None:
    rules = ["gosgd", "allreduce"]
    results = results_of(
        {"workers": [16, 64], "rule": rules},
        lambda labels: Course(consensus_distance=0.0 if labels["rule"] == "allreduce" else 0.1),
    )
    draw_pictures(results, tmp_path)
    of_title = {axes.get_title(loc="left"): axes for axes in drawn["curves"].axes}
    empty = of_title["Consensus distance, allreduce"]
    assert not empty.axison and [text.get_text() for text in empty.texts] == [
        "0, all alike: 16 and 64"
    ]
    assert of_title["Consensus distance, gosgd"].axison


def test_names_of_points_stay_in_the_picture(drawn: Drawn, tmp_path: Path) -> None:
    names = ["ring", "torus", "complete", "exponential", "one-peer-exponential"]
    draw_pictures(results_of({"topology": names}), tmp_path)
    figure = drawn["predictions"]
    named = [text for axes in figure.axes for text in axes.texts if text.get_text() in names]
    assert len(named) >= len(names)
    for text in named:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts if text.get_text() in names]
        for one, other in combinations(boxes, 2):
            # Letters have no ink at the edges of their boxes.
            assert not one.shrunk(0.9, 0.7).overlaps(other.shrunk(0.9, 0.7))


def test_an_interval_is_drawn_whole_or_its_cut_is_marked(drawn: Drawn, tmp_path: Path) -> None:
    def course(labels: Mapping[str, str]) -> Course:
        return Course(noise={"gosgd": 0.05, "sgp": 0.6}.get(labels["rule"], 9.0))

    draw_pictures(results_of({"rule": ["gosgd", "sgp", "adpsgd"]}, course, target=0.99), tmp_path)
    cuts = 0
    for axes in drawn["ranking"].axes:
        low, high = axes.get_xlim()
        marks = {line.get_marker() for line in axes.lines}
        for bars in axes.collections:
            assert isinstance(bars, LineCollection)
            for segment in bars.get_segments():
                (begin, _), (end, _) = segment
                assert begin >= low or "<" in marks
                assert end <= high or ">" in marks
                cuts += begin < low or end > high
    assert cuts, "one is too wide to be shown whole"
