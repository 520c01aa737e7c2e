"""DivShare: after every step, send each fragment of the model to its own random peers."""

from typing import Annotated

from ...effects.effects import Wait
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...specs.parameter import Parameter, checked
from ...weight import WEIGHT_MIN, coarse

__all__ = ["DivShare"]


class DivShare:
    """Send fragments to different peers, so that a slow link delays only some of the model.

    The vector is cut into ``1 / fraction`` shards, the fragments. After every step a peer sends
    each fragment to ``s`` peers, drawn anew from *all* live peers, in a random order. A fragment
    without a free peer or bandwidth is skipped this time: if links carry only a part of the model
    per step, that part gets through, a different one each time.

    In the paper a peer takes the plain mean of its own fragment and the received ones. Here each
    fragment has its own weights, which are split evenly between the sender and its receivers, and
    mixing is by weight: with equal weights it is that mean, and the mean of all models does not
    drift when some peers receive more than others.

    Source: Biswas, Kermarrec, Marouani, Pires, Sharma and de Vos, WWW 2025, algorithms 1 and 2.
    """

    name = "divshare"
    summary = "fragments, each to random peers of its own"
    registers: tuple[str, ...] = ()

    @checked
    def __init__(
        self,
        s: Annotated[
            int,
            Parameter(
                "peers that get each fragment after a step; log2 n in the paper, 2 to be cheap.",
                low=1,
            ),
        ] = 2,
        *,
        fraction: Annotated[
            float,
            Parameter("part of the model that a fragment is; .1 in the paper.", low=0.001, high=1),
        ] = 0.1,
    ) -> None:
        self.s = s
        self.fraction = fraction
        n_fragments = round(1 / fraction)
        # Shares of the previous step may still be outstanding.
        self.outstanding_max = 4 * s * n_fragments
        self.requirements = Requirements(whole=False, shards=n_fragments, staged_max=4 * s + 8)

    def step(self, context: RuleContext) -> Wait | None:
        """Send the fragments, then mix those received.

        Mixing first would dilute this peer's own step before others receive it.
        """
        if context.merging:
            # Pushing halves reaches agreement in fewer messages.
            context.push_half()
        else:
            for fragment in context.rng.permutation(context.n_shards).tolist():
                self._send(context, fragment)
        for share in context.shares():
            context.mix(share)
        return None

    def _send(self, context: RuleContext, fragment: int) -> None:
        others = [peer for peer in context.table.takers() if peer != context.me]
        part = coarse(context.weight_of(fragment) // (1 + min(self.s, len(others))))
        for _ in range(min(self.s, len(others))):
            if context.weight_of(fragment) < WEIGHT_MIN:
                context.skip("too little weight")
                return
            peer = context.draw(others, (fragment,))
            if peer is None:
                context.skip("no peer free")
                return
            others.remove(peer)
            context.push_shards(peer, {fragment: part})
