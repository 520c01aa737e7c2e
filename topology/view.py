"""A topology laid over the peers that are alive.

It is a pure function of its arguments, so peers that share a view agree on the graph without
talking.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from .errors import TopologyError
from .family import Built, Site
from .spec import Spec, read
from .topology import Topology, topology_of

__all__ = ["View", "neighbors", "over"]


def over(spec: str, seed: int, live: Sequence[str]) -> Topology:
    """The topology of the peers that are alive.

    As `parse` would build it, unless the family cannot have that many nodes, or would move more
    links than it must when a peer comes or goes: the catalog's ``fallback`` says what it does then.

    Args:
        spec: A topology spec.
        seed: Of the swarm, the same on every peer.
        live: Ids of all live peers, ascending and distinct, at least one.

    Returns:
        A topology whose ``names`` are *live*: node i is peer ``live[i]``.

    Raises:
        TopologyError: *spec* is not valid, or names a file that cannot be read; or *live* is empty
            or not ascending.
    """
    asked = read(spec)
    if not live or any(before >= after for before, after in pairwise(live)):
        raise TopologyError(
            f"topology {spec!r}: live ids must be ascending, distinct, one at least"
        )
    try:
        return topology_of(asked, len(live), seed, _built(asked, seed, tuple(live)))
    except TopologyError as error:
        raise TopologyError(f"topology {spec!r} with n={len(live)}: {error}") from None


def neighbors(spec: str, seed: int, live: Sequence[str], peer: str, round: int) -> tuple[str, ...]:
    """Whom *peer* may push to, in its own view of who is alive.

    Args:
        spec: A topology spec; ``FAMILIES`` lists the names.
        seed: Of the swarm, the same on every peer; only families that draw at random use it.
        live: Ids of all live peers, ascending and distinct; *peer* itself among them.
        peer: Who pushes.
        round: Counted from 0.

    Returns:
        Ids in the family's order: a list to draw from. Empty when nobody else is alive, when
        *peer* is not in *live*, and in rounds that a schedule gives it nobody.

    Raises:
        TopologyError: *spec* is not valid, or *round* is below 0.

    >>> neighbors("ring", 0, ["ada", "bob", "cyd", "dan"], "ada", round=0)
    ('bob', 'dan')
    """
    return View(spec, seed)(live, peer, round)


class View:
    """`neighbors` for a spec and seed, asked again and again.

    It keeps the graph of the last view, and builds another when the view has changed.

    Args:
        spec: A topology spec.
        seed: Of the swarm, the same on every peer.

    Raises:
        TopologyError: *spec* is not valid.
    """

    def __init__(self, spec: str, seed: int) -> None:
        read(spec)
        self._spec = spec
        self._seed = seed
        self._live: tuple[str, ...] = ()
        self._topology: Topology | None = None

    def __call__(self, live: Sequence[str], peer: str, round: int) -> tuple[str, ...]:
        """Whom *peer* may push to; see `neighbors`."""
        node = bisect_left(live, peer)
        if node == len(live) or live[node] != peer:
            return ()
        others = self._over(live).neighbors(node, round)
        return tuple([live[other] for other in others])

    def _over(self, live: Sequence[str]) -> Topology:
        topology = self._topology
        # The same tuple is the same view. A list may be changed in place by whoever owns it.
        if topology is None or (live is not self._live and self._live != tuple(live)):
            self._live = tuple(live)
            topology = self._topology = over(self._spec, self._seed, self._live)
        return topology


def _built(asked: Spec, seed: int, live: tuple[str, ...]) -> Built:
    site = Site(
        n=len(live), seed=seed, names=live, inside=lambda text: _built(read(text), seed, live)
    )
    built = (asked.family.live or asked.family.build)(site, asked.filled)
    return Built(schedule=built.schedule, names=live, bandwidth=built.bandwidth)
