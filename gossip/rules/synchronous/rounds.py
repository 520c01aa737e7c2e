"""Rounds in which peers wait for one another: the common part of synchronous rules.

The members are the founders; if one of them dies, or leaves before the end, the run ends for all.
A register that was sent does not change until it is accepted: a share that was fenced by a query
is pushed again from the register, when ``x`` has long moved on. Two alternating registers are
enough. That cannot deadlock: the peer furthest behind waits only for peers that have sent what it
needs.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...effects.effects import Halt, Wait
from ...protocol.context import RuleContext
from ...protocol.rule import Requirements
from ...protocol.share import Kept, Pushed, Share
from ...types import Incarnation, PeerId
from ...weight import token
from ...wire.messages import MERGE_STAGES

__all__ = [
    *("EPOCH", "NEIGHBORS_MAX", "SYNCHRONOUS"),
    *("Letter", "Letters", "RoundRule", "merge", "why_unlike"),
]

NEIGHBORS_MAX = 4096
"""Most shares outstanding or staged at once. Each belongs to another peer, and a share refused for
lack of credit might be just what all others wait for."""

SYNCHRONOUS = Requirements(fixed_members=True, waits=True, staged_max=NEIGHBORS_MAX)

EPOCH = 1
"""Epoch of the shares of rounds. Shares of leavers, and of merging, have epoch 0."""


class Letter(NamedTuple):
    """The content of one push to one peer, with a token of weight."""

    register: Pushed
    tag: int
    """The share's ``round``."""
    note: int = 0


class Letters:
    """Queued pushes, and those not settled yet, by receiver.

    Each push waits for the one before it to be settled. A push that comes back (fenced by a query,
    or refused by the network) is repeated first.
    """

    def __init__(self) -> None:
        self._queued: dict[PeerId, deque[Letter]] = {}
        self._pushed: dict[PeerId, Letter] = {}

    def settle(self, context: RuleContext) -> None:
        """Requeue pushes that came back, and forget accepted ones; called before any push."""
        for back in context.returned:
            # Pushes that were dropped meanwhile, or belong to an abandoned swarm, are not repeated.
            letter = self._pushed.pop(back.peer, None) if back.epoch == EPOCH else None
            # A leaver refuses every push: without delay, the two would repeat this forever.
            if letter is not None and not context.is_leaving(back.peer):
                self._queued.setdefault(back.peer, deque()).appendleft(letter)
        outstanding = context.outstanding()
        for peer in [peer for peer in self._pushed if peer not in outstanding]:
            del self._pushed[peer]

    def post(self, peers: Iterable[PeerId], letter: Letter) -> None:
        for peer in peers:
            self._queued.setdefault(peer, deque()).append(letter)

    def push(self, context: RuleContext) -> None:
        for peer in [peer for peer in self._queued if context.can_push(peer, awaited=True)]:
            letter = self._pushed[peer] = self._queued[peer].popleft()
            if not self._queued[peer]:
                del self._queued[peer]
            context.push(
                peer,
                token(context.weight),
                register=letter.register,
                epoch=EPOCH,
                round=letter.tag,
                note=letter.note,
            )

    def receivers(self) -> list[PeerId]:
        return [*dict.fromkeys((*self._queued, *self._pushed))]

    def receivers_of(self, register: Pushed) -> list[PeerId]:
        late = [peer for peer, letter in self._pushed.items() if letter.register == register]
        for peer, letters in self._queued.items():
            if any(letter.register == register for letter in letters):
                late.append(peer)
        return late

    def drop(self, peer: PeerId) -> None:
        """Push nothing more to a peer, whatever the outcome of its outstanding push."""
        self._queued.pop(peer, None)
        self._pushed.pop(peer, None)


def merge(context: RuleContext, *, agrees: bool = False) -> None:
    """Merge after the last round: plain gossip of weights, in which no peer waits."""
    # All peers have the same weight, within a few units, so it tends to the plain mean.
    if agrees and not context.table.merge >= MERGE_STAGES:
        context.may_close(True)
    else:
        context.push_half()
        context.may_close(None)


