"""RelaySGD: on a tree every model reaches every peer, with a delay that grows with distance."""

from dataclasses import replace
from typing import Final

from ...effects.effects import Halt, Wait, X
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...types import PeerId
from ..synchronous.rounds import SYNCHRONOUS, RoundRule

__all__ = ["RelaySGD"]

_OUT: Final = "out"

_TOTAL: Final = "total"
"""This peer's model plus the sums received from all neighbors."""

_FROM: Final = "from/"
"""Prefix of the registers that hold the sum received from each neighbor."""

_START: Final = "start/x"
"""The initial model, kept until all models have arrived."""


class RelaySGD(RoundRule):
    """``m_ij = z_i + sum of m_ki over k != j``, counts likewise, on a tree; then
    ``x_i+ = (z_i + sum_j m_ji + (n - count) x_0) / n``, where z is x after its optimizer step.

    In every round a peer sends each neighbor the sum of its own model and the sums received from
    the others. After as many rounds as the tree's diameter, every peer averages all n models; one
    from d edges away is d - 1 rounds old. So the limit does not depend on how much data differ.

    A share carries a mean, ``m / count``, and its count: formats that round the difference from the
    anchor suit it. The tree stays the same in every round.

    Source: Vogels, He, Koloskova, Karimireddy, Lin, Stich and Jaggi, NeurIPS 2021, algorithm 1, and
    its code.
    """

    name = "relaysgd"
    summary = "sums relayed over a tree: the mean of all, a little late"
    registers = (_OUT, _TOTAL, f"{_FROM}*", "start/*")
    requirements: Requirements = replace(SYNCHRONOUS, tree=True)

    def __init__(self) -> None:
        super().__init__()
        self._neighbors: tuple[PeerId, ...] = ()
        self._counts: dict[PeerId, int] = {}
        self._is_full = False

    def start(self, context: RuleContext) -> None:
        context.combine(_START, [(1.0, X)])

    def _send(self, context: RuleContext) -> Halt | None:
        if self._is_sent:
            return None
        neighbors = context.neighbors(self._round, self._members)
        self._neighbors = tuple(neighbors)
        told = [(1.0, _FROM + peer) for peer in self._counts]
        context.combine(_TOTAL, [(1.0, X), *told])
        for peer in neighbors:
            self._tell(context, peer)
        self._is_sent = True
        return None

    def _tell(self, context: RuleContext, peer: PeerId) -> None:
        count = 1 + sum(self._counts.values()) - self._counts.get(peer, 0)
        back = [(-1 / count, _FROM + peer)] if peer in self._counts else []
        context.combine(_OUT, [(1 / count, _TOTAL), *back])
        kept = context.keep(_OUT, (peer,))
        self._kept.append(kept)
        self._post(context, kept, (peer,), note=count)

    def _average(self, context: RuleContext) -> Wait | Halt | None:
        neighbors, members = self._neighbors, self._members
        shares = self._gather(context, neighbors)
        if isinstance(shares, Wait | Halt):
            return shares
        for share in shares.values():
            if share.note < 1 or share.form.registers > 1 or share.form.bare:
                return Halt(
                    f"a share of {share.sender} carries no sum: give all peers the same rule, "
                    "relaysgd"
                )
        for peer, share in shares.items():
            context.combine(_FROM + peer, [(float(share.note), share)])
            context.accept(share)
            self._counts[peer] = share.note
        n, count = len(members), 1 + sum(self._counts.values())
        # As in the code behind the paper's figures. Dividing by the count instead would be quicker
        # in the first rounds only.
        late = [((n - count) / n, _START)] if count < n else []
        told = [(1 / n, _FROM + peer) for peer in self._counts]
        context.combine(X, [(1 / n, X), *told, *late])
        if count == n and not self._is_full:
            self._is_full = True
            context.combine(_START, ())
        return None
