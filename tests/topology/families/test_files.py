"""Graphs from files: formats, errors, and live peers."""

import json
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from rumor.topology import Topology, TopologyError, over, parse
from rumor.topology.families.files import forget_files
from rumor.topology.live import LiveTopology

from ..samples import BRIDGE, STREETS, dense, is_connected

# A star around cyd, and a link between two of its leaves.
STAR = nx.Graph([("cyd", "ada"), ("cyd", "bob"), ("cyd", "dan"), ("ada", "bob")])


def write_json(graph: nx.Graph, path: Path, edges: str = "edges") -> None:
    path.write_text(json.dumps(nx.node_link_data(graph, edges=edges)))


WRITERS: dict[str, Callable[[nx.Graph, Path], object]] = {
    "graph.graphml": nx.write_graphml,
    "graph.gexf": nx.write_gexf,
    "graph.json": write_json,
    "old.json": lambda graph, path: write_json(graph, path, "links"),
    "GRAPH.JSON": write_json,
    "graph.edgelist": nx.write_edgelist,
}


def named_edges(topology: Topology) -> set[frozenset[str]]:
    names = topology.names
    return {frozenset((names[a], names[b])) for a, b in topology.graph().edges}


@pytest.mark.parametrize("name", WRITERS)
def test_a_graph_is_the_same_in_every_format(name: str, tmp_path: Path) -> None:
    WRITERS[name](STAR, tmp_path / name)
    topology = parse(f"file:path={tmp_path / name}")
    assert topology.names == ("ada", "bob", "cyd", "dan")
    assert named_edges(topology) == {frozenset(edge) for edge in STAR.edges}
    assert (topology.n, topology.period, topology.directed) == (4, 1, False)
    # Metropolis: ada has 2 neighbors, cyd 3.
    assert dense(topology)[0].tolist() == pytest.approx([5 / 12, 1 / 3, 1 / 4, 0])


@pytest.mark.parametrize("name", ["graph.graphml", "graph.gexf", "graph.json"])
def test_nodes_with_directed_edges_split_their_value_evenly(name: str, tmp_path: Path) -> None:
    streets = nx.DiGraph([("ada", "bob"), ("bob", "cyd"), ("cyd", "ada"), ("ada", "cyd")])
    WRITERS[name](streets, tmp_path / name)
    topology = parse(f"file:path={tmp_path / name}", 3)
    assert topology.directed and topology.neighbors(0) == (1, 2)
    assert dense(topology)[:, 0].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert dense(topology)[:, 1].tolist() == pytest.approx([0, 1 / 2, 1 / 2])


def test_nodes_of_the_graph_have_the_names_of_the_file() -> None:
    graph = parse(BRIDGE).graph()
    assert [graph.nodes[node]["name"] for node in graph] == "ada bob cyd dan eve fay gus".split()
    assert "name" not in parse("ring", 3).graph().nodes[0]


@pytest.mark.parametrize("text", ["a a\na b\n", "a b 2.5\n", "a b {'x': 1}\nb a # again\n"])
def test_loops_weights_and_repeated_edges_are_ignored(text: str, tmp_path: Path) -> None:
    path = tmp_path / "loop.edgelist"
    path.write_text(text)
    assert dense(parse(f"file:path={path}")).tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_names_may_use_any_alphabet_and_a_graph_may_have_one_node(tmp_path: Path) -> None:
    path = tmp_path / "names.edgelist"
    path.write_bytes("ärger 10\n10 9\n".encode())
    assert parse(f"file:path={path}").names == ("10", "9", "ärger")
    write_json(nx.empty_graph(1), tmp_path / "one.json")
    topology = parse(f"file:path={tmp_path / 'one.json'}")
    assert dense(topology).tolist() == [[1.0]] and topology.names == ("0",)


