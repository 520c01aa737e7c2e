"""Local SGD: every h steps, every peer gets the mean of all live peers."""

from typing import Annotated

from ...specs.parameter import Parameter, checked
from .elastic import STEPS, OuterRule

__all__ = ["LocalSGD"]


class LocalSGD(OuterRule):
    """``x_i <- mean of all x_j`` after every h optimizer steps, in elastic rounds.

    Each peer sends its model to every other, n - 1 pushes a round. All live peers take part; those
    that receive the same shares end a round with the same bits.

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
