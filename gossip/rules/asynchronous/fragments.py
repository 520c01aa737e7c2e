"""Gossip of parts of the model, each with weights of its own: SPARTA, DivShare."""

from abc import ABC, abstractmethod
from typing import Annotated

from ...effects.effects import Wait
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...specs.parameter import Parameter, checked
from ...weight import WEIGHT_MIN, coarse, half

__all__ = ["DivShare", "Sparta"]


class _PartRule(ABC):
    registers: tuple[str, ...] = ()

    def step(self, context: RuleContext) -> Wait | None:
        if context.merging:
            # Training is over: only agreement counts, on every part.
            context.push_half()
        else:
            # Mixing first would dilute this peer's own step before others receive it.
            self._push(context)
        for share in context.shares():
            context.mix(share)
        return None

    @abstractmethod
    def _push(self, context: RuleContext) -> None:
        """Push parts of the model after a step."""


class Sparta(_PartRule):
    """Sum-weight gossip of sparse parts: no peer ever waits, and pushes are small.

    The vector is cut into ``1 / fraction`` shards of scattered numbers, each with its own weights.
    After every step a peer pushes one of them, with half of its weight, to a random neighbor. In
    the paper all peers average the same part at the same step, which is a barrier.

    Source: Beton, Baioumy, van der Ouderaa, Reed, Howes, Cheema and Vrabie 2025; the parts are a
    random partition in their code as well.
    """

    name = "sparta"
    summary = "a random part of the model with one peer"
    outstanding_max = 8

    @checked
    def __init__(
        self,
        fraction: Annotated[
            float,
            Parameter(
                "part of the model that a push carries; .0005 to .005 in the paper, .01 so that "
                "small models can be cut so. More means models closer together, and more traffic.",
                low=0.0001,
                high=0.5,
            ),
        ] = 0.01,
    ) -> None:
        self.fraction = fraction
        self.requirements = Requirements(whole=False, shards=round(1 / fraction), scattered=True)

    def _push(self, context: RuleContext) -> None:
        shard = int(context.rng.integers(context.n_shards))
        weight = context.weight_of(shard)
        if weight < WEIGHT_MIN:
            context.skip("too little weight")
            return
        peer = context.draw(shards=(shard,))
        if peer is None:
            context.skip()
        else:
            context.push_shards(peer, {shard: half(weight)})


class DivShare(_PartRule):
    """Send fragments to different peers, so that a slow link delays only some of the model.

    The vector is cut into ``1 / fraction`` shards. After every step a peer sends each to ``s``
    peers, drawn anew from *all* live peers, in a random order; without a free peer it is
    skipped. In the paper a peer takes the plain mean. Here the weights of each fragment are
    split evenly between the sender and its receivers, so that the mean of all models does not
    drift.

    Source: Biswas, Kermarrec, Marouani, Pires, Sharma and de Vos, WWW 2025, algorithms 1 and 2.
    """

    name = "divshare"
    summary = "fragments, each to random peers of its own"

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

    def _push(self, context: RuleContext) -> None:
        for fragment in context.rng.permutation(context.n_shards).tolist():
            self._send(context, fragment)

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
