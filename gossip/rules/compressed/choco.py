"""CHOCO-SGD: peers average what they know of one another, and tell only what has changed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from ...effects.effects import Halt, Wait, X
from ...protocol.context import RuleContext
from ...protocol.share import Kept, Share, Term
from ...specs.parameter import Parameter, checked
from ...types import PeerId
from ...wire.formats import Form, parse_wire
from ..synchronous.mixing import MatrixRule, Terms
from ..synchronous.rounds import SYNCHRONOUS, KeptShares, why_unlike

__all__ = ["Choco"]

_DIFFERENCE = "difference"

ESTIMATE = "estimate"
"""The register of xhat: what all others believe that this peer's model is."""

MEAN = "mean"
"""The register of ``s``: the average of what this peer believes of its neighbors and itself."""


class Choco(MatrixRule):
    """``q = Q(z - xhat)``, ``xhat += q``, ``s += sum_j W_ij q_j``, ``x+ = z + gamma (s - xhat)``,
    where z is x after its optimizer step, and Q what rounding to the wire's format does.

    What is lost in Q stays in ``z - xhat``, and goes along with a later q: models come to agree
    however coarse Q is, as long as `gamma` is small enough. ``s`` is ``sum_j W_ij xhat_j``,
    so that no neighbor's xhat is kept. That holds only if everybody counts the same q, bit for bit,
    as its sender does: q is copied out once, its sender reads what its receivers read, and a share
    that has to be sent again is the same bytes.

    W must be symmetric, and the same in every round. xhat begins with zeros; the first q goes in
    full, whatever the format: ``topk`` would take as many rounds to tell where models begin as it
    leaves numbers out.

    Any optimizer will do.

    Source: Koloskova, Stich and Jaggi, ICML 2019, algorithm 2, in the form with one more vector
    for all neighbors (their appendix).
    """

    name = "choco"
    summary = "D-PSGD of differences, in any wire format"
    requirements = replace(SYNCHRONOUS, bare=True)
    both_ways = True
    registers = (_DIFFERENCE, ESTIMATE, MEAN)

    @checked
    def __init__(
        self,
        *,
        gamma: Annotated[
            float,
            Parameter(
                "part of the way to the average that a round goes, the same at all peers; 0 for "
                "what suits the format: 1 where every number is sent, and the root of the fraction "
                "under topk. Less is slower, more diverges under topk.",
                low=0,
                high=1,
            ),
        ] = 0.0,
    ) -> None:
        super().__init__()
        self.gamma = gamma
        self._kept = KeptShares()

    def take(self, context: RuleContext, average: Terms) -> None:
        """Count every q, and move toward the average of what is known."""
        context.combine(ESTIMATE, [(1.0, ESTIMATE), (1.0, self._own())])
        context.combine(MEAN, [(1.0, MEAN), *average])
        if len(average) > 1:
            gamma = self.gamma or _gamma_of(self._kept.last.form)
            context.combine(X, [(1.0, X), (gamma, MEAN), (-gamma, ESTIMATE)])

    def step(self, context: RuleContext) -> Wait | Halt | None:
        outcome = super().step(context)
        self._kept.let_go(context, self._rounds, reads_last=self._is_sent)
        return outcome

    def _fill(self, context: RuleContext, neighbors: Sequence[PeerId]) -> Kept:
        context.combine(_DIFFERENCE, [(1.0, X), (-1.0, ESTIMATE)])
        is_first = self._round == 0
        return self._kept.add(context.keep(_DIFFERENCE, neighbors, bare=True, whole=is_first))

    def _own(self) -> Term:
        return self._kept.last.as_sent

    def _why_unfit(
        self, context: RuleContext, weights: Mapping[PeerId, float], neighbors: Sequence[PeerId]
    ) -> str:
        if self._weights and weights != self._weights:
            return (
                f"{self.name} needs the same weights in every round, and those of {context.me} "
                f"change in round {self._round}: use a topology such as {self.topologies}"
            )
        return super()._why_unfit(context, weights, neighbors)

    def _why_foreign(self, share: Share) -> str:
        return why_unlike(share, self._kept.last, self.name)


def _gamma_of(form: Form) -> float:
    """What makes models agree fast, and safely, as measured on rings of 16.

    In the authors' experiments: 1 for exact shares, .34 for 4 bits, .04 for the 1 % that are
    largest and .01 for 1 % at random.
    """
    wire = parse_wire(form.wire)
    return 1.0 if wire.is_dense else wire.fraction**0.5
