"""Graphs from files: every format, what is wrong with a file, and files on a live view."""

import json
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from rumor.topology import Topology, TopologyError, over, parse
from rumor.topology.families.files import forget_files
from rumor.topology.live import LiveTopology

from ..samples import BRIDGE, STREETS, WIRES, dense, is_connected

# A star around cyd, and a link between two of its ends.
STAR = nx.Graph([("cyd", "ada"), ("cyd", "bob"), ("cyd", "dan"), ("ada", "bob")])


def write_json(graph: nx.Graph, path: Path, edges: str = "edges") -> None:
    path.write_text(json.dumps(nx.node_link_data(graph, edges=edges)))


def write_lines(graph: nx.Graph, path: Path) -> None:
    between = ", " if path.suffix == ".csv" else "  "
    path.write_text("# a graph\n\n" + "".join(f"{a}{between}{b}\n" for a, b in graph.edges))


WRITERS: dict[str, Callable[[nx.Graph, Path], object]] = {
    "graph.graphml": nx.write_graphml,
    "graph.gexf": nx.write_gexf,
    "graph.json": write_json,
    "old.json": lambda graph, path: write_json(graph, path, "links"),
    "GRAPH.JSON": write_json,
    **dict.fromkeys(("graph.edgelist", "graph.edges", "graph.txt", "graph.csv"), write_lines),
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
def test_one_way_streets_split_what_goes_out_evenly(name: str, tmp_path: Path) -> None:
    streets = nx.DiGraph([("ada", "bob"), ("bob", "cyd"), ("cyd", "ada"), ("ada", "cyd")])
    WRITERS[name](streets, tmp_path / name)
    topology = parse(f"file:path={tmp_path / name}", 3)
    assert topology.directed and topology.neighbors(0) == (1, 2)
    assert dense(topology)[:, 0].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert dense(topology)[:, 1].tolist() == pytest.approx([0, 1 / 2, 1 / 2])


def test_nodes_carry_their_names_into_the_graph() -> None:
    graph = parse(BRIDGE).graph()
    assert [graph.nodes[node]["name"] for node in graph] == "ada bob cyd dan eve fay gus".split()
    assert "name" not in parse("ring", 3).graph().nodes[0]


def test_weights_can_be_what_the_receiver_takes() -> None:
    topology = parse(f"{STREETS},weights=mixing")
    assert topology.names == ("ada", "bob", "cyd", "dan")
    expected = [[0.5, 0, 0, 0.75], [0.25, 0.5, 0, 0], [0.25, 0.5, 0.5, 0], [0, 0, 0.5, 0.25]]
    assert np.allclose(dense(topology), expected, rtol=0, atol=1e-15)


def test_weights_can_be_bandwidth_of_each_link_both_ways() -> None:
    topology = parse(f"{WIRES},weights=bandwidth")
    assert topology.bandwidth is not None
    assert topology.graph()[1][2]["bandwidth"] == 40 and topology.graph()[3][0]["bandwidth"] == 1000
    assert (topology.bandwidth.toarray() == topology.bandwidth.toarray().T).all()
    assert np.array_equal(dense(topology), dense(parse(WIRES)))


def test_weights_are_not_looked_at_unless_told() -> None:
    assert parse(WIRES).bandwidth is None
    assert "bandwidth" not in parse(WIRES).graph()[0][1]


@pytest.mark.parametrize("third", ["0.333333", "0.333334", "0.33333333"])
def test_thirds_with_a_few_digits_are_meant_to_sum_to_one(third: str, tmp_path: Path) -> None:
    path = tmp_path / "thirds.txt"
    path.write_text("".join(f"{a} {b} {third}\n" for a, b in nx.complete_graph(4).edges))
    matrix = dense(parse(f"file:path={path},weights=mixing"))
    assert matrix.min() >= 0 and np.array_equal(matrix, matrix.T)
    assert np.allclose(matrix.sum(axis=0), 1, rtol=0, atol=1e-12)


def test_loops_mean_nothing(tmp_path: Path) -> None:
    path = tmp_path / "loop.txt"
    path.write_text("a a\na b\n")
    assert dense(parse(f"file:path={path}")).tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_names_are_text_in_any_alphabet(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes("ärger 10\n10 9\n".encode())
    assert parse(f"file:path={path}").names == ("10", "9", "ärger")


def test_a_file_may_hold_a_single_node(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write_json(nx.empty_graph(1), path)
    for weights in ("none", "mixing", "bandwidth"):
        topology = parse(f"file:path={path},weights={weights}")
        assert dense(topology).tolist() == [[1.0]] and topology.names == ("0",)


@pytest.mark.parametrize("header", ["", "source,target,weight\n", "From,To\n", "# all\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_csv_is_read_as_spreadsheets_write_it(header: str, mark: str, tmp_path: Path) -> None:
    path = tmp_path / "sheet.csv"
    text = f'{header}"rack 1, left","b#1",10,,\n"say ""#2""", "rack 1, left",2.5 # slow\n,,\n'
    path.write_text(mark + text, encoding="utf-8")
    topology = parse(f"file:path={path},weights=bandwidth")
    assert topology.names == ("b#1", "rack 1, left", 'say "#2"')
    assert topology.bandwidth is not None
    assert (topology.bandwidth[0, 1], topology.bandwidth[1, 2]) == (10, 2.5)


def test_a_header_is_one_only_as_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    path.write_text("a,source\nsource,target\n")
    assert parse(f"file:path={path}").names == ("a", "source", "target")


def test_edge_lists_are_read_as_networkx_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "written.edgelist"
    graph = nx.Graph()
    graph.add_edge("a", "b", weight=2.0)
    graph.edges["a", "b"]["self"] = "#1"
    graph.add_edge("b", "c", weight=4)
    nx.write_edgelist(graph, path)
    path.write_text(path.read_text() + "c d {'weight': 8} # by hand\n#a b {\n")
    topology = parse(f"file:path={path},weights=bandwidth")
    assert topology.names == ("a", "b", "c", "d") and topology.bandwidth is not None
    assert [topology.bandwidth[i, i + 1] for i in range(3)] == [2, 4, 8]


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "5", '{"nodes": []}', '{"edges": []}', '{"nodes": [1, 2], "links": []}'],
)
def test_json_that_is_no_graph_is_told_what_it_needs(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(TopologyError, match=r"node-link JSON needs 'nodes' and 'edges' \(or 'lin"):
        parse(f"file:path={path}")


TEXTS = {
    "graph.dot": ("a b", "it must end in .graphml, .gexf, .json, .edgelist, .edges, .txt, .csv"),
    "empty.txt": ("# nothing\n", "it has no nodes"),
    "word.txt": (
        "a b\nb\n",
        "not a graph in this format (line 2 is not 'a b' or 'a b weight')",
    ),
    "words.csv": (
        "a b\n",
        "not a graph in this format (line 1 is not 'a,b' or 'a,b,weight')",
    ),
    "commas.txt": (
        "a, b\n",
        "not a graph in this format (line 1 is not 'a b' or 'a b weight': with commas between, "
        "it is a .csv)",
    ),
    "close commas.txt": (
        "a b\nb,c\n",
        "not a graph in this format (line 2 is not 'a b' or 'a b weight': with commas between, "
        "it is a .csv)",
    ),
    "semicolons.csv": (
        "a;b;0,5\n",
        "not a graph in this format (line 1: commas are expected between fields, not ;)",
    ),
    "quote.csv": ('a,"b\n', "not a graph in this format (unexpected end of data)"),
    "empty name.csv": ("a,b\n,b\n", "not a graph in this format (line 2 has an empty name)"),
    "empty name.json": (
        '{"nodes": [{"id": ""}, {"id": "b"}], "edges": [{"source": "", "target": "b"}]}',
        "a node has an empty name",
    ),
    "again.txt": ("a b\na b\n", "not a graph in this format (line 2 links a and b again)"),
    "twice.txt": (
        "a b\nb a\n",
        "not a graph in this format (line 2 links b and a again, the other way round: edge lists "
        "are undirected, one line stands for both ways)",
    ),
    "braces.txt": (
        "a b {1, 2}\n",
        "not a graph in this format (line 1: {1, 2} does not say what the link has)",
    ),
    "open brace.txt": (
        "a b {'weight': 1\n",
        "not a graph in this format (line 1: {'weight': 1 does not say what the link has)",
    ),
    "list.json": ("[1, 2", "not a graph in this format (Expecting ',' delimiter: line 1 column 6"),
    "tree.graphml": ("<graphml", "not a graph in this format ("),
    "twins.json": (
        '{"directed": false, "nodes": [{"id": 1}, {"id": "1"}], '
        '"edges": [{"source": 1, "target": "1"}]}',
        "two nodes have one name",
    ),
    "multi.json": (
        '{"directed": false, "multigraph": true, "nodes": [{"id": "a"}, {"id": "b"}], '
        '"edges": [{"source": "a", "target": "b"}, {"source": "b", "target": "a"}]}',
        "a and b are linked twice",
    ),
    "parts.txt": (
        "a b\nb c\nc d\nx y\n",
        "it is not connected, it falls into 2 parts, one of them x, y",
    ),
    "big parts.txt": (
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
def test_what_is_wrong_with_a_file_is_said(name: str, tmp_path: Path) -> None:
    text, reason = TEXTS[name]
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(TopologyError) as caught:
        parse(f"file:path={path}")
    assert str(caught.value).startswith(f"topology 'file:path={path}': path={path}: {reason}")


WEIGHTS = {
    "a b 0.5\nb c\n": "the edge of b and c has no weight",
    "a b half\n": "the edge of a and b has weight 'half', no number",
    "a b 0\n": "the edge of a and b has weight 0: it must be from 1e-09 to 1e+15",
    "a b -1\n": "the edge of a and b has weight -1: it must be from 1e-09 to 1e+15",
    "a b 1e-10\n": "the edge of a and b has weight 1e-10: it must be from 1e-09 to 1e+15",
    "a b 1e16\n": "the edge of a and b has weight 1e+16: it must be from 1e-09 to 1e+15",
    "a b inf\n": "the edge of a and b has weight inf: it must be from 1e-09 to 1e+15",
    "a b nan\n": "the edge of a and b has weight nan: it must be from 1e-09 to 1e+15",
}


@pytest.mark.parametrize("text", WEIGHTS)
@pytest.mark.parametrize("weights", ["mixing", "bandwidth"])
def test_a_weight_that_is_none_is_refused(text: str, weights: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.txt"
    path.write_text(text)
    with pytest.raises(TopologyError) as caught:
        parse(f"file:path={path},weights={weights}")
    assert str(caught.value).endswith(f"path={path}: {WEIGHTS[text]}")


@pytest.mark.parametrize("weight", [None, 10**400])
def test_a_weight_of_nothing_or_beyond_all_floats_is_no_number(
    weight: object, tmp_path: Path
) -> None:
    path = tmp_path / "null.json"
    graph = nx.Graph()
    graph.add_edge("a", "b", weight=weight)
    write_json(graph, path)
    with pytest.raises(TopologyError, match=r"the edge of a and b has weight .*, no number"):
        parse(f"file:path={path},weights=bandwidth")


def test_a_node_cannot_give_more_than_it_has(tmp_path: Path) -> None:
    path = tmp_path / "more.txt"
    path.write_text("a b 0.6\nb c 0.6\n")
    with pytest.raises(TopologyError) as caught:
        parse(f"file:path={path},weights=mixing")
    assert str(caught.value).endswith(
        "mixing weights of b's edges sum to 1.2: at most 1, the rest is what it keeps"
    )


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "graph.txt"
    folder.mkdir()
    with pytest.raises(TopologyError, match=r"path=.*: Is a directory$"):
        parse(f"file:path={folder}")


# On a live view.

ALL = "ada bob cyd dan eve fay gus".split()


def test_when_all_of_a_file_s_peers_live_it_is_the_file() -> None:
    for spec in (BRIDGE, f"{STREETS},weights=mixing", f"{WIRES},weights=bandwidth"):
        strict = parse(spec)
        live = over(spec, 0, strict.names)
        assert np.array_equal(dense(live), dense(strict)) and live.names == strict.names
        assert (live.bandwidth is None) == (strict.bandwidth is None)


def test_a_peer_that_nobody_needs_takes_only_its_links_along() -> None:
    left = named_edges(over(BRIDGE, 0, ALL[:-1]))
    assert left == {edge for edge in named_edges(parse(BRIDGE)) if "gus" not in edge}


def test_parts_that_fall_away_are_joined_through_their_first_peers() -> None:
    # Without dan: ada, bob, cyd on one side, eve, fay, gus on the other.
    live = [peer for peer in ALL if peer != "dan"]
    before = {edge for edge in named_edges(parse(BRIDGE)) if "dan" not in edge}
    assert named_edges(over(BRIDGE, 0, live)) == before | {frozenset(("ada", "eve"))}


def test_three_parts_are_joined_in_a_ring() -> None:
    live = ["ada", "bob", "eve", "gus"]
    links = named_edges(over(BRIDGE, 0, live))
    assert links == {
        frozenset(pair) for pair in [("ada", "bob"), ("ada", "eve"), ("eve", "gus"), ("gus", "ada")]
    }


def test_peers_that_a_file_does_not_know_join_the_ring_of_parts() -> None:
    live = sorted([*ALL, "bill", "zoe"])
    known = named_edges(parse(BRIDGE))
    new = {frozenset(pair) for pair in [("ada", "bill"), ("bill", "zoe"), ("zoe", "ada")]}
    assert named_edges(over(BRIDGE, 0, live)) == known | new


def test_strangers_alone_make_a_ring() -> None:
    live = over(BRIDGE, 0, ["p", "q", "r", "s"])
    assert np.array_equal(dense(live), dense(parse("ring", 4)))


def test_a_dead_end_of_one_way_streets_is_opened() -> None:
    # Without cyd, dan cannot be reached and bob leads nowhere.
    live = over(STREETS, 0, ["ada", "bob", "dan"])
    assert live.directed and is_connected(live)
    pushes = {(live.names[a], live.names[b]) for a, b in live.graph().edges}
    assert {("ada", "bob"), ("dan", "ada")} < pushes
    assert np.allclose(dense(live).sum(axis=0), 1)


def test_a_tree_inside_a_file_has_the_file_s_names() -> None:
    spec = f"spanning-tree:of={BRIDGE}"
    assert parse(spec, 7).names == tuple(ALL)
    assert nx.is_tree(over(spec, 0, ALL[1:]).graph())


def test_a_file_is_read_once_for_all_views(tmp_path: Path) -> None:
    path = tmp_path / "graph.txt"
    path.write_text("a b\nb c\n")
    view = LiveTopology(f"file:path={path}", 0)
    assert view(["a", "b", "c"], "b", 0) == ("a", "c")
    path.unlink()
    assert view(["a", "c"], "a", 0) == ("c",)


def test_a_file_that_was_forgotten_is_read_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "graph.txt"
    path.write_text("a b\nb c\n")
    assert LiveTopology(f"file:path={path}", 0)(["a", "b", "c"], "a", 0) == ("b",)
    path.write_text("a c\nb c\n")
    forget_files()
    assert LiveTopology(f"file:path={path}", 0)(["a", "b", "c"], "a", 0) == ("c",)
