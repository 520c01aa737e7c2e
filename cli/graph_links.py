"""The links of a round as a picture shows them: each pair once, and how strong a line it gets."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..topology import Topology

__all__ = ["Links", "Scale", "links_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Links:
    """Who pushes to whom in one round, each pair of nodes once."""

    low: Ints
    """One end, int64 ``(pair,)``."""

    high: Ints
    """The other end, of the larger number."""

    up: NDArray[np.bool_]
    """Whether low pushes to high."""

    down: NDArray[np.bool_]
    """Whether high pushes to low."""

    values: Floats
    """Weight, or Mbit/s where it is known; the larger one of both ways."""


def links_of(topology: Topology, round: int) -> Links:
    """Read the links of a round off its matrix."""
    matrix = topology.matrix(round).tocoo()
    receivers, senders = (part.astype(np.int64) for part in matrix.coords)
    values = matrix.data
    if topology.bandwidth is not None:
        values = np.asarray(topology.bandwidth[senders, receivers]).ravel()
    off = receivers != senders
    receivers, senders, values = receivers[off], senders[off], values[off]
    keys = np.minimum(receivers, senders) * topology.n + np.maximum(receivers, senders)
    pairs, index = np.unique(keys, return_inverse=True)
    up, down = np.zeros(len(pairs), bool), np.zeros(len(pairs), bool)
    up[index[senders < receivers]] = True
    down[index[senders > receivers]] = True
    largest = np.zeros(len(pairs))
    np.maximum.at(largest, index, values)
    return Links(low=pairs // topology.n, high=pairs % topology.n, up=up, down=down, values=largest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """How wide and how dark a line is for its value, the same in all rounds of a picture."""

    least: float
    most: float
    is_log: bool = False
    """Bandwidths span orders of magnitude."""

    @property
    def is_flat(self) -> bool:
        """Whether all lines are alike."""
        return self.most - self.least <= 1e-9 * self.most

    def strength(self, values: Floats) -> Floats:
        """From above 0 to 1, the strongest."""
        if self.is_flat:
            return np.ones_like(values)
        if self.is_log:
            values = np.log(values / self.least)
            return np.asarray(0.35 + 0.65 * values / np.log(self.most / self.least))
        return values / self.most

    @staticmethod
    def over(rounds: Sequence[Links], *, is_log: bool) -> "Scale":
        """The scale that these rounds need."""
        values = np.concatenate([np.empty(0), *(links.values for links in rounds)])
        if not len(values):
            return Scale(least=1.0, most=1.0)
        return Scale(least=float(values.min()), most=float(values.max()), is_log=is_log)
