"""Looks on at an in-process swarm: where all weight is, what happened, its digest."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import torch
from torch import Tensor

from ...gossip import Account, Audit, Protocol, audit
from ...gossip.effects.effects import Effect, EndTraining, Halt, Record
from ...gossip.effects.events import Event
from ...gossip.types import Incarnation, PeerId, frozen
from ...gossip.weight import in_units
from ...gossip.wire.codec import Buffer
from ..kernel.clock import Clock

__all__ = [
    *("Fault", "Happening", "LinkCut", "LinkHealed", "PeerClosed", "PeerCrashed", "PeerFailed"),
    *("PeerPaused", "PeerSlowed", "PeerStarted", "SwarmObserver"),
]


@frozen
class PeerStarted:
    """A life of this peer began."""

    incarnation: Incarnation


@frozen
class PeerCrashed:
    """Its process ended without a word, and its weight with it."""


@frozen
class PeerPaused:
    """Its process stood still."""

    duration_s: float


@frozen
class PeerSlowed:
    """Its steps took so many times as long from then on."""

    factor: float


@frozen
class LinkCut:
    """What it sent to another peer got lost from then on."""

    to: PeerId


@frozen
class LinkHealed:
    """What it sent to another peer arrived again."""

    to: PeerId


@frozen
class PeerFailed:
    """It could not go on: its loss was not finite, its rule gave up, or nobody took its weight."""

    reason: str


@frozen
class PeerClosed:
    """Its process ended in good order: nobody needed it any more."""


Fault = (
    PeerStarted
    | PeerCrashed
    | PeerPaused
    | PeerSlowed
    | LinkCut
    | LinkHealed
    | PeerFailed
    | PeerClosed
)


class Happening(NamedTuple):
    """One line of what is told."""

    time_s: float
    """Virtual time, in seconds."""
    peer: PeerId
    """Who saw it, or to whom it was done."""
    event: Event | EndTraining | Halt | Fault

    def __str__(self) -> str:
        return f"{self.time_s:10.3f} s  {self.peer}  {self.event}"


_Life = tuple[PeerId, Incarnation]

_DIGEST_BYTES = 16


class SwarmObserver:
    """Keeps the ledger of every life, and holds them against one another after each event."""

    def __init__(self, clock: Clock) -> None:
        self.events: list[Happening] = []
        """In the order in which they happened."""
        self._clock = clock
        self._ledgers: dict[tuple[_Life, int], Account] = {}
        self._dead: set[_Life] = set()
        self._hash = blake2b(digest_size=_DIGEST_BYTES)

    def opened(self, accounts: Iterable[Account]) -> None:
        """Note that a life began, with an account for each shard."""
        for account in accounts:
            self._ledgers[account.life, account.shard] = Account(*account.life, account.shard)

    def died(self, life: tuple[PeerId, Incarnation]) -> None:
        """Note that a life ended without handing its weight on."""
        self._dead.add(life)

    def note(self, peer: PeerId, event: Event | EndTraining | Halt | Fault) -> None:
        """Tell of something."""
        happening = Happening(self._clock.now, peer, event)
        self.events.append(happening)
        self._hash.update(f"{happening}\n".encode())

    def sent(self, header: Buffer) -> None:
        """Take a message into the digest: its header has the checksum of the frame beside it."""
        self._hash.update(header)

    def decided(self, protocol: Protocol, what: str, effects: Iterable[Effect | Event]) -> None:
        """Look at what a protocol made of an event, before anything of it is carried out.

        Raises:
            AssertionError: Weight was lost or created (invariant I1).
        """
        life = protocol.account.life
        self._hash.update(f"{self._clock.now!r} {life} {what}\n".encode())
        changed: set[int] = set()
        for effect in effects:
            if isinstance(effect, Record):
                changed.add(effect.entry.shard)
                self._ledgers[life, effect.entry.shard].apply(effect.entry)
                self._hash.update(f"{effect.entry}\n".encode())
        for shard in sorted(changed):
            self._check(protocol.accounts[shard], what)

    def audit(self) -> Audit:
        """Count all weight, by the ledgers."""
        return audit(self._ledgers.values(), self._dead)

    def digest(self, vectors: Iterable[Tensor]) -> str:
        """Name everything so far, and the values that it led to, by 32 hexadecimal digits."""
        whole = self._hash.copy()
        for vector in vectors:
            whole.update(vector.detach().cpu().view(torch.uint8).numpy().data)
        return whole.hexdigest()

    def _check(self, account: Account, what: str) -> None:
        ledger = self._ledgers[account.life, account.shard]
        if ledger != account:
            raise AssertionError(
                f"at {self._clock.now:g} s, {what} of {account.id}: it holds "
                f"{in_units(account.weight)} units of shard {account.shard}, and its ledger says "
                f"{in_units(ledger.weight)} "
                "(invariant I1)"
            )
        shard = [ledger for (_, k), ledger in self._ledgers.items() if k == account.shard]
        total = audit(shard, self._dead)
        if not total.balanced:
            raise AssertionError(
                f"at {self._clock.now:g} s, {what} of {account.id}: weight of shard "
                f"{account.shard} is not conserved (invariant I1): {total}"
            )
