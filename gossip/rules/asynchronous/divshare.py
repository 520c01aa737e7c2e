"""DivShare: after every step, each fragment of the model to random peers of its own."""

from typing import Annotated

from ...effects.effects import Wait
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...specs.parameter import Parameter, checked
from ...weight import WEIGHT_MIN, coarse

__all__ = ["DivShare"]


class DivShare:
    """Fragments go different ways, so that a slow link holds up some of them and not the model.

    The vector is cut into ``1 / fraction`` shards, the fragments. After every step a peer sends
    each of them to ``s`` peers, drawn anew for each from *all* who live, in a random order. What
    finds no free peer, or no bandwidth, is left out this time: where links carry only a part of
    the model in a step, that part gets through, another one each time.

    In the paper a peer takes the plain mean of its own fragment and of those that came. Here each
    fragment has weights of its own, which are split evenly among those who get it and who keeps
    it, and mixing is by weight: with equal weights it is that mean, and the mean of all models
    does not drift where some get more than others.

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
        # One may be under way to whom it was sent a step ago.
        self.outstanding_max = 4 * s * n_fragments
        self.requirements = Requirements(whole=False, shards=n_fragments, staged_max=4 * s + 8)

    def step(self, context: RuleContext) -> Wait | None:
        """Send the fragments out, and mix those that have come.

        In this order: mixed away, a step would hardly be heard of.
        """
        if context.merging:
            # By halves: that tends to one model in fewer messages.
            context.push_half()
        else:
            for fragment in context.rng.permutation(context.n_shards).tolist():
                self._send(context, fragment)
        for share in context.shares():
            context.mix(share)
        return None

    def _send(self, context: RuleContext, fragment: int) -> None:
        others = [peer for peer in context.live() if peer != context.me]
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
