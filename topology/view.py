"""A topology laid over the peers that are alive.

It is a pure function of its arguments, so peers that share a view agree on the graph without
talking.
"""

from bisect import bisect_left
from collections.abc import Sequence

from .spec import parse

__all__ = ["neighbors"]


def neighbors(spec: str, seed: int, live: Sequence[str], peer: str, round: int) -> tuple[str, ...]:
    """Whom *peer* may push to, in its own view of who is alive.

    Args:
        spec: A topology spec; ``FAMILIES`` lists the names.
        seed: Of the swarm, the same on every peer; only families that draw at random use it.
        live: Ids of all live peers, ascending and distinct; *peer* itself among them.
        peer: Who pushes.
        round: Counted from 0.

    Returns:
        Ids in the family's order: a list to draw from. Empty when nobody else is alive, or when
        *peer* is not in *live*.

    Raises:
        TopologyError: *spec* is not valid, or *round* is below 0.

    >>> neighbors("ring", 0, ["ada", "bob", "cyd", "dan"], "ada", round=0)
    ('bob', 'dan')
    """
    node = bisect_left(live, peer)
    if node == len(live) or live[node] != peer:
        return ()
    return tuple(live[other] for other in parse(spec, len(live)).neighbors(node, round))
