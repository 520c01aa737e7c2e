"""Elastic rounds: peers wait for one another, but not for peers that are gone.

A peer that begins a round sends one vector to its partners, and waits for theirs. Rounds are
numbered and taken in order. A peer that has just joined, or finds a partner past its own round,
was away: it continues with the highest round that it has seen.

**Every share is answered** by a share of its round, or a later one, in the opposite direction.
Partners in a round answer each other by starting it. A peer in that round or a later one that
did not expect the sender sends it the same vector as the others; a peer between two rounds, and
past that one, reports only that (`ANSWER`). A peer that has not reached the share's round answers
when it does: after its next steps, or at once if it takes none (it has finished, or has just
joined, and listens). A peer considered dead is owed the answer until it is heard again.

**A peer waits for a partner** until such an answer arrives, or the partner is known to have died,
restarted or left, or to be leaving.

**So peers cannot deadlock.** Let i wait for j in round r, to which it has sent its share of r. If
j is in round r or past it, j answers without waiting. If j is between two rounds, it begins round r
or a later one, or waits until a peer has accepted its share of the round before last: only a peer
in an earlier round still holds that. Otherwise j waits in a round before r. So the peer in the
earliest round waits for no waiting peer. A share from j to i can be held up only by an earlier one
that i has not settled: i settles shares of past rounds, and shares with weight, as they arrive; a
share of a later round releases i; a share of round r is what i waits for.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ...effects.effects import Wait, X
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...protocol.share import Share
from ...types import Incarnation, PeerId
from ..synchronous.mixing import OUT, Terms
from ..synchronous.rounds import EPOCH, NEIGHBORS_MAX, Letter, Letters, merge

__all__ = ["COUNTS", "ELASTIC", "STEPS", "Came", "OuterRule"]

ELASTIC = Requirements(waits=True, staged_max=NEIGHBORS_MAX)

STEPS: Final = "optimizer steps from round to round. More means less traffic, and models that drift"
"""Meaning of ``h``, for every help text."""

Came = Mapping[PeerId, str | Share]
"""The terms of a round, by peer: the shares received, and this peer's own register."""

# A share's note says which of these it is.
ANSWER: Final = 0
"""Its sender is past that round."""
LISTENS: Final = 1
"""Its sender takes part, but has not trained since its last round: its vector does not count."""
COUNTS: Final = 2
"""It trained."""


class _Mark(NamedTuple):
    """A peer's incarnation, and a round."""

    incarnation: Incarnation
    round: int


