"""CHOCO-SGD: peers average estimates of their models, and send only compressed changes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from ...effects.effects import X
from ...protocol.context import RuleContext
from ...protocol.share import Kept, Share, Term
from ...specs.parameter import Parameter, checked
from ...types import PeerId
from ...wire.formats import Form, parse_wire
from ..synchronous.mixing import MatrixRule, Terms
from ..synchronous.rounds import SYNCHRONOUS, why_unlike

__all__ = ["Choco"]

_DIFFERENCE = "difference"

ESTIMATE = "estimate"
"""The register of xhat: this peer's model as all others estimate it."""

MEAN = "mean"
"""The register of ``s``: the average of this peer's estimates of its neighbors and itself."""


class Choco(MatrixRule):
    """``q = Q(z - xhat)``, ``xhat += q``, ``s += sum_j W_ij q_j``, ``x+ = z + gamma (s - xhat)``,
    where z is x after its optimizer step, and Q rounds to the wire format.

    What Q loses stays in ``z - xhat`` and is sent with a later q: models agree however coarse Q is,
    if `gamma` is small enough. ``s`` is ``sum_j W_ij xhat_j``, so that neighbors' xhat need not be
    stored. That holds only if every receiver adds the same q, bit for bit, as its sender: q is
    copied out once, and its sender reads what its receivers read. W must be symmetric, and the same
    in every round.

    Source: Koloskova, Stich and Jaggi, ICML 2019, algorithm 2, in the form with one more vector for
    all neighbors (their appendix).
    """

    name = "choco"
    summary = "D-PSGD of differences, in any wire format"
    requirements = replace(SYNCHRONOUS, bare=True)
    both_ways = True
    registers = (_DIFFERENCE, ESTIMATE, MEAN)
    reads_own = True

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

    def take(self, context: RuleContext, average: Terms) -> None:
        context.combine(ESTIMATE, [(1.0, ESTIMATE), (1.0, self._own())])
        context.combine(MEAN, [(1.0, MEAN), *average])
        if len(average) > 1:
            gamma = self.gamma or _gamma_of(self._kept[-1].form)
            context.combine(X, [(1.0, X), (gamma, MEAN), (-gamma, ESTIMATE)])

    def _fill(self, context: RuleContext, neighbors: Sequence[PeerId]) -> Kept:
        context.combine(_DIFFERENCE, [(1.0, X), (-1.0, ESTIMATE)])
        # Sent in full: under topk the initial models would take many rounds.
        is_first = self._round == 0
        self._kept.append(context.keep(_DIFFERENCE, neighbors, bare=True, whole=is_first))
        return self._kept[-1]

    def _own(self) -> Term:
        return self._kept[-1].as_sent

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
        return why_unlike(share, self._kept[-1], self.name)


def _gamma_of(form: Form) -> float:
    # As measured on rings of 16. The authors use 1 for exact shares, .34 for 4 bits, .04 for the
    # largest 1 % and .01 for a random 1 %.
    wire = parse_wire(form.wire)
    return 1.0 if wire.is_dense else wire.fraction**0.5