TEXTS = {
    "graph.dot": ("a b", "it must end in .graphml, .gexf, .json, .edgelist"),
    "empty.edgelist": ("# nothing\n", "it has no nodes"),
    "list.json": ("[1, 2", "not a graph in this format (JSONDecodeError("),
    "other.json": ('{"edges": []}', "not a graph in this format (KeyError('nodes'))"),
    "tree.graphml": ("<graphml", "not a graph in this format ("),
    "parts.edgelist": (
        "a b\nb c\nc d\nx y\n",
        "it is not connected, it falls into 2 parts, one of them x, y",
    ),
    "big parts.edgelist": (
        "a b\nb c\nc d\nd e\ne f\nv w\nw x\nx y\ny z\n",
        "it is not connected, it falls into 2 parts, one of them v, w, x, ...",
    ),
    "dead end.json": (
        '{"directed": true, "nodes": [{"id": "a"}, {"id": "b"}, {"id": "c"}], "edges": ['
        '{"source": "a", "target": "b"}, {"source": "b", "target": "a"}, '
        '{"source": "b", "target": "c"}]}',
        "not every node can reach every other, it falls into 2 parts, one of them c",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_errors_in_a_file_are_described(name: str, tmp_path: Path) -> None:
    text, reason = TEXTS[name]
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(TopologyError) as caught:
        parse(f"file:path={path}")
    assert str(caught.value).startswith(f"topology 'file:path={path}': path={path}: {reason}")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "graph.edgelist"
    folder.mkdir()
    with pytest.raises(TopologyError, match=r"path=.*: Is a directory$"):
        parse(f"file:path={folder}")


def pairs(*words: str) -> set[frozenset[str]]:
    return {frozenset(word.split("-")) for word in words}


@pytest.mark.parametrize(
    ("live", "new"),
    [
        # A peer on no path between others removes only its own links.
        ("ada bob cyd dan eve fay", ()),
        # Without dan: ada, bob, cyd on one side, eve, fay, gus on the other.
        ("ada bob cyd eve fay gus", ("ada-eve",)),
        # Three parts are joined in a ring.
        ("ada bob eve gus", ("ada-eve", "eve-gus", "gus-ada")),
        ("p q r s", ("p-q", "q-r", "r-s", "s-p")),
        # Peers that are not in the file join the ring of parts.
        ("ada bill bob cyd dan eve fay gus zoe", ("ada-bill", "bill-zoe", "zoe-ada")),
    ],
)
def test_disconnected_parts_are_joined_through_their_first_peers(
    live: str, new: tuple[str, ...]
) -> None:
    peers = live.split()
    known = {edge for edge in named_edges(parse(BRIDGE)) if edge <= {*peers}}
    assert named_edges(over(BRIDGE, 0, peers)) == known | pairs(*new)


def test_a_dead_end_of_directed_edges_is_connected() -> None:
    # Without cyd, dan cannot be reached and bob leads nowhere.
    live = over(STREETS, 0, ["ada", "bob", "dan"])
    assert live.directed and is_connected(live)
    pushes = {(live.names[a], live.names[b]) for a, b in live.graph().edges}
    assert {("ada", "bob"), ("dan", "ada")} < pushes
    assert np.allclose(dense(live).sum(axis=0), 1)


def test_a_spanning_tree_of_a_file_has_the_names_of_the_file() -> None:
    spec = f"spanning-tree:of={BRIDGE}"
    strict = parse(spec, 7)
    assert strict.names == parse(BRIDGE).names
    assert nx.is_tree(over(spec, 0, strict.names[1:]).graph())


def test_a_file_is_cached_for_all_views_until_it_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "graph.edgelist"
    path.write_text("a b\nb c\n")
    view = LiveTopology(f"file:path={path}", 0)
    assert view(["a", "b", "c"], "b", 0) == ("a", "c")
    path.unlink()
    assert view(["a", "c"], "a", 0) == ("c",)
    path.write_text("a c\nb c\n")
    assert LiveTopology(f"file:path={path}", 0)(["a", "b", "c"], "a", 0) == ("b",)
    forget_files()
    assert LiveTopology(f"file:path={path}", 0)(["a", "b", "c"], "a", 0) == ("c",)
