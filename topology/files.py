"""Graphs from files: node names are peer names."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import networkx as nx
import numpy as np
from scipy.sparse import csr_array, diags_array

from .edge_lists import read_csv, read_edge_list
from .errors import TopologyError
from .mixing import edges, metropolis, uniform
from .schedule import Fixed

__all__ = ["WEIGHTS", "GraphFile", "read_graph"]

WEIGHTS = ("none", "mixing", "bandwidth")
"""What an edge's ``weight`` can mean."""

WEIGHT_MIN, WEIGHT_MAX = 1e-9, 1e15
"""Between them, times and sums of weights stay finite."""

_EDGE_LISTS = (".edgelist", ".edges", ".txt")


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphFile:
    """A graph as it was read: nodes in the order of their names."""

    names: tuple[str, ...]
    """Ascending, as live peers are sorted."""

    schedule: Fixed
    """With the mixing weights of the file, or those of its degrees."""

    bandwidth: csr_array | None
    """Mbit/s of each edge, float64 ``(n, n)``, row j: of j's pushes; None where not told."""


def read_graph(path: str | Path, weights: str = "none") -> GraphFile:
    """Read GraphML, GEXF, an edge list, CSV or networkx's node-link JSON.

    Names are the ids of nodes, not their labels. Edge lists and CSV are undirected: a line stands
    for both ways. Self loops are left out: what a node keeps follows from what it gives.

    Args:
        path: ``.graphml``, ``.gexf``, ``.json``; ``.edgelist``, ``.edges``, ``.txt`` with lines
            ``a b``, ``a b weight`` or ``a b {'weight': 2.0}``; ``.csv`` with lines ``a,b`` or
            ``a,b,weight``, and perhaps a header ``source,target`` or ``from,to``.
        weights: What the attribute ``weight`` of an edge a -> b means: ``none`` (not used),
            ``mixing`` (what b takes of a, where what a does not push it keeps), ``bandwidth``
            (Mbit/s). From 1e-9 to 1e15.

    Raises:
        TopologyError: The file cannot be read, is no such graph, falls into parts, or weights are
            missing or not valid.
    """
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
    links = edges(n, pairs[:, 0], pairs[:, 1])
    bandwidth = None
    if weights == "bandwidth":
        bandwidth = csr_array((values, (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    if weights == "mixing":
        mixing = _mixing(csr_array((values, (pairs[:, 1], pairs[:, 0])), shape=(n, n)), names, path)
    else:
        mixing = uniform(links) if directed else metropolis(links)
    return GraphFile(
        names=names, schedule=Fixed(rounds=(mixing,), directed=directed), bandwidth=bandwidth
    )


def _read(path: Path) -> nx.Graph:
    readers: Mapping[str, Callable[[Path], nx.Graph]] = MappingProxyType(
        {".graphml": nx.read_graphml, ".gexf": nx.read_gexf, ".json": _read_json}
        | dict.fromkeys(_EDGE_LISTS, read_edge_list)
        | {".csv": read_csv}
    )
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise TopologyError(f"path={path}: it must end in {', '.join(readers)}")
    try:
        return reader(path)
    except OSError as error:
        raise TopologyError(f"path={path}: {error.strerror or error}") from error
    # Each parser has errors of its own, and a file can be wrong in any way.
    except Exception as error:
        raise TopologyError(f"path={path}: not a graph in this format ({error})") from error


def _read_json(path: Path) -> nx.Graph:
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
    given = taken.sum(axis=0)
    worst = int(given.argmax())
    # Three weights of 1/3, written with 6 digits, are meant to sum to 1.
    if given[worst] > 1 + 1e-5:
        raise TopologyError(
            f"path={path}: mixing weights of {names[worst]}'s edges sum to "
            f"{given[worst]:g}: at most 1, the rest is what it keeps"
        )
    # All alike, so that what is symmetric stays so.
    taken = taken / max(1.0, given[worst])
    return (taken + diags_array(np.maximum(1.0 - taken.sum(axis=0), 0.0))).tocsr()
