"""AD-PSGD: after a step, average with one random neighbor, both ways, without waiting."""

from dataclasses import dataclass
from typing import Annotated

from ...effects.effects import Wait, X
from ...protocol.context import ROUNDS_PASSED_MAX, RuleContext
from ...protocol.share import Share
from ...specs.parameter import Parameter, checked
from ...types import Incarnation, PeerId
from ...weight import token
from ...wire.messages import Phase

__all__ = ["ADPSGD"]

# A share's epoch says which of these it is. A leaver hands its weight on with 0.
_QUESTION = 1
_ANSWER = 2


@dataclass(slots=True)
class _Exchange:
    """An incomplete average with another peer, under the asker's number for it."""

    peer: PeerId
    incarnation: Incarnation
    number: int


class ADPSGD:
    """Averages of pairs, asynchronous: ``x_i, x_j <- (x_i + x_j) / 2`` of a random edge.

    The asker pushes its model and keeps training; the asked peer saves its own for the answer, and
    moves by ``x += (asked - x) / 2``. When the answer arrives, the asker moves by as much the other
    way, ``x += (answer - sent) / 2``: every complete exchange keeps the mean of all models. A peer
    has one open question, and answers up to two. Neither waits, so that no graph
    deadlocks. A share carries one unit; the weights of peers are not used.

    Source: Lian, Zhang, Zhang and Liu, ICML 2018, algorithm 1. There, averaging is atomic, which
    needs a lock at both ends; the differences used here do not.
    """

    name = "adpsgd"
    summary = "averages of pairs"
    registers = ("sent", "answer/0", "answer/1")
    outstanding_max = 3

    @checked
    def __init__(
        self,
        p: Annotated[
            float,
            Parameter(
                "probability of beginning an exchange after a step; 1 in the paper.", low=0, high=1
            ),
        ] = 1.0,
    ) -> None:
        self.p = p
        self._own: _Exchange | None = None
        # The questions in hand, one for each register of answers; further ones are refused.
        self._answers: list[_Exchange | None] = [None, None]
        self._parts = [2, 2]
        self._unsent: set[int] = set()
        self._begun = 0
        self._asked_s = 0.0
        self._round = 0

    def step(self, context: RuleContext) -> Wait | None:
        for share in context.shares():
            if share.epoch == _ANSWER:
                self._take_answer(context, share)
            elif share.epoch == _QUESTION:
                self._take_question(context, share)
            else:
                context.mix(share)
        self._look_after(context)
        if context.merging:
            self._merge(context)
        elif context.rng.random() < self.p:
            self._begin(context)
        return None

    def _take_answer(self, context: RuleContext, share: Share) -> None:
        own = self._own
        # An exchange is abandoned when its other end is considered dead, perhaps wrongly.
        if own is not None and own == _Exchange(*share.id[:2], share.round):
            part = 1.0 / max(2, share.note)
            context.combine(X, [(1.0, X), (part, share), (-part, "sent")])
            self._own = None
        context.accept(share)

    def _take_question(self, context: RuleContext, share: Share) -> None:
        if None not in self._answers:
            context.refuse(share, "busy with other questions")
            return
        slot = self._answers.index(None)
        self._answers[slot] = _Exchange(*share.id[:2], share.round)
        self._unsent.add(slot)
        # A peer that its own exchange also moves goes a quarter of the way. With halves, two peers
        # that ask one another at the same time would swap their models forever.
        self._parts[slot] = 2 if self._own is None else 4
        part = 1.0 / self._parts[slot]
        context.combine(_register(slot), [(1.0, X)])
        context.combine(X, [(1.0 - part, X), (part, share)])
        # Only one share may be under way in each direction: an asker that is asked at the same
        # time can answer only after this.
        context.accept(share)

    def _look_after(self, context: RuleContext) -> None:
        back = {(returned.peer, returned.epoch) for returned in context.returned}
        own = self._own
        # A question that was refused or fenced has changed nothing at either end.
        if own is not None and ((own.peer, _QUESTION) in back or _is_gone(context, own)):
            self._own = None
        # A peer that considered this one dead has dropped its question and will not answer.
        if context.merging and context.now - self._asked_s > context.config.dead_s:
            self._own = None
        for slot, answer in enumerate(self._answers):
            if answer is None:
                continue
            if (answer.peer, _ANSWER) in back:
                self._unsent.add(slot)
            is_settled = slot not in self._unsent and answer.peer not in context.outstanding()
            if is_settled or context.fate(answer.peer, answer.incarnation):
                self._answers[slot] = None
                self._unsent.discard(slot)
            elif slot in self._unsent and context.can_push(answer.peer, awaited=True):
                self._unsent.remove(slot)
                context.push(
                    answer.peer,
                    token(context.weight),
                    register=_register(slot),
                    epoch=_ANSWER,
                    round=answer.number,
                    note=self._parts[slot],
                )

    def _begin(self, context: RuleContext) -> None:
        if self._own is not None:
            context.skip("an exchange is open")
            return
        peer = self._draw(context)
        if peer is None:
            context.skip()
            return
        self._begun, self._asked_s = self._begun + 1, context.now
        self._own = _Exchange(peer, context.table.incarnation(peer), self._begun)
        context.combine("sent", [(1.0, X)])
        context.push(peer, token(context.weight), epoch=_QUESTION, round=self._begun)

    def _draw(self, context: RuleContext) -> PeerId | None:
        """Return a random neighbor, skipping rounds of the topology that offer no peer."""
        for _ in range(ROUNDS_PASSED_MAX if len(context.table.takers()) > 1 else 0):
            peer = context.draw(context.neighbors(self._round))
            self._round += 1
            if peer is not None:
                return peer
        return None

    def _merge(self, context: RuleContext) -> None:
        if self._own is None and not context.rests:
            self._begin(context)
        is_open = self._own is not None or any(answer is not None for answer in self._answers)
        context.may_close(False if is_open else None)


def _is_gone(context: RuleContext, exchange: _Exchange) -> bool:
    """True if no answer can come; a leaving peer may still have one under way."""
    fate = context.fate(exchange.peer, exchange.incarnation)
    if fate in ("died", "left", "restarted"):
        return True
    member = context.table.member(exchange.peer)
    return member is not None and member.phase is Phase.QUIET


def _register(slot: int) -> str:
    return f"answer/{slot}"
