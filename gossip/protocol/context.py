"""What a rule may see and do, when it is called at a step boundary."""

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import filterfalse
from typing import NoReturn

import numpy as np

from ..effects.effects import Combine, Drop, Exchange, Mix, X
from ..effects.events import NO_MEMORY, PushSkipped, ShareMixed
from ..errors import LocalProtocolError
from ..exchange.outgoing import Returned
from ..exchange.transfer import IncomingState, IncomingTransfer
from ..membership.dialing import pair
from ..types import Incarnation, PeerId, ShareId
from ..weight import (
    FOUNDERS_MAX,
    HARMLESS,
    WEIGHT_MIN,
    acceptable,
    half,
    in_units,
    mixing_fraction,
)
from ..wire.formats import NATIVE, Form
from ..wire.messages import Phase
from .sending import FreshSnapshots, form_of, registers_of, send_share
from .share import Kept, Share, Term
from .state import State, weights_of

__all__ = ["ROUNDS_PASSED_MAX", "RuleContext"]

ROUNDS_PASSED_MAX = 64
"""Rounds of the topology that one push may pass over: more than the longest schedule in use has."""

_PLAIN, _READY, _ONLY_SHARD = Form(), IncomingState.READY, (0,)


class RuleContext:
    """What a rule reads, and what it can do; each action counts at once, in the order called.

    Attributes:
        config: Sizes and times.
        table: Who is there, see `MemberTable`: look at it.
        me: This peer.
        now: Seconds, on the peer's own clock.
        trained: Whether an optimizer step was taken since the last call.
        merging: Whether all peers have finished, and only agreement is left to reach.
        returned: Pushes that came back whole since the last call.
        elapsed_s: Seconds since the last call, 0 at the first.
        samples: How many samples that step took, None where nobody says.
        lr: Its learning rate, None where nobody says; see `Requirements.lr`.
        step: Optimizer steps taken so far.
        founders: How many peers found together, this one included.
        rests: Whether this peer has pushed enough in this round of merging, and begins no more.
        finished: Whether this peer takes no more optimizer steps, and goes on mixing.
        measured: Whether this is the answer to `measure`, at the same step boundary.
    """

    def __init__(
        self, state: State, now: float, *, trained: bool, merging: bool, within_step: bool = False
    ) -> None:
        self._state = state
        self.config, self.table, self.me = state.config, state.table, state.table.id
        self.now = now
        self.elapsed_s = 0.0 if state.called_s is None else now - state.called_s
        self.trained = trained
        self.samples = state.samples if trained else None
        self.lr = state.lr if trained else None
        self.step, self.founders, self.rests = self.table.step, state.founders, state.rests
        self.finished = self.table.phase is Phase.FINISHED
        self.measured = state.distances is not None
        self.merging = merging
        self.rng: np.random.Generator = state.rng
        self._shard_states = shard_states = state.shard_states
        self.returned: tuple[Returned, ...] = ()
        self._transfers: dict[ShareId, IncomingTransfer] = {}
        # What a step still computes on must not change.
        for shard_state in () if within_step else state.busy_shards:
            if shard_state.outbox.returned:
                self.returned += tuple(shard_state.outbox.returned)
                shard_state.outbox.returned.clear()
            for transfer in shard_state.inbox.transfers.values():
                if transfer.state is _READY and not transfer.offer.held:
                    self._transfers[transfer.id] = transfer
        # By register: pushes of one that has not changed in between share one snapshot.
        self._fresh = FreshSnapshots()
        self._chosen: tuple[int, ...] | None = _ONLY_SHARD if len(shard_states) == 1 else None
        if not within_step and state.distances is None:
            state.called_s = now

    @property
    def round(self) -> int:
        """Shares pushed so far."""
        return self._state.round

    @property
    def weight(self) -> int:
        """Weight held now, escrow not counted; of the first shard, where there are several."""
        return self._shard_states[0].weight

    def roundtrip_s(self) -> float | None:
        """Mean time from a push to its answer, over neighbors who live; None where unknown."""
        return self._state.links.roundtrip_s(self.table.is_alive)

    def weight_of(self, shard: int) -> int:
        """Weight of one shard held now, escrow not counted."""
        return self._shard_states[shard].weight

    @property
    def n_shards(self) -> int:
        """Into how many shards the vector is cut, each with weights of its own."""
        return len(self._shard_states)

    @property
    def shards(self) -> tuple[int, ...]:
        """The shards to be pushed next; (0,) for a vector that is not cut."""
        if self._chosen is None:
            self._chosen = self._state.choose_shards(every=self.merging)
        return self._chosen

    def next_shards(self) -> None:
        """Let the next push carry other shards than the last one."""
        state = self._state
        state.cursor = (state.cursor + len(self.shards)) % len(self._shard_states)
        self._chosen = None

    def shares(self) -> tuple[Share, ...]:
        """Shares that wait for a decision, in order of arrival; undecided ones stay."""
        return tuple(map(Share.of, self._transfers.values())) if self._transfers else ()

    def live(self) -> tuple[PeerId, ...]:
        """Live peers that take shares, this one included where it does, sorted."""
        return self.table.takers()

    def neighbors(
        self, round: int | None = None, members: Sequence[PeerId] | None = None
    ) -> tuple[PeerId, ...]:
        """Whom the topology lets this peer push to.

        Args:
            round: Round of the topology; unless given, the count of pushes and of rounds passed
                over.
            members: Whom the topology is laid over, sorted; the live peers unless given.
        """
        state = self._state
        round = state.round + state.passed if round is None else round
        table = state.table
        members = table.takers() if members is None else members
        me, outward = table.id, table.outward
        if len(outward) < 2:
            return tuple(state.neighbors(members, me, round))
        return pair(lambda one: state.neighbors(members, one, round), me, members, outward)

    def weights(
        self, round: int, members: Sequence[PeerId] | None = None
    ) -> Mapping[PeerId, float]:
        """What to take of whom, this peer included: its row of the topology's mixing matrix.

        Even shares of itself and its neighbors, where the topology knows no matrix.
        """
        members, neighbors = self.live() if members is None else members, self._state.neighbors
        if (row := weights_of(neighbors)) is not None:
            return row(members, self.me, round)
        those = sorted({self.me, *neighbors(members, self.me, round)})
        return dict.fromkeys(those, 1 / len(those))

    def fate(self, peer: PeerId, incarnation: Incarnation) -> str:
        """What has become of one incarnation of a peer: nothing while it takes part, else a word.

        Returns:
            ``""``, ``"leaving"``, ``"left"``, ``"died"`` or ``"restarted"``.
        """
        table, member = self.table, self.table.member(peer)
        if member is None or member.phase is Phase.LEFT:
            return "left"
        if member.incarnation != incarnation:
            return "restarted"
        is_there = table.is_alive(peer)
        if member.phase > Phase.FINISHED:
            return "leaving" if is_there else "left"
        return "" if is_there else "died"

    def trains(self, peer: PeerId) -> bool:
        """Whether a peer takes optimizer steps still, this one included."""
        table = self.table
        member = table.me if peer == table.id else table.member(peer)
        return member is not None and member.phase < Phase.FINISHED

    def is_leaving(self, peer: PeerId) -> bool:
        """Whether a peer is about to leave, or has left, and so refuses all shares."""
        member = self.table.member(peer)
        return member is not None and member.phase >= Phase.LEAVING

    def can_push(self, peer: PeerId, *, lent: bool = False, awaited: bool = False) -> bool:
        """Whether there is credit toward *peer*, and reason to think that it can be reached.

        Args:
            lent: Whether it will read this peer's memory, which takes no credit.
            awaited: Whether it waits for this share, and not only a newcomer for its copy.
        """
        busy = any([peer in self._shard_states[shard].outbox.transfers for shard in self.shards])
        free = not busy and (not self._state.is_full if lent else self._has_credit(awaited))
        return free and self.table.is_reachable(peer, self.now)

    def outstanding(self) -> Set[PeerId]:
        """Everybody toward whom a push is not settled yet."""
        return set().union(*[each.outbox.transfers for each in self._state.busy_shards])

    def draw(
        self,
        among: Sequence[PeerId] | None = None,
        shards: Sequence[int] | None = None,
        *,
        urgent: bool = False,
    ) -> PeerId | None:
        """A peer at random that a share can be pushed to now, None where there is none.

        One with unresolved escrow is passed over, so that a stuck peer stalls nobody.

        Args:
            among: Whom to choose from, the neighbors of this round unless given.
            shards: What is to be pushed, those to be pushed next unless given.
            urgent: Whether credit is no matter: the peer is about to go, or goes on with a push.
        """
        if not (urgent or self._has_credit()):
            return None
        among = self.neighbors() if among is None else among
        for shard in (self._chosen or self.shards) if shards is None else shards:
            busy = self._shard_states[shard].outbox.transfers
            if busy:
                among = [*filterfalse(busy.__contains__, among)]
        open_ones = self.table.reachable(among, self.now)
        return open_ones[int(self.rng.integers(len(open_ones)))] if open_ones else None

    def mix(self, share: Share, weight: int | None = None) -> None:
        """Average a share into ``x`` by weight: ``x += w_s / (w_s + w) (x_s - x)``, ``w += w_s``.

        Args:
            weight: How much of it to accept, all unless given; at most what one
                share may bring, see `acceptable`.

        Raises:
            LocalProtocolError: It carries several registers, and is no copy.
        """
        form = share.form
        if form.registers > 1 and not form.copy:
            raise LocalProtocolError(
                f"{share.id} carries {form.registers} registers and cannot be mixed by weight: "
                "combine its parts, and accept it"
            )
        transfer = self._transfers.pop(share.id, None) or _not_there(share)
        accepted = transfer.offer.escrow if weight is None else weight
        state, shard_state = self._state, self._shard_states[share.id.shard]
        if accepted <= 0:
            shard_state.inbox.decide(transfer, 0, "the rule accepted nothing of it")
            return
        own = shard_state.log.account.weight
        if own and accepted > HARMLESS:
            accepted = self._acceptable(share.sender, own, accepted)
        state.log.ask(Mix(share.id, mixing_fraction(own, accepted), form))
        self._changed(X, share.id.shard)
        self._accepted(transfer, accepted)

    def _acceptable(self, sender: PeerId, own: int, offered: int) -> int:
        """How much to accept of a share, not a newcomer's first; all, unless weight counts."""
        table = self.table
        if self._state.requirements.whole:
            return offered
        if offered <= own or not self.is_leaving(sender):
            return acceptable(own, offered)
        # What a leaver hands on may be more than all that is held here, and it has no time.
        founders_max = max(FOUNDERS_MAX, len(table.clock.rows()))
        return acceptable(own, offered, founders_max, outweighs=True)

    def accept(self, share: Share) -> None:
        """Take a share's whole weight, its values having been used by `combine` or of no use."""
        transfer = self._transfers.pop(share.id, None) or _not_there(share)
        self._state.log.ask(Drop(share.id))
        self._accepted(transfer, transfer.offer.escrow)

    def refuse(self, share: Share, reason: str) -> None:
        """Send a share back."""
        transfer = self._transfers.pop(share.id, None) or _not_there(share)
        self._shard_states[share.id.shard].inbox.decide(transfer, 0, reason)

    def measure(self, share: Share) -> None:
        """Ask how far a share is from ``x`` (`Requirements.measures`): the rule is called again
        before the next optimizer step, with `measured`, and `distance` has the answer."""
        self._state.measuring.append(share.id)

    def distance(self, share: Share) -> float | None:
        """Euclidean norm of the difference between a share's first register and its shard of ``x``;
        None where it was not measured, or ``x`` has changed since."""
        distances = self._state.distances
        return None if distances is None else distances.get(share.id)

    def combine(self, register: str, terms: Iterable[tuple[float, Term]]) -> None:
        """Set ``register = sum of coefficient * term``.

        Args:
            terms: Coefficients, and registers or shares. Of a share that carries several registers
                the first counts; `Share.part` names the others. `Kept.as_sent` is what the
                receivers of a snapshot read. None at all set it to zeros.
        """
        resolved = tuple((c, t.id if isinstance(t, Share) else t) for c, t in terms)
        self._state.log.ask(Combine(register, resolved))
        self._changed(register)

    def keep(
        self, register: str, peers: Sequence[PeerId], *, bare: bool = False, whole: bool = False
    ) -> Kept:
        """Copy a register out, until `let_go`: each push of it carries the same bytes.

        Args:
            bare: Whether the numbers are written by themselves; `Requirements.bare` must say so.
            whole: As for `push`, which takes what is returned in place of a register.
        """
        forms = {Form(NATIVE if whole else self.config.wire, bare=True)}
        if not bare:
            given = {"copy": False, "anchor": False, "whole": whole or self.merging}
            forms = {form_of(self._state, peer, **given) for peer in peers}
        form = forms.pop() if len(forms) == 1 else _PLAIN
        shown = any([self._state.shares_memory(peer) for peer in peers])
        return Kept(self._state.keep(register, form, shown=shown), form)

    def let_go(self, kept: Kept) -> None:
        """Keep what `keep` has copied no longer than shares read it."""
        self._state.let_go(kept.as_sent)

    def exchange(self, segment: str, *, taken: float, given: float, register: str = X) -> None:
        """Exchange a register with a segment that this machine's processes share: `Exchange`."""
        log = self._state.log
        log.ask(Exchange(register, segment, taken, given, log.swarm))
        self._changed(register)

    def push(
        self,
        peer: PeerId,
        weight: int,
        *,
        register: str | Sequence[str] | Kept = X,
        shard: int = 0,
        copy: bool = False,
        anchor: bool = False,
        whole: bool = False,
        epoch: int = 0,
        round: int | None = None,
        note: int = 0,
    ) -> None:
        """Push a register, and weight with it, toward a peer.

        Args:
            peer: To whom; `can_push` must hold for it.
            weight: What goes with it, moved into escrow now, at least 1. A rule without
                weights sends a `token`: whether that comes back is how a refused share is told
                from an accepted one.
            register: What to send. Several travel one after another, as the parts of one share
                (see `Share.part`), if `Requirements.share_registers` says so. In formats that need
                the anchor, the first is written as its difference from that, those behind it as
                they are: send the model first, and corrections or gradients behind it. What was
                kept goes as it was copied.
            anchor: Whether the anchor goes along, for a newcomer that needs it.
            whole: Whether all numbers must arrive as they are, whatever format this peer uses.
            epoch, note: Numbers for the rule's own use.
            round: Another one; the count of pushes unless given.

        Raises:
            LocalProtocolError: No weight, more than are held, or an escrow is open there; or more
                registers than the rule says, or none.
        """
        state, shard_state = self._state, self._shard_states[shard]
        held = shard_state.log.account.weight
        if not 1 <= weight <= held or peer in shard_state.outbox.transfers:
            told = f"{in_units(weight)} of {in_units(held)}"
            raise LocalProtocolError(f"cannot push {told} units to {peer}")
        form = _PLAIN
        if copy or state.config.wire != NATIVE:
            form = form_of(state, peer, copy=copy, anchor=anchor, whole=whole or self.merging)
        if not isinstance(register, str):
            register, form = registers_of(state, self._fresh, register, form)
        send_share(
            *(state, shard_state, peer, self.now, self._fresh, register, form),
            escrow=weight,
            epoch=epoch,
            round=state.round if round is None else round,
            note=note,
        )
        state.round += 1

    def push_shards(
        self,
        peer: PeerId,
        weights: Mapping[int, int],
        *,
        round: int | None = None,
        copy: bool = False,
        anchor: bool = False,
        whole: bool = False,
    ) -> None:
        """Push several shards to one peer, which counts as one push."""
        before = self._state.round
        for shard, given in weights.items():
            self.push(
                peer,
                given,
                shard=shard,
                copy=copy,
                anchor=anchor,
                whole=whole,
                round=before if round is None else round,
            )
        self._state.round = before + 1

    def skip(self, reason: str = "") -> None:
        """Note that a push that was due cannot be; without a reason, why nobody was drawn."""
        state = self._state
        if not reason:
            free = state.rate_limiter.is_free(self.now)
            reason = "no neighbor free" if free else "no bandwidth"
            if state.lacks_memory or state.copies:
                reason = NO_MEMORY if state.lacks_memory else "a copy is given"
        state.log.ask(PushSkipped(reason))

    def may_close(self, yes: bool | None) -> None:
        """Set, while merging, whether this peer has nothing to push (True), or must end something
        first (False); with None the count of its pushes decides."""
        self._state.may_close = yes

    def push_half(self) -> None:
        """Push half of the weight to a random neighbor, or note why that cannot be.

        A round that gives this peer nobody who can be reached is passed over, so that a schedule of
        single links does not stall at one of them.
        """
        weights: dict[int, int] = {}
        if self.rests:
            return  # enough was pushed in this round of merging
        for shard in self._chosen or self.shards:
            weight = self._shard_states[shard].log.account.weight
            if weight >= WEIGHT_MIN:
                weights[shard] = half(weight)
        if not weights:
            self.skip("too little weight")
            self.next_shards()
            return
        peer = self.draw() or self._draw_later()
        if peer is None:
            self.skip()
        elif len(self._shard_states) == 1:
            self.push(peer, weights[0])
        else:
            self.push_shards(peer, weights)
            self.next_shards()

    def _draw_later(self) -> PeerId | None:
        for _ in range(ROUNDS_PASSED_MAX):
            if not self._has_credit():
                break
            self._state.passed += 1
            peer = self.draw()
            if peer is not None:
                return peer
        return None

    def _has_credit(self, awaited: bool = False) -> bool:
        state, limiter = self._state, self._state.rate_limiter
        if (state.copies or state.rests) and not awaited:
            return False
        if limiter.is_limited and not limiter.is_free(self.now):
            return False
        if (state.is_bounded or state.is_full) and state.lacks_memory:
            return False
        # With shards, so many pushes may be outstanding, each of several shares.
        return state.credit_used() < state.outstanding_max * len(self._chosen or self.shards)

    def _changed(self, register: str, shard: int | None = None) -> None:
        if self._fresh:
            self._fresh.forget(register)
        distances = self._state.distances
        if distances and register == X:
            kept = () if shard is None else distances.items()
            self._state.distances = {share: far for share, far in kept if share.shard != shard}

    def _accepted(self, transfer: IncomingTransfer, weight: int) -> None:
        id, state = transfer.id, self._state
        state.rooted = True
        self._shard_states[id.shard].inbox.decide(transfer, weight)
        behind = state.table.step - transfer.offer.step
        state.log.ask(ShareMixed(id.sender, weight, behind if behind > 0 else 0))


def _not_there(share: Share) -> NoReturn:
    raise LocalProtocolError(f"{share.id} is not among this call's shares")
