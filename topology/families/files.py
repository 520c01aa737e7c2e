"""Graphs read from files: GraphML, GEXF, node-link JSON, edge lists. Node names are peer names."""

from __future__ import annotations

import csv
import io
import json
import re
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...gossip.specs.parameter import Parameter
from ..errors import TopologyError
from ..schedules.mixing import edges, metropolis, uniform
from ..schedules.schedule import Fixed
from .family import Built, Family, Site, Values

if TYPE_CHECKING:
    import networkx as nx
    from scipy.sparse import csr_array

__all__ = ["FAMILIES", "WEIGHTS", "GraphFile", "forget_files", "read_graph"]

WEIGHTS = ("none", "mixing", "bandwidth")
"""What an edge's ``weight`` can mean."""

WEIGHT_MIN, WEIGHT_MAX = 1e-9, 1e15
"""Between them, times and sums of weights stay finite."""

_HEADERS = (("source", "target"), ("from", "to"))

# Quoted text, or a comment outside of it.
_QUOTED_OR_COMMENT = re.compile(r'("[^"]*")|#.*')

Data = Mapping[str, object]


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphFile:
    """A graph from a file, its nodes in the order of their names."""

    names: tuple[str, ...]
    """Ascending, like those of live peers."""

    schedule: Fixed
    """With the mixing weights of the file, or others that follow from degrees."""

    bandwidth: csr_array | None
    """Mbit/s of each edge, float64 ``(n, n)``, row j: of j's pushes; None where unknown."""


def read_graph(path: str | Path, weights: str = "none") -> GraphFile:
    """Read GraphML, GEXF, an edge list, CSV or networkx's node-link JSON.

    Names are the ids of nodes, not their labels. Edge lists and CSV are undirected: a line stands
    for both directions. Self-loops are dropped: what a node keeps follows from what it gives.

    Args:
        path: ``.graphml``, ``.gexf``, ``.json``; ``.edgelist``, ``.edges``, ``.txt`` with lines
            ``a b``, ``a b weight`` or ``a b {'weight': 2.0}``; ``.csv`` with lines ``a,b`` or
            ``a,b,weight``, with or without a header ``source,target`` or ``from,to``. Text is
            UTF-8, and a ``#`` starts a comment.
        weights: What the attribute ``weight`` of an edge a -> b means: ``none`` (not used),
            ``mixing`` (what b takes from a; a keeps what it does not push), ``bandwidth``
            (Mbit/s). From 1e-9 to 1e15.

    Raises:
        TopologyError: The file cannot be read, is no such graph or not connected, or weights are
            missing or invalid.
    """
    import networkx as nx
    from scipy.sparse import csr_array

    graph = _simple(_read(Path(path)), path)
    names = tuple(sorted(map(str, graph)))
    if len(names) != len(set(names)):
        raise TopologyError(f"path={path}: two nodes have one name")
    if not all(name.strip() for name in names):
        raise TopologyError(f"path={path}: a node has an empty name")
    number = {name: index for index, name in enumerate(names)}
    graph = nx.relabel_nodes(graph, {node: number[str(node)] for node in graph})
    _check_connected(graph, names, path)
    n, directed = len(names), graph.is_directed()
    pairs = np.array(list(graph.edges), np.int64).reshape(-1, 2)
    values = np.empty(0) if weights == "none" else _weights(graph, names, path)
    if not directed:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
        values = np.concatenate([values, values])
    links = edges(n, *pairs.T)
    given = None if weights == "none" else csr_array((values, tuple(pairs.T)), shape=(n, n))
    if given is not None and weights == "mixing":
        schedule = Fixed(rounds=(_mixing(given.T.tocsr(), names, path),), directed=directed)
    else:
        schedule = _weighed(links, directed)
    bandwidth = given if weights == "bandwidth" else None
    return GraphFile(names=names, schedule=schedule, bandwidth=bandwidth)


def _weighed(links: csr_array, directed: bool) -> Fixed:
    """Weights that follow from degrees."""
    return Fixed(rounds=((uniform if directed else metropolis)(links),), directed=directed)


