"""Stochastic gradient push: after every step, share out to all out-neighbors of the round."""

from typing import Annotated

from ...effects.effects import Wait
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...specs.parameter import Parameter, checked
from ...types import PeerId
from ...weight import WEIGHT_MIN, coarse
from ..robust.filters import NONE, Robust
from ..robust.mixing import RobustMixing

__all__ = ["SGP"]


class SGP:
    """Push-sum, overlapped and asynchronous: no peer ever waits.

    After every step a peer splits its weight evenly between itself and its out-neighbors of the
    round, so edges may be directed, and mixes by weight what has arrived.

    The paper keeps a numerator x and a weight w, and takes gradients at z = x / w. Here the vector
    *is* z, so any optimizer steps on it, and a peer moves the swarm's mean in proportion to its
    weight. If all peers have as many in- as out-neighbors, w stays near 1 and the two are alike.

    Source: Assran, Loizou, Ballas and Rabbat, ICML 2019, algorithm 2 (overlapped); the weights are
    those of Kempe, Dobra and Gehrke, FOCS 2003.
    """

    name = "sgp"
    summary = "push-sum to all neighbors"
    registers: tuple[str, ...] = ()

    @checked
    def __init__(
        self,
        *,
        outstanding_max: Annotated[
            int,
            Parameter(
                "shares that may be outstanding at once. A push that finds its neighbor busy, or "
                "no credit, is skipped, and its weight stays.",
                low=1,
            ),
        ] = 64,
        robust: Robust = NONE,
    ) -> None:
        self.outstanding_max = outstanding_max
        self.robust = robust
        self._mixing = RobustMixing(robust)
        self.requirements = Requirements(
            staged_max=outstanding_max, whole=False, measures=robust != NONE
        )
        self._round = 0
        self._passed_over: PeerId | None = None

    def step(self, context: RuleContext) -> Wait | None:
        if context.merging and not context.measured:
            # Training is over: pushing one half at a time reaches agreement in fewer messages.
            context.push_half()
        elif not context.measured:
            self._share_out(context)
        self._mixing.mix(context)
        return None

    def _share_out(self, context: RuleContext) -> None:
        neighbors = context.neighbors(self._round)
        self._round += 1
        parts = len(neighbors) + 1
        weights = {shard: coarse(context.weight_of(shard) // parts) for shard in context.shards}
        # The neighbor that was skipped comes first next time: with little credit, the last
        # in the order would give all its weight away and never get any.
        first = neighbors.index(self._passed_over) if self._passed_over in neighbors else 0
        self._passed_over = None
        for peer in (*neighbors[first:], *neighbors[:first]):
            heavy = {s: given for s, given in weights.items() if context.weight_of(s) >= WEIGHT_MIN}
            if not heavy:
                context.skip("too little weight")
            elif context.can_push(peer):
                context.push_shards(peer, heavy, round=self._round)
            else:
                context.skip("no credit")
                self._passed_over = self._passed_over or peer
        context.next_shards()
