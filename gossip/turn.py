"""One peer's turn at a step boundary: what its rule may see and do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .effects import Combine, Drop, Mix, PushSkipped, ShareId, ShareMixed, Snapshot, SnapshotId, X
from .errors import LocalProtocolError
from .inbox import Arrival
from .messages import Offer, PeerId, Push
from .outbox import Returned
from .state import State
from .weight import WEIGHT_MIN, mixing_fraction

__all__ = ["Share", "Turn"]

ROUNDS_PASSED_MAX = 64
"""Rounds of the topology that one push may pass over: more than the longest schedule in use has."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share that has come whole and waits for the rule's decision."""

    id: ShareId
    units: int
    epoch: int
    round: int
    note: int
    step: int
    """Optimizer steps that its sender had taken."""

    @property
    def sender(self) -> PeerId:
        """Who pushed it."""
        return self.id.sender


class Turn:
    """What a rule reads, and what it can do; each action counts at once, in the order called.

    Attributes:
        now: Seconds, on the peer's own clock.
        elapsed_s: Seconds since the turn before, 0 at the first.
        trained: Whether an optimizer step was taken since the turn before.
        merging: Whether all peers have finished, and only agreement is left to reach.
        returned: Pushes that came back whole since the turn before.
    """

    def __init__(self, state: State, now: float, *, trained: bool, merging: bool) -> None:
        self._state = state
        self.now = now
        self.elapsed_s = 0.0 if state.turned_s is None else now - state.turned_s
        self.trained = trained
        self.merging = merging
        self.returned: tuple[Returned, ...] = state.outbox.take_returned()
        self._arrivals = {arrival.id: arrival for arrival in state.inbox.ready()}
        # Pushes of a register that has not changed in between share one snapshot.
        self._fresh: dict[tuple[str, bool], SnapshotId] = {}
        state.turned_s = now

    @property
    def rng(self) -> np.random.Generator:
        """The rule's own random stream."""
        return self._state.rng

    @property
    def step(self) -> int:
        """Optimizer steps taken so far."""
        return self._state.roster.me.step

    @property
    def round(self) -> int:
        """Shares pushed so far."""
        return self._state.round

    @property
    def weight(self) -> int:
        """Units held now, escrow not counted."""
        return self._state.weight

    def shares(self) -> tuple[Share, ...]:
        """Shares that wait for a decision, in order of arrival; undecided ones stay."""
        return tuple(_share(arrival) for arrival in self._arrivals.values())

    def live(self) -> tuple[PeerId, ...]:
        """Live peers that take shares, this one included where it does, sorted."""
        return self._state.roster.takers()

    def neighbors(self, round: int | None = None) -> tuple[PeerId, ...]:
        """Whom the topology lets this peer push to.

        Args:
            round: Round of the topology; unless given, the count of pushes and of rounds passed
                over.
        """
        state = self._state
        round = state.round + state.passed if round is None else round
        return tuple(state.neighbors(self.live(), state.roster.me.id, round))

    def can_push(self, peer: PeerId) -> bool:
        """Whether there is credit toward *peer*, and reason to think that it can be reached."""
        state = self._state
        free = self._has_credit() and not state.outbox.is_busy(peer)
        return free and state.roster.is_reachable(peer, self.now)

    def draw(self, among: Sequence[PeerId] | None = None) -> PeerId | None:
        """A peer at random that a share can be pushed to now, None where there is none.

        One with unresolved escrow is passed over, so that a stuck peer stalls nobody.

        Args:
            among: Whom to choose from, the neighbors of this round unless given.
        """
        among = self.neighbors() if among is None else among
        open_ones = [peer for peer in among if self.can_push(peer)]
        return open_ones[int(self.rng.integers(len(open_ones)))] if open_ones else None

    def mix(self, share: Share, units: int | None = None) -> None:
        """Average a share into ``x`` by weight: ``x += w_s / (w_s + w) (x_s - x)``, ``w += w_s``.

        Args:
            share: One of `shares`.
            units: How much of it to accept, all unless given.
        """
        arrival = self._take(share)
        accepted = arrival.offer.escrow if units is None else units
        if accepted <= 0:
            self._state.inbox.decide(arrival, 0, "the rule accepted nothing of it")
            return
        fraction = mixing_fraction(self.weight, accepted)
        self._state.agenda.ask(Mix(share.id, fraction, copy=arrival.offer.copy))
        self._touch(X)
        self._accepted(arrival, accepted)

    def accept(self, share: Share) -> None:
        """Take a share's whole weight, its values having been used by `combine` or of no use."""
        arrival = self._take(share)
        self._state.agenda.ask(Drop(share.id))
        self._accepted(arrival, arrival.offer.escrow)

    def refuse(self, share: Share, reason: str) -> None:
        """Send a share back."""
        self._state.inbox.decide(self._take(share), 0, reason)

    def combine(self, register: str, terms: Iterable[tuple[float, str | Share]]) -> None:
        """Set ``register = sum of coefficient * term``; terms are registers and shares."""
        resolved = tuple((c, t.id if isinstance(t, Share) else t) for c, t in terms)
        self._state.agenda.ask(Combine(register, resolved))
        self._touch(register)

    def push(
        self,
        peer: PeerId,
        units: int,
        *,
        register: str = X,
        copy: bool = False,
        epoch: int = 0,
        round: int | None = None,
        note: int = 0,
    ) -> None:
        """Push a register and so many units of weight toward a peer.

        Args:
            peer: To whom; `can_push` must hold for it.
            units: Weight that goes with it, moved into escrow now, at least 1. A rule without
                weights sends 1: whether that comes back is how a refused share is told from an
                accepted one.
            register: What to send.
            copy: Whether local buffers go along, for a newcomer.
            epoch: The rule's own count of memberships.
            round: The rule's own count of rounds; the count of pushes unless given.
            note: A number for the rule's own use.

        Raises:
            LocalProtocolError: No units, more than are held, or an escrow is open there.
        """
        state = self._state
        if not 1 <= units <= self.weight or state.outbox.is_busy(peer):
            raise LocalProtocolError(f"cannot push {units} of {self.weight} units to {peer}")
        size = state.schema.copy_bytes if copy else state.schema.share_bytes
        make = Push if size <= state.config.inline_bytes_max else Offer
        offer = make(
            seq=state.outbox.next_seq(peer),
            escrow=units,
            size_bytes=size,
            copy=copy,
            epoch=epoch,
            round=self.round if round is None else round,
            note=note,
            step=self.step,
        )
        snapshot = self._snapshot(register, copy)
        state.outbox.push(peer, state.roster.incarnation(peer), offer, snapshot, self.now)
        state.round += 1

    def push_half(self) -> None:
        """Push half of the weight to a random neighbor, or note why that cannot be.

        A round in which the topology gives this peer nobody, or nobody who can be reached, is
        passed over, so that a schedule of single links does not stall at one of them.
        """
        if self.weight < WEIGHT_MIN:
            self._state.agenda.ask(PushSkipped("too little weight"))
            return
        peer = self.draw()
        for _ in range(ROUNDS_PASSED_MAX):
            if peer is not None or not self._has_credit():
                break
            self._state.passed += 1
            peer = self.draw()
        if peer is None:
            self._state.agenda.ask(PushSkipped("no neighbor free"))
        else:
            self.push(peer, self.weight // 2)

    def _has_credit(self) -> bool:
        return self._state.outbox.in_flight() < self._state.outstanding_max

    def _snapshot(self, register: str, copy: bool) -> SnapshotId:
        if (register, copy) not in self._fresh:
            self._state.snapshots += 1
            self._fresh[register, copy] = self._state.snapshots
            self._state.agenda.ask(Snapshot(self._state.snapshots, register, copy))
        return self._fresh[register, copy]

    def _touch(self, register: str) -> None:
        for copy in (False, True):
            self._fresh.pop((register, copy), None)

    def _take(self, share: Share) -> Arrival:
        arrival = self._arrivals.pop(share.id, None)
        if arrival is None:
            raise LocalProtocolError(f"{share.id} is not among this turn's shares")
        return arrival

    def _accepted(self, arrival: Arrival, units: int) -> None:
        self._state.rooted = True
        self._state.inbox.decide(arrival, units)
        behind = self.step - arrival.offer.step
        self._state.agenda.ask(ShareMixed(arrival.id.sender, units, behind))


def _share(arrival: Arrival) -> Share:
    offer = arrival.offer
    return Share(arrival.id, offer.escrow, offer.epoch, offer.round, offer.note, offer.step)
