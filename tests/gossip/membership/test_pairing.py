"""Two peers that only dial out never connect: a third peer relays, and all three know this."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rumor.gossip.membership.dialing import pair
from rumor.gossip.protocol.context import RuleContext
from rumor.gossip.wire.messages import Phase

from ..scene import Scene

Graph = Mapping[str, Sequence[str]]


@st.composite
def swarms(draw: st.DrawFn) -> tuple[Graph, set[str]]:
    """A connected graph, and the members that only dial out."""
    n = draw(st.integers(2, 14))
    edges = {(draw(st.integers(0, node - 1)), node) for node in range(1, n)}
    ends = st.integers(0, n - 1)
    edges |= {edge for edge in draw(st.lists(st.tuples(ends, ends), max_size=20))}
    graph: dict[str, list[str]] = {f"p{node:02}": [] for node in range(n)}
    for one, other in sorted({(min(edge), max(edge)) for edge in edges if edge[0] != edge[1]}):
        graph[f"p{one:02}"].append(f"p{other:02}")
        graph[f"p{other:02}"].append(f"p{one:02}")
    return graph, draw(st.sets(st.sampled_from(sorted(graph))))


def paired(graph: Graph, outward: set[str]) -> dict[str, tuple[str, ...]]:
    members = sorted(graph)
    return {peer: pair(graph.__getitem__, peer, members, outward) for peer in members}


@given(swarms())
def test_pairs_are_mutual_and_never_join_two_peers_that_only_dial_out(
    swarm: tuple[Graph, set[str]],
) -> None:
    graph, outward = swarm
    found = paired(graph, outward)
    for peer, others in found.items():
        assert peer not in others and len(set(others)) == len(others)
        assert all(peer in found[other] for other in others)
        assert len(outward) < 2 or peer not in outward or not outward & set(others)
        assert others or len(outward) == len(graph), "no peer is left alone"
        direct = [other for other in graph[peer] if not {peer, other} <= outward]
        assert set(direct) <= set(others) or len(outward) == len(graph)
        assert peer in outward or list(others[: len(direct)]) == direct


def test_a_one_way_link_is_replaced_by_a_mutual_relay() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["a"]}
    found = {peer: pair(graph.__getitem__, peer, "abc", {"a", "b"}) for peer in "abc"}
    assert found == {"a": ("c",), "b": ("c",), "c": ("a", "b")}
    graph = {"a": ["b"], "b": ["a"]}
    assert pair(graph.__getitem__, "a", "ab", {"a", "b"}) == (), (
        "no relay where no peer can be dialled"
    )


@pytest.mark.parametrize("count", [2, 7, 8, 30, 31, 32])
def test_links_are_spread_over_the_peers_that_can_be_dialled(count: int) -> None:
    """Otherwise a single relay would carry the shares of all peers."""
    members = [f"p{index:03}" for index in range(3 * count)]
    outward = set(members[: 2 * count])
    ring = {m: [members[n - 1], members[(n + 1) % len(members)]] for n, m in enumerate(members)}
    # There are twice as many links as relays, less one: each relay serves at most two links,
    # with two ends each, next to its own two neighbors.
    served = paired(ring, outward)
    assert max(len(served[relay]) for relay in members[2 * count :]) <= 6


def test_three_peers_that_only_dial_out_and_one_that_listens_form_a_swarm() -> None:
    scene = Scene().founded(*"abcz", outward="abc")
    for peer in scene.peers.values():
        assert peer.phase is Phase.TRAINING
        assert [member.id for member in peer.table.live()] == ["a", "b", "c", "z"]
    seen: dict[str, tuple[str, ...]] = {}

    def look(context: RuleContext) -> None:
        seen[context.me] = context.neighbors()
        if context.me != "z":
            assert context.table.outward == {"a", "b", "c"}
            assert not context.can_push("a") and context.can_push("z")

    for id in ("b", "c", "z"):
        scene.act(id, look)
    assert seen == {"b": ("z",), "c": ("z",), "z": ("a", "b", "c")}
    for _ in range(40):
        scene.wait(1.0)
        for id in scene.peers:
            scene.wake(id)
        letters = [(letter.source, letter.destination) for letter in scene.mail]
        assert letters and all("z" in ends for ends in letters), (
            "two peers that only dial out never connect"
        )
        scene.deliver()
    assert all(len(peer.table.live()) == 4 for peer in scene.peers.values())
