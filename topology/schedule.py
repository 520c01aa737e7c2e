"""What a family makes: who mixes from whom, round by round.

One convention holds everywhere. ``W`` is float64 with axes ``(node that mixes, node it mixes
from)``: a round sets ``x <- W x``, row i says what i mixes from whom, column j how j's push is
split. A push from j to i is an edge j -> i, so a node's out-neighbors are the rows of its column.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

from scipy.sparse import csr_array

__all__ = ["Fixed", "Schedule"]


@runtime_checkable
class Schedule(Protocol):
    """A sequence of mixing matrices, and the pushes that make them."""

    @property
    def n(self) -> int:
        """Number of nodes."""

    @property
    def directed(self) -> bool:
        """Whether a node may push to one that does not push back in the same round."""

    @property
    def period(self) -> int | None:
        """Rounds after which all repeats, 1 where nothing changes; None for rounds at random."""

    def out(self, node: int, round: int) -> tuple[int, ...]:
        """Whom a node pushes to in a round: each once, never itself, in an order of its own."""

    def matrix(self, round: int) -> csr_array:
        """``W`` of a round, float64 ``(n, n)``, diagonal included, without stored zeros off it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Fixed:
    """Matrices that are written down, one for each round of a period."""

    rounds: tuple[csr_array, ...]
    """``W`` of each round, float64, ``(n, n)``."""

    directed: bool = False
    """False promises that each round's pattern is symmetric."""

    @property
    def n(self) -> int:
        """Number of nodes."""
        return int(self.rounds[0].shape[0])

    @property
    def period(self) -> int:
        """Rounds after which all repeats."""
        return len(self.rounds)

    def matrix(self, round: int) -> csr_array:
        """``W`` of a round, float64 ``(n, n)``."""
        return self.rounds[round % len(self.rounds)]

    def out(self, node: int, round: int) -> tuple[int, ...]:
        """Whom a node pushes to in a round, ascending."""
        pushes = self._pushes[round % len(self.rounds)]
        row = pushes.indices[pushes.indptr[node] : pushes.indptr[node + 1]]
        return tuple(int(other) for other in row if other != node)

    @cached_property
    def _pushes(self) -> tuple[csr_array, ...]:
        """Row j: to whom j pushes."""
        rounds = (matrix.T.tocsr() for matrix in self.rounds) if self.directed else self.rounds
        pushes = tuple(rounds)
        for matrix in pushes:
            matrix.sort_indices()
        return pushes