class OuterRule:
    """After every ``h`` optimizer steps each peer exchanges one vector with its partners.

    A rule defines what it sends (`outgoing`), to which peers (`partners`, default: all live peers),
    and how it uses the received vectors (`take`). Peers that have finished, and newcomers before
    their first steps, listen: they take part in every round that others begin. The weights of peers
    are not used, a share carries one unit.
    """

    name = ""
    registers: tuple[str, ...] = OUT
    outstanding_max = NEIGHBORS_MAX
    requirements: Requirements = ELASTIC
    relays = False
    """True if a listener's vector counts. It would hold back a mean of all, but the path from one
    neighbor to another may lead over a listener."""
    models: tuple[str, ...] = ()
    """Registers of its own that begin as the model; all others begin at zero."""
    own_epoch: int | None = None
    """Epoch of shares outside of rounds, which the rule handles itself."""

    def __init__(self, h: int) -> None:
        self.h = h
        self._begin_anew()

    def _begin_anew(self, since_s: float = 0.0, *, is_new: bool = False) -> None:
        self._steps = 0
        # The open round, or else the next one.
        self._round = 0
        self._is_open = False
        # It has joined, and not yet taken part in a round.
        self._is_new = is_new
        self._is_first = True
        self._is_behind = is_new
        self._since_s = since_s
        self._parity = 0
        self._note = COUNTS
        self._partners: dict[PeerId, Incarnation] = {}
        # The latest share posted to each peer, and the peers whose share is not answered yet.
        self._told: dict[PeerId, _Mark] = {}
        self._owed: dict[PeerId, Incarnation] = {}
        self._letters = Letters()
        # Read once per call: with many peers, looking them up takes most of its time.
        self._shares: list[Share] = []
        self._live: tuple[PeerId, ...] = ()
        self._lives: dict[PeerId, Incarnation] = {}

    def start(self, context: RuleContext) -> None:
        # Called again when the peer abandons its swarm for another one.
        self._begin_anew(context.now, is_new=context.founders == 1)
        for register in self.registers[len(OUT) :]:
            context.combine(register, [(1.0 if register in self.models else 0.0, X)])

    def partners(self, context: RuleContext, round: int) -> Iterable[PeerId]:
        return context.table.takers()

    def outgoing(self) -> Terms:
        """Return the vector to send, after the last of the steps."""
        return ((1.0, X),)

    def take(self, context: RuleContext, came: Came, sent: str) -> None:
        """Continue from the terms of the round, sorted by id; by default, from their mean."""
        if set(came) != {context.me}:
            context.combine(X, [(1 / len(came), term) for term in came.values()])

    def step(self, context: RuleContext) -> Wait | None:
        self._steps += context.trained
        self._tend(context)
        wait = self._go_on(context)
        if wait is None and context.merging and not self._letters.receivers():
            merge(context)
        # A finished peer does not wait: it would hold up only itself.
        return None if context.finished else wait

    def _go_on(self, context: RuleContext) -> Wait | None:
        if not self._is_open:
            if not self.is_due(context):
                return None
            wait = self._ready(context)
            if wait is not None:
                return wait
            context.combine(self._register, self.outgoing())
            self._begin(context)
        came = self._gather(context)
        if isinstance(came, Wait):
            return came
        if came:
            self.take(context, came, self._register)
        self._end(context)
        return None

    def is_due(self, context: RuleContext) -> bool:
        if self._steps >= self.h:
            return True
        # A newcomer keeps step from the first round that it learns of, once others have begun it.
        listens = context.finished or self._is_new
        return listens and any(share.round >= self._round for share in self._shares)

    @property
    def _register(self) -> str:
        """The register sent in the open round, or else in the next one."""
        return OUT[self._parity]

    def _tend(self, context: RuleContext) -> None:
        """Settle shares that need no round, and push pending ones; called first in every step."""
        context.may_close(False)
        self._shares = []
        self._look(context)
        self._letters.settle(context)
        self._drop_gone(context)
        for share in context.shares():
            if share.epoch == self.own_epoch:
                continue
            if share.epoch != EPOCH:
                # At once, even during a round, where it would hold up the awaited share.
                context.mix(share)
            elif share.round < self._round or self._is_leaving(context, share):
                self._owe(context, share)
                context.accept(share)
            else:
                self._shares.append(share)
        self._answer(context)

    def _ready(self, context: RuleContext) -> Wait | None:
        """Determine the next round, and wait until it can begin."""
        if self._is_behind:
            # A sender of an answer is past its round, and begins the next one.
            seen = [share.round + (share.note == ANSWER) for share in self._shares]
            self._round = max([self._round, *seen])
        is_late = context.now - self._since_s > context.config.roll_s
        if self._is_first and not is_late and len(context.table.takers()) < context.founders:
            return Wait(self._round, ())
        late = self._letters.receivers_of(self._register)
        return Wait(self._round, tuple(late)) if late else None

    def _begin(self, context: RuleContext) -> None:
        """Begin a round, once `_ready`: send the filled `_register` to all partners."""
        out_of_reach = (
            context.table.outward if context.me in context.table.outward else frozenset[PeerId]()
        )
        self._is_open, self._is_new = True, False
        self._is_first = self._is_behind = False
        self._note = COUNTS if self._steps > 0 or self.relays else LISTENS
        self._steps = 0
        self._told = {
            peer: told
            for peer, told in self._told.items()
            if not self._fate(context, peer, told.incarnation)
        }
        self._partners = {
            peer: context.table.incarnation(peer)
            for peer in self.partners(context, self._round)
            if peer != context.me and peer not in out_of_reach
        }
        for peer, incarnation in self._partners.items():
            self._post(peer, incarnation)
        self._answer(context)

    def _gather(self, context: RuleContext) -> Wait | dict[PeerId, str | Share]:
        """Return the terms of this round, sorted by id; this peer's own only if it trained."""
        shares = {share.sender: share for share in self._of_round()}
        passed = {share.sender for share in self._shares if share.round > self._round}
        absent = [
            peer
            for peer, incarnation in self._partners.items()
            if peer not in shares and not self._fate(context, peer, incarnation)
        ]
        missing = tuple([peer for peer in absent if peer not in passed])
        # A peer that is in step gets a partner's share of this round before any later one.
        self._is_behind = self._is_behind or len(missing) < len(absent)
        if missing:
            return Wait(self._round, missing)
        came: dict[PeerId, str | Share] = {
            peer: share for peer, share in shares.items() if share.note == COUNTS
        }
        if self._note == COUNTS:
            came[context.me] = self._register
        return dict(sorted(came.items()))

    def _end(self, context: RuleContext) -> None:
        """Accept the weight of the gathered shares, and end the round."""
        for share in self._of_round():
            context.accept(share)
        self._shares = [share for share in self._shares if share.round != self._round]
        self._round += 1
        self._parity = 1 - self._parity
        self._is_open = False

    def _of_round(self) -> Iterator[Share]:
        return (share for share in self._shares if share.round == self._round)

    def _look(self, context: RuleContext) -> None:
        # The table makes a new tuple at each change.
        live = context.table.takers()
        if live is not self._live:
            self._live = live
            self._lives = {peer: context.table.incarnation(peer) for peer in live}

    def _fate(self, context: RuleContext, peer: PeerId, incarnation: Incarnation) -> str:
        if self._lives.get(peer) == incarnation:
            return ""
        return context.fate(peer, incarnation)

    def _is_leaving(self, context: RuleContext, share: Share) -> bool:
        # A leaver only waits for this share to be settled.
        return self._fate(context, share.sender, share.id.incarnation) in ("leaving", "left")

    def _owe(self, context: RuleContext, share: Share) -> None:
        # An answer needs none, and an earlier incarnation waits for nothing.
        sender, incarnation = share.sender, share.id.incarnation
        if share.note == ANSWER or incarnation < context.table.incarnation(sender):
            return
        told = self._told.get(sender)
        if told is None or told.incarnation != incarnation or told.round < share.round:
            self._owed[sender] = incarnation

    def _answer(self, context: RuleContext) -> None:
        """Send all answers that are due, and push what can be pushed."""
        if self._is_open:
            for share in self._of_round():
                if self._told.get(share.sender) != (share.id.incarnation, self._round):
                    self._owe(context, share)
        for peer, incarnation in tuple(self._owed.items()):
            fate = self._fate(context, peer, incarnation)
            # A dead peer may still be waiting, and so may a peer that is not known yet, or
            # only by an earlier incarnation.
            if fate == "died" or context.table.incarnation(peer) < incarnation:
                continue
            del self._owed[peer]
            if not fate:
                self._post(peer, incarnation)
        self._letters.push(context)

    def _post(self, peer: PeerId, incarnation: Incarnation) -> None:
        # Between rounds it answers that the last one is over; the vector of an answer is not used.
        letter = (
            Letter(self._register, self._round, self._note)
            if self._is_open
            else Letter(X, self._round - 1, ANSWER)
        )
        self._letters.post([peer], letter)
        self._told[peer] = _Mark(incarnation, letter.tag)
        self._owed.pop(peer, None)

    def _drop_gone(self, context: RuleContext) -> None:
        """Stop pushing to peers that are gone; the dead are owed an answer if they reappear."""
        for peer in self._letters.receivers():
            incarnation = self._told[peer].incarnation
            fate = self._fate(context, peer, incarnation)
            if fate:
                self._letters.drop(peer)
                del self._told[peer]
                if fate == "died":
                    self._owed[peer] = incarnation
