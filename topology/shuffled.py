"""Schedules that draw anew each round: everyone takes a random seat, and seats are linked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .draws import blend, distinct, key, shuffled
from .schedule import Schedule

__all__ = ["LocalEpidemic", "Shuffled"]

# Peers count rounds of their own, but those of one swarm are never far apart.
ROUNDS_KEPT = 16


class _Seating(NamedTuple):
    """One round: who sits where, and which seats are linked."""

    node_at: NDArray[np.int64]
    seat_of: NDArray[np.int64]
    links: Schedule


@dataclass(frozen=True, kw_only=True, eq=False)
class Shuffled:
    """A fixed pattern under a fresh random permutation of the nodes each round.

    No node is special in any way, so in expectation a round shrinks every direction of
    disagreement alike.
    """

    n: int
    seed: int
    name: str
    """Of the family: streams of two families do not coincide."""

    links: Callable[[int], Schedule]
    """The pattern between seats 0 to n-1, drawn by a word in [0, 2**64) or not; its round 0."""

    directed: bool = False
    period: None = field(default=None, init=False)

    def out(self, node: int, round: int) -> tuple[int, ...]:
        """Whom a node pushes to in a round."""
        seating = self._seating(round)
        seats = seating.links.out(int(seating.seat_of[node]), 0)
        return tuple(int(seating.node_at[seat]) for seat in seats)

    def matrix(self, round: int) -> csr_array:
        """``W`` of a round, float64 ``(n, n)``."""
        seating = self._seating(round)
        links = seating.links.matrix(0).tocoo()
        rows, columns = links.coords
        places = (seating.node_at[rows], seating.node_at[columns])
        return csr_array((links.data, places), shape=(self.n, self.n))

    @cached_property
    def _seating(self) -> Callable[[int], _Seating]:
        return lru_cache(maxsize=ROUNDS_KEPT)(self._take_seats)

    def _take_seats(self, round: int) -> _Seating:
        word = key(self.seed, self.name, round)
        node_at = shuffled(word, self.n)
        seat_of = np.empty_like(node_at)
        seat_of[node_at] = np.arange(self.n)
        return _Seating(node_at, seat_of, self.links(word))


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalEpidemic:
    """Every node draws its own targets each round; a receiver averages whatever came.

    Rows of ``W`` sum to 1, columns do not: the mean drifts.

    Source: de Vos, Farhadkhani, Guerraoui, Kermarrec, Pires and Sharma, NeurIPS 2023, EL-Local.
    """

    n: int
    seed: int
    s: int
    """Targets of each node and round, in [0, n)."""

    period: None = field(default=None, init=False)

    @property
    def directed(self) -> bool:
        """Whether anybody is left out of a round's targets."""
        return self.s < self.n - 1

    def out(self, node: int, round: int) -> tuple[int, ...]:
        """Whom a node pushes to in a round."""
        return tuple(int(other) for other in self._targets(np.array([node]), round)[0])

    def matrix(self, round: int) -> csr_array:
        """``W`` of a round, float64 ``(n, n)``."""
        nodes = np.arange(self.n)
        receivers = np.concatenate([nodes, self._targets(nodes, round).T.ravel()])
        senders = np.tile(nodes, self.s + 1)
        shares = 1.0 / np.bincount(receivers, minlength=self.n)
        return csr_array((shares[receivers], (receivers, senders)), shape=(self.n, self.n))

    def _targets(self, nodes: NDArray[np.int64], round: int) -> NDArray[np.int64]:
        """Targets of some nodes, int64 with axes ``(node, target)``."""
        if self.s == 0:
            return np.empty((len(nodes), 0), np.int64)
        base = key(self.seed, "epidemic-local", round)
        words = [blend(base, nodes.astype(np.uint64), number) for number in range(self.s)]
        others = distinct(words, self.n - 1)
        return others + (others >= nodes[:, None])
