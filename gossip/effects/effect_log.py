"""What the protocol has asked for so far, in the order in which it must happen."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ..types import Incarnation, PeerId, SnapshotId
from ..wire.messages import Body, Envelope
from .effects import Effect, Record, Send
from .events import Event
from .ledger import Account, Entry

__all__ = ["EffectLog"]


_NO_FRAME: Final = None, 0, 0


class EffectLog:
    """Collects effects until the driver takes them.

    Weight only changes through `record`, so that the account and the ledger on disk cannot
    drift apart, and every entry stands before the messages that follow from it.
    """

    def __init__(
        self,
        account: Account,
        schema: bytes,
        swarm: bytes,
        effects: list[Effect | Event] | None = None,
    ) -> None:
        self.account = account
        self.swarm = swarm
        self._schema = schema
        self._shard = account.shard
        self.effects: list[Effect | Event] = [] if effects is None else effects
        """What was asked for and not taken yet. The logs of all shards share one list; who takes it
        clears it."""
        self.ask: Callable[[Effect | Event], None] = self.effects.append

    def beside(self, account: Account) -> "EffectLog":
        """The log of another shard of the same peer; both append to one list of effects."""
        return EffectLog(account, self._schema, self.swarm, self.effects)

    def record(self, entry: Entry) -> None:
        """Change the account, and ask for the change to be written down."""
        if self._shard:
            entry = replace(entry, shard=self._shard)
        self.ask(Record(self.account.apply(entry)))

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
        """Ask for a message to be sent."""
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
