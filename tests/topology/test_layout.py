"""Where nodes stand in a picture, and thumbnails of graphs."""

import numpy as np
import pytest

from rumor.topology import FAMILIES, over, parse
from rumor.topology.layout import SKETCH_NODES_MAX, place, sketch

SPECS = {"spanning-tree": "spanning-tree:of=torus", "hosts": "hosts:sizes=4x4x8"}
FAMILY_SPECS = [SPECS.get(name, name) for name in FAMILIES if name != "file"]


@pytest.mark.parametrize("spec", FAMILY_SPECS)
@pytest.mark.parametrize("n", [16, 64])
def test_no_two_nodes_stand_in_one_place(spec: str, n: int) -> None:
    topology = parse("hosts:sizes=16x16x32" if "hosts" in spec and n == 64 else spec, n)
    points = place(topology).points
    apart = np.linalg.norm(points[:, None] - points, axis=2) + 9 * np.eye(n)
    assert points.shape == (n, 2)
    assert apart.min() > 0.01 * np.ptp(points, axis=0).max()


def test_neighbors_in_a_row_of_a_torus_stand_side_by_side() -> None:
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
        ("erdos-renyi", 300),
        ("hosts:sizes=5", 5),
        ("hosts:sizes=1x1x3", 5),
        ("hosts:sizes=1", 1),
    ],
)
def test_small_large_and_odd_graphs_have_a_place_for_each_node(spec: str, n: int) -> None:
    points = place(parse(spec, n)).points
    assert points.shape == (n, 2) and np.isfinite(points).all()
    assert len({tuple(point) for point in points.round(9).tolist()}) == n


def test_nodes_of_one_host_stand_together() -> None:
    placed = place(parse("hosts:sizes=4x4x8"))
    assert [len(group) for group in placed.groups] == [4, 4, 8]
    for group in placed.groups:
        here = placed.points[list(group)]
        others = np.delete(placed.points, list(group), axis=0)
        center = here.mean(axis=0)
        within = np.linalg.norm(here - center, axis=1).max()
        assert within < np.linalg.norm(others - center, axis=1).min()


@pytest.mark.parametrize("n", [1, 13])
def test_views_of_any_size_have_places_too(n: int) -> None:
    view = over("hypercube", 0, [f"peer-{number:02}" for number in range(n)])
    assert place(view).points.shape == (n, 2)


@pytest.mark.parametrize("spec", FAMILY_SPECS)
def test_every_family_is_drawn_within_its_square(spec: str) -> None:
    drawn = sketch(parse(spec, 16))
    assert len(drawn.nodes) == 16
    assert drawn.first
    ends = [end for line in (*drawn.first, *drawn.later) for end in line]
    assert all(0 <= value <= 100 for point in (*drawn.nodes, *ends) for value in point)


def test_links_are_those_of_the_graph() -> None:
    assert len(sketch(parse("ring", 12)).first) == 12
    assert len(sketch(parse("complete", 12)).first) == 12 * 11 // 2
    assert sketch(parse("ring", 12)).later == ()


def test_links_of_other_rounds_are_apart_from_those_of_the_first() -> None:
    drawn = sketch(parse("one-peer-exponential", 16))
    assert len(drawn.first) == 16
    # Hops of 2 and 4 make 16 links each, those of 8 go both ways.
    assert len(drawn.later) == 16 + 16 + 8
    assert not set(drawn.first) & set(drawn.later)


def test_links_around_the_border_of_a_torus_leave_it_on_both_sides() -> None:
    drawn = sketch(parse("torus:rows=4,cols=4", 16))
    lengths = sorted(abs(a - c) + abs(b - d) for (a, b), (c, d) in drawn.first)
    inside, around = 2 * 4 * 3, 2 * 4
    assert len(lengths) == inside + 2 * around
    assert lengths[2 * around - 1] < lengths[2 * around] / 2


def test_one_node_alone_and_as_many_as_are_drawn_at_all() -> None:
    assert sketch(parse("complete", 1)).first == ()
    assert len(sketch(parse("exponential", SKETCH_NODES_MAX)).nodes) == SKETCH_NODES_MAX


def test_it_is_the_same_every_time() -> None:
    for spec in ("erdos-renyi", "scale-free", "epidemic"):
        assert sketch(parse(spec, 20, seed=3)).first == sketch(parse(spec, 20, seed=3)).first
