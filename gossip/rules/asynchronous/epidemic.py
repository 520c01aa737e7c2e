"""Epidemic learning: after every step, send the model to some random peers."""

from typing import Annotated

from ...effects.effects import Wait, X
from ...protocol.context import RuleContext
from ...specs.parameter import Parameter, checked
from ...weight import token

__all__ = ["Epidemic"]

# Leavers hand their weight on with 0.
_MODEL = 1


class Epidemic:
    """``x_i <- (x_i + x_j + ...) / (1 + k)`` over the k models received; no peer ever waits.

    After every step a peer sends its model to ``s`` others, drawn anew from *all* live peers. The
    paper has rounds; here a share counts on arrival, a step late, so that the mean of all models
    moves by ``(1 + k) / (1 + 2 k)`` of a step. That mean is kept only in expectation over the
    draws. A share carries one unit; the weights of peers are not used.

    Source: De Vos, Farhadkhani, Guerraoui, Kermarrec, Pires and Sharma, NeurIPS 2023, algorithm 1
    (EL-Local); EL-Oracle is ``dpsgd`` on a topology of random regular graphs.
    """

    name = "epidemic"
    summary = "the mean of what random peers sent"
    registers: tuple[str, ...] = ()

    @checked
    def __init__(
        self,
        s: Annotated[
            int,
            Parameter("peers that get the model after a step; about log2 n is enough.", low=1),
        ] = 2,
    ) -> None:
        self.s = s
        # Shares of the previous step may still be outstanding.
        self.outstanding_max = 4 * s

    def step(self, context: RuleContext) -> Wait | None:
        if context.merging:
            # Merging by weight, which is nearly the same at all peers, converges to one model.
            context.push_half()
        else:
            # Averaging first would dilute this peer's own step before others receive it.
            self._send(context)
        models = [share for share in context.shares() if share.epoch == _MODEL]
        for share in context.shares():
            if share.epoch != _MODEL:
                context.mix(share)
        if models:
            part = 1.0 / (1 + len(models))
            context.combine(X, [(part, X), *((part, share) for share in models)])
        for share in models:
            context.accept(share)
        return None

    def _send(self, context: RuleContext) -> None:
        others = [peer for peer in context.table.takers() if peer != context.me]
        for _ in range(min(self.s, len(others))):
            peer = context.draw(others)
            if peer is None:
                context.skip("no peer free")
                return
            others.remove(peer)
            context.push(peer, token(context.weight), epoch=_MODEL)
