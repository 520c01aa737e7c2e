"""From a spec that people type to a topology of n nodes.

A spec is ``name`` or ``name:key=value,key=value``. No family of today takes a parameter, so one
that is given is refused by name.
"""

from dataclasses import dataclass
from difflib import get_close_matches

import networkx as nx

from .errors import TopologyError
from .families import CATALOG, Family

__all__ = ["Topology", "parse"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """Who may push to whom among n nodes, round by round."""

    spec: str
    """What it was parsed from."""

    n: int
    """Number of nodes, at least 1; they are called 0 to n-1."""

    period: int
    """The graph of round r is that of round r + period; 1 for a graph that never changes."""

    family: Family
    """Where its edges come from."""

    def neighbors(self, node: int, round: int) -> tuple[int, ...]:
        """Whom *node* may push to in a round, each once and never itself.

        Args:
            node: Who pushes, in [0, n).
            round: Counted from 0.

        Returns:
            Out-neighbors in the family's order: a list to draw from. Empty only when n = 1.

        Raises:
            TopologyError: *node* is outside [0, n) or *round* below 0.
        """
        if not 0 <= node < self.n:
            raise TopologyError(
                f"{self.spec} with n={self.n} has no node {node}: nodes are 0 to {self.n - 1}"
            )
        if round < 0:
            raise TopologyError(f"round {round} is negative: rounds are counted from 0")
        return self.family.out(self.n, node)

    def graph(self, round: int = 0) -> nx.Graph:
        """The graph of a round: nodes 0 to n-1, an edge for every push allowed, no loops.

        Args:
            round: Counted from 0.

        Returns:
            A new ``networkx.Graph``, or a ``networkx.DiGraph`` where the family is directed.

        Raises:
            TopologyError: *round* is below 0.
        """
        graph = nx.DiGraph() if self.family.directed else nx.Graph()
        graph.add_nodes_from(range(self.n))
        for node in range(self.n):
            graph.add_edges_from((node, other) for other in self.neighbors(node, round))
        return graph


def parse(spec: str, n: int) -> Topology:
    """Read a spec and size it.

    It takes about a microsecond: a live view asks anew at every push.

    Args:
        spec: ``name`` or ``name:key=value,key=value``; ``FAMILIES`` lists the names.
        n: Number of nodes, at least 1.

    Raises:
        TopologyError: The family does not exist, it does not take that parameter, or n < 1.

    >>> parse("exponential", 8).neighbors(0, round=0)
    (1, 2, 4)
    """
    name, colon, parameters = spec.partition(":")
    family = CATALOG.get(name)
    if family is None:
        raise TopologyError(_unknown(name))
    if colon:
        raise TopologyError(
            f"topology {name!r} takes no parameters, but {spec!r} gives {parameters!r}: "
            f"write {name!r}"
        )
    if n < 1:
        raise TopologyError(f"topology {spec!r} with n={n}: n must be at least 1")
    return Topology(spec=spec, n=n, period=1, family=family)


def _unknown(name: str) -> str:
    close = get_close_matches(name, CATALOG, n=1)
    hint = f", did you mean {close[0]!r}?" if close else "."
    return f"unknown topology {name!r}{hint} Valid names: {', '.join(CATALOG)}"
