"""The context of a rule's call at a step boundary: what it can read and do."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import filterfalse
from typing import NoReturn

import numpy as np

from ..effects.effects import Combine, Drop, Exchange, Mix, Snapshot, X
from ..effects.events import NO_MEMORY, PushSkipped, ShareMixed
from ..errors import LocalProtocolError
from ..exchange.outgoing import Returned
from ..exchange.transfer import IncomingState, IncomingTransfer
from ..membership.dialing import pair
from ..membership.table import MemberTable
from ..types import Incarnation, PeerId, ShareId
from ..weight import FOUNDERS_MAX, HARMLESS, WEIGHT_MIN, acceptable, half, in_units, mixing_fraction
from ..wire.formats import NATIVE, Form
from ..wire.messages import Member, Phase
from .sending import FreshSnapshots, form_of, send_share
from .share import Kept, Share, Term
from .state import State

__all__ = ["ROUNDS_PASSED_MAX", "RuleContext"]

ROUNDS_PASSED_MAX = 64
"""Rounds of the topology that one push may pass over."""

_PLAIN, _READY, _ONLY_SHARD = Form(), IncomingState.READY, (0,)


class RuleContext:
    """State that a rule can read, and its actions, which take effect at once, in the order called.

    Attributes:
        config: The protocol's settings.
        table: The member table, see `MemberTable`; read-only.
        me: This peer's id.
        now: Time on the peer's own clock, seconds.
        trained: True if an optimizer step was taken since the last call.
        merging: True if all peers have finished, and only need to reach agreement.
        returned: Pushes since the last call of which nothing was accepted.
        elapsed_s: Seconds since the last call, 0 at the first.
    """

    def __init__(
        self, state: State, now: float, *, trained: bool, merging: bool, within_step: bool = False
    ) -> None:
        self._state = state
        self.config, self.table, self.me = state.config, state.table, state.table.id
        self.now = now
        self.elapsed_s = 0.0 if state.called_s is None else now - state.called_s
        self.trained = trained
        self.merging = merging
        self.rng: np.random.Generator = state.rng
        self._shard_states = shard_states = state.shard_states
        self.returned: tuple[Returned, ...] = ()
        self._transfers: dict[ShareId, IncomingTransfer] = {}
        # A step that is still computing must not see changes.
        for shard_state in () if within_step else state.busy_shards:
            if shard_state.outbox.returned:
                self.returned += tuple(shard_state.outbox.returned)
                shard_state.outbox.returned.clear()
            for transfer in shard_state.inbox.transfers.values():
                if transfer.state is _READY:
                    self._transfers[transfer.id] = transfer
        self._fresh: FreshSnapshots = {}
        self._chosen: tuple[int, ...] | None = _ONLY_SHARD if len(shard_states) == 1 else None
        if not within_step and state.distances is None:
            state.called_s = now

    # Properties, since a rule reads few of them in a call.

    @property
    def samples(self) -> int | None:
        """Number of samples in that step; None if unknown."""
        return self._state.samples if self.trained else None

    @property
    def lr(self) -> float | None:
        """Learning rate of that step; None if unknown, see `Requirements.lr`."""
        return self._state.lr if self.trained else None

    @property
    def step(self) -> int:
        """Optimizer steps taken so far."""
        return self.table.step

    @property
    def founders(self) -> int:
        """Number of peers that founded together, including this one."""
        return self._state.founders

    @property
    def rests(self) -> bool:
        """True if this peer has pushed enough in this round of merging."""
        return self._state.rests

    @property
    def finished(self) -> bool:
        """True if this peer takes no more optimizer steps, and continues mixing."""
        return self.table.phase is Phase.FINISHED

    @property
    def measured(self) -> bool:
        """True if this call is the answer to `measure`, at the same step boundary."""
        return self._state.distances is not None

    @property
    def round(self) -> int:
        """Number of pushes so far."""
        return self._state.round

    @property
    def weight(self) -> int:
        """Weight held now, without escrow; of the first shard if there are several."""
        return self._shard_states[0].weight

    def roundtrip_s(self) -> float | None:
        """Return the mean time from push to answer over live neighbors, seconds, if known."""
        links, is_alive = self._state.links.items(), self.table.is_alive
        known = [link.roundtrip_s for peer, link in links if is_alive(peer)]
        trips = [trip_s for trip_s in known if trip_s is not None]
        return sum(trips) / len(trips) if trips else None

    def weight_of(self, shard: int) -> int:
        """Return the weight of one shard held now, without escrow."""
        return self._shard_states[shard].weight

    @property
    def n_shards(self) -> int:
        """Number of shards of the vector, each with its own weight."""
        return len(self._shard_states)

    @property
    def shards(self) -> tuple[int, ...]:
        """Shards to push next; (0,) for an uncut vector."""
        if self._chosen is None:
            config, n_shards, at = self.config, self.n_shards, self._state.cursor
            count = n_shards if self.merging else min(config.shards_per_push, n_shards)
            start = 0 if count == n_shards else at
            self._chosen = tuple((start + k) % n_shards for k in range(count))
        return self._chosen

    def next_shards(self) -> None:
        """Advance to other shards for the next push."""
        state = self._state
        state.cursor = (state.cursor + len(self.shards)) % len(self._shard_states)
        self._chosen = None

    def shares(self) -> tuple[Share, ...]:
        """Return the shares that await a decision, in order of arrival; undecided ones remain."""
        shares = []
        for id, transfer in self._transfers.items():
            offer = transfer.offer
            numbers = offer.epoch, offer.round, offer.note, offer.step
            shares.append(Share(id, offer.escrow, *numbers, offer.form, transfer.is_finite))
        return tuple(shares)

    def machine(self, peer: PeerId) -> bytes:
        """Return an id of the machine of *peer*; empty if it is unknown, or shares no memory."""
        member = self._member(peer)
        return b"" if member is None else member.host

    def neighbors(
        self, round: int | None = None, members: Sequence[PeerId] | None = None
    ) -> tuple[PeerId, ...]:
        """Return this peer's neighbors in the topology, to which it may push.

        Args:
            round: Round of the topology; default: the number of pushes and of rounds passed over.
            members: Sorted ids that the topology spans; default: the live peers.
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
        """Return this peer's row of the topology's mixing matrix, by peer, itself included.

        Without a matrix, this peer and its neighbors have equal weights.
        """
        neighbors = self._state.neighbors
        members = self.table.takers() if members is None else members
        rows: Callable[..., Mapping[PeerId, float]] | None = getattr(neighbors, "weights", None)
        if rows is not None:
            return rows(members, self.me, round)
        those = sorted({self.me, *neighbors(members, self.me, round)})
        return dict.fromkeys(those, 1 / len(those))

    def fate(self, peer: PeerId, incarnation: Incarnation) -> str:
        """Return what became of an incarnation: leaving, left, died, restarted, or ``""``."""
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
        """Return True if a peer, possibly this one, still takes optimizer steps."""
        member = self._member(peer)
        return member is not None and member.phase < Phase.FINISHED

    def _member(self, peer: PeerId) -> Member | None:
        return self.table.me if peer == self.me else self.table.member(peer)

    def last_words(self, peer: PeerId) -> tuple[int | None, str]:
        """Return, by a peer's own account, the steps after which it finished, or None, and why its
        rule could not continue."""
        table = self.table
        known = table.known.get(peer) if isinstance(table, MemberTable) else None
        return (None, "") if known is None else (known.steps_at_end, known.reason)

    def is_leaving(self, peer: PeerId) -> bool:
        """Return True if a peer is about to leave, or has left."""
        member = self.table.member(peer)
        return member is not None and member.phase >= Phase.LEAVING

    def can_push(self, peer: PeerId, *, lent: bool = False, awaited: bool = False) -> bool:
        """Return True if there is credit toward *peer*, and it is expected to be reachable.

        Args:
            lent: True if it will read this peer's memory, which takes no credit.
            awaited: True if the peer waits for this share, so that no copy for a newcomer nor the
                end of a round of merging holds it up.
        """
        busy = any([peer in self._shard_states[shard].outbox.transfers for shard in self.shards])
        free = not busy and (not self._state.is_full if lent else self._has_credit(awaited))
        return free and bool(self.table.reachable([peer], self.now))

    def outstanding(self) -> Set[PeerId]:
        """Return the peers toward which a push is not settled yet."""
        return set().union(*[each.outbox.transfers for each in self._state.busy_shards])

    def draw(
        self,
        among: Sequence[PeerId] | None = None,
        shards: Sequence[int] | None = None,
        *,
        urgent: bool = False,
    ) -> PeerId | None:
        """Return a random peer that a share can be pushed to now, or None.

        Peers with unresolved escrow are skipped.

        Args:
            among: Peers to choose from; default: the neighbors of this round.
            shards: Shards to push; default: those to be pushed next.
            urgent: True to ignore credit: this peer is about to leave, or completes a push.
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
            weight: How much to accept, at most what `acceptable` allows; default: all of it.

        Raises:
            LocalProtocolError: The share carries several registers, and is not a copy.
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
        state.log.emit(Mix(share.id, mixing_fraction(own, accepted), form))
        self._changed(X, share.id.shard)
        self._accepted(transfer, accepted)

    def _acceptable(self, sender: PeerId, own: int, offered: int) -> int:
        table = self.table
        if self._state.requirements.whole:
            return offered
        if offered <= own or not self.is_leaving(sender):
            return acceptable(own, offered)
        # A leaver may hand on more weight than all that is held here, and has no time to retry.
        founders_max = max(FOUNDERS_MAX, len(table.clock.rows()))
        return acceptable(own, offered, founders_max, outweighs=True)

    def accept(self, share: Share) -> None:
        """Accept a share's whole weight; its values were used by `combine`, or are not needed."""
        transfer = self._transfers.pop(share.id, None) or _not_there(share)
        self._state.log.emit(Drop(share.id))
        self._accepted(transfer, transfer.offer.escrow)

    def refuse(self, share: Share, reason: str) -> None:
        """Send a share back to its sender."""
        transfer = self._transfers.pop(share.id, None) or _not_there(share)
        self._shard_states[share.id.shard].inbox.decide(transfer, 0, reason)

    def measure(self, *shares: Share) -> None:
        """Request the distance of shares from ``x`` (`Requirements.measures`).

        The rule is called again before the next optimizer step, and `distance` returns the answer.
        """
        self._state.measuring += [share.id for share in shares]

    def distance(self, share: Share) -> float | None:
        """Return the Euclidean distance of a share's first register from its shard of ``x``; None
        if it was not measured, or ``x`` has changed since."""
        distances = self._state.distances
        return None if distances is None else distances.get(share.id)

    def combine(self, register: str, terms: Iterable[tuple[float, Term]]) -> None:
        """Set ``register = sum of coefficient * term``.

        Args:
            terms: Coefficients, and registers or shares. A share with several registers stands for
                its first; `Share.part` returns the others. `Kept.as_sent` is the snapshot as its
                receivers read it. Without terms, the register is set to zeros.
        """
        resolved = tuple((c, t.id if isinstance(t, Share) else t) for c, t in terms)
        self._state.log.emit(Combine(register, resolved))
        self._changed(register)

    def keep(
        self, register: str, peers: Sequence[PeerId], *, bare: bool = False, whole: bool = False
    ) -> Kept:
        """Keep a snapshot of a register until `let_go`: each push of it carries the same bytes.

        Args:
            bare: True to encode the numbers on their own (`Requirements.bare`).
            whole: As for `push`, which accepts the returned value in place of a register.
        """
        forms = {Form(NATIVE if whole else self.config.wire, bare=True)}
        if not bare:
            given = {"copy": False, "anchor": False, "whole": whole or self.merging}
            forms = {form_of(self._state, peer, **given) for peer in peers}
        form = forms.pop() if len(forms) == 1 else _PLAIN
        shown = any([self._state.shares_memory(peer) for peer in peers])
        state = self._state
        snapshot = state.snapshots = state.snapshots + 1
        state.log.emit(Snapshot(snapshot, register, form, shown=shown))
        state.snapshot_refs.add(snapshot)
        state.kept.add(snapshot)
        return Kept(snapshot, form)

    def let_go(self, kept: Kept) -> None:
        """Release a kept snapshot once no share reads it."""
        state, snapshot = self._state, kept.as_sent
        if snapshot not in state.kept:
            raise LocalProtocolError(f"snapshot {snapshot} is not kept")
        state.kept.remove(snapshot)
        state.snapshot_refs.remove(snapshot)

    def exchange(self, segment: str, *, taken: float, given: float, register: str = X) -> None:
        """Exchange a register with a segment of this machine, see `Exchange`."""
        log = self._state.log
        log.emit(Exchange(register, segment, taken, given, log.swarm))
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
        """Push a register, with weight, to a peer.

        Args:
            peer: Receiver; `can_push` must hold for it.
            weight: Weight to move into escrow now, at least 1. Rules without weights send a
                `token`, which comes back if the share is refused.
            register: Content. Several registers travel as the parts of one share (see
                `Share.part`), up to `Requirements.share_registers`: put the model first, since only
                the first is encoded as its difference from the anchor. A kept snapshot is sent as
                it was taken.
            anchor: True to send the anchor as well, for a newcomer that needs it.
            whole: True if all numbers must arrive unchanged, whatever format this peer uses.
            epoch, note: Numbers for the rule's own use.
            round: Round of the share; default: the number of pushes.

        Raises:
            LocalProtocolError: *weight* is 0, or more than is held; an escrow is open toward
                *peer*; there are more registers than the rule declares, or none.
        """
        state, shard_state = self._state, self._shard_states[shard]
        held = shard_state.log.account.weight
        if not 1 <= weight <= held or peer in shard_state.outbox.transfers:
            told = f"{in_units(weight)} of {in_units(held)}"
            raise LocalProtocolError(f"cannot push {told} units to {peer}")
        form = _PLAIN
        if copy or state.config.wire != NATIVE:
            form = form_of(state, peer, copy=copy, anchor=anchor, whole=whole or self.merging)
        if isinstance(register, Kept):
            form = register.form
        elif not isinstance(register, str):
            most = state.requirements.share_registers
            if not 1 <= len(register) <= most:
                raise LocalProtocolError(
                    f"cannot push {len(register)} registers in one share: the rule's "
                    f"requirements.share_registers is {most}"
                )
            form = form._replace(registers=len(register))
            register = register[0] if len(register) == 1 else tuple(register)
        send_share(
            *(state, shard, peer, self.now, self._fresh, register, form),
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
        """Report that a push that was due is skipped; by default, why no peer was drawn."""
        state = self._state
        if not reason:
            reason = "no neighbor free"
            if state.lacks_memory or state.copies:
                reason = NO_MEMORY if state.lacks_memory else "a copy is given"
        state.log.emit(PushSkipped(reason))

    def may_close(self, yes: bool | None) -> None:
        """Set, while merging, whether this peer has nothing to push (True) or must first complete
        something (False); if None, the number of its pushes decides."""
        self._state.may_close = yes

    def push_half(self) -> None:
        """Push half of the weight to a random neighbor, or report why that is not possible."""
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
        peer = self.draw()
        # Else a schedule of single links would stall at one without a reachable neighbor.
        for _ in range(ROUNDS_PASSED_MAX):
            if peer is not None or not self._has_credit():
                break
            self._state.passed += 1
            peer = self.draw()
        if peer is None:
            self.skip()
        elif len(self._shard_states) == 1:
            self.push(peer, weights[0])
        else:
            self.push_shards(peer, weights)
            self.next_shards()

    def _has_credit(self, awaited: bool = False) -> bool:
        state = self._state
        if (state.copies or state.rests) and not awaited:
            return False
        if (state.is_bounded or state.is_full) and state.lacks_memory:
            return False
        # The limit is in pushes, each of which has several shares if there are shards.
        used = 0
        for shard_state in state.busy_shards:
            for transfer in shard_state.outbox.transfers.values():
                used += transfer.uses_credit
        return used < state.outstanding_max * len(self._chosen or self.shards)

    def _changed(self, register: str, shard: int | None = None) -> None:
        for key in [*self._fresh]:
            if register == key[0] or (type(key[0]) is tuple and register in key[0]):
                del self._fresh[key]
        distances = self._state.distances
        if distances and register == X:
            kept = () if shard is None else distances.items()
            self._state.distances = {share: far for share, far in kept if share.shard != shard}

    def _accepted(self, transfer: IncomingTransfer, weight: int) -> None:
        id, state = transfer.id, self._state
        state.rooted = True
        self._shard_states[id.shard].inbox.decide(transfer, weight)
        behind = state.table.step - transfer.offer.step
        state.log.emit(ShareMixed(id.sender, weight, behind if behind > 0 else 0))


def _not_there(share: Share) -> NoReturn:
    raise LocalProtocolError(f"{share.id} is not among this call's shares")