def _read(path: Path) -> nx.Graph:
    import networkx as nx

    readers: dict[str, Callable[[Path], nx.Graph]] = {
        ".graphml": nx.read_graphml,
        ".gexf": nx.read_gexf,
        ".json": _read_json,
        **dict.fromkeys((".edgelist", ".edges", ".txt"), _read_edge_list),
        ".csv": _read_csv,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise TopologyError(f"path={path}: it must end in {', '.join(readers)}")
    try:
        return reader(path)
    except OSError as error:
        raise TopologyError(f"path={path}: {error.strerror or error}") from error
    # Each parser has its own errors, and a file can be wrong in any way.
    except Exception as error:
        raise TopologyError(f"path={path}: not a graph in this format ({error})") from error


def _read_json(path: Path) -> nx.Graph:
    import networkx as nx

    data = json.loads(path.read_text(encoding="utf-8-sig"))
    # networkx wrote "links" before version 3.4 and writes "edges" since.
    key = "links" if isinstance(data, dict) and "links" in data else "edges"
    if not (_has_objects(data, "nodes") and _has_objects(data, key)):
        raise ValueError("node-link JSON needs 'nodes' and 'edges' (or 'links'), lists of objects")
    return nx.node_link_graph(data, edges=key)


def _has_objects(data: object, key: str) -> bool:
    value = data.get(key) if isinstance(data, dict) else None
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _simple(graph: nx.Graph, path: str | Path) -> nx.Graph:
    import networkx as nx

    if not len(graph):
        raise TopologyError(f"path={path}: it has no nodes")
    simple = nx.DiGraph() if graph.is_directed() else nx.Graph()
    simple.add_nodes_from(graph)
    for a, b, data in graph.edges(data=True):
        if simple.has_edge(a, b):
            raise TopologyError(f"path={path}: {a} and {b} are linked twice")
        if a != b:
            # Not as keywords: an attribute may be called anything.
            simple.add_edges_from([(a, b, data)])
    return simple


def _check_connected(graph: nx.Graph, names: tuple[str, ...], path: str | Path) -> None:
    import networkx as nx

    directed = graph.is_directed()
    find = nx.strongly_connected_components if directed else nx.connected_components
    parts = sorted((sorted(names[node] for node in part) for part in find(graph)), key=len)
    if len(parts) > 1:
        smallest = ", ".join(parts[0][:3]) + (", ..." if len(parts[0]) > 3 else "")
        reach = "not every node can reach every other" if directed else "it is not connected"
        raise TopologyError(
            f"path={path}: {reach}, it falls into {len(parts)} parts, one of them {smallest}"
        )


def _weights(graph: nx.Graph, names: tuple[str, ...], path: str | Path) -> np.ndarray:
    values = []
    for a, b, data in graph.edges(data=True):
        where = f"path={path}: the edge of {names[a]} and {names[b]}"
        try:
            value = float(data["weight"])
        except KeyError:
            raise TopologyError(f"{where} has no weight") from None
        except (TypeError, ValueError, OverflowError):
            raise TopologyError(f"{where} has weight {data['weight']!r}, no number") from None
        if not WEIGHT_MIN <= value <= WEIGHT_MAX:
            raise TopologyError(
                f"{where} has weight {value:g}: it must be from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}"
            )
        values.append(value)
    return np.array(values)


def _mixing(taken: csr_array, names: tuple[str, ...], path: str | Path) -> csr_array:
    from scipy.sparse import diags_array

    given = taken.sum(axis=0)
    worst = int(given.argmax())
    # Three weights of 1/3, written with 6 digits, are meant to sum to 1.
    if given[worst] > 1 + 1e-5:
        raise TopologyError(
            f"path={path}: mixing weights of {names[worst]}'s edges sum to "
            f"{given[worst]:g}: at most 1, the rest is what it keeps"
        )
    # All by the same factor, so that a symmetric matrix stays symmetric.
    taken = taken / max(1.0, given[worst])
    return (taken + diags_array(np.maximum(1.0 - taken.sum(axis=0), 0.0))).tocsr()


def _read_edge_list(path: Path) -> nx.Graph:
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return _graph((number, *_words(line, number)) for number, line in enumerate(lines, 1))


def _read_csv(path: Path) -> nx.Graph:
    text = path.read_text(encoding="utf-8-sig")
    text = _QUOTED_OR_COMMENT.sub(lambda found: found[1] or "", text)
    return _graph(_records(text))


def _words(line: str, number: int) -> tuple[list[str], Data]:
    """The names on a line, and the attributes of their edge."""
    words = line.split(maxsplit=2)
    if len(words) == 3 and words[2].startswith("{") and "#" not in words[0] + words[1]:
        return words[:2], _attributes(words[2], number)
    words = line.partition("#")[0].split()
    if len(words) in (0, 2, 3) and not any(_has_comma(word) for word in words[:2]):
        return words[:2], _weight(words)
    hint = ": with commas between, it is a .csv" if "," in line else ""
    raise ValueError(f"line {number} is not 'a b' or 'a b weight'{hint}")


def _has_comma(word: str) -> bool:
    return word.startswith(",") or word.endswith(",")


def _weight(words: list[str]) -> Data:
    return {"weight": words[2]} if len(words) == 3 else {}


def _attributes(text: str, number: int) -> Data:
    try:
        data = literal_eval(text)
    except (ValueError, SyntaxError):
        data = None
    if not isinstance(data, dict):
        raise ValueError(f"line {number}: {text} does not say what the link has")
    return {str(key): value for key, value in data.items()}


def _records(text: str) -> Iterator[tuple[int, list[str], Data]]:
    """Lines of CSV: number, names, attributes of their edge."""
    reader = csv.reader(io.StringIO(text), skipinitialspace=True, strict=True)
    is_first = True
    for fields in reader:
        words = [field.strip() for field in fields]
        # Spreadsheets give all lines as many fields as the longest one has.
        while words and not words[-1]:
            words.pop()
        if not words:
            continue
        if ";" in words[0]:
            raise ValueError(f"line {reader.line_num}: commas are expected between fields, not ;")
        if len(words) not in (2, 3):
            raise ValueError(f"line {reader.line_num} is not 'a,b' or 'a,b,weight'")
        if not (is_first and _is_header(words)):
            yield reader.line_num, words[:2], _weight(words)
        is_first = False


def _is_header(words: list[str]) -> bool:
    first, second, *rest = (word.lower() for word in words)
    return (first, second) in _HEADERS and rest in ([], ["weight"])


def _graph(lines: Iterator[tuple[int, list[str], Data]]) -> nx.Graph:
    import networkx as nx

    graph = nx.Graph()
    given = set()
    for number, names, data in lines:
        if not names:
            continue
        a, b = names
        if not a or not b:
            raise ValueError(f"line {number} has an empty name")
        if (a, b) in given:
            raise ValueError(f"line {number} links {a} and {b} again")
        if (b, a) in given:
            raise ValueError(
                f"line {number} links {a} and {b} again, the other way round: edge lists are "
                "undirected, one line stands for both ways"
            )
        given.add((a, b))
        graph.add_edge(a, b)
        # Not as keywords: an attribute may be called anything.
        graph.edges[a, b].update(data)
    return graph


def _read_for(values: Values) -> GraphFile:
    return read_graph(str(values["path"]), str(values["weights"]))


def _all_of(read: GraphFile) -> Built:
    return Built(schedule=read.schedule, names=read.names, bandwidth=read.bandwidth)


def _live_file(site: Site, values: Values) -> Built:
    """The part of a file's graph among the live peers, its components joined in a ring."""
    from scipy.sparse.csgraph import connected_components

    read = _read_once(str(values["path"]), str(values["weights"]))
    if tuple(site.names) == read.names:
        return _all_of(read)
    left = _left_over(read, site.names)
    _, part_of = connected_components(left, directed=read.schedule.directed, connection="strong")
    # The first peer of each component; scipy numbers components in no particular order.
    firsts = np.sort(np.unique(part_of, return_index=True)[1])
    if len(firsts) > 1:
        following = np.roll(firsts, -1)
        sources, targets = left.nonzero()
        sources = np.concatenate([sources, firsts, following])
        targets = np.concatenate([targets, following, firsts])
        left = edges(site.n, sources, targets)
    return Built(schedule=_weighed(left, read.schedule.directed))


def _left_over(read: GraphFile, names: Sequence[str]) -> csr_array:
    """The file's edges among *names*, row j: of j's pushes; other nodes have no edges."""
    number = {name: node for node, name in enumerate(names)}
    # -1 for peers that are gone.
    now = np.array([number.get(name, -1) for name in read.names], np.int64)
    receivers, senders = read.schedule.matrix(0).tocoo().coords
    sources, targets = now[senders], now[receivers]
    both = (sources >= 0) & (targets >= 0)
    return edges(len(names), sources[both], targets[both])


def forget_files() -> None:
    """Read graph files anew from here on: they may change while a process lives."""
    _read_once.cache_clear()


@lru_cache(maxsize=16)
def _read_once(path: str, weights: str) -> GraphFile:
    return read_graph(path, weights)


FAMILIES: Mapping[str, Family] = {
    "file": Family(
        summary="GraphML, GEXF, an edge list or node-link JSON; names are peers",
        source="networkx",
        build=lambda _, values: _all_of(_read_for(values)),
        layout="spring",
        parameters=(
            Parameter(name="path", kind=str, form="a graph file"),
            Parameter(name="weights", kind=str, choices=WEIGHTS, default="none"),
        ),
        size=lambda values: len(_read_for(values).names),
        live=_live_file,
        fallback="edges among those who live, weighed by degrees; parts that fall away, and "
        "peers that the file does not know, are joined in a ring through their first ids",
        files=lambda values: (str(values["path"]),),
        candidates=None,
    ),
}
