"""Effects that the protocol has requested so far, in the order in which they must happen."""

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

    Weight changes only through `record`, so that the account and the ledger on disk cannot diverge,
    and every entry precedes the messages that follow from it.
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
        """Requested effects that the driver has not taken yet. The logs of all shards share this
        list; the caller that takes it clears it."""
        self.ask: Callable[[Effect | Event], None] = self.effects.append

    def beside(self, account: Account) -> "EffectLog":
        """Return the log of another shard of the same peer; both append to one list of effects."""
        return EffectLog(account, self._schema, self.swarm, self.effects)

    def record(self, entry: Entry) -> None:
        """Apply *entry* to the account, and request that it is written to the ledger."""
        if self._shard:
            entry = replace(entry, shard=self._shard)
        self.ask(Record(self.account.apply(entry)))

    def envelope(self, peer: PeerId, incarnation: Incarnation, body: Body) -> Envelope:
        """Address *body* to one incarnation of a peer; empty and 0 if it is unknown."""
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
        """Request that a message is sent."""
        snapshot, start, size = frame or _NO_FRAME
        account = self.account
        # Inlines `envelope` with positional arguments, since every message passes here.
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
