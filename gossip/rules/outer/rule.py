"""What rules with outer rounds share: h optimizer steps, then one exchange of one vector."""

from collections.abc import Iterable, Mapping
from typing import Final

from ...effects.effects import Wait, X
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...protocol.share import Share
from ...types import PeerId
from ..synchronous.mixing import OUT, Terms
from ..synchronous.rounds import NEIGHBORS_MAX
from .elastic import ElasticRounds

__all__ = ["ELASTIC", "STEPS", "Came", "OuterRule", "neighborhood"]

ELASTIC = Requirements(waits=True, staged_max=NEIGHBORS_MAX)
"""What a rule with elastic rounds requires."""

STEPS: Final = "optimizer steps from round to round. More means less traffic, and models that drift"
"""What ``h`` is, in every help text."""

Came = Mapping[PeerId, str | Share]
"""What counts in a round, by peer: the shares that came, and the own register."""


class OuterRule:
    """After every ``h`` optimizer steps each peer exchanges one vector with its partners.

    A rule says what it sends (`outgoing`), to whom (`partners`, all live peers unless it says
    otherwise), and what it makes of what came (`take`). Peers that have finished, and newcomers
    before their first steps, listen: they take part in every round that others begin. Theirs does
    not count in a mean of all, which it would only hold back; among neighbors it does, for the way
    from one neighbor to another may lead over a listener (`relays`). The weights of peers are not
    used, a share carries one unit.
    """

    name = ""
    registers: tuple[str, ...] = OUT
    outstanding_max = NEIGHBORS_MAX
    requirements: Requirements = ELASTIC
    relays = False
    own_epoch: int | None = None
    """Of shares that are none of rounds, and that the rule decides itself."""

    def __init__(self, h: int) -> None:
        self.h = h
        self._rounds = ElasticRounds(others=self.own_epoch)
        self._steps = 0

    def start(self, context: RuleContext) -> None:
        """Begin with the first round, of whatever swarm this peer belongs to now."""
        is_new = context.founders == 1
        self._rounds = ElasticRounds(context.now, is_new=is_new, others=self.own_epoch)
        self._steps = 0

    def partners(self, context: RuleContext, round: int) -> Iterable[PeerId]:
        """With whom to exchange in a round."""
        return context.live()

    def outgoing(self) -> Terms:
        """What is sent, after the last of the steps."""
        return ((1.0, X),)

    def take(self, context: RuleContext, came: Came, sent: str) -> None:
        """Go on from what came: from the mean, unless a rule says otherwise.

        Args:
            came: What counts, sorted by id, so that the same terms add up to the same bits at
                every peer. This peer's own is among it, unless it only listens.
        """
        if set(came) != {context.me}:
            context.combine(X, [(1 / len(came), term) for term in came.values()])

    def step(self, context: RuleContext) -> Wait | None:
        self._steps += context.trained
        self._rounds.tend(context)
        wait = self._go_on(context)
        if wait is None:
            self._rounds.rest(context)
        # One that has finished holds nobody up but itself.
        return None if context.finished else wait

    def _go_on(self, context: RuleContext) -> Wait | None:
        rounds = self._rounds
        if not rounds.is_open:
            if not self.is_due(context):
                return None
            wait = rounds.ready(context)
            if wait is not None:
                return wait
            context.combine(rounds.register, self.outgoing())
            partners = self.partners(context, rounds.round)
            rounds.begin(context, partners, counts=self._steps > 0 or self.relays)
            self._steps = 0
        came = rounds.gather(context)
        if isinstance(came, Wait):
            return came
        if came:
            self.take(context, came, rounds.register)
        rounds.end(context)
        return None

    def is_due(self, context: RuleContext) -> bool:
        if self._steps >= self.h:
            return True
        # A newcomer is in step with the others from the first round on that it hears of.
        listens = context.finished or self._rounds.is_new
        return listens and self._rounds.is_called()


def neighborhood(context: RuleContext, round: int) -> dict[PeerId, float]:
    """The topology's neighbors of a round, and what to take of each."""
    heard = context.neighbors(round)
    if len(context.table.outward) > 1:
        # Two that only dial out are led around one another, which no matrix knows of.
        return dict.fromkeys(heard, 1 / (len(heard) + 1))
    row = context.weights(round)
    every = dict.fromkeys((*heard, *row))
    return {peer: row.get(peer, 0.0) for peer in every if peer != context.me}
