"""The picture of a run: drawn whatever the run was like."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rumor.cli.launch.summary import estimate
from rumor.sim.results.pictures.live_plots import draw

from ....cli.launch.fakes import detail, summary


def rows(n: int, accuracy: float | None = 0.9) -> list[dict[str, Any]]:
    return [
        {
            "step": 10 * index,
            "unix_s": 100.0 + index,
            "loss": 1 / (index + 1),
            "accuracy": accuracy if index % 5 == 0 else None,
            "test_loss": 0.2 if index % 5 == 0 else None,
            "sketch": [1.0, index / 100, 0.3] if index % 5 == 0 else None,
        }
        for index in range(n)
    ]


def averaged(peer: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same, by a peer that measures the average of all, too."""
    told = {"average_accuracy": 0.91, "average_test_loss": 0.19, "average_peers": 2}
    return [row | (told if row["step"] % 100 == 0 else {}) for row in peer]


def fault(kind: str, *steps: int, **fields: Any) -> dict[str, Any]:
    return {"at_s": 1.0, "kind": kind, "done": [{"step": step} for step in steps]} | fields


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
        # Lives that resume, and what was done to them.
        ({"faults": [fault("crash", 30, peer="peer-0"), fault("heal")]}, [rows(9) + rows(9)] * 2),
        ({"faults": [fault("reset", step) for step in range(20)]}, [rows(50), rows(50)]),
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
    """What a picture is made of, laid out."""
    figures: list[Figure] = []

    def keep(figure: Figure, path: Path, **rest: Any) -> None:
        figure.canvas.draw()
        figures.append(figure)
        path.touch()

    monkeypatch.setattr(Figure, "savefig", keep)
    draw(summary(**changes), peers, estimate(peers), Path("training.png"))
    return figures[0].axes


def test_ticks_of_a_logarithmic_axis_are_plain_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for rows_of in (rows(3), rows(60)):
        for axes in drawn_axes(monkeypatch, [rows_of, rows_of]):
            ticks = [*axes.get_yticklabels(minor=True), *axes.get_yticklabels()]
            said = [tick.get_text() for tick in ticks if tick.get_text()]
            assert said and not any("$" in text for text in said), said


@pytest.mark.parametrize(
    ("count", "distance", "words"),
    [
        (1, 0.0, "one peer has nobody to differ from"),
        (2, 0.0, "at the end: identical"),
        (2, None, "nothing was measured"),
    ],
)
def test_without_distances_there_are_words_and_no_scale(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    distance: float | None,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    silent = [[row | {"sketch": None, "loss": None} for row in rows(20)] for _ in range(count)]
    details = [detail(index) for index in range(count)]
    found = drawn_axes(monkeypatch, silent, consensus_distance=distance, peers_detail=details)
    for axes, said in ((found[0], "the script tells no loss"), (found[-1], words)):
        assert said in axes.texts[0].get_text()
        assert list(axes.get_yticks()) == [] and not axes.spines["left"].get_visible()
