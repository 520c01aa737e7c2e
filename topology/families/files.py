"""Graphs read from files: GraphML, GEXF, node-link JSON, edge lists. Node names are peer names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from ...gossip.specs.parameter import Parameter
from ..errors import TopologyError
from ..schedules.mixing import edges, metropolis, uniform
from ..schedules.schedule import Fixed
from .family import Built, Family, Site, Values

if TYPE_CHECKING:
    import networkx as nx
    from scipy.sparse import csr_array

__all__ = ["FAMILIES", "forget_files", "read_graph"]


def read_graph(path: Path) -> Built:
    """Read a graph whose nodes are in the order of their names, weighted by degrees.

    Args:
        path: ``.graphml``, ``.gexf``, networkx's node-link ``.json``, or ``.edgelist`` with lines
            ``a b``, each of which stands for both directions.

    Raises:
        TopologyError: The file cannot be read, has no such graph, or the graph is not connected.
    """
    import networkx as nx

    graph = nx.relabel_nodes(_read(path), str)
    if not len(graph):
        raise TopologyError(f"path={path}: it has no nodes")
    names, directed = tuple(sorted(graph)), graph.is_directed()
    _check_connected(graph, path)
    number = {name: index for index, name in enumerate(names)}
    pairs = np.array([(number[a], number[b]) for a, b in graph.edges()], np.int64).reshape(-1, 2)
    if not directed:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
    # Names are ids, not labels; self-loops are dropped, and so are attributes.
    return Built(schedule=_weighed(edges(len(names), *pairs.T), directed), names=names)


def _weighed(links: csr_array, directed: bool) -> Fixed:
    return Fixed(rounds=((uniform if directed else metropolis)(links),), directed=directed)


def _read(path: Path) -> nx.Graph:
    import networkx as nx

    readers: dict[str, Callable[[Path], nx.Graph]] = {
        ".graphml": nx.read_graphml,
        ".gexf": nx.read_gexf,
        ".json": _read_json,
        ".edgelist": lambda path: nx.read_edgelist(path, data=False),
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
        raise TopologyError(f"path={path}: not a graph in this format ({error!r})") from error


def _read_json(path: Path) -> nx.Graph:
    import networkx as nx

    data = json.loads(path.read_text(encoding="utf-8"))
    # networkx wrote "links" before version 3.4 and writes "edges" since.
    return nx.node_link_graph(data, edges="links" if "links" in data else "edges")


def _check_connected(graph: nx.Graph, path: Path) -> None:
    import networkx as nx

    directed = graph.is_directed()
    find = nx.strongly_connected_components if directed else nx.connected_components
    parts = sorted(map(sorted, find(graph)), key=len)
    if len(parts) > 1:
        smallest = ", ".join(parts[0][:3]) + (", ..." if len(parts[0]) > 3 else "")
        reach = "not every node can reach every other" if directed else "it is not connected"
        raise TopologyError(
            f"path={path}: {reach}, it falls into {len(parts)} parts, one of them {smallest}"
        )


def _live_file(site: Site, values: Values) -> Built:
    """Build the part of a file's graph among the live peers, its components joined in a ring."""
    from scipy.sparse.csgraph import connected_components

    read = _remembered(_path(values))
    if tuple(site.names) == read.names:
        return read
    directed = read.schedule.directed
    left = _left_over(read, site.names)
    _, part_of = connected_components(left, directed=directed, connection="strong")
    # The first peer of each component; scipy numbers components in no particular order.
    firsts = np.sort(np.unique(part_of, return_index=True)[1])
    if len(firsts) > 1:
        following = np.roll(firsts, -1)
        sources, targets = left.nonzero()
        sources = np.concatenate([sources, firsts, following])
        targets = np.concatenate([targets, following, firsts])
        left = edges(site.n, sources, targets)
    return Built(schedule=_weighed(left, directed))


def _left_over(read: Built, names: Sequence[str]) -> csr_array:
    number = {name: node for node, name in enumerate(names)}
    # -1 for peers that are gone.
    now = np.array([number.get(name, -1) for name in read.names], np.int64)
    receivers, senders = read.schedule.matrix(0).tocoo().coords
    sources, targets = now[senders], now[receivers]
    both = (sources >= 0) & (targets >= 0)
    return edges(len(names), sources[both], targets[both])


def _path(values: Values) -> Path:
    return Path(str(values["path"]))


_remembered: Final = lru_cache(maxsize=16)(read_graph)


def forget_files() -> None:
    """Drop cached graph files: they may change while a process lives."""
    _remembered.cache_clear()


FAMILIES: Mapping[str, Family] = {
    "file": Family(
        summary="GraphML, GEXF, an edge list or node-link JSON; names are peers",
        source="networkx",
        build=lambda _, values: read_graph(_path(values)),
        layout="spring",
        parameters=(Parameter(name="path", kind=str, form="a graph file"),),
        size=lambda values: len(read_graph(_path(values)).names),
        live=_live_file,
        fallback="edges among live peers, weighted by degrees; parts that are cut off, and "
        "peers that the file does not know, are joined in a ring through their first ids",
    ),
}
