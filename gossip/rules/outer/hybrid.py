"""Hybrid: the peers of one machine act as one, and machines gossip."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Final

from ...effects.effects import Wait, X
from ...protocol.context import RuleContext
from ...protocol.share import Share
from ...specs.parameter import Parameter, checked
from ...types import PeerId
from ...weight import WEIGHT_MIN, half, mixing_fraction
from ..synchronous.mixing import OUT, Terms
from ..synchronous.rounds import EPOCH
from .elastic import ELASTIC, Came, OuterRule

__all__ = ["Hybrid"]

_BETWEEN: Final = EPOCH + 1
"""Marks shares that go from machine to machine."""

_GROUP = "group"
_BEFORE = "before"


class Hybrid(OuterRule):
    """The mean of all on one machine after every step, and sum-weight gossip between machines.

    A machine's peers keep step, as under `LocalSGD` among themselves; they end a round with one
    model y. The *leader*, the first active peer by id, then pushes y with half of its weight to
    another leader, and mixes the shares of others into y: ``y <- (w y + w_s y_s) / (w + w_s)``. The
    whole machine moves as far in the next round, because the leader sends ``x + n (y - y_before)``,
    where the mean is of n peers. The active peers are those that still train, or all if none does.

    Source: Ahn et al. 2018, ShmCaffe, hybrid SGD (ShmCaffe-H), whose groups exchange with one
    segment of all machines, where these gossip (Blot, Picard, Cord and Thome 2016).
    """

    name = "hybrid"
    summary = "the mean of a machine after every step, machines gossip"
    registers = (*OUT, _GROUP, _BEFORE)
    models = (_GROUP, _BEFORE)
    requirements = replace(ELASTIC, by_machine=True)
    own_epoch = _BETWEEN

    @checked
    def __init__(
        self,
        *,
        between: Annotated[
            float,
            Parameter(
                "probability that a machine pushes to another one after a round; 1 in the paper, "
                "where all exchange after every step.",
                low=0,
                high=1,
            ),
        ] = 1.0,
        h: Annotated[
            int, Parameter("optimizer steps from mean to mean; 1 in the paper.", low=1)
        ] = 1,
    ) -> None:
        super().__init__(h)
        self.between = between
        # Number of peers in the mean that received shares should move; 0 without any.
        self._moved = 0

    def start(self, context: RuleContext) -> None:
        super().start(context)
        self._moved = 0

    def step(self, context: RuleContext) -> Wait | None:
        before = self._round
        if context.finished:
            self.relays = not any(map(context.trains, _beside(context)))
        if not (self._is_open or self._is_new):
            for share in context.shares():
                if share.epoch == _BETWEEN:
                    self.hear(context, share)
        wait = super().step(context)
        if self._round > before and not context.merging:
            self.tell(context)
        return wait

    def hear(self, context: RuleContext, share: Share) -> None:
        if context.merging or (context.finished and not self.relays):
            context.mix(share)
            return
        fraction = mixing_fraction(context.weight, share.weight)
        context.combine(_GROUP, [(1.0 - fraction, _GROUP), (fraction, share)])
        context.accept(share)
        beside = _beside(context)
        self._moved = len([*filter(context.trains, beside)] or beside)

    def tell(self, context: RuleContext) -> None:
        """Push this machine's model to another one, with probability `between`, if leading it."""
        leaders = _leaders(context)
        if context.me not in leaders or len(leaders) < 2 or context.weight < WEIGHT_MIN:
            return
        if context.rng.random() >= self.between:
            return
        other = context.draw(among=[peer for peer in leaders if peer != context.me])
        if other is None:
            context.skip("no machine free")
        else:
            context.push(other, half(context.weight), epoch=_BETWEEN)

    def partners(self, context: RuleContext, round: int) -> Iterable[PeerId]:
        return _beside(context)

    def outgoing(self) -> Terms:
        if not self._moved:
            return super().outgoing()
        return ((1.0, X), (float(self._moved), _GROUP), (-float(self._moved), _BEFORE))

    def take(self, context: RuleContext, came: Came, sent: str) -> None:
        context.combine(X, [(1 / len(came), term) for term in came.values()])
        self._moved = 0
        for register in (_GROUP, _BEFORE):
            context.combine(register, [(1.0, X)])

    def is_due(self, context: RuleContext) -> bool:
        heard = self._moved > 0 and self.relays and not context.merging
        return heard or super().is_due(context)


def _machine(context: RuleContext, peer: PeerId) -> bytes | PeerId:
    """Return the machine of a peer, or the peer itself if all there only dial out."""
    machine = context.machine(peer)
    if peer in context.table.outward:
        beside = [other for other in context.table.takers() if context.machine(other) == machine]
        if all(other in context.table.outward for other in beside):
            return peer
    return machine


def _beside(context: RuleContext) -> list[PeerId]:
    """Return all peers in step with this one, itself included, sorted."""
    mine = _machine(context, context.me)
    return [peer for peer in context.table.takers() if _machine(context, peer) == mine]


def _leaders(context: RuleContext) -> list[PeerId]:
    """Return one peer of each machine, the first that still trains, or else the first of all."""
    leaders: dict[bytes | PeerId, PeerId] = {}
    # A peer that listens can be reached by all others of its machine, so it comes first.
    for peer in sorted(context.table.takers(), key=lambda peer: peer in context.table.outward):
        machine = _machine(context, peer)
        leader = leaders.setdefault(machine, peer)
        if context.trains(peer) and not context.trains(leader):
            leaders[machine] = peer
    return sorted(leaders.values())
