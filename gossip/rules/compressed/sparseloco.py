"""SparseLoCo: every h steps, send the largest of their changes, with error feedback."""

from dataclasses import replace
from typing import Annotated

from ...effects.effects import Halt, Wait, X
from ...protocol.context import RuleContext
from ...specs.parameter import Parameter, checked
from ..outer.elastic import STEPS
from ..synchronous.mixing import Terms, scaled
from ..synchronous.rounds import SYNCHRONOUS, RoundRule, why_unlike

__all__ = ["SparseLoCo"]

PHI = "phi"
"""The register of the model after the last round, which is the same at all peers."""

ERROR = "error"
"""The register of e: changes not sent yet."""


class SparseLoCo(RoundRule):
    """``e <- decay e + (phi - x)``, ``q = Q(e)``, ``e <- e - q``, ``phi <- phi - lr mean_j q_j``,
    ``x = phi``, where x is phi after h optimizer steps, and Q compresses to the wire format.

    What Q loses stays in e and is sent with a later q; e takes the place of an outer momentum. Each
    peer sends q to every other and sums the same numbers as they do, in the same order, so that all
    have the same bits in phi. phi itself is sent only in the first round, which is an exact mean of
    all models.

    The format is that of the run: ``topk2bit:0.0156`` in the paper.

    Source: Sarfi, Therien, Lidin and Belilovsky 2025, algorithm 1, with the defaults of their
    experiments.
    """

    name = "sparseloco"
    summary = "what h steps have changed, compressed, with error feedback"
    requirements = replace(SYNCHRONOUS, bare=True)
    registers = (PHI, ERROR)
    reads_own = True

    @checked
    def __init__(
        self,
        *,
        h: Annotated[int, Parameter(f"{STEPS}; 15 to 50 in the paper.", low=1)] = 15,
        lr: Annotated[
            float, Parameter("outer learning rate; .4 in the paper.", low=0, high=2)
        ] = 0.4,
        decay: Annotated[
            float,
            Parameter(
                "part of what was not sent that is left a round later; .95 in the paper.",
                low=0,
                high=1,
            ),
        ] = 0.95,
    ) -> None:
        super().__init__(h)
        self.lr = lr
        self.decay = decay

    def _send(self, context: RuleContext) -> Wait | Halt | None:
        if self._is_sent or len(self._members) == 1:
            return None
        others = [peer for peer in self._members if peer != context.me]
        is_first = self._round == 0
        if is_first:
            context.combine(ERROR, [(1.0, X)])
        else:
            context.combine(ERROR, [(self.decay, ERROR), (1.0, PHI), (-1.0, X)])
        kept = context.keep(ERROR, others, bare=True, whole=is_first)
        self._kept.append(kept)
        context.combine(ERROR, [(1.0, ERROR), (-1.0, kept.as_sent)])
        self._post(context, kept, others)
        self._is_sent = True
        return None

    def _average(self, context: RuleContext) -> Wait | Halt | None:
        members = self._members
        others = [peer for peer in members if peer != context.me]
        if not others:
            return None
        shares = self._gather(context, others)
        if isinstance(shares, Wait | Halt):
            return shares
        for peer, share in shares.items():
            unlike = why_unlike(share, self._kept[-1], self.name)
            if unlike:
                return Halt(f"a share of {peer} {unlike}")
        # Sorted by id: the same terms in the same order add up to the same bits at every peer.
        terms = [shares[peer] if peer in shares else self._kept[-1].as_sent for peer in members]
        mean: Terms = [(1 / len(members), term) for term in terms]
        context.combine(PHI, [(1.0, PHI), *scaled(-self.lr, mean)] if self._round else mean)
        context.combine(X, [(1.0, PHI)])
        for share in shares.values():
            context.accept(share)
        return None
