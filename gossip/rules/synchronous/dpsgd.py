"""D-PSGD: after every step, average with all neighbors, round by round."""

from dataclasses import replace

from ...specs.parameter import checked
from ..robust.filters import NONE, Robust, parse_robust
from .mixing import MatrixRule
from .rounds import SYNCHRONOUS

__all__ = ["DPSGD"]


class DPSGD(MatrixRule):
    """``X <- (X - lr G) W``, synchronous: a round waits for every peer that is mixed in.

    Adapt, then combine: any optimizer takes its step, and the result is averaged with the
    topology's mixing matrix of the round. (The paper averages the models before the step,
    ``X W - lr G``.) The weights of peers are not used, a share carries one unit.

    With ``robust``, a part c of each neighbor's difference is taken, depending on its distance:
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
