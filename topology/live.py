"""A topology over the live peers: a pure function, on which peers with the same view agree without
exchanging a message."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from .errors import TopologyError
from .families.family import Built, Site
from .spec import Spec, read
from .topology import Topology, topology_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["LiveTopology", "over"]

# Peers that wait for one another are at most a few rounds apart.
MATRICES_KEPT = 16


def over(spec: str, seed: int, live: Sequence[str]) -> Topology:
    """Build the topology of the live peers; its ``names`` are *live*.

    It is what `parse` would build, unless the family cannot have that many nodes, or would move
    more edges than necessary when a peer joins or leaves; its ``fallback`` says what happens then.

    Args:
        seed: Seed of the swarm, the same on every peer.
        live: Ids of all live peers, ascending and distinct, at least one.

    Raises:
        TopologyError: *spec* or *live* is invalid.
    """
    return _topology(read(spec), seed, live)


class _View(NamedTuple):
    """The graph of some live peers, and its last few matrices."""

    topology: Topology
    matrix: Callable[[int], csr_array]


class LiveTopology:
    """The neighbors of live peers, as peers join and leave, for one spec and the swarm's seed.

    Args:
        views: Number of views whose graph is kept: several where many peers of a simulation share
            this object, as views differ while news of members spread.

    >>> LiveTopology("ring", 0)(["ada", "bob", "cyd", "dan"], "ada", round=0)
    ('bob', 'dan')
    """

    def __init__(self, spec: str, seed: int, views: int = 1) -> None:
        self._spec = read(spec)
        self._seed = seed
        self._view_of = lru_cache(maxsize=views)(self._view)
        self._last: dict[str, tuple[Sequence[str], _View]] = {}

    def __call__(self, live: Sequence[str], peer: str, round: int) -> tuple[str, ...]:
        """Return the peers that *peer* may push to, in its own view of live peers.

        Args:
            live: Ids of all live peers, ascending and distinct.

        Returns:
            Ids in the family's order: a list to draw from. Empty when *peer* is not in *live*, and
            in rounds in which it pushes to no peer.
        """
        node = bisect_left(live, peer)
        if node == len(live) or live[node] != peer:
            return ()
        topology = self._over(live, peer).topology
        return tuple([live[other] for other in topology.neighbors(node, round)])

    def weights(self, live: Sequence[str], peer: str, round: int) -> dict[str, float]:
        """Return what *peer* takes from each peer in a round, itself included, ascending.

        >>> LiveTopology("ring", 0).weights(["ada", "bob", "cyd", "dan"], "ada", round=0)["bob"]
        0.3333333333333333
        """
        node = bisect_left(live, peer)
        if node == len(live) or live[node] != peer:
            return {}
        view = self._over(live, peer)
        period = view.topology.period
        # A round below 0 is refused as it is.
        matrix = view.matrix(round if period is None or round < 0 else round % period)
        row = slice(matrix.indptr[node], matrix.indptr[node + 1])
        weights = dict(zip(matrix.indices[row].tolist(), matrix.data[row].tolist(), strict=True))
        return {live[other]: weights.get(other, 0.0) for other in sorted({node, *weights})}

    def _over(self, live: Sequence[str], peer: str) -> _View:
        last = self._last.get(peer)
        # A roster returns the same tuple until it changes; a list may be changed in place.
        if last is not None and last[0] is live and isinstance(live, tuple):
            return last[1]
        view = self._view_of(tuple(live))
        self._last[peer] = live, view
        return view

    def _view(self, live: tuple[str, ...]) -> _View:
        topology = _topology(self._spec, self._seed, live)
        return _View(topology, lru_cache(maxsize=MATRICES_KEPT)(topology.matrix))


def _topology(spec: Spec, seed: int, live: Sequence[str]) -> Topology:
    if not live or any(before >= after for before, after in pairwise(live)):
        raise TopologyError(
            f"topology {spec.text!r}: live ids must be ascending, distinct, one at least"
        )
    try:
        return topology_of(spec, len(live), seed, _built(spec, seed, tuple(live)))
    except TopologyError as error:
        raise TopologyError(f"topology {spec.text!r} with n={len(live)}: {error}") from None


def _built(spec: Spec, seed: int, live: tuple[str, ...]) -> Built:
    site = Site(
        n=len(live), seed=seed, names=live, inside=lambda text: _built(read(text), seed, live)
    )
    return replace(spec.family.over(site, spec.values), names=live)
