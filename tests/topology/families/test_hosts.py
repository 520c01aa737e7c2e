"""The hosts family: complete graphs inside hosts, few links between them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rumor.topology import over, parse
from rumor.topology.families.hosts import resize

from ..samples import ids

sizes = st.lists(st.integers(1, 6), min_size=1, max_size=6)


def spec_of(sizes: list[int], options: str = "") -> str:
    return f"hosts:sizes={'x'.join(map(str, sizes))}{options}"


@given(sizes, st.sampled_from(["", "ring", "path", "star", "complete"]))
def test_hosts_are_complete_inside_with_one_link_between_linked_hosts(
    sizes: list[int], between: str
) -> None:
    graph = parse(spec_of(sizes, between and f",between={between}")).graph()
    host = [host for host, size in enumerate(sizes) for _ in range(size)]
    inside = [(a, b) for a, b in graph.edges if host[a] == host[b]]
    assert len(inside) == sum(size * (size - 1) // 2 for size in sizes)
    linked = sorted(tuple(sorted((host[a], host[b]))) for a, b in graph.edges if host[a] != host[b])
    expected = parse(between or "ring", len(sizes)).graph()
    assert linked == sorted(tuple(sorted(edge)) for edge in expected.edges if edge[0] != edge[1])


def test_the_links_of_a_host_go_to_its_nodes_in_turn() -> None:
    graph = parse("hosts:sizes=3x1x1x1x1,between=star").graph()
    host_links = [sum(other > 2 for other in graph[node]) for node in range(3)]
    assert host_links == [2, 1, 1]


@given(sizes, st.integers(1, 60))
def test_hosts_keep_their_proportions_when_peers_join_and_leave(sizes: list[int], n: int) -> None:
    resized = resize(sizes, n)
    assert sum(resized) == n and min(resized) >= 1 and len(resized) <= len(sizes)
    if n >= sum(sizes):
        for size, before in zip(resized, sizes, strict=True):
            assert abs(size - before * n / sum(sizes)) < 1
    assert resize(sizes, sum(sizes)) == sizes


def test_sizes_beyond_numpy_integers_are_valid_proportions() -> None:
    assert resize([10**30, 3 * 10**30], 8) == [2, 6]
    assert over(f"hosts:sizes={10**30}x{10**30}", 0, ids(4)).n == 4


def test_one_more_peer_moves_each_host_border_by_at_most_one() -> None:
    for n in range(10, 40):
        ends = [np.cumsum(resize([4, 4, 8, 16], more)) for more in (n, n + 1)]
        assert all(0 <= after - before <= 1 for before, after in zip(*ends, strict=True))
