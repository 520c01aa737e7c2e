"""Thumbnails of graphs: every node, every link, and which of them are there at once."""

import pytest

from rumor.topology import FAMILIES, parse
from rumor.topology.layout import SKETCH_NODES_MAX, sketch

SPECS = {"spanning-tree": "spanning-tree:of=torus", "hosts": "hosts:sizes=4x4x8"}
FAMILY_SPECS = [SPECS.get(name, name) for name in FAMILIES if name != "file"]


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
