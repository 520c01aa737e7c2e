"""Swap: the two peers of a random pair exchange their models."""

from ...effects.effects import X
from ...protocol.context import RuleContext
from .mixing import MatrixRule, Terms

__all__ = ["Swap"]


class Swap(MatrixRule):
    """``x_i <- x_j, x_j <- x_i`` for disjoint pairs, after every step; nothing is averaged.

    A model sees the data of all peers in turn, as if it traveled; the optimizer's state stays.
    Pairs are those of the topology's round: ``random-matching``, ``hypercube-matching``,
    ``base-k:k=1``. The mean of all models is kept. Models agree only at the end, when they merge.

    Source: Ma, Mao and Taylor 2016, Theano-MPI.
    """

    name = "swap"
    summary = "pairs exchange models"
    both_ways = True
    neighbors_max = 1
    topologies = "random-matching, hypercube-matching or base-k:k=1"

    def take(self, context: RuleContext, average: Terms) -> None:
        for _, share in average[1:]:
            context.combine(X, [(1.0, share)])
