"""Outer rounds of all peers: local SGD, and DiLoCo with outer Nesterov momentum."""

from typing import Annotated

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...specs.parameter import Parameter, checked
from ..synchronous.mixing import OUT, scaled
from .elastic import STEPS, Came, OuterRule

__all__ = ["DiLoCo", "LocalSGD"]


class LocalSGD(OuterRule):
    """``x_i <- mean of all x_j`` after every h optimizer steps, in elastic rounds.

    Each peer sends its model to every other, n - 1 pushes a round. Those that receive the same
    shares end a round with the same bits.

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


_PHI = "phi"
_MOMENTUM = "momentum"


class DiLoCo(OuterRule):
    """``d = phi - mean x_j``, ``m <- mu m + d``, ``phi <- phi - lr (d + mu m)``, ``x = phi``.

    phi is a peer's model after its last round, x the same after h optimizer steps. Each peer sends
    x to every other, n - 1 pushes a round, and takes the outer step by itself: with the same phi, m
    and shares, all end a round with the same bits. With ``lr=1`` and ``momentum=0`` this is local
    SGD.

    phi and m are never sent. A newcomer takes its donor's model as phi, and has no momentum; the
    difference shrinks geometrically for every ``mu < 1`` and ``0 < lr < (2 + 2 mu) / (1 + 2 mu)``.

    Source: Douillard, Feng, Rusu, Chhaparia, Donchev, Kuncoro, Ranzato, Szlam and Shen, 2023,
    algorithm 1, with outer Nesterov momentum; the inner optimizer is whatever trains the peer.
    """

    name = "diloco"
    summary = "outer Nesterov momentum on the mean of all, every h steps"
    registers = (*OUT, _PHI, _MOMENTUM)
    models = (_PHI,)

    @checked
    def __init__(
        self,
        *,
        h: Annotated[int, Parameter(f"{STEPS}; 50 to 500 in the paper.", low=1)] = 50,
        lr: Annotated[
            float, Parameter("outer learning rate; .7 in the paper.", low=0, high=2)
        ] = 0.7,
        momentum: Annotated[
            float,
            Parameter("part of the momentum that a round keeps; .9 in the paper.", low=0, high=1),
        ] = 0.9,
    ) -> None:
        super().__init__(h)
        self.lr = lr
        self.momentum = momentum

    def take(self, context: RuleContext, came: Came, sent: str) -> None:
        lr, mu = self.lr, self.momentum
        mean = [(1 / len(came), term) for term in came.values()]
        context.combine(_MOMENTUM, [(mu, _MOMENTUM), (1.0, _PHI), *scaled(-1.0, mean)])
        context.combine(_PHI, [(1.0 - lr, _PHI), *scaled(lr, mean), (-lr * mu, _MOMENTUM)])
        context.combine(X, [(1.0, _PHI)])
