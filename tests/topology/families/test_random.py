"""Random graphs that change little when a peer joins or leaves."""

from collections.abc import Iterator
from itertools import pairwise
from math import log2

import networkx as nx
import numpy as np
import pytest

from rumor.topology import over, parse

from ..samples import dense, ids

LIVE = ids(40)

Links = set[frozenset[str]]


def links(spec: str, live: list[str]) -> Links:
    return {frozenset(live[node] for node in edge) for edge in over(spec, 1, live).graph().edges}


def leaves(spec: str) -> Iterator[tuple[int, Links, Links, set[str]]]:
    """Yield for each leaver: lost links of other peers, new links, and its former neighbors."""
    before = links(spec, LIVE)
    for index in range(0, len(LIVE), 3):
        gone = LIVE[index]
        after = links(spec, [*LIVE[:index], *LIVE[index + 1 :]])
        former = {other for link in before if gone in link for other in link} - {gone}
        yield index, {link for link in before - after if gone not in link}, after - before, former


@pytest.mark.parametrize("d", [2, 4, 6])
def test_each_cycle_of_a_regular_graph_closes_around_the_gap(d: int) -> None:
    for _, lost, new, former in leaves(f"random-regular:d={d}"):
        assert lost == set() and all(link <= former for link in new)
        # Fewer if a cycle closes over an existing link.
        assert len(new) <= d // 2 and (len(new) == 1 or d > 2)


@pytest.mark.parametrize("d", [3, 5])
def test_a_leaver_changes_few_pairs_of_an_odd_degree_matching(d: int) -> None:
    levels = log2(len(LIVE))
    for _, lost, new, _ in leaves(f"random-regular:d={d}"):
        assert len(lost) <= levels and len(new) <= d // 2 + levels + 1


@pytest.mark.parametrize("p", [0.01, 0.2, 0.5])
def test_a_leaver_changes_only_the_ring_of_an_erdos_renyi_graph(p: float) -> None:
    for index, lost, new, _ in leaves(f"erdos-renyi:p={p}"):
        assert lost == set()
        assert new <= {frozenset((LIVE[index - 1], LIVE[(index + 1) % len(LIVE)]))}


@pytest.mark.parametrize(("k", "p"), [(4, 0.0), (6, 0.0), (6, 0.3), (8, 1.0)])
def test_a_small_world_moves_only_links_near_the_gap(k: int, p: float) -> None:
    hops = k // 2
    for index, lost, new, former in leaves(f"small-world:k={k},p={p}"):
        around = {LIVE[(index + hop) % len(LIVE)] for hop in range(-hops, hops + 1)}
        assert all(link <= around for link in lost)
        assert all(link <= around or link & former for link in new)
        assert len(lost) <= sum(range(hops))
        assert len(new) <= sum(range(hops + 1)) + len(former)


@pytest.mark.parametrize("m", [1, 2, 4])
def test_only_neighbors_of_a_leaver_relink_in_a_scale_free_graph(m: int) -> None:
    for _, lost, new, former in leaves(f"scale-free:m={m}"):
        assert lost == set()
        assert all(link & former for link in new) and len(new) <= len(former)


@pytest.mark.parametrize("d", range(2, 9))
def test_a_live_regular_graph_has_nearly_its_degree(d: int) -> None:
    degrees = sorted(dict(over(f"random-regular:d={d}", 1, LIVE).graph().degree).values())
    assert degrees[-1] == d
    # Two cycles share about 2 links for any n; each costs two peers one link.
    assert sum(d - degree for degree in degrees) <= d * d


@pytest.mark.parametrize(("n", "d"), [(9, 2), (9, 4), (9, 6), (10, 7)])
def test_each_node_of_a_strict_regular_graph_has_its_degree(n: int, d: int) -> None:
    graph = parse(f"random-regular:d={d}", n).graph()
    assert {degree for _, degree in graph.degree} == {d} and nx.is_connected(graph)


def test_a_live_erdos_renyi_graph_has_the_number_of_links_given_by_p() -> None:
    live = ids(200)
    edges = over("erdos-renyi:p=0.3", 0, live).graph().number_of_edges()
    pairs = 200 * 199 / 2
    assert abs(edges - 0.3 * pairs - 0.7 * 200) < 5 * (0.21 * pairs) ** 0.5


def test_a_live_small_world_without_rewiring_equals_the_strict_one() -> None:
    live, strict = over("small-world:k=6,p=0", 0, LIVE), parse("small-world:k=6,p=0", 40)
    assert np.array_equal(dense(live), dense(strict))


def test_rewiring_a_small_world_shortens_paths() -> None:
    live = ids(200)
    lattice, rewired = (over(f"small-world:k=4,p={p}", 0, live).graph() for p in (0, 0.5))
    assert nx.diameter(lattice) == 50 and nx.diameter(rewired) < 15


def test_a_live_scale_free_graph_has_hubs_and_m_links_for_each_newcomer() -> None:
    live = ids(400)
    graph = over("scale-free:m=2", 0, live).graph()
    degrees = sorted((degree for _, degree in graph.degree), reverse=True)
    # Coinciding links count once.
    assert 0.9 * 2 * 400 < graph.number_of_edges() < 2 * 400
    # Degrees fall like 1 / sqrt(rank): about m sqrt(n) for the first peer, m for the last.
    assert degrees[0] > 10 * degrees[200]


def test_each_join_removes_at_most_two_links_of_other_peers() -> None:
    views = [links("random-regular:d=4", LIVE[:n]) for n in range(20, 41)]
    assert all(len(before - after) <= 2 for before, after in pairwise(views))
