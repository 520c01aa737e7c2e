"""The picture of a run: drawn whatever the run was like."""

from pathlib import Path
from typing import Any

import pytest

from rumor.cli.launch.summary import estimate
from rumor.sim.results.live_plots import draw

from ...cli.launch.fakes import detail, summary


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
