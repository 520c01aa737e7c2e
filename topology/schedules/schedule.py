"""Schedules: which nodes mix from which, round by round.

One convention holds everywhere. ``W`` is float64 with axes ``(node that mixes, node it mixes
from)``: a round sets ``x <- W x``, row i holds what i takes from each node, column j how j's push
is split. A push from j to i is an edge j -> i.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Fixed", "RandomCirculant", "Schedule"]


@runtime_checkable
class Schedule(Protocol):
    """A sequence of mixing matrices, and the pushes behind them."""

    @property
    def n(self) -> int:
        """Number of nodes."""

    @property
    def directed(self) -> bool:
        """True if a node may push to a node that does not push back in the same round."""

    @property
    def period(self) -> int | None:
        """Rounds after which everything repeats, 1 for a static graph; None for random rounds."""

    def out(self, node: int, round: int) -> tuple[int, ...]:
        """Return a node's out-neighbors in a round: each once, never itself, in a fixed order."""

    def matrix(self, round: int) -> csr_array:
        """Return ``W`` of a round, float64 ``(n, n)``, with diagonal, no stored zeros off it."""


@runtime_checkable
class RandomCirculant(Schedule, Protocol):
    """Random rounds, distributed equally under turns of the cycle, which get exact facts."""

    @property
    def commutes(self) -> bool:
        """True if all matrices that can be drawn commute."""

    def representatives(self) -> Iterable[csr_array]:
        """Return the matrices that can be drawn, equally likely, one for all turns of each."""

    def union(self) -> Schedule:
        """Return a static schedule with every edge that can be drawn."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Fixed:
    """Explicit matrices, one for each round of a period."""

    rounds: tuple[csr_array, ...]
    """``W`` of each round, float64, ``(n, n)``."""
    directed: bool = False
    """False promises that each round's pattern is symmetric."""

    @property
    def n(self) -> int:
        return int(self.rounds[0].shape[0])

    @property
    def period(self) -> int:
        return len(self.rounds)

    def matrix(self, round: int) -> csr_array:
        return self.rounds[round % len(self.rounds)]

    def out(self, node: int, round: int) -> tuple[int, ...]:
        pushes = self._pushes[round % len(self.rounds)]
        row = pushes.indices[pushes.indptr[node] : pushes.indptr[node + 1]]
        return tuple(int(other) for other in row if other != node)

    @cached_property
    def _pushes(self) -> tuple[csr_array, ...]:
        """Adjacency matrices: row j holds the push targets of j."""
        rounds = (matrix.T.tocsr() for matrix in self.rounds) if self.directed else self.rounds
        pushes = tuple(rounds)
        for matrix in pushes:
            matrix.sort_indices()
        return pushes
