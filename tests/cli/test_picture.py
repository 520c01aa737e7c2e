"""The picture of a run: drawn whatever the run was like."""

from pathlib import Path
from typing import Any

import pytest

from rumor.cli.picture import draw

from .fakes import detail, summary


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
    ],
)
def test_any_run_has_a_picture(
    tmp_path: Path, changes: dict[str, Any], peers: list[list[dict[str, Any]]]
) -> None:
    draw(summary(**changes), peers, tmp_path / "training.png")
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
