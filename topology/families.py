"""Families of graphs: who a node's out-neighbors are, by arithmetic alone.

A peer asks at every push, so a family answers for one node without building a graph. Nodes are
``0 .. n-1``. No family lists a node as its own neighbor or lists a neighbor twice, not even for
n = 1 or 2, and each of them is strongly connected.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["CATALOG", "FAMILIES", "Family", "complete", "exponential", "ring"]


def ring(n: int, node: int) -> tuple[int, ...]:
    """The next and the previous node on a cycle, which are one node when n = 2.

    Args:
        n: Number of nodes, at least 1.
        node: Whose neighbors, in [0, n).

    >>> ring(5, 0)
    (1, 4)
    """
    if n <= 2:
        return complete(n, node)
    return (node + 1) % n, (node - 1) % n


def complete(n: int, node: int) -> tuple[int, ...]:
    """Every other node, in ascending order.

    Args:
        n: Number of nodes, at least 1.
        node: Whose neighbors, in [0, n).

    >>> complete(4, 1)
    (0, 2, 3)
    """
    return *range(node), *range(node + 1, n)


def exponential(n: int, node: int) -> tuple[int, ...]:
    """The nodes 1, 2, 4, ... places ahead on a circle: ceil(log2 n) of them, nearest first.

    Args:
        n: Number of nodes, at least 1.
        node: Whose neighbors, in [0, n).

    Source: Ying, Yuan, Chen, Hu, Pan and Yin, NeurIPS 2021, the static exponential graph.

    >>> exponential(6, 4)
    (5, 0, 2)
    """
    degree = (n - 1).bit_length()
    return tuple((node + 2**power) % n for power in range(degree))


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One row of the catalog: what a name in a spec stands for."""

    summary: str
    """One line for a list of topologies."""

    directed: bool
    """Whether a node may push to one that may not push back."""

    out: Callable[[int, int], tuple[int, ...]]
    """``(n, node)`` to that node's out-neighbors."""


CATALOG: Mapping[str, Family] = MappingProxyType(
    {
        "complete": Family(summary="everyone may push to everyone", directed=False, out=complete),
        "exponential": Family(
            summary="node i may push to i+1, i+2, i+4, ...: about log2(n) neighbors",
            directed=True,
            out=exponential,
        ),
        "ring": Family(summary="a cycle: the next and the previous node", directed=False, out=ring),
    }
)
"""Families by the name that people type."""

FAMILIES: Mapping[str, str] = MappingProxyType(
    {name: family.summary for name, family in CATALOG.items()}
)
"""One line about each family, by the name that people type."""
