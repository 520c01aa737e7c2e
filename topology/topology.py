"""A topology: a spec with a size and a random draw."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import index
from typing import TYPE_CHECKING

from .errors import TopologyError
from .families.family import Built, Layout, Site
from .schedules.schedule import Schedule
from .spec import Spec, read

if TYPE_CHECKING:
    import networkx as nx
    from scipy.sparse import csr_array

__all__ = ["Topology", "parse", "topology_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """The push targets of n nodes, round by round, with weights.

    Two are equal if they come from the same spec, size, seed and names.
    """

    spec: str
    """The spec that it was parsed from, in canonical form."""
    n: int
    """Number of nodes, at least 1; they are numbered 0 to n-1."""
    seed: int
    """Seed of everything random."""
    names: tuple[str, ...]
    """Names of the nodes, if any: peers of a live view, or nodes of a file."""
    layout: Layout = field(compare=False, repr=False)
    """How a picture arranges the nodes."""
    schedule: Schedule = field(compare=False, repr=False)
    """Source of its edges and weights."""
    runs: tuple[int, ...] = field(compare=False, repr=False, default=())
    """Numbers of nodes of each host, in their order."""

    @property
    def period(self) -> int | None:
        """Rounds after which the graph repeats, 1 for a static one; None for random rounds."""
        return self.schedule.period

    @property
    def directed(self) -> bool:
        """True if a node may push to a node that does not push back in the same round."""
        return self.schedule.directed

    @property
    def is_tree(self) -> bool:
        """True if it is one tree, the same in every round: one way between any two nodes."""
        if self.n == 1:
            return True
        if self.period != 1:
            return False
        from scipy.sparse.csgraph import connected_components

        edges = self.matrix() != 0
        edges.setdiag(False)
        edges.eliminate_zeros()
        both_ways = edges.nnz == 2 * (self.n - 1) and (edges != edges.T).nnz == 0
        return bool(both_ways and connected_components(edges, directed=False)[0] == 1)

    def neighbors(self, node: int, round: int = 0) -> tuple[int, ...]:
        """Return the nodes that *node* may push to in a round, each once and never itself.

        Returns:
            Out-neighbors in the family's order: a list to draw from.

        Raises:
            TopologyError: *node* is outside [0, n) or *round* below 0.
        """
        if not 0 <= node < self.n:
            raise TopologyError(
                f"{self.spec} with n={self.n} has no node {node}: nodes are 0 to {self.n - 1}"
            )
        if round < 0:
            raise _negative(round)
        return self.schedule.out(node, round)

    def matrix(self, round: int = 0) -> csr_array:
        """Return the mixing matrix of a round: ``x <- W x``.

        Returns:
            ``W``, sparse float64 with axes ``(node that mixes, node it mixes from)``: row i holds
            what i takes from each node, column j how j's push is split.
        """
        if round < 0:
            raise _negative(round)
        return self.schedule.matrix(round)

    def graph(self, round: int = 0) -> nx.Graph:
        """Return the graph of a round: nodes 0 to n-1, an edge for every push allowed, no loops.

        Returns:
            A ``networkx.Graph``, or a ``networkx.DiGraph`` if the topology is directed. Edges carry
            ``weight``, the part that the receiver takes; nodes carry ``name`` if they have one.
        """
        import networkx as nx

        matrix = self.matrix(round)
        graph = nx.DiGraph() if self.directed else nx.Graph()
        names = self.names or [None] * self.n
        graph.add_nodes_from(
            (node, {"name": name} if name is not None else {}) for node, name in enumerate(names)
        )
        links = matrix.tocoo()
        for receiver, sender, weight in zip(*links.coords, links.data, strict=True):
            if receiver != sender:
                graph.add_edge(int(sender), int(receiver), weight=float(weight))
        return graph


def parse(spec: str, n: int | None = None, *, seed: int = 0) -> Topology:
    """Parse a spec and build its graph for n nodes; strict about what fits.

    Args:
        spec: ``name`` or ``name:key=value,key=value``; ``FAMILIES`` lists the names.
        n: Number of nodes, at least 1; optional if the spec fixes it (``hosts``, ``file``, a grid
            or torus with rows and columns).

    Raises:
        TopologyError: The spec is invalid, or the family cannot have n nodes.

    >>> parse("exponential", 8).neighbors(0, round=0)
    (1, 2, 4)
    """
    asked = read(spec)
    try:
        n = _sized(asked, n)
        return topology_of(asked, n, seed, _build(asked, n, seed))
    except TopologyError as error:
        size = "" if n is None else f" with n={n}"
        raise TopologyError(f"topology {spec!r}{size}: {error}") from None


def topology_of(spec: Spec, n: int, seed: int, built: Built) -> Topology:
    """Combine a spec with what its family built."""
    return Topology(
        spec=spec.text,
        n=n,
        seed=seed,
        names=built.names,
        layout=spec.family.layout,
        schedule=built.schedule,
        runs=built.runs,
    )


def _build(spec: Spec, n: int, seed: int) -> Built:
    site = Site(n=n, seed=seed, inside=lambda text: _build(read(text), n, seed))
    return spec.family.strict(site, spec.values)


def _sized(spec: Spec, n: int | None) -> int:
    fixed = spec.size
    size = fixed if n is None else n
    if size is None:
        raise TopologyError("say how many nodes it has (n, on the command line -n)")
    try:
        size = index(size)
    except TypeError:
        raise TopologyError(f"n is {size!r}: it must be a whole number") from None
    if fixed not in (None, size):
        raise TopologyError(f"it has {fixed} nodes: leave n out, or say n={fixed}")
    if size < 1:
        raise TopologyError("n must be at least 1")
    return size


def _negative(round: int) -> TopologyError:
    return TopologyError(f"round {round} is negative: rounds are counted from 0")
