"""How fast two nodes of a network can talk that may not be linked: by its narrowest link."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .errors import TopologyError
from .topology import Topology

__all__ = ["bottleneck", "seconds_per_round"]

ROUNDS_LOOKED_AT = 16
"""Rounds that stand for all of a random schedule."""


def bottleneck(bandwidth: csr_array) -> NDArray[np.float64]:
    """Bandwidth between all pairs: of their link, else of the way whose narrowest link is widest.

    On an undirected graph that way runs along a maximum spanning tree.

    Args:
        bandwidth: Mbit/s of each link, row j: of j's pushes, float64 ``(n, n)``.

    Returns:
        Mbit/s, float64 with axes ``(who pushes, to whom)``; infinite to oneself.

    Raises:
        TopologyError: Some node cannot reach some other.

    Source: Pollack, Operations Research 1960, with Floyd's algorithm, CACM 1962.
    """
    links: NDArray[np.float64] = bandwidth.toarray()
    widest = links.copy()
    np.fill_diagonal(widest, np.inf)
    for via in range(len(widest)):
        np.maximum(widest, np.minimum(widest[:, via, None], widest[via]), out=widest)
    if not widest.all():
        j, i = (int(index) for index in np.argwhere(widest == 0)[0])
        raise TopologyError(f"bandwidths lead no way from node {j} to node {i}")
    return np.where(links > 0, links, widest)


def seconds_per_round(topology: Topology, between: NDArray[np.float64], share_bytes: int) -> float:
    """How long a round takes in the mean, if it waits for its slowest push.

    Args:
        topology: Whose pushes.
        between: Mbit/s between all pairs, as `bottleneck` gives it.
        share_bytes: Size of one push.
    """
    rounds = range(ROUNDS_LOOKED_AT if topology.period is None else topology.period)
    slowest = np.zeros(len(rounds))
    for round in rounds:
        receivers, senders = topology.matrix(round).nonzero()
        slowest[round] = between[senders, receivers].min(initial=np.inf)
    return float((share_bytes * 8 / (slowest * 1e6)).mean())
