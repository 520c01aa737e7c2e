"""Plots of live runs of every kind."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from rumor.cli.launch.summary import estimate
from rumor.sim.results.live_plots import draw

from ...cli.launch.fakes import detail, summary


def rows(n: int, accuracy: float | None = 0.9) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for index in range(n):
        evaluation = {"accuracy": accuracy, "test_loss": 0.2, "sketch": [1.0, index / 100, 0.3]}
        now = {"step": 10 * index, "unix_s": 100.0 + index, "time_s": 1.0 + index}
        row = now | {"loss": 1 / (index + 1)}
        made.append(row | (dict.fromkeys(evaluation) if index % 5 else evaluation))
    return made


def averaged(peer: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add measurements of the average of all peers to the rows of a peer."""
    evaluation = {"average_accuracy": 0.91, "average_test_loss": 0.19, "average_peers": 2}
    return [row | (evaluation if row["step"] % 100 == 0 else {}) for row in peer]


def later(peer: list[dict[str, Any]], by_s: float) -> list[dict[str, Any]]:
    """The rows of a process that started *by_s* seconds later."""
    return [row | {"unix_s": row["unix_s"] + by_s} for row in peer]


def fault(kind: str, *after_s: float, **fields: Any) -> dict[str, Any]:
    """A fault that began and ended this many seconds after training began."""
    done = [{"unix_s": 99.0 + each, "step": 5} for each in after_s]
    return {"at_s": 1.0, "kind": kind, "done": done} | fields


@pytest.mark.extended
@pytest.mark.parametrize(
    ("changes", "peers"),
    [
        ({}, [rows(50), rows(40)]),
        ({"accuracy": None}, [rows(50, None), rows(50, None)]),
        ({"consensus_distance": 0.0}, [rows(50), rows(50)]),
        ({"consensus_distance": 1e-9}, [rows(50), rows(50)]),
        ({"emission": "per-second"}, [rows(1), rows(0)]),
        ({"accuracy": None, "loss": None, "consensus_distance": None}, [[], []]),
        ({"peers_detail": [detail(0), detail(1, state="killed")]}, [rows(50), rows(9)]),
        ({"peers_detail": [detail(i) for i in range(20)]}, [rows(20)] * 20),
        ({}, [averaged(rows(50)), rows(40)]),
        ({"accuracy": None}, [averaged(rows(50, None)), averaged(rows(9, None))]),
        # Incarnations that resume, and faults.
        (
            {"faults": [fault("crash", 9, peer="peer-0"), fault("heal")]},
            [rows(9) + later(rows(9), 20)] * 2,
        ),
        ({"faults": [fault("reset", at_s) for at_s in range(20)]}, [rows(50), rows(50)]),
    ],
)
def test_any_run_has_a_picture(
    tmp_path: Path, changes: dict[str, Any], peers: list[list[dict[str, Any]]]
) -> None:
    draw(summary(**changes), peers, estimate(peers), tmp_path / "training.png")
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")


def drawn_axes(
    monkeypatch: pytest.MonkeyPatch, peers: list[list[dict[str, Any]]], **changes: Any
) -> list[Axes]:
    """The axes of a picture, after layout."""
    figures: list[Figure] = []

    def keep(figure: Figure, path: Path, **rest: Any) -> None:
        figure.canvas.draw()
        figures.append(figure)
        path.touch()

    monkeypatch.setattr(Figure, "savefig", keep)
    draw(summary(**changes), peers, estimate(peers), Path("training.png"))
    return figures[0].axes


@pytest.mark.extended
@pytest.mark.usefixtures("in_empty_folder")
def test_ticks_of_a_logarithmic_axis_are_plain_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for rows_of in (rows(3), rows(60)):
        for axes in drawn_axes(monkeypatch, [rows_of, rows_of]):
            ticks = [*axes.get_yticklabels(minor=True), *axes.get_yticklabels()]
            shown = [tick.get_text() for tick in ticks if tick.get_text()]
            assert shown and not any("$" in text for text in shown), shown


@pytest.mark.extended
@pytest.mark.parametrize(
    ("count", "distance", "words"),
    [
        (1, 0.0, "at the end: identical"),
        (2, 0.0, "at the end: identical"),
        (2, None, "nothing was measured"),
    ],
)
@pytest.mark.usefixtures("in_empty_folder")
def test_panels_without_data_show_words_and_no_scale(
    monkeypatch: pytest.MonkeyPatch, count: int, distance: float | None, words: str
) -> None:
    silent = [[row | {"sketch": None, "loss": None} for row in rows(20)] for _ in range(count)]
    details = [detail(index) for index in range(count)]
    found = drawn_axes(monkeypatch, silent, consensus_distance=distance, peers_detail=details)
    for axes, shown in ((found[0], "the script reports no loss"), (found[-1], words)):
        assert shown in axes.texts[0].get_text()
        assert list(axes.get_yticks()) == [] and not axes.spines["left"].get_visible()


def lines_of(axes: Axes) -> list[np.ndarray]:
    """Horizontal positions of the points of each curve, with its gaps."""
    found = [np.asarray(line.get_xdata()) for line in axes.lines]
    return [places for places in found if len(places) > 2]


@pytest.mark.usefixtures("in_empty_folder")
def test_a_slow_and_a_restarted_peer_are_drawn_at_the_time_of_their_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = [row | {"step": row["step"] // 10} for row in rows(60)]
    restarted = rows(20) + later(rows(20), 40)
    loss, _, consensus = drawn_axes(monkeypatch, [slow, restarted])
    assert loss.get_xlim() == consensus.get_xlim() == (0, 60)
    assert consensus.get_xlabel() == "time since training began, s"
    for whole, broken in zip(lines_of(loss)[:2], lines_of(loss)[2:4], strict=True):
        assert whole.tolist() == list(range(1, 61))
        expected = [*range(1, 21), math.nan, *range(41, 61)]
        np.testing.assert_array_equal(broken, expected)


@pytest.mark.usefixtures("in_empty_folder")
def test_faults_are_drawn_at_their_times_with_separate_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = [
        fault("crash", 10, peer="peer-1"),
        fault("restart", 11, peer="peer-1"),
        fault("pause", 13, 33, peer="peer-0", for_s=20),
        fault("leave", 50, peer="a-peer-with-a-long-name"),
        fault("crash", 51, peer="another-peer-with-a-long-name"),
    ]
    loss, *_ = drawn_axes(monkeypatch, [rows(60), rows(60)], faults=faults)
    labels = [text for text in loss.texts if text.get_rotation() == 90]
    texts = [label.get_text() for label in labels]
    assert texts == ["crash peer-1", "pause peer-0", "leave a-peer-with-a-long-name"]
    assert [label.xy[0] for label in labels if isinstance(label, Annotation)] == [10, 13, 50]
    lines = [float(np.asarray(line.get_xdata())[0]) for line in loss.lines[-5:]]
    assert lines == [10, 11, 13, 50, 51]
    boxes = [label.get_window_extent() for label in labels]
    assert not any(one.overlaps(other) for one, other in pairwise(boxes))
    panel = loss.get_window_extent()
    assert all(panel.y0 <= box.y0 and box.y1 <= panel.y1 for box in boxes)
    (shaded,) = loss.patches
    assert shaded.get_extents().transformed(loss.transData.inverted()).bounds[::2] == (
        pytest.approx((13, 20))
    )
