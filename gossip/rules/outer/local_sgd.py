"""Local SGD: every h steps, everybody gets the mean of all who are there."""

from typing import Annotated

from ...specs.parameter import Parameter, checked
from .elastic import STEPS, OuterRule

__all__ = ["LocalSGD"]


class LocalSGD(OuterRule):
    """``x_i <- mean of all x_j`` after every h optimizer steps, in elastic rounds.

    Each peer sends its model to every other, n - 1 pushes a round. Who takes part is whoever lives;
    all who hear the same shares end a round with the same bits.

    Source: Stich, ICLR 2019, algorithm 1; McMahan, Moore, Ramage, Hampson and Aguera y Arcas,
    AISTATS 2017 (FederatedAveraging, with every client in every round, and no server).
    """

    name = "local-sgd"
    summary = "the mean of all, every h steps"

    @checked
    def __init__(
        self,
        *,
        h: Annotated[int, Parameter(f"{STEPS}; 50 so that it compares with diloco.", low=1)] = 50,
    ) -> None:
        super().__init__(h)
