"""Positions of nodes in a picture."""

import numpy as np
import pytest

from rumor.topology import parse
from rumor.topology.layout import place

from .samples import OF_16


@pytest.mark.parametrize("spec", OF_16)
@pytest.mark.parametrize("n", [16, 64])
def test_no_two_nodes_share_a_position(spec: str, n: int) -> None:
    topology = parse("hosts:sizes=16x16x32" if "hosts" in spec and n == 64 else spec, n)
    points = place(topology).points
    distances = np.linalg.norm(points[:, None] - points, axis=2) + 9 * np.eye(n)
    assert points.shape == (n, 2)
    assert distances.min() > 0.01 * np.ptp(points, axis=0).max()


def test_neighbors_in_a_row_of_a_torus_are_adjacent() -> None:
    points = place(parse("torus:rows=3,cols=5")).points
    assert points[1].tolist() == [1, 0] and points[5].tolist() == [0, -1]


@pytest.mark.parametrize(
    ("spec", "n"),
    [
        ("path", 2),
        ("path", 25),
        ("grid:rows=1,cols=5", 5),
        ("hypercube", 1),
        ("hypercube", 2),
        ("tree", 40),
        ("hosts:sizes=5", 5),
        ("hosts:sizes=1x1x3", 5),
        ("hosts:sizes=1", 1),
    ],
)
def test_small_and_unusual_graphs_have_a_position_for_each_node(spec: str, n: int) -> None:
    points = place(parse(spec, n)).points
    assert points.shape == (n, 2) and np.isfinite(points).all()
    assert len({tuple(point) for point in points.round(9).tolist()}) == n


def test_nodes_of_one_host_are_drawn_together() -> None:
    placed = place(parse("hosts:sizes=4x4x8"))
    assert [len(group) for group in placed.groups] == [4, 4, 8]
    for group in placed.groups:
        host_points = placed.points[list(group)]
        others = np.delete(placed.points, list(group), axis=0)
        center = host_points.mean(axis=0)
        within = np.linalg.norm(host_points - center, axis=1).max()
        assert within < np.linalg.norm(others - center, axis=1).min()
