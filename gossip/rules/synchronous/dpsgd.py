"""One average, or one exchange, with neighbors after every step: D-PSGD, Swap."""

from dataclasses import replace

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...specs.parameter import checked
from ..robust.filters import NONE, Robust, parse_robust
from .mixing import MatrixRule, Terms
from .rounds import SYNCHRONOUS

__all__ = ["DPSGD", "Swap"]


class DPSGD(MatrixRule):
    """``X <- (X - lr G) W``, synchronous: a round waits for every peer that is mixed in.

    Adapt, then combine: any optimizer takes its step, and the result is averaged by the round's
    mixing matrix. (The paper averages the models before the step, ``X W - lr G``.) With ``robust``,
    a part c of each neighbor's difference is taken, depending on its distance:
    ``x_i + sum_j w_ij c_j (x_j - x_i)``.

    Source: Lian, Zhang, Zhang, Hsieh, Zhang and Liu, NeurIPS 2017, algorithm 1.
    """

    name = "dpsgd"
    summary = "the mean of neighbors, by the mixing matrix"

    @checked
    def __init__(self, *, robust: Robust = NONE) -> None:
        method = parse_robust(robust)
        super().__init__(method)
        self.robust = robust
        if method is not None:
            self.requirements = replace(SYNCHRONOUS, measures=True)


class Swap(MatrixRule):
    """``x_i <- x_j, x_j <- x_i`` for disjoint pairs, after every step; nothing is averaged.

    A model sees the data of all peers in turn, as if it traveled; the optimizer's state stays.
    Pairs are those of the topology's round. Models agree only at the end, when they merge.

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
