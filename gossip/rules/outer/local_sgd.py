"""Local SGD: every h steps, everybody gets the mean of all who are there."""

from dataclasses import replace
from typing import Annotated

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...protocol.share import Share
from ...specs.parameter import Parameter, checked
from .elastic import COUNTS
from .rule import STEPS, Came, OuterRule

__all__ = ["LocalSGD"]


class LocalSGD(OuterRule):
    """``x_i <- mean of all x_j`` after every h optimizer steps, in elastic rounds.

    Each peer sends its model to every other, n - 1 pushes a round. Who takes part is whoever lives;
    all who hear the same shares end a round with the same bits.

    With ``by_samples``, the mean is weighted by how many samples each peer has trained on since its
    last round; that number goes along in the share's note.

    Raises:
        ConfigError: An argument is out of range.

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
        by_samples: Annotated[
            bool,
            Parameter("whether models are weighed by the samples that steps took; else all alike."),
        ] = False,
    ) -> None:
        super().__init__(h)
        self.by_samples = by_samples
        if by_samples:
            self.requirements = replace(self.requirements, by_samples=True)

    def take(self, context: RuleContext, came: Came, sent: str) -> None:
        """Go on from the mean, weighted by samples where that is asked for."""
        if not self.by_samples:
            super().take(context, came, sent)
            return
        samples = [
            max(1, term.note - COUNTS) if isinstance(term, Share) else self._sent_samples
            for term in came.values()
        ]
        total = sum(samples)
        if set(came) != {context.me}:
            terms = zip(samples, came.values(), strict=True)
            context.combine(X, [(n / total, term) for n, term in terms])
