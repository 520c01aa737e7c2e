"""Families that draw a new graph each round: matchings, groups, epidemic learning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..hashing import blend, distinct, key, shuffled
from ..schedules.cayley import Cayley, circulant
from ..schedules.mixing import undirected
from ..schedules.schedule import Fixed, Schedule
from .family import Family, count, whole
from .lattices import complete

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = [
    "FAMILIES",
    "LocalEpidemic",
    "Shuffled",
    "epidemic",
    "random_groups",
    "random_matching",
]

# Peers count rounds of their own, but those of one swarm are never far apart.
ROUNDS_KEPT = 16

# A label: the word that shuffles the nodes draws the shifts as well.
SHIFT = 1


class _Seating(NamedTuple):
    """One round: the seat of each node, and the links between seats."""

    node_at: NDArray[np.int64]
    seat_of: NDArray[np.int64]
    links: Schedule


@dataclass(frozen=True, kw_only=True, eq=False)
class Shuffled:
    """A fixed pattern under a fresh random permutation of the nodes each round."""

    n: int
    seed: int
    name: str
    """Name of the family, so that the streams of two families do not coincide."""
    links: Callable[[int], Schedule]
    """The pattern between seats 0 to n-1 (its round 0), which a word in [0, 2**64) may draw."""
    directed: bool = False
    period: None = field(default=None, init=False)

    def out(self, node: int, round: int) -> tuple[int, ...]:
        seating = self._seating(round)
        seats = seating.links.out(int(seating.seat_of[node]), 0)
        return tuple(int(seating.node_at[seat]) for seat in seats)

    def matrix(self, round: int) -> csr_array:
        from scipy.sparse import csr_array

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
    """Every node draws its own targets each round (EL-Local); receivers average what arrives."""

    n: int
    seed: int
    s: int
    """Targets per node and round, in [0, n)."""
    period: None = field(default=None, init=False)

    @property
    def directed(self) -> bool:
        return self.s < self.n - 1

    def out(self, node: int, round: int) -> tuple[int, ...]:
        return tuple(int(other) for other in self._targets(np.array([node]), round)[0])

    def matrix(self, round: int) -> csr_array:
        from scipy.sparse import csr_array

        nodes = np.arange(self.n)
        receivers = np.concatenate([nodes, self._targets(nodes, round).T.ravel()])
        senders = np.tile(nodes, self.s + 1)
        shares = 1.0 / np.bincount(receivers, minlength=self.n)
        return csr_array((shares[receivers], (receivers, senders)), shape=(self.n, self.n))

    def _targets(self, nodes: NDArray[np.int64], round: int) -> NDArray[np.int64]:
        """Return targets of some nodes, int64 with axes ``(node, target)``."""
        if self.s == 0:
            return np.empty((len(nodes), 0), np.int64)
        base = key(self.seed, "epidemic-local", round)
        words = [blend(base, nodes.astype(np.uint64), number) for number in range(self.s)]
        others = distinct(words, self.n - 1)
        return others + (others >= nodes[:, None])


def random_matching(n: int, seed: int) -> Shuffled:
    """All nodes average in random pairs; with an odd n, one sits out."""
    return random_groups(n, 2, seed, name="random-matching", sit_out=True)


def random_groups(
    n: int, m: int, seed: int, *, name: str = "random-groups", sit_out: bool = False
) -> Shuffled:
    """All nodes average in random groups of about m, at least 2; sizes differ by at most one.

    Args:
        sit_out: Leave out nodes that do not fill a group, instead of making groups smaller.
    """
    count = n // m if sit_out else -(-n // m)
    seats = np.arange(count * m) if sit_out else np.arange(n)
    group_of = seats // m if sit_out else seats * count // n
    links = _cliques(n, group_of)
    return Shuffled(n=n, seed=seed, name=name, links=lambda _: links)


def epidemic(n: int, s: int, seed: int) -> Shuffled:
    """Every node pushes to s others and receives from s: a random regular digraph (EL-Oracle)."""
    # A random circulant under a random permutation, so any s others are equally likely.
    s = min(s, n - 1)

    def draw(word: int) -> Schedule:
        words = [blend(word, SHIFT, number) for number in range(s)]
        shifts = [int(shift) + 1 for shift in distinct(words, n - 1)[0]] if s else []
        return circulant(n, [shifts])

    return Shuffled(n=n, seed=seed, name="epidemic", links=draw, directed=s < n - 1)


def _cliques(n: int, group_of: np.ndarray) -> Fixed | Cayley:
    if n <= 1:
        return complete(n)
    starts = np.flatnonzero(np.diff(group_of, prepend=-1))
    sizes = np.diff(starts, append=len(group_of))
    left, right = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    # Two sizes at most.
    for size in np.unique(sizes):
        low, high = np.triu_indices(size, 1)
        first = starts[sizes == size]
        left.append(np.add.outer(first, low).ravel())
        right.append(np.add.outer(first, high).ravel())
    return undirected(n, np.concatenate(left), np.concatenate(right))


FAMILIES: Mapping[str, Family] = {
    "random-matching": Family(
        summary="new random pairs each round",
        source="Boyd et al., IEEE Transactions on Information Theory 2006",
        build=lambda site, _: random_matching(site.n, site.seed),
        layout="circle",
        fallback="with an odd number of peers one sits out, another one each round",
    ),
    "random-groups": Family(
        summary="new random groups of m each round, which average exactly",
        source="Ryabinin et al., NeurIPS 2021 (Moshpit)",
        build=lambda site, values: random_groups(site.n, whole(values, "m"), site.seed),
        layout="circle",
        parameters=(count("m", 4, low=2),),
        limits={"m": 0},
        fallback="groups that differ by one peer at most",
    ),
    "epidemic": Family(
        summary="s random targets each round, and each node hears from s (EL-Oracle)",
        source="de Vos et al., NeurIPS 2023",
        build=lambda site, values: epidemic(site.n, whole(values, "s"), site.seed),
        layout="circle",
        parameters=(count("s", 2),),
        limits={"s": -1},
        fallback="s is at most n - 1",
    ),
    "epidemic-local": Family(
        summary="s targets that each node draws alone; receivers average what arrives (EL-Local)",
        source="de Vos et al., NeurIPS 2023",
        build=lambda site, values: LocalEpidemic(
            n=site.n, seed=site.seed, s=min(whole(values, "s"), site.n - 1)
        ),
        layout="circle",
        parameters=(count("s", 2),),
        limits={"s": -1},
        fallback="s is at most n - 1",
    ),
}