class RoundRule(ABC):
    """A rule whose peers send after every h optimizer steps, then wait for the others."""

    name = ""
    outstanding_max = NEIGHBORS_MAX
    requirements: Requirements = SYNCHRONOUS
    agrees = False
    """True if all peers end a round with the same bits, so that merging need not begin."""
    takes_damaged = False
    """True if the rule copes with shares that are not finite, by ignoring their values."""
    reads_own = False
    """True if the average of a round includes the last kept copy."""

    def __init__(self, h: int = 1) -> None:
        self.h = h
        # Sorted ids of the peers that take part; empty before all founders are present.
        self._members: tuple[PeerId, ...] = ()
        self._incarnations: dict[PeerId, Incarnation] = {}
        self._since_s: float | None = None
        self._letters = Letters()
        self._round = self._steps = 0
        self._is_sent = False
        # Copies of sent vectors, each kept while a receiver needs it.
        self._kept: list[Kept] = []

    @property
    def _tag(self) -> int:
        """Lowest number of a share that this round may still need."""
        return self._round

    def step(self, context: RuleContext) -> Wait | Halt | None:
        outcome = self._take_round(context)
        if self._kept:
            self._let_go(context)
        return outcome

    def _take_round(self, context: RuleContext) -> Wait | Halt | None:
        self._tend(context)
        self._steps += context.trained
        damaged = None if self.takes_damaged else self._damaged(context)
        if damaged is not None:
            return damaged
        if self._steps >= self.h:
            outcome = self._open(context) or self._send(context) or self._average(context)
            if outcome is not None:
                return outcome
            self._round += 1
            self._steps, self._is_sent = 0, False
        self._rest(context)
        return None

    @abstractmethod
    def _send(self, context: RuleContext) -> Wait | Halt | None:
        """Send to this round's receivers and set ``_is_sent``, unless that is done."""

    @abstractmethod
    def _average(self, context: RuleContext) -> Wait | Halt | None:
        """Continue from the received shares, once all have arrived."""

    def _tend(self, context: RuleContext) -> None:
        """Push what can be pushed, repeats first."""
        context.may_close(False)
        for share in context.shares():
            if share.epoch == EPOCH and share.round < self._tag:
                # The peers have different topologies. Unless accepted, it would come back forever.
                context.accept(share)
        self._letters.settle(context)
        self._letters.push(context)

    def _damaged(self, context: RuleContext) -> Halt | None:
        """Halt if a share of a round is not finite: its sender has no other values to send."""
        for share in context.shares():
            if share.epoch == EPOCH and not share.is_finite:
                return Halt(
                    f"a share of {share.sender} has numbers that are not finite, and {self.name} "
                    "cannot continue without it: use dpsgd with robust=clip or the like, or a rule "
                    "that waits for nobody, such as gosgd"
                )
        return None

    def _open(self, context: RuleContext) -> Wait | Halt | None:
        """Wait until all founders are present, and make them the members for good."""
        if self._members:
            return None
        live = context.table.takers()
        if len(context.table.outward) > 1:
            first, second, *_ = sorted(context.table.outward)
            return Halt(
                f"{first} and {second} only dial out, so that neither can reach the other, and "
                f"{self.name} needs every link: give one of them an address, or use "
                "a rule that waits for nobody, such as gosgd"
            )
        if len(live) > context.founders:
            # Each peer would count other members, and wait for shares that no peer sends.
            return Halt(
                f"{len(live)} peers founded this swarm, and {context.founders} were to do so "
                f"together: {self.name} needs all who take part to say the same number of founders"
            )
        if len(live) == context.founders:
            self._members = live
            self._incarnations = {peer: context.table.incarnation(peer) for peer in live}
            return None
        self._since_s = context.now if self._since_s is None else self._since_s
        roll_s = context.config.roll_s
        if context.now - self._since_s <= roll_s:
            return Wait(0, ())
        there = f"{len(live)} of {context.founders} founders are there after {roll_s:g} s"
        return Halt(f"{there}, and {self.name} cannot begin without all of them")

    def _post(
        self,
        context: RuleContext,
        register: Pushed,
        peers: Iterable[PeerId],
        *,
        tag: int | None = None,
        note: int = 0,
    ) -> None:
        """Push a register to some members, to each once its previous share is settled."""
        self._letters.post(peers, Letter(register, self._round if tag is None else tag, note))
        self._letters.push(context)

    def _gather(
        self, context: RuleContext, sources: Sequence[PeerId], tag: int | None = None
    ) -> dict[PeerId, Share] | Wait | Halt:
        """Return the shares of this round (or with a tag) of some members, once all are there."""
        asked = (EPOCH, self._round if tag is None else tag)
        shares = {
            share.sender: share
            for share in context.shares()
            if (share.epoch, share.round) == asked and share.sender in sources
        }
        missing = [peer for peer in sources if peer not in shares]
        return self._wait_for(context, missing) if missing else shares

    def _unaccepted(self, context: RuleContext, register: Pushed) -> Wait | Halt | None:
        """Wait until all receivers of a posted register have accepted it."""
        late = self._letters.receivers_of(register)
        # A leaving or quiet peer still answers queries about a share.
        return self._wait_for(context, late, but="leaving") if late else None

    def _rest(self, context: RuleContext) -> None:
        """Mix shares of leavers between two rounds; merge after the last one."""
        for share in context.shares():
            if share.epoch == EPOCH:
                continue
            if not share.is_finite:
                context.refuse(share, "not finite")
            elif share.form.registers > 1:
                context.refuse(share, "of several registers, and of no round")
            elif share.form.bare:
                context.refuse(share, "of a difference, and of no round")
            else:
                context.mix(share)
        # Until then another peer may need a share of this one for its last round.
        if context.merging and not self._is_owing(context):
            merge(context, agrees=self.agrees)

    def _is_owing(self, context: RuleContext) -> bool:
        peers = self._letters.receivers()
        fates = (context.fate(peer, self._incarnations[peer]) for peer in peers)
        return any(fate in ("", "leaving") for fate in fates)

    def _wait_for(
        self, context: RuleContext, missing: Sequence[PeerId], but: str = ""
    ) -> Wait | Halt:
        """Wait for shares of some members, or halt if one of them will never arrive."""
        for peer in missing:
            fate = context.fate(peer, self._incarnations[peer])
            if fate and fate != but:
                return self._halt(context, peer, fate)
            steps, _ = context.last_words(peer)
            if steps is not None and steps < (self._round + 1) * self.h:
                return Halt(
                    f"{peer} has finished after {steps} steps, and {self.name} needs it in round "
                    f"{self._round}: give all peers the same number of steps"
                )
        return Wait(self._round, tuple(missing))

    def _halt(self, context: RuleContext, peer: PeerId, fate: str) -> Halt:
        # A member that halts leaves, so the cause is its reason, or a member that died.
        if fate in ("leaving", "left"):
            _, reason = context.last_words(peer)
            if reason:
                return Halt(reason)
            fate = "left"
        for other, incarnation in self._incarnations.items():
            if other != context.me and context.fate(other, incarnation) in ("died", "restarted"):
                peer, fate = other, context.fate(other, incarnation)
                break
        return Halt(
            f"{peer} {fate} in round {self._round}, and {self.name} cannot continue without it: "
            "start the run again, or use a rule that can, such as gosgd"
        )

    def _let_go(self, context: RuleContext) -> None:
        own = self._kept[-1] if self.reads_own and self._is_sent else None
        needed = [kept for kept in self._kept if kept == own or self._letters.receivers_of(kept)]
        for kept in self._kept:
            if kept not in needed:
                context.let_go(kept)
        self._kept = needed


def why_unlike(share: Share, ours: Kept, rule: str) -> str:
    """Return how a share shows that its sender has another rule or format; empty if not."""
    if not share.form.bare:
        return f"carries no difference, which {rule} needs: give all peers the same rule"
    wire, own = share.form.wire, ours.form.wire
    return f"is {wire}, and {own} here: give all peers the same wire" * (wire != own)
