"""SPARTA: after every step, push a small random part of the model to one peer."""

from typing import Annotated

from ...effects.effects import Wait
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...specs.parameter import Parameter, checked
from ...weight import WEIGHT_MIN, half

__all__ = ["Sparta"]


class Sparta:
    """Sum-weight gossip of sparse parts: no peer ever waits, and pushes are small.

    The vector is cut into ``1 / fraction`` shards of scattered numbers, each with its own weights.
    After every step a peer draws one shard and pushes it, with half of its weight, to a random
    neighbor. A number is sent once in ``1 / fraction`` steps, and yet models stay close, because
    few numbers move far in that many steps.

    In the paper all peers average the same part at the same step, which is a barrier, with traffic
    that grows with the number of peers; for more than 16, its authors suggest gossip.

    Source: Beton, Baioumy, van der Ouderaa, Reed, Howes, Cheema and Vrabie 2025; the parts are a
    random partition in their code as well.
    """

    name = "sparta"
    summary = "a random part of the model with one peer"
    registers: tuple[str, ...] = ()

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
        *,
        outstanding_max: Annotated[
            int,
            Parameter("shares that may be outstanding at once; further pushes are skipped.", low=1),
        ] = 8,
    ) -> None:
        self.fraction = fraction
        self.outstanding_max = outstanding_max
        self.requirements = Requirements(whole=False, shards=round(1 / fraction), scattered=True)

    def step(self, context: RuleContext) -> Wait | None:
        if context.merging:
            # Training is over: only agreement counts, on every part.
            context.push_half()
        else:
            self._push_part(context)
        for share in context.shares():
            context.mix(share)
        return None

    def _push_part(self, context: RuleContext) -> None:
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
