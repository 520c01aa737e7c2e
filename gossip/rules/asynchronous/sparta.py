"""SPARTA: after every step, a small random part of the model with one peer."""

from typing import Annotated

from ...effects.effects import Wait
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...specs.parameter import Parameter, checked
from ...weight import WEIGHT_MIN, half

__all__ = ["Sparta"]


class Sparta:
    """Sum-weight gossip of sparse parts: nobody ever waits, and a push is next to nothing.

    The vector is cut into ``1 / fraction`` shards of scattered numbers, each with weights of its
    own. After every step a peer draws one of them, and pushes it, with half of its weight, to a
    random neighbor. A number is told once in ``1 / fraction`` steps, and yet models stay close,
    because in so many steps hardly any of them moves far.

    In the paper the peers average the same part at the same step, all of them with one another,
    which is a barrier, and traffic that grows with their number; gossip is what its authors name
    as the way beyond 16.

    Source: Beton, Baioumy, van der Ouderaa, Reed, Howes, Cheema and Vrabie 2025; in their code,
    too, the parts are a random partition.
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
            # Nobody trains any more: agreement is all that counts, about every part.
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
