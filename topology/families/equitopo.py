"""EquiTopo: random circulants whose mixing rate does not depend on the number of nodes.

Source: Song, Li, Jin, Shi, Yan, Yin and Yuan, NeurIPS 2022. Their basis matrix A(u) takes
(n-1)/n from the node u places away and keeps 1/n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..hashing import blend, key
from ..schedules.cayley import Cayley, Step, around, circulant
from ..schedules.schedule import Schedule
from .family import Family, Site, Values, count, whole

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["ETA", "FAMILIES", "BasisMatching", "BasisPush", "draw_shifts", "equi_static"]

ETA = 0.5
"""Weight of the basis matrix in a round of the one-peer schedules, where their bound is best."""


def draw_shifts(n: int, m: int, seed: int) -> tuple[int, ...]:
    """Draw m distinct shifts that, taken together, connect a cycle of n."""
    if m == 0:
        return ()
    # Ranked by hash: adding or removing a node then hardly ever changes them, while a draw from
    # n - 1 numbers would change all of them.
    number = np.arange(n - 1)
    # 1 ahead, 1 back, 2 ahead, 2 back, ...
    places = np.where(number % 2, n - 1 - number // 2, number // 2 + 1)
    ranks = blend(key(seed, "equitopo"), number.astype(np.uint64))
    ranked = [int(place) for place in places[np.argsort(ranks, kind="stable")]]
    first = ranked[: m - 1]
    common = gcd(n, *first)
    return (*first, next(shift for shift in ranked[m - 1 :] if gcd(common, shift) == 1))


def equi_static(n: int, shifts: tuple[int, ...], *, one_way: bool) -> Cayley:
    """The mean of the basis matrices of distinct shifts, ahead only or both ahead and back."""
    weights: dict[int, float] = {}
    for shift in shifts:
        whole = (n - 1) / n / len(shifts)
        if one_way:
            weights[shift] = whole
            continue
        for way in (shift, n - shift):
            weights[way] = weights.get(way, 0.0) + whole / 2
    steps = tuple(Step(shift, weight) for shift, weight in weights.items())
    return around(n, [steps])


@dataclass(frozen=True, kw_only=True, eq=False)
class BasisPush:
    """OD-EquiDyn: one basis matrix each round, drawn at random."""

    n: int
    shifts: tuple[int, ...]
    seed: int
    period: None = field(default=None, init=False)
    commutes: bool = field(default=True, init=False)

    @property
    def directed(self) -> bool:
        return any(2 * shift != self.n for shift in self.shifts)

    def out(self, node: int, round: int) -> tuple[int, ...]:
        return tuple([(node + shift) % self.n for shift in self._drawn(round)])

    def matrix(self, round: int) -> csr_array:
        steps = [Step(shift, ETA * (self.n - 1) / self.n) for shift in self._drawn(round)]
        return around(self.n, [steps]).matrix(0)

    def representatives(self) -> Iterable[csr_array]:
        taken = ETA * (self.n - 1) / self.n
        return (around(self.n, [[Step(shift, taken)]]).matrix(0) for shift in self.shifts)

    def union(self) -> Cayley:
        return circulant(self.n, [self.shifts])

    def _drawn(self, round: int) -> tuple[int, ...]:
        """Return the shift of a round; none for a single node."""
        which = key(self.seed, "od-equi-dyn", round) % max(len(self.shifts), 1)
        return self.shifts[which : which + 1]


@dataclass(frozen=True, kw_only=True, eq=False)
class BasisMatching:
    """OU-EquiDyn: from a random start, each free node pairs with the free node a shift ahead."""

    n: int
    shifts: tuple[int, ...]
    seed: int
    directed: bool = field(default=False, init=False)
    period: None = field(default=None, init=False)
    commutes: bool = field(default=False, init=False)

    def out(self, node: int, round: int) -> tuple[int, ...]:
        if not self.shifts:
            return ()
        shift, start = self._draw(round)
        partner = self.partners(shift, start, np.array([node]))[0]
        return () if partner == node else (int(partner),)

    def matrix(self, round: int) -> csr_array:
        shift, start = self._draw(round) if self.shifts else (0, 0)
        return self.matching(shift, start)

    def matching(self, shift: int, start: int) -> csr_array:
        """Return ``W`` for one shift and start; all shifts are equally likely, and all starts."""
        from scipy.sparse import csr_array

        nodes = np.arange(self.n)
        partners = self.partners(shift, start, nodes)
        paired = partners != nodes
        taken = ETA * (self.n - 1) / self.n
        values = np.concatenate([np.where(paired, 1 - taken, 1.0), np.full(paired.sum(), taken)])
        rows = np.concatenate([nodes, nodes[paired]])
        columns = np.concatenate([nodes, partners[paired]])
        return csr_array((values, (rows, columns)), shape=(self.n, self.n))

    def partners(self, shift: int, start: int, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the partners of some nodes; unpaired nodes are their own."""
        if shift == 0:
            return nodes
        # Another start rotates the same pairs around the cycle.
        from_zero = self._from_zero[shift][(nodes - start) % self.n]
        partners: NDArray[np.int64] = (from_zero + start) % self.n
        return partners

    def representatives(self) -> Iterable[csr_array]:
        # Other starts are turns of these.
        return (self.matching(shift, 0) for shift in self.shifts)

    def union(self) -> Cayley:
        ways = dict.fromkeys(way for shift in self.shifts for way in (shift, self.n - shift))
        return circulant(self.n, [tuple(ways)])

    @cached_property
    def _from_zero(self) -> dict[int, NDArray[np.int64]]:
        return {shift: _pair_greedily(self.n, shift) for shift in self.shifts}

    def _draw(self, round: int) -> tuple[int, int]:
        which = key(self.seed, "equi-dyn", round) % len(self.shifts)
        return self.shifts[which], key(self.seed, "equi-dyn-start", round) % self.n


def _pair_greedily(n: int, shift: int) -> NDArray[np.int64]:
    partners = list(range(n))
    for node in range(n):
        other = (node + shift) % n
        if partners[node] == node and partners[other] == other:
            partners[node], partners[other] = other, node
    return np.array(partners)


def _shifts(site: Site, values: Values) -> tuple[int, ...]:
    return draw_shifts(site.n, min(whole(values, "m"), site.n - 1), site.seed)


def _family(summary: str, schedule: Callable[[int, tuple[int, ...], int], Schedule]) -> Family:
    """Make a family of shifts: all of them at once, or one drawn each round."""
    return Family(
        summary=summary,
        source="Song et al., NeurIPS 2022",
        build=lambda site, values: schedule(site.n, _shifts(site, values), site.seed),
        layout="circle",
        parameters=(count("m", 2),),
        limits={"m": -1},
        fallback="m is at most n - 1; one peer more or less leaves most shifts as they are",
    )


FAMILIES: Mapping[str, Family] = {
    "equi-static": _family(
        "m random shifts of a cycle, both ways (U-EquiStatic)",
        lambda n, shifts, _: equi_static(n, shifts, one_way=False),
    ),
    "d-equi-static": _family(
        "m random shifts of a cycle, one way (D-EquiStatic)",
        lambda n, shifts, _: equi_static(n, shifts, one_way=True),
    ),
    "equi-dyn": _family(
        "pairs along one of m shifts, drawn each round (OU-EquiDyn)",
        lambda n, shifts, seed: BasisMatching(n=n, shifts=shifts, seed=seed),
    ),
    "od-equi-dyn": _family(
        "one push along one of m shifts, drawn each round (OD-EquiDyn)",
        lambda n, shifts, seed: BasisPush(n=n, shifts=shifts, seed=seed),
    ),
}
