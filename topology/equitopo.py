"""EquiTopo: random circulants whose mixing does not depend on the number of nodes.

Source: Song, Li, Jin, Shi, Yan, Yin and Yuan, NeurIPS 2022. Their basis matrix A(u) takes
(n-1)/n of the node u places away and keeps 1/n. We draw the m shifts without replacement, and the
last of them anew where together they would not connect all nodes.
"""

from dataclasses import dataclass, field
from functools import cached_property
from math import gcd

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .cayley import Cayley, Step, around
from .draws import blend, key

__all__ = ["ETA", "BasisMatching", "BasisPush", "draw_shifts", "equi_static"]

ETA = 0.5
"""What a round of the one-peer schedules takes of its basis matrix: where their bound is best."""


def draw_shifts(n: int, m: int, seed: int) -> tuple[int, ...]:
    """Draw m distinct shifts that, taken together, connect a cycle of n.

    Places to either side are ranked by hash, and the first m taken. One more or one fewer node
    then hardly ever changes them, where a draw from n - 1 numbers would change all.

    Args:
        n: Number of nodes.
        m: Number of shifts, in [1, n), or 0 for a lonely node.
        seed: Of the draw.
    """
    if m == 0:
        return ()
    number = np.arange(n - 1)
    # 1 ahead, 1 back, 2 ahead, 2 back, ...
    places = np.where(number % 2, n - 1 - number // 2, number // 2 + 1)
    ranks = blend(key(seed, "equitopo"), number.astype(np.uint64))
    ranked = [int(place) for place in places[np.argsort(ranks, kind="stable")]]
    first = ranked[: m - 1]
    common = gcd(n, *first)
    return (*first, next(shift for shift in ranked[m - 1 :] if gcd(common, shift) == 1))


def equi_static(n: int, shifts: tuple[int, ...], *, one_way: bool) -> Cayley:
    """The mean of the basis matrices: D-EquiStatic, or U-EquiStatic where both ways are taken.

    Args:
        n: Number of nodes.
        shifts: Of the basis matrices, distinct.
        one_way: Push ahead only, or ahead and back with half of the weight each.

    Source: Song et al., NeurIPS 2022.
    """
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
    """OD-EquiDyn: each round one basis matrix, drawn at random."""

    basis: Cayley
    """A round for each basis matrix, mixed with ETA."""

    seed: int
    period: None = field(default=None, init=False)

    @property
    def n(self) -> int:
        """Number of nodes."""
        return self.basis.n

    @property
    def directed(self) -> bool:
        """Whether some basis matrix pushes one way."""
        return self.basis.directed

    def out(self, node: int, round: int) -> tuple[int, ...]:
        """Whom a node pushes to in a round."""
        return self.basis.out(node, self._which(round))

    def matrix(self, round: int) -> csr_array:
        """``W`` of a round, float64 ``(n, n)``."""
        return self.basis.matrix(self._which(round))

    def _which(self, round: int) -> int:
        return key(self.seed, "od-equi-dyn", round) % self.basis.period

    @staticmethod
    def over(n: int, shifts: tuple[int, ...], seed: int) -> "BasisPush":
        """Make one from its shifts."""
        rounds = tuple((Step(shift, ETA * (n - 1) / n),) for shift in shifts)
        return BasisPush(basis=around(n, rounds or [()]), seed=seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class BasisMatching:
    """OU-EquiDyn: each round nodes pair up along one shift, drawn at random.

    From a random start on, each node that is still free takes the one a shift ahead, if that is
    free.
    """

    n: int
    shifts: tuple[int, ...]
    seed: int
    directed: bool = field(default=False, init=False)
    period: None = field(default=None, init=False)

    def out(self, node: int, round: int) -> tuple[int, ...]:
        """Whom a node is paired with in a round, if anybody."""
        if not self.shifts:
            return ()
        shift, start = self._draw(round)
        partner = self.partners(shift, start, np.array([node]))[0]
        return () if partner == node else (int(partner),)

    def matrix(self, round: int) -> csr_array:
        """``W`` of a round, float64 ``(n, n)``."""
        shift, start = self._draw(round) if self.shifts else (0, 0)
        return self.matching(shift, start)

    def matching(self, shift: int, start: int) -> csr_array:
        """``W`` for one shift and start: shifts and starts are equally likely."""
        nodes = np.arange(self.n)
        partners = self.partners(shift, start, nodes)
        paired = partners != nodes
        taken = ETA * (self.n - 1) / self.n
        values = np.concatenate([np.where(paired, 1 - taken, 1.0), np.full(paired.sum(), taken)])
        rows = np.concatenate([nodes, nodes[paired]])
        columns = np.concatenate([nodes, partners[paired]])
        return csr_array((values, (rows, columns)), shape=(self.n, self.n))

    def partners(self, shift: int, start: int, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """With whom some nodes are paired, themselves where with nobody."""
        if shift == 0:
            return nodes
        # Another start turns the same pairs around the cycle.
        partners: NDArray[np.int64] = (
            self._from_zero[shift][(nodes - start) % self.n] + start
        ) % self.n
        return partners

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
