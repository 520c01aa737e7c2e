"""What the protocol has asked for so far, in the order in which it must happen."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from ..types import Incarnation, PeerId, SnapshotId
from ..wire.messages import Body, Envelope
from .effects import Effect, Record, Send
from .events import Event
from .ledger import Account, Entry

__all__ = ["EffectLog", "Witness"]


_NO_FRAME: Final = None, 0, 0


class Witness(Protocol):
    """What signs for weight that moves, where a swarm has receipts."""

    def decided(self, peer: PeerId, incarnation: Incarnation, escrow: int, accepted: int) -> None:
        """So much of a sender's whole share, or of one that was not, was accepted."""

    def sending(self, peer: PeerId, incarnation: Incarnation, body: Body) -> None:
        """A message is about to be sent."""

    def promise(self, peer: PeerId, incarnation: Incarnation, escrow: int) -> None:
        """A share is sent, all of it, so that its receiver may accept it."""

    def settles(self, peer: PeerId, incarnation: Incarnation, returned: int) -> bool:
        """Whether the receiver of a share has signed that so much of it is returned."""


class EffectLog:
    """Collects effects until the driver takes them.

    Weight only changes through `record`, so that the account and the ledger on disk cannot
    drift apart, and every entry stands before the messages that follow from it.

    Args:
        account: The peer's own account, of one shard.
        schema: Hash of its model's schema.
        swarm: Hash of its swarm's anchor, empty while it is not known.
    """

    def __init__(self, account: Account, schema: bytes, swarm: bytes) -> None:
        self.account = account
        self.swarm = swarm
        self._schema = schema
        self._shard = account.shard
        self.witness: Witness | None = None
        """What signs for weight; None in a swarm without receipts."""
        self._append_to([])

    def _append_to(self, effects: list[Effect | Event]) -> None:
        self.effects = effects
        """What was asked for and not taken yet. The logs of all shards share one list; who takes it
        clears it."""
        self.ask: Callable[[Effect | Event], None] = effects.append
        """Adds an effect."""

    def beside(self, account: Account) -> "EffectLog":
        """The log of another shard of the same peer; both append to one list of effects."""
        other = EffectLog(account, self._schema, self.swarm)
        other._append_to(self.effects)
        return other

    def record(self, entry: Entry) -> None:
        """Change the account, and ask for the change to be written down."""
        if self._shard:
            entry = replace(entry, shard=self._shard)
        self.ask(Record(self.account.apply(entry)))

    def promise(self, peer: PeerId, incarnation: Incarnation, escrow: int) -> bool:
        """Sign for a share where a swarm has receipts, and returns whether that was done."""
        if self.witness is None or not escrow:
            return False
        self.witness.promise(peer, incarnation, escrow)
        return True

    def settles(self, peer: PeerId, incarnation: Incarnation, returned: int) -> bool:
        """Whether so much of a share may be taken back: see `Witness.settles`."""
        return self.witness is None or self.witness.settles(peer, incarnation, returned)

    def envelope(self, peer: PeerId, incarnation: Incarnation, body: Body) -> Envelope:
        """Address *body* to one incarnation of a peer; empty and 0 where it is not known."""
        return Envelope(
            swarm=self.swarm,
            schema=self._schema,
            source=self.account.id,
            source_incarnation=self.account.incarnation,
            destination=peer,
            destination_incarnation=incarnation,
            body=body,
            shard=self._shard,
        )

    def send(
        self,
        peer: PeerId,
        incarnation: Incarnation,
        body: Body,
        *,
        frame: tuple[SnapshotId, int, int] | None = None,
        shown: bool = False,
    ) -> None:
        """Ask for a message to be sent.

        Args:
            peer: To whom.
            incarnation: To which incarnation of it.
            body: What it says.
            frame: Snapshot, start and length in bytes of the frame beside it, if there is one.
            shown: Whether the snapshot's place in shared memory is to be named.
        """
        if self.witness is not None:
            self.witness.sending(peer, incarnation, body)
        snapshot, start, size = frame or _NO_FRAME
        account = self.account
        # As `envelope` does, but without names: every message comes by here.
        envelope = Envelope(
            self.swarm,
            self._schema,
            account.id,
            account.incarnation,
            peer,
            incarnation,
            body,
            size,
            self._shard,
        )
        self.ask(Send(envelope, snapshot, start, shown))
