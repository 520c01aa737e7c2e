"""Vertex-transitive schedules: Cayley graphs of abelian groups, steps along the axes of a torus.

A ring has one axis, a torus two, a hypercube d axes of length two. The Fourier transform
diagonalizes each round and all rounds commute, so that a million nodes take milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum, prod
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Cayley", "Step", "around", "circulant"]


_NodeOrNodes = TypeVar("_NodeOrNodes", int, NDArray[np.int64])


@dataclass(frozen=True, slots=True)
class Step:
    """One push of every node, *shift* places ahead along an axis."""

    shift: int
    """Places, in [1, size of the axis)."""
    weight: float
    """Part that the receiver takes, dimensionless."""
    axis: int = 0


@dataclass(frozen=True, kw_only=True)
class Cayley:
    """Steps on the group ``Z_a x Z_b x ...``; nodes are numbered in row-major order.

    Source: eigenvalues of circulant matrices, Davis 1979; of Cayley graphs of abelian groups,
    Lovasz 1975.
    """

    shape: tuple[int, ...]
    """Sizes of the axes."""
    rounds: tuple[tuple[Step, ...], ...]
    """Steps of each round of a period: distinct, with weights that sum to at most 1."""
    directed: bool

    @property
    def n(self) -> int:
        return prod(self.shape)

    @property
    def period(self) -> int:
        return len(self.rounds)

    def steps(self, round: int) -> tuple[Step, ...]:
        return self.rounds[round % len(self.rounds)]

    def out(self, node: int, round: int) -> tuple[int, ...]:
        steps = self.rounds[round % len(self.rounds)]
        if len(self.shape) == 1:
            return tuple([(node + step.shift) % self.shape[0] for step in steps])
        return tuple([self._ahead(node, step) for step in steps])

    def spectrum(self, round: int) -> NDArray[np.complex128]:
        """Eigenvalues of ``W``, complex ``(n,)``; eigenvectors are the same in all rounds."""
        first_column = np.zeros(self.shape)
        first_column[(0,) * len(self.shape)] = self.kept(round)
        for step in self.steps(round):
            index = [0] * len(self.shape)
            index[step.axis] = step.shift
            first_column[tuple(index)] += step.weight
        spectrum: NDArray[np.complex128] = np.fft.fftn(first_column).ravel()
        return spectrum

    def kept(self, round: int) -> float:
        # Exactly rounded: the error of a hundred thousand small weights could hide a zero.
        return 1.0 - fsum(step.weight for step in self.steps(round))

    def matrix(self, round: int) -> csr_array:
        from scipy.sparse import csr_array

        nodes = np.arange(self.n)
        steps = self.steps(round)
        rows = [nodes, *(self._ahead(nodes, step) for step in steps)]
        weights = np.repeat([self.kept(round), *(step.weight for step in steps)], self.n)
        columns = np.tile(nodes, len(rows))
        return csr_array((weights, (np.concatenate(rows), columns)), shape=(self.n, self.n))

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        return tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    def _ahead(self, node: _NodeOrNodes, step: Step) -> _NodeOrNodes:
        size, stride = self.shape[step.axis], self._strides[step.axis]
        place = node // stride % size
        return node + ((place + step.shift) % size - place) * stride


def circulant(n: int, rounds: Sequence[Sequence[int]]) -> Cayley:
    """Even shares to the nodes at given distances ahead on a cycle of n.

    Args:
        rounds: Shifts of each round, in [1, n), distinct within a round.
    """
    return around(
        n, [[Step(shift, 1.0 / (len(shifts) + 1)) for shift in shifts] for shifts in rounds]
    )


def around(n: int, rounds: Sequence[Sequence[Step]]) -> Cayley:
    """Steps of any weights around a cycle of n; directed unless each has its inverse in its round.

    Args:
        rounds: Steps of each round, with shifts in [1, n), distinct within a round.
    """
    ahead = [{step.shift for step in steps} for steps in rounds]
    directed = any(shifts != {n - shift for shift in shifts} for shifts in ahead)
    return Cayley(shape=(n,), rounds=tuple(map(tuple, rounds)), directed=directed)
